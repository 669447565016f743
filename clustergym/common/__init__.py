"""Helpers for every package: errors of one line, reading and writing files, parameters, the terminal."""
