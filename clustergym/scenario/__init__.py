"""Scenarios: everything a run depends on besides its policy, placer and seed.

What a policy sees and answers.
"""
