"""Fitting the constants of software stacks to measurements, and how far they err."""
