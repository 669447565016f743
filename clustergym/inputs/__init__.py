"""Reading what comes from outside, writing what goes out: every way to be wrong ends in one clear line."""
