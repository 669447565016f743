"""The benchmark of the environments."""
