"""Pages and pictures of results."""
