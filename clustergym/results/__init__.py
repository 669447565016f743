"""Results of runs: measure, write, read and replay them."""
