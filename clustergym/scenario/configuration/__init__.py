"""Compose configurations from YAML files and overrides with Hydra, and sweep over them."""
