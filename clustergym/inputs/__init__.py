"""Reading what comes from outside: every way to be wrong ends in one clear line."""
