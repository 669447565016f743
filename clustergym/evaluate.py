"""`clustergym evaluate policies=[…] split=test`: compare policies and checkpoints on a split."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.inputs.errors import InputError, exits_on_bad_input, nearest, require
from clustergym.inputs.paths import atomic_path

SUMMARY = "Compare any policies and checkpoints on the windows of a split."


def evaluate(config: Mapping[str, Any], progress: bool = False) -> dict[str, Any]:
    """Run every policy on every window; return the figures as plain values.

    With `progress` a progress bar is shown on stderr.

    Returns
    -------
    dict
        `policies`: label, parameters as chosen of each training seed, and `columns`, where `figures` has
        these seeds; `groups`: one per load, with `figures` (window x column x metric) and `ratios`
        (metric -> reference -> policy -> ratio, low, high, the least and the greatest of single seeds).
    """
    from clustergym.inputs.parameters import build
    from clustergym.learn.comparison import (
        METRICS,
        Entrant,
        common_knowledge,
        full_parameters,
        run_figures,
        tuned,
    )
    from clustergym.learn.distribution import Distribution
    from clustergym.learn.trace_files import TraceFiles
    from clustergym.learn.windows import SPLITS
    from clustergym.terminal.processes import lost_processes_told, workers
    from clustergym.terminal.progress import counted

    seed, windows, split = _count(config, "seed", 0), _count(config, "windows", 2), str(config["split"])
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}", field="split", remedy=nearest(split, SPLITS))
    base = build(Distribution, config["scenarios"], "scenarios")
    entrants = [Entrant.of(policy) for policy in config["policies"] or ()]
    require(len(entrants) >= 1, "policies", config["policies"], "name at least one")
    for entrant in entrants:
        for choice in entrant.choices():
            common_knowledge([full_parameters(member) for member in entrant.seeds(choice)])
    loads, groups, files = _loads(config["loads"]), [], None
    if config["traces"] is not None:
        files = TraceFiles.of(config["traces"])
        windows = len(files.files)
        require(loads == [None], "loads", loads, "leave it out with traces, whose load is their own")
    compared = _compared(config["ratios"], files is not None or len(base.deadline_slack) > 0)
    with lost_processes_told(), workers(_count(config, "processes", 0), "spawn") as run:
        tuning = _count(config, "tuning_windows", 1)
        steps = (tuned(entrant, base, seed, tuning, run) for entrant in entrants)
        chosen = list(counted("tuning on training windows, policies", steps, len(entrants), progress))
        members = [entrant.seeds(choice) for entrant, choice in zip(entrants, chosen, strict=True)]
        flat, columns = [member for seeds in members for member in seeds], _columns(members)
        for load in loads:
            drawn = base if load is None else replace(base, load=(load, load))
            source = files or drawn
            steps = run(_Task(run_figures, source, split, seed, flat), range(windows))
            name = "windows" if load is None else f"load {load:g}, windows"
            figures = np.stack(list(counted(name, steps, windows, progress)))
            ratios = _ratios(figures, columns, compared)
            groups.append({"load": list(drawn.load), "figures": _plain(figures), "ratios": ratios})
    rows = [
        {
            "label": _label(entrant.label, entrant.knobs, choice),
            "knows": common_knowledge(seeds),
            "parameters": [full_parameters(member) for member in seeds],
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


class _Task:
    """A function with its first arguments bound, which can be sent to another process."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.function, self.given = function, given

    def __call__(self, index: int) -> Any:
        return self.function(*self.given, index)


def _count(config: Mapping[str, Any], key: str, low: int) -> int:
    value = config[key]
    good = isinstance(value, int) and not isinstance(value, bool) and value >= low
    require(good, key, value, f"give a whole number from {low}")
    return int(value)


def _loads(given: Any) -> list[float] | list[None]:
    """Return the loads at which policies are compared; [None]: the load of the scenarios."""
    if given is None or given == []:
        return [None]
    found = given if isinstance(given, list) else [given]
    for load in found:
        number = isinstance(load, int | float) and not isinstance(load, bool) and 0 < load < 100
        require(number, "loads", load, "give numbers above 0, as in loads=[0.7,1.0]")
    return [float(load) for load in found]


def _label(label: str, knobs: Mapping[str, Any], choice: Mapping[str, Any]) -> str:
    return " ".join([label, *(f"{key}={choice[key]} (tuned)" for key in knobs)])


def _plain(figures: Any) -> Any:
    """Return nested lists with None in place of NaN, which JSON does not have."""
    plain: Any = np.where(np.isnan(figures), None, figures)
    return plain.tolist()


