"""The schedulers of Kueue, KAI and Slurm as policies, and readers of their rules."""
