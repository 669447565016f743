"""Lower bounds that hold for every schedule of a scenario, and certificates that prove them."""
