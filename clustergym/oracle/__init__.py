"""Oracles: predict how fast a model trains on an allocation."""
