"""Fitting the constants of the grid oracle to measurements, and how far it errs."""
