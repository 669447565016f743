"""The grid oracle: iteration times of the best adaptive-parallelism plan."""
