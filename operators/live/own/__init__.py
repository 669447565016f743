"""A user's own sbatch scripts, which a policy starts, stops and resizes on his cluster."""
