"""Training of agents: training scenarios, compiled episodes, search, networks, comparison."""
