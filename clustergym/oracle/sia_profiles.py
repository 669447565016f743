"""Sia's published profiles (SOSP '23): reading them, and predicting large placements from small ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError
from clustergym.oracle.data_parallel import Steps, StepTimes, fit_step_times
from clustergym.workload.fields import MAX_GPUS, integers, numbers, shown
from clustergym.workload.files import Table, check_path, read_csv

Floats = npt.NDArray[np.float64]

DEFAULT_GPU = "aws"
"""What a file without a suffix was measured on."""

_PLACEMENTS = re.compile(r"placements(?:-(?P<gpu>.+))?\.csv")
_DIGITS = re.compile(r"[1-9]+", re.ASCII)
_TIMES = ("local_bsz", "step_time", "sync_time")


@dataclass(frozen=True)
class SiaProfile:
    """Steps of one model on one GPU type.

    Attributes
    ----------
    model, gpu : str
        As the folder and the file's suffix spell them.
    placements : Steps
        On small placements.
    scalability : Steps or None
        On larger ones, where there is such a file.
    """

    model: str
    gpu: str
    placements: Steps
    scalability: Steps | None


def read_sia_profiles(folder: str | Path) -> dict[tuple[str, str], SiaProfile]:
    """Read `<model>/placements[-GPU].csv` and `<model>/scalability[-GPU].csv`, columns in any order.

    Returns
    -------
    dict
        By (model, GPU suffix), sorted. A file without a suffix counts as `aws`, and is passed over
        where there is one with that suffix.

    Raises
    ------
    InputError
        Names file, line and column; if there are no profiles in the folder.
    """
    root = Path(folder)
    check_path(root)
    if not root.is_dir():
        raise InputError("is a file, not a folder", file=root, remedy="give the folder of profiles")
    found: dict[tuple[str, str], SiaProfile] = {}
    for path in sorted(root.glob("*/placements*.csv")):
        match = _PLACEMENTS.fullmatch(path.name)
        if match is None or (
            match["gpu"] is None and path.with_name(f"placements-{DEFAULT_GPU}.csv").exists()
        ):
            continue
        gpu = match["gpu"] or DEFAULT_GPU
        large = path.with_name(path.name.replace("placements", "scalability", 1))
        steps = read_scalability(large) if large.exists() else None
        found[path.parent.name, gpu] = SiaProfile(path.parent.name, gpu, read_placements(path), steps)
    if not found:
        raise InputError(
            "no <model>/placements[-GPU].csv in it", file=root, remedy="give the folder of Sia's profiles"
        )
    return dict(sorted(found.items()))


def read_placements(path: Path) -> Steps:
    """Read measured placements; the digits of `placement` are the GPUs on each node."""
    table = read_csv(path, ("placement", *_TIMES))
    cells = table.columns["placement"]
    for cell, line in zip(cells, table.line, strict=True):
        if not _DIGITS.fullmatch(cell):
            message = f"{shown(cell)} is no placement"
            remedy = "give the GPUs of each node as digits from 1 to 9"
            raise InputError(message, file=path, line=line, field="placement", remedy=remedy)
    nodes = np.array([float(len(cell)) for cell in cells])
    return _steps(table, nodes, np.array([float(sum(map(int, cell))) for cell in cells]))


def read_scalability(path: Path) -> Steps:
    """Read measured node and GPU counts."""
    table = read_csv(path, ("num_nodes", "num_replicas", *_TIMES))
    nodes = integers(table, "num_nodes", low=1, high=MAX_GPUS).astype(np.float64)
    gpus = integers(table, "num_replicas", low=1, high=MAX_GPUS).astype(np.float64)
    short = gpus < nodes
    if short.any():
        row = int(np.argmax(short))
        message = f"{gpus[row]:.0f} GPUs cannot lie on {nodes[row]:.0f} nodes"
        raise InputError(
            message, file=path, line=table.line[row], field="num_replicas", remedy="correct one of them"
        )
    return _steps(table, nodes, gpus)


def _steps(table: Table, nodes: Floats, gpus: Floats) -> Steps:
    batch = numbers(table, "local_bsz", low=1)
    step = numbers(table, "step_time", low=1e-9)
    return Steps(nodes, gpus, batch, step, numbers(table, "sync_time", low=0))


def validate_sia(folder: str | Path) -> dict[str, Any]:
    """Fit each (model, GPU) to its placements, and predict its larger placements.

    Returns
    -------
    dict
        `overall`, `unseen`, `by_model`, `by_gpu` and `by_profile` (`model GPU`), each with `rows`
        and, where there are any, `median` and `mean` absolute percentage error of scalability step
        times; `unseen` counts only rows that do not stand among the placements too (some scalability
        files repeat them). `by_profile` has the two constants as well.

    Raises
    ------
    InputError
        As `read_sia_profiles`; if no profile has a scalability file.
    """
    errors: dict[tuple[str, str], Floats] = {}
    unseen: dict[tuple[str, str], npt.NDArray[np.bool_]] = {}
    models: dict[tuple[str, str], StepTimes] = {}
    for key, profile in read_sia_profiles(folder).items():
        if profile.scalability is None:
            continue
        models[key] = fit_step_times(profile.placements)
        errors[key] = percentage_errors(models[key], profile.scalability)
        unseen[key] = _unseen(profile.scalability, profile.placements)
    if not errors:
        raise InputError("no scalability file in it", file=folder, remedy="give the folder of Sia's profiles")
    every = np.concatenate(list(errors.values()))
    return {
        "overall": _summary(every),
        "unseen": _summary(every[np.concatenate([unseen[key] for key in errors])]),
        "by_model": _grouped(errors, 0),
        "by_gpu": _grouped(errors, 1),
        "by_profile": {
            " ".join(key): _summary(values) | {"intra_s": models[key].intra_s, "inter_s": models[key].inter_s}
            for key, values in errors.items()
        },
    }


def percentage_errors(model: StepTimes, steps: Steps) -> Floats:
    """Return absolute percentage errors of predicted step times, shape (n,)."""
    predicted = model.step_s(steps.nodes, steps.gpus, steps.local_batch)
    return np.asarray(100 * np.abs(predicted / steps.step_s - 1))


def _unseen(steps: Steps, placements: Steps) -> npt.NDArray[np.bool_]:
    known = set(zip(*(column.tolist() for column in placements[:4]), strict=True))
    rows = zip(*(column.tolist() for column in steps[:4]), strict=True)
    return np.array([row not in known for row in rows], dtype=np.bool_)


def _grouped(errors: dict[tuple[str, str], Floats], part: int) -> dict[str, dict[str, float]]:
    names = sorted({key[part] for key in errors})
    return {
        name: _summary(np.concatenate([values for key, values in errors.items() if key[part] == name]))
        for name in names
    }


def _summary(errors: Floats) -> dict[str, float]:
    if not len(errors):
        return {"rows": 0}
    return {"rows": len(errors), "median": float(np.median(errors)), "mean": float(errors.mean())}
