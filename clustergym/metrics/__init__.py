"""Metrics, computed from logs alone."""
