"""The environment `ClusterGym/Capacity-16-v0`: an agent rents GPUs for a cluster, hour by hour."""
