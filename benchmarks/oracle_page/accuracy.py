"""Measures the figures of the accuracy page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clustergym.papers.planning import PAPER_COUNTS, join_outcomes, plan_clusters, summary

from clustergym.common.errors import InputError
from clustergym.oracle.calibration.validation import validate_memory
from clustergym.oracle.grid.grid_oracle import GridOracle
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
from clustergym.oracle.stacks.stack_oracle import StackOracle

Figures = dict[str, Any]

COUNTS = (1, 2, 4, 8, 16, 32, 64)
SOURCES = {"profile": "arena/arena_profile.csv", "memory": "arena/arena_dp_memory.csv"}
"""What is read from the folder of data."""


def measure_figures(data: Path, progress: Callable[[str], None] = lambda message: None) -> Figures:
    """Compute, from published measurements, all numbers that the page on the oracle's accuracy shows.

    Parameters
    ----------
    data : Path
        Folder with what `SOURCES` names.
    progress : callable
        Told, in words, what is being done.

    Raises
    ------
    InputError
        If something is missing or malformed.
    """
    paths = {name: data / source for name, source in SOURCES.items()}
    for path in paths.values():
        if not path.exists():
            message = "no such file or folder"
            raise InputError(message, file=path, field="--data", remedy="give the folder of published data")
    oracle = StackOracle()
    found = accuracy(paths["profile"], oracle, progress)
    progress("planning and searching")
    return {
        "accuracy": found,
        "planning": planning(oracle.operators),
        "memory": validate_memory(paths["memory"]),
        "sources": {
            SOURCES[name]: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in paths.items()
        },
    }


def accuracy(profile: Path, oracle: StackOracle, progress: Callable[[str], None]) -> Figures:
    """Return the errors of `oracle`, cross-validated and fitted to all data, and those of the roofline.

    `profile` is a CSV file of measured iteration times.
    """
    from clustergym.oracle.calibration.operator_fit import SCHEMES, cross_validate
    from clustergym.oracle.calibration.validation import validate

    return {
        **{scheme: cross_validate(profile, scheme, oracle.catalog, progress) for scheme in SCHEMES},
        "fitted": validate(profile, oracle),
        "roofline": validate(profile, RooflineOracle(oracle.catalog)),
    }


def planning(oracle: GridOracle) -> Figures:
    """Return how good searched plans and estimates of their times are on the clusters of the Arena paper."""
    found = plan_clusters(oracle, COUNTS)
    every = join_outcomes(list(found.values()))
    return {"all": summary(every), "as_measured": summary(every.where(every.gpus <= max(PAPER_COUNTS)))}
