"""What no schedule of a scenario can beat, and certificates that prove it."""
