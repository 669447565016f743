"""Pure data parallelism: step times from a profile and two constants; its memory against measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError
from clustergym.oracle.catalog import ARENA_FAMILIES, Catalog, load_catalog
from clustergym.oracle.memory import MICRO_BATCHES, Plan, sample_bytes, state_bytes
from clustergym.oracle.work import Work
from clustergym.workload.fields import integers, numbers
from clustergym.workload.files import Table, read_csv
from clustergym.workload.trace import ModelClass

Floats = npt.NDArray[np.float64]

OVERLAP = 2.0
"""Exponent of the norm that joins computation and synchronisation: 1 adds them up, infinity hides the
shorter. Chosen on the placements of all of Sia's profiles together."""

LOG_SCALE = 0.05
"""Residuals well above 5 % count linearly, not squared."""


class Steps(NamedTuple):
    """Measured training steps, shape (n,) each.

    Attributes
    ----------
    nodes, gpus : ndarray of float
        Nodes and GPUs of the placement.
    local_batch : ndarray of float
        Samples a GPU.
    step_s : ndarray of float
        Seconds a step.
    sync_s : ndarray of float
        Seconds a step waited for gradients, as the profile recorded it.
    """

    nodes: Floats
    gpus: Floats
    local_batch: Floats
    step_s: Floats
    sync_s: Floats

    def where(self, keep: npt.NDArray[np.bool_]) -> Steps:
        """Return the steps that a mask keeps."""
        return Steps(*(column[keep] for column in self))


@dataclass(frozen=True)
class StepTimes:
    """Step times of a data-parallel model on one GPU type.

    A step takes (compute^p + synchronisation^p)^(1/p): gradients travel while the backward pass
    still runs, so that part of the shorter is hidden (Sia, SOSP '23, and Pollux before it, join them in
    this way; here p is fixed). Synchronisation is a ring all-reduce inside nodes and another across
    them, each 2 (n - 1) / n times the gradients.

    Attributes
    ----------
    local_batch, compute_s : ndarray of float, shape (m,)
        The profile on few GPUs; batches ascending.
    intra_s, inter_s : float
        Seconds to move the gradients once inside a node and once between nodes: their bytes
        over the bandwidth reached.
    """

    local_batch: Floats
    compute_s: Floats
    intra_s: float
    inter_s: float

    def compute(self, local_batch: Floats) -> Floats:
        """Return seconds of computation, interpolated; beyond the greatest batch, with the last slope."""
        known, seconds = self.local_batch, self.compute_s
        inside = np.interp(local_batch, known, seconds)
        if len(known) == 1:
            return np.asarray(inside * np.maximum(local_batch / known[0], 1.0))
        slope = max((seconds[-1] - seconds[-2]) / (known[-1] - known[-2]), 0.0)
        return np.asarray(inside + slope * np.maximum(local_batch - known[-1], 0.0))

    def step_s(self, nodes: Floats, gpus: Floats, local_batch: Floats) -> Floats:
        """Return seconds a step; arguments broadcast."""
        per_node = np.maximum(gpus / nodes, 1.0)
        ring = self.intra_s * 2 * (per_node - 1) / per_node + self.inter_s * 2 * (nodes - 1) / nodes
        return np.asarray((self.compute(local_batch) ** OVERLAP + ring**OVERLAP) ** (1 / OVERLAP))


