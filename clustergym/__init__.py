"""Simulator and benchmark of schedulers for clusters that train large models."""

__version__ = "0.1.0"
