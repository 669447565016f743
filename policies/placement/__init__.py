"""Placement algorithms: which choose the nodes of a job."""
