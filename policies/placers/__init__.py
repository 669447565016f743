"""Placers: which nodes get the GPUs that a policy gives a job."""
