"""Placement algorithms: from GPU counts to nodes."""
