"""The simulation: engine, costs, log."""
