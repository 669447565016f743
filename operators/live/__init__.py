"""Live runs: the policy of a simulation decides what a real scheduler runs."""
