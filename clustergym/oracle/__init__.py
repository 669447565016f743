"""How fast a model trains on an allocation."""