def _columns(members: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Return, for each row, the columns of the figures that belong to its seeds."""
    ends = np.cumsum([len(seeds) for seeds in members]).tolist()
    return [list(range(end - len(seeds), end)) for end, seeds in zip(ends, members, strict=True)]


def _compared(given: Any, deadlines: bool) -> list[str]:
    """Return the metrics whose ratios are shown."""
    from clustergym.learn.comparison import RATIOS

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
    from clustergym.learn.comparison import METRICS, ratio

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


def markdown(outcome: Mapping[str, Any], command: str) -> str:
    """Return the comparison as Markdown: a table per load, with ratios of the first policy to each other."""
    lines = [f"`{command}`", ""]
    if any(len(policy["columns"]) > 1 for policy in outcome["policies"]):
        lines += ["In parentheses: the least and the greatest of single training seeds.", ""]
    for group in outcome["groups"]:
        low, high = group["load"]
        load = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        drawn = f"Load {load}, {outcome['windows']} windows of the {outcome['split']} split:"
        lines += [f"{outcome['windows']} traces:" if outcome["traces"] else drawn, ""]
        lines += _table(outcome, group)
    return "\n".join(lines) + "\n"


def _table(outcome: Mapping[str, Any], group: Mapping[str, Any]) -> list[str]:
    from clustergym.learn.comparison import METRICS, RATIOS

    figures = np.array(group["figures"], dtype=np.float64)
    ratios = [
        f"{'' if at else 'first / this: '}{RATIOS[metric]}" for at, metric in enumerate(group["ratios"])
    ]
    plain = {
        "restarts_mean": ("restarts a job", 2),
        "unfair_fraction": ("unfair", 3),
        "gpu_utilization": ("GPUs at work", 3),
        **{name: (RATIOS[name], 3) for name in group["ratios"] if name in METRICS[6:]},
    }
    titles = [
        "policy",
        "knows",
        "mean JCT, h (geometric mean)",
        *ratios,
        *(title for title, _ in plain.values()),
    ]
    rows = ["| " + " | ".join(titles) + " |", "|---|---|" + "---:|" * (len(titles) - 2)]
    pooled = [len(policy["columns"]) > 1 for policy in outcome["policies"]]
    for at, policy in enumerate(outcome["policies"]):
        own = figures[:, policy["columns"]]
        spread = at > 0 and (pooled[0] or pooled[at])
        cells = [_ratio(group["ratios"][metric][at][0], spread) for metric in group["ratios"]]
        means = dict(zip(METRICS, own.mean(axis=(0, 1)).tolist(), strict=True))
        rest = [
            "" if np.isnan(means[metric]) else f"{means[metric]:.{places}f}"
            for metric, (_, places) in plain.items()
        ]
        named = [f"| {policy['label']}", policy["knows"].replace("_", " ")]
        rows.append(" | ".join([*named, _hours(own[:, :, 0]), *cells, *rest]) + " |")
    return [*rows, ""]


def _hours(mean_s: Any) -> str:
    """Return hours: the geometric mean over windows and seeds, and the range of several seeds."""
    seeds_h = np.exp(np.log(np.maximum(mean_s, 1e-9)).mean(axis=0)) / 3600.0
    pooled = f"{np.exp(np.log(seeds_h).mean()):.3f}"
    return pooled if len(seeds_h) == 1 else f"{pooled} ({seeds_h.min():.3f} to {seeds_h.max():.3f})"


def _ratio(five: list[float | None], spread: bool) -> str:
    if None in five:
        return ""
    value, low, high, least, greatest = five
    seeds = f" ({least:.3f} to {greatest:.3f})" if spread else ""
    return f"{value:.3f} [{low:.3f}, {high:.3f}]{seeds}"


def _quoted(word: str) -> str:
    """Quote a word for the shell; with double quotes if it has single ones and nothing to expand."""
    plain = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if plain else shlex.quote(word)


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    from clustergym.configuration.command_help import helped
    from clustergym.configuration.hydra_edge import composed

    overrides = list(sys.argv[1:] if argv is None else argv)
    if helped("evaluate", SUMMARY, overrides):
        return 0
    config = composed("evaluate", overrides)
    outcome = evaluate(config, progress=True)
    # The names of output files do not belong to what was measured.
    shown = [_quoted(word) for word in overrides if not word.startswith(("report=", "json=", "processes="))]
    text = markdown(outcome, " ".join(["clustergym evaluate", *shown]))
    print(text, end="")
    for key, content in (("report", text), ("json", json.dumps(outcome, indent=1) + "\n")):
        if config[key] is not None:
            with atomic_path(Path(str(config[key]))) as temporary:
                temporary.write_text(content, encoding="utf-8")
            print(f"wrote {config[key]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
