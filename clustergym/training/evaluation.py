"""Policies and checkpoints, compared on windows of a split or on trace files; the tables of the report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval

from clustergym.common.errors import InputError, nearest, require, require_known
from clustergym.common.parameter_types import AtLeastTwo, NonNegativeInt, PositiveInt
from clustergym.common.parameters import build, check_value
from clustergym.common.processes import check_processes, report_lost_processes, workers
from clustergym.common.progress import track_results
from clustergym.common.tables import table
from clustergym.common.writing import plain
from clustergym.envs.episodes import SPLITS
from clustergym.training.comparison import (
    METRICS,
    RATIOS,
    Entrant,
    common_knowledge,
    full_parameters,
    ratio,
    run_figures,
    tune_entrant,
)
from clustergym.training.distribution import Distribution
from clustergym.training.windows import TraceFiles


def evaluate(config: Mapping[str, Any], progress: bool = False) -> dict[str, Any]:
    """Run every policy on every scenario; return metrics, and ratios between policies, as plain dicts.

    Returns
    -------
    dict
        `policies`: label, parameters as chosen of each training seed, and `columns`, where `figures` has
        these seeds; `groups`: one per load, with `figures` (window x column x metric) and `ratios`
        (metric -> reference -> policy -> ratio, low, high, the least and the greatest of single seeds).
    """
    seed = check_value(config["seed"], NonNegativeInt, "seed")
    windows, split = check_value(config["windows"], AtLeastTwo, "windows"), str(config["split"])
    require_known(split, SPLITS, "split", "split")
    base = build(Distribution, config["scenarios"], "scenarios")
    entrants = [Entrant.from_given(one) for one in config["policies"] or ()]
    require(len(entrants) >= 1, "policies", config["policies"], "name at least one")
    # What is not valid is said before the first window is simulated, which may take hours.
    for entrant in entrants:
        for choice in entrant.choices():
            common_knowledge([full_parameters(one) for one in entrant.seeds(choice)])
    loads, groups, files = _loads(config["loads"]), [], None
    if config["traces"] is not None:
        files = TraceFiles.from_given(config["traces"])
        windows = len(files.files)
        require(loads == [None], "loads", loads, "leave it out with traces, whose load is their own")
    compared = _list_compared_metrics(config["ratios"], files is not None or len(base.deadline_slack) > 0)
    processes = check_processes(config["processes"])
    with report_lost_processes(), workers(processes, "spawn") as run:
        tuning = check_value(config["tuning_windows"], PositiveInt, "tuning_windows")
        steps = (tune_entrant(one, base, seed, tuning, run) for one in entrants)
        # Tuned once, not at each load: a knob is chosen for a policy, and training windows have all loads.
        chosen = list(track_results("tuning on training windows, policies", steps, len(entrants), progress))
        members = [one.seeds(choice) for one, choice in zip(entrants, chosen, strict=True)]
        flat, columns = [one for seeds in members for one in seeds], _columns(members)
        for load in loads:
            drawn = base if load is None else replace(base, load=(load, load))
            source = files or drawn
            steps = run(partial(run_figures, source, split, seed, flat), range(windows))
            name = "windows" if load is None else f"load {load:g}, windows"
            figures = np.stack(list(track_results(name, steps, windows, progress)))
            ratios = _ratios(figures, columns, compared)
            groups.append({"load": list(drawn.load), "figures": plain(figures), "ratios": ratios})
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
    """Return the loads to compare at; by default the load of the scenarios."""
    if given is None or given == []:
        return [None]
    found = given if isinstance(given, list) else [given]
    return [check_value(load, Annotated[float, Interval(gt=0, lt=100)], "loads") for load in found]


def _label(label: str, knobs: Mapping[str, Any], choice: Mapping[str, Any]) -> str:
    return " ".join([label, *(f"{key}={choice[key]} (tuned)" for key in knobs)])


def _columns(members: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Return for each compared policy the columns of the figures that its training seeds are in."""
    ends = np.cumsum([len(seeds) for seeds in members]).tolist()
    return [list(range(end - len(seeds), end)) for end, seeds in zip(ends, members, strict=True)]


