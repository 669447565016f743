"""Clusters: hardware, network topology, and which job holds which GPU or part of one."""
