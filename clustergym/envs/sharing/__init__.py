"""Placement of requests for parts of GPUs: streams of requests, the environment."""
