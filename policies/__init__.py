"""Scheduling policies: one file per published system."""
