"""Policies, compiled: the decisions of `clustergym.policies`, from the same state."""
