"""Learned scheduling agents: features, compiled episodes, training scenarios, search, checkpoints."""
