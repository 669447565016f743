"""Gavel's throughput table: the speeds of jobs on their own."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clustergym.inputs.errors import InputError

NAMES = {"V100": "v100", "P100": "p100", "K80": "k80"}
"""GPU types, and what the table calls them."""

Rates = Mapping[str, Mapping[tuple[str, int], float]]
"""GPU type -> (job type, workers) -> steps per second of a job on its own."""


def read_rates(path: Path) -> Rates:
    """Read the throughput table; raise an `InputError` if it is not the published layout."""
    try:
        table: Any = json.loads(path.read_text(encoding="utf-8"))
        return {
            ours: {ast.literal_eval(key): float(pairs["null"]) for key, pairs in table[theirs].items()}
            for ours, theirs in NAMES.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, SyntaxError) as error:
        message = f"is not Gavel's throughput table: {error}"
        raise InputError(message, file=path, remedy="give simulation_throughputs.json") from None
