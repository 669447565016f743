"""Hydra: composing a configuration from YAML files and overrides, and sweeps over it."""
