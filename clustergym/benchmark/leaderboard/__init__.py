"""Leaderboards whose entries anyone can check by replay: boards, entries, scores and pages."""

DECISION_LIMIT_S = 60.0
"""Wall seconds that a decision may take on a board: 30 times the longest 99th percentile of all entries."""
