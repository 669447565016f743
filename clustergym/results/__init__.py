"""Results of runs: measure, write, read, replay and draw them."""
