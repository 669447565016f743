"""The sub-commands of `python -m clustergym.oracle`, a module each."""
