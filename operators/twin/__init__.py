"""A twin of one's own cluster: its log replayed by its own rules, and by others."""
