"""Placement of a pre-training job over minipods: instances, spread, the environment."""
