"""Gavel's throughput table: the speeds of jobs on their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clustergym.common.errors import InputError
from clustergym.common.reading import read_json
from clustergym.trace.pair_tables import job_and_count

LARGEST_BYTES = 2**26
NAMES = {"V100": "v100", "P100": "p100", "K80": "k80"}
"""GPU types, and what the table calls them."""

Rates = Mapping[str, Mapping[tuple[str, int], float]]
"""GPU type -> (job type, workers) -> steps per second of a job on its own."""


def read_rates(path: Path) -> Rates:
    """Read the throughput table; raise an `InputError` if it is not the published layout."""
    remedy = "give simulation_throughputs.json"
    table = read_json(path, LARGEST_BYTES, remedy)
    try:
        return {
            ours: {job_and_count(key): float(pairs["null"]) for key, pairs in table[theirs].items()}
            for ours, theirs in NAMES.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"is not Gavel's throughput table: {error}"
        raise InputError(message, file=path, remedy=remedy) from None
