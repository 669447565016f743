"""Scenarios: all that a run depends on but policy, placer and seed; what a policy sees and answers."""
