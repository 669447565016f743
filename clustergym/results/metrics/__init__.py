"""Metrics of a run, computed from its event log alone."""
