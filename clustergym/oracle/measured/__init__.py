"""Oracles that look up what was measured."""