def fit_step_times(steps: Steps) -> StepTimes:
    """Fit the two constants to measured placements.

    The profile of computation is the batches of the rows on the fewest GPUs, each with its
    shortest step on at most twice as many: a lone GPU is slower than two with the same local
    batch in some profiles. The rows on more GPUs, in log error and robustly, settle the
    constants. One that no row depends on is 0.

    Raises
    ------
    InputError
        If there are no steps.
    """
    if not len(steps.step_s):
        raise InputError("no steps to fit", remedy="give measured placements")
    base = steps.gpus == steps.gpus.min()
    batches = np.unique(steps.local_batch[base])
    few = steps.gpus <= 2 * steps.gpus.min()
    seconds = [float(steps.step_s[few & (steps.local_batch == batch)].min()) for batch in batches]
    compute = StepTimes(batches, np.array(seconds), 0.0, 0.0)
    rest = steps.where(~base)
    free = np.array([(rest.gpus > rest.nodes).any(), (rest.nodes > 1).any()])
    if not free.any():
        return compute
    intra, inter = _least_squares(compute, rest, free)
    return StepTimes(batches, np.array(seconds), intra, inter)


def _least_squares(compute: StepTimes, steps: Steps, free: npt.NDArray[np.bool_]) -> tuple[float, float]:
    from scipy.optimize import least_squares

    scale = float(np.median(compute.compute_s))
    target = np.log(steps.step_s)

    def constants(x: Floats) -> tuple[float, float]:
        values = iter(np.exp(x).tolist())
        return (next(values) if free[0] else 0.0), (next(values) if free[1] else 0.0)

    def residuals(x: Floats) -> Floats:
        model = StepTimes(compute.local_batch, compute.compute_s, *constants(x))
        return np.asarray(np.log(model.step_s(steps.nodes, steps.gpus, steps.local_batch)) - target)

    start = np.full(int(free.sum()), np.log(0.3 * scale))
    bounds = (np.log(1e-5 * scale), np.log(100 * scale))
    found = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=LOG_SCALE)
    return constants(found.x)


MEMORY_COLUMNS = ("model_family", "params", "batch_size", "dp_degree", "memory_gb")
"""Columns of measured memory; `recorded` may say 0 where a row has no value."""


def data_parallel_bytes(work: Work, ranks: Floats) -> Floats:
    """Return bytes on a GPU of data parallelism over `ranks`, with the micro-batches Arena ran."""
    plan = Plan(1, 1, ranks)
    samples = np.ceil(np.ceil(work.global_batch / ranks) / MICRO_BATCHES)
    return state_bytes(work, plan) + samples * sample_bytes(work, plan)


def validate_memory(path: str | Path, catalog: Catalog | None = None) -> dict[str, dict[str, float]]:
    """Return errors of data-parallel memory against a measured table (arena_dp_memory.csv's columns).

    Returns
    -------
    dict
        By model family, and `all`: `rows`, `median` and `mean` absolute percentage error.

    Raises
    ------
    InputError
        Names file, line and column.
    """
    table = _recorded(read_csv(Path(path), MEMORY_COLUMNS))
    known = catalog or load_catalog()
    batches = integers(table, "batch_size", low=1)
    ranks = integers(table, "dp_degree", low=1).astype(np.float64)
    measured_gb = numbers(table, "memory_gb", low=1e-6)
    families = table.columns["model_family"]
    classes = [
        ModelClass(ARENA_FAMILIES.get(family, family), size, 1)
        for family, size in zip(families, table.columns["params"], strict=True)
    ]
    specs = [
        known.get(model, file=table.path, line=line, field="model_family")
        for model, line in zip(classes, table.line, strict=True)
    ]
    predicted = data_parallel_bytes(Work.of(specs, batches.tolist()), ranks) / 1e9
    errors = 100 * np.abs(predicted / measured_gb - 1)
    groups = {name: np.array(families) == name for name in sorted(set(families))}
    groups["all"] = np.ones(len(errors), dtype=bool)
    return {
        name: {
            "rows": int(here.sum()),
            "median": float(np.median(errors[here])),
            "mean": float(errors[here].mean()),
        }
        for name, here in groups.items()
    }


def _recorded(table: Table) -> Table:
    recorded = integers(table, "recorded", low=0, high=1, default=1)
    rows = np.flatnonzero(recorded).tolist()
    if not rows:
        raise InputError("no row has a value", file=table.path, field="recorded", remedy="give measured rows")
    return table.select(rows)
