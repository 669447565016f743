"""Hardware, topology and the accounting of who holds which GPU."""
