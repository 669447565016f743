"""Synthetic traces calibrated on published ones."""

from clustergym.workload.generators.sources import Source, load_source, source_names
from clustergym.workload.generators.synthesis import DeadlineOptions, generate

__all__ = ["DeadlineOptions", "Source", "generate", "load_source", "source_names"]
