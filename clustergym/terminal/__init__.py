"""What a user sees of long work: progress, tables, and the processes that share it."""
