"""Leaderboards whose entries anyone can check: boards, entries, replays, scores and pages."""
