"""Gangs in racks that NVLink joins: their placement and moves, the environment."""
