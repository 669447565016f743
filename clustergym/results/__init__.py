"""A finished run: measured, written to a folder, read back, and replayed."""
