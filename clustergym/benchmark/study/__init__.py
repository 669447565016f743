"""A study in one file: scenarios x policies x seeds, run as a sweep, and written as a page."""
