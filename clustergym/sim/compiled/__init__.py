"""The simulation, compiled: the engine's arithmetic on arrays, for many episodes at once."""
