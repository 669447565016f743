"""How fast the engine, the policies' decisions and the environments are."""
