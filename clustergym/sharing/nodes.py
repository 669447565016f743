"""Nodes whose GPUs can be divided, and requests for parts of them (`clustergym.cluster.parts`)."""

from clustergym.cluster.parts import CLASSES, WHOLE, Nodes, Requests, distinct, empty_nodes, models_of

__all__ = ["CLASSES", "WHOLE", "Nodes", "Requests", "distinct", "empty_nodes", "models_of"]
