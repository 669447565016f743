"""Public comparisons: leaderboards, papers' figures, studies, and the simulator's speed."""
