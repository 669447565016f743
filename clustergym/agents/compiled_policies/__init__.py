"""Compiled forms of `clustergym.policies`, which make the same decisions."""
