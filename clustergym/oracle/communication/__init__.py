"""Latency of collectives: measured tables, and an alpha-beta model where there is none."""

from clustergym.oracle.communication.collectives import Collectives
from clustergym.oracle.communication.constants import Constants, load_constants
from clustergym.oracle.communication.measured import CollectiveTable, read_collectives
from clustergym.oracle.communication.primitives import Primitive

__all__ = [
    "CollectiveTable",
    "Collectives",
    "Constants",
    "Primitive",
    "load_constants",
    "read_collectives",
]
