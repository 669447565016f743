"""The simulation engine, its event log and the loop that runs a policy."""
