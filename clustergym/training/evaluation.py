"""Policies and checkpoints, compared on the windows of a split or on trace files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval

from clustergym.common.errors import InputError, nearest, require
from clustergym.common.parameter_types import AtLeastTwo, NonNegativeInt, PositiveInt
from clustergym.common.parameters import build, checked
from clustergym.common.processes import lost_processes_told, workers
from clustergym.common.progress import counted
from clustergym.training.comparison import (
    METRICS,
    RATIOS,
    Entrant,
    common_knowledge,
    full_parameters,
    ratio,
    run_figures,
    tuned,
)
from clustergym.training.distribution import Distribution
from clustergym.training.trace_files import TraceFiles
from clustergym.training.windows import SPLITS


def evaluate(config: Mapping[str, Any], progress: bool = False) -> dict[str, Any]:
    """Run every policy on every window; return plain figures. `progress` is shown on stderr.

    Returns
    -------
    dict
        `policies`: label, parameters as chosen of each training seed, and `columns`, where `figures` has
        these seeds; `groups`: one per load, with `figures` (window x column x metric) and `ratios`
        (metric -> reference -> policy -> ratio, low, high, the least and the greatest of single seeds).
    """
    seed = checked(config["seed"], NonNegativeInt, "seed")
    windows, split = checked(config["windows"], AtLeastTwo, "windows"), str(config["split"])
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}", field="split", remedy=nearest(split, SPLITS))
    base = build(Distribution, config["scenarios"], "scenarios")
    entrants = [Entrant.of(one) for one in config["policies"] or ()]
    require(len(entrants) >= 1, "policies", config["policies"], "name at least one")
    for entrant in entrants:
        for choice in entrant.choices():
            common_knowledge([full_parameters(one) for one in entrant.seeds(choice)])
    loads, groups, files = _loads(config["loads"]), [], None
    if config["traces"] is not None:
        files = TraceFiles.of(config["traces"])
        windows = len(files.files)
        require(loads == [None], "loads", loads, "leave it out with traces, whose load is their own")
    compared = _compared(config["ratios"], files is not None or len(base.deadline_slack) > 0)
    processes = checked(config["processes"], NonNegativeInt, "processes")
    with lost_processes_told(), workers(processes, "spawn") as run:
        tuning = checked(config["tuning_windows"], PositiveInt, "tuning_windows")
        steps = (tuned(one, base, seed, tuning, run) for one in entrants)
        chosen = list(counted("tuning on training windows, policies", steps, len(entrants), progress))
        members = [one.seeds(choice) for one, choice in zip(entrants, chosen, strict=True)]
        flat, columns = [one for seeds in members for one in seeds], _columns(members)
        for load in loads:
            drawn = base if load is None else replace(base, load=(load, load))
            source = files or drawn
            steps = run(partial(run_figures, source, split, seed, flat), range(windows))
            name = "windows" if load is None else f"load {load:g}, windows"
            figures = np.stack(list(counted(name, steps, windows, progress)))
            ratios = _ratios(figures, columns, compared)
            groups.append({"load": list(drawn.load), "figures": _plain(figures), "ratios": ratios})
    rows = [
        {
            "label": _label(entrant.label, entrant.knobs, choice),
            "knows": common_knowledge(seeds),
            "parameters": [full_parameters(one) for one in seeds],
            "columns": at,
        }
        for entrant, choice, seeds, at in zip(entrants, chosen, members, columns, strict=True)
    ]
    return {
        "split": split,
        "seed": seed,
        "windows": windows,
        "scenarios": dict(config["scenarios"]),
        "traces": list(files.files) if files else None,
        "metrics": list(METRICS),
        "policies": rows,
        "groups": groups,
    }


def _loads(given: Any) -> list[float] | list[None]:
    """Return the loads to compare at, or that of the scenarios."""
    if given is None or given == []:
        return [None]
    found = given if isinstance(given, list) else [given]
    return [checked(load, Annotated[float, Interval(gt=0, lt=100)], "loads") for load in found]


def _label(label: str, knobs: Mapping[str, Any], choice: Mapping[str, Any]) -> str:
    return " ".join([label, *(f"{key}={choice[key]} (tuned)" for key in knobs)])


def _plain(figures: Any) -> Any:
    """Return nested lists with None for what a row does not have, as JSON knows no NaN."""
    plain: Any = np.where(np.isnan(figures), None, figures)
    return plain.tolist()


def _columns(members: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Return for each row the columns of the figures that its seeds are in."""
    ends = np.cumsum([len(seeds) for seeds in members]).tolist()
    return [list(range(end - len(seeds), end)) for end, seeds in zip(ends, members, strict=True)]


def _compared(given: Any, deadlines: bool) -> list[str]:
    """Return the metrics to compare as ratios."""
    require(isinstance(given, list) and len(given) > 0, "ratios", given, f"name some of {', '.join(RATIOS)}")
    for name in given:
        if name not in RATIOS:
            raise InputError(f"no ratios of {name!r}", field="ratios", remedy=nearest(str(name), RATIOS))
    remedy = "give scenarios.deadline_slack=[0.5,1.5], as these jobs have no deadlines"
    require(deadlines or "deadline_satisfaction" not in given, "ratios", given, remedy)
    return [str(name) for name in given]


def _ratios(
    figures: Any, columns: Sequence[Sequence[int]], compared: Sequence[str]
) -> dict[str, list[list[Any]]]:
    """Return metric -> [reference][policy] -> `Ratio`; of a policy to itself 1, whatever its seeds."""
    found = {}
    for metric in compared:
        table = figures[:, :, METRICS.index(metric)]
        if not (np.isnan(table) | (table > 0)).all() or np.isnan(table).all():
            remedy = "leave it out, or draw other windows"
            raise InputError(f"{metric} is 0 or missing in a window", field="ratios", remedy=remedy)
        found[metric] = [
            [[1.0] * 5 if p is r else _plain(ratio(table[:, p], table[:, r])) for p in columns]
            for r in columns
        ]
    return found