def _list_compared_metrics(given: Any, deadlines: bool) -> list[str]:
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
            [[1.0] * 5 if p is r else plain(ratio(table[:, p], table[:, r])) for p in columns]
            for r in columns
        ]
    return found


def markdown(outcome: Mapping[str, Any], overrides: Iterable[str]) -> str:
    """Return a comparison as Markdown: its command line (`overrides`), and a table for each cluster load.

    The tables have ratios of the first policy's metrics to those of the others.
    """
    # The names of output files do not belong to what was measured.
    shown = [
        _quote_word(word) for word in overrides if not word.startswith(("report=", "json=", "processes="))
    ]
    lines = [f"`{' '.join(['clustergym evaluate', *shown])}`", ""]
    if any(len(policy["columns"]) > 1 for policy in outcome["policies"]):
        lines += ["In parentheses: the least and the greatest of single training seeds.", ""]
    for group in outcome["groups"]:
        low, high = group["load"]
        load = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        drawn = f"Load {load}, {outcome['windows']} windows of the {outcome['split']} split:"
        lines += [f"{outcome['windows']} traces:" if outcome["traces"] else drawn, ""]
        lines += [_table(outcome, group), ""]
    return "\n".join(lines) + "\n"


def _quote_word(word: str) -> str:
    """Quote a word for the shell; with double quotes if it has single ones and nothing to expand."""
    holds_single = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if holds_single else shlex.quote(word)


def _table(outcome: Mapping[str, Any], group: Mapping[str, Any]) -> str:
    figures = np.array(group["figures"], dtype=np.float64)
    ratios = [f"{'' if at else 'first / this: '}{RATIOS[one]}" for at, one in enumerate(group["ratios"])]
    more = {
        "restarts_mean": ("restarts a job", 2),
        "unfair_fraction": ("unfair", 3),
        "gpu_utilization": ("GPUs at work", 3),
        **{name: (RATIOS[name], 3) for name in group["ratios"] if name in METRICS[6:]},
    }
    titles = ["policy", "knows", "mean JCT, h (geometric mean)", *ratios, *(one for one, _ in more.values())]
    rows = []
    pooled = [len(policy["columns"]) > 1 for policy in outcome["policies"]]
    for at, policy in enumerate(outcome["policies"]):
        own = figures[:, policy["columns"]]
        spread = at > 0 and (pooled[0] or pooled[at])
        cells = [_ratio(group["ratios"][metric][at][0], spread) for metric in group["ratios"]]
        means = dict(zip(METRICS, own.mean(axis=(0, 1)).tolist(), strict=True))
        rest = [
            "" if np.isnan(means[one]) else f"{means[one]:.{places}f}" for one, (_, places) in more.items()
        ]
        named = [policy["label"], policy["knows"].replace("_", " ")]
        rows.append([*named, _hours(own[:, :, 0]), *cells, *rest])
    return table(titles, rows, words=(0, 1))


def _hours(mean_s: Any) -> str:
    """Return the geometric mean over windows and seeds, and the least and greatest of several seeds."""
    seeds_h = np.exp(np.log(np.maximum(mean_s, 1e-9)).mean(axis=0)) / 3600.0
    pooled = f"{np.exp(np.log(seeds_h).mean()):.3f}"
    return pooled if len(seeds_h) == 1 else f"{pooled} ({seeds_h.min():.3f} to {seeds_h.max():.3f})"


def _ratio(five: list[float | None], spread: bool) -> str:
    if None in five:
        return ""
    value, low, high, least, greatest = five
    seeds = f" ({least:.3f} to {greatest:.3f})" if spread else ""
    return f"{value:.3f} [{low:.3f}, {high:.3f}]{seeds}"
