"""Gymnasium environments; importing this package imports neither Gymnasium nor NumPy."""
