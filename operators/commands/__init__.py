"""The commands `clustergym live` and `clustergym twin`."""
