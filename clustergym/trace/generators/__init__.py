"""Synthetic traces calibrated on published ones."""

from clustergym.trace.generators.sources import Source, load_source, source_names
from clustergym.trace.generators.synthesis import DeadlineOptions, generate

__all__ = ["DeadlineOptions", "Source", "generate", "load_source", "source_names"]
