"""Output of long work on the terminal: progress, tables, and worker processes."""
