"""The sub-commands of `clustergym oracle`, a module each."""
