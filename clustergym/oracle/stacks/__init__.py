"""Predict training speed of large transformers on today's machines, by software stack."""
