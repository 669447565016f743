"""The models that jobs train, with their sizes and computational costs."""
