"""Queues of tenants: their tree, and how GPUs are divided among them."""
