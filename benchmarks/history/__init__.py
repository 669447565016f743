"""Speeds over the history of the repository, which asv measures."""
