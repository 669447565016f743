"""Vector environments: many episodes of the compiled simulation, stepped together."""
