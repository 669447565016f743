"""Scenarios: everything a run depends on besides its policy, placer and seed."""
