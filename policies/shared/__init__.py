"""Pieces that several policies share."""
