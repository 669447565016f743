"""Runs of a study: which policy under which setting, each run once, and tables of them."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from clustergym import policies
from clustergym.errors import InputError, nearest
from clustergym.paths import PACKAGE, atomic_path, conf_dir
from clustergym.policy import Policy
from clustergym.registry import entry_points, make_placer, make_policy
from clustergym.reproduction.details import details_of
from clustergym.scenario import Scenario

Figures = dict[str, Any]
"""Metrics of a run by name, and `counters` of its policy."""


@dataclass(frozen=True)
class Options:
    """What a reproduction is asked for.

    Attributes
    ----------
    data : Path
        Folder of the published data.
    quick : bool
        Only what fits in a few minutes.
    policies : tuple of str or None
        Names of conf/policy to run; None: those of the paper.
    work : Path
        Folder of finished runs, which are not run again.
    workers : int
        Processes.
    """

    data: Path
    quick: bool
    policies: tuple[str, ...] | None
    work: Path
    workers: int = 1


@dataclass(frozen=True)
class Report:
    """Text in Markdown, the same figures, unrounded, as plain JSON values, and plots beside the text.

    `claims` are the rows of the table that opens the text, `Claim.plain()` each. `plots` is, by file name,
    what draws each and replaces the file as a whole; the text refers to them by these names.
    """

    text: str
    figures: list[dict[str, Any]]
    claims: list[dict[str, Any]] = field(default_factory=list)
    plots: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes
    ----------
    trace : str
    horizon_s : float or None
    setting : str
        A name that the study's own module gives a meaning to.
    policy : str
        A file of conf/policy.
    parameters : tuple of (str, value)
        Of the policy, where they differ from that file.
    seed : int
    """

    trace: str
    horizon_s: float | None
    setting: str
    policy: str
    parameters: tuple[tuple[str, Any], ...] = ()
    seed: int = 0

    @property
    def label(self) -> str:
        """Policy and parameters."""
        return " ".join([self.policy, *(f"{name}={value}" for name, value in self.parameters)])


ScenarioOf = Callable[[Cell], Scenario]


def make_preset(cell: Cell) -> Policy:
    """Build the policy of a cell."""
    given = yaml.safe_load((conf_dir() / "policy" / f"{cell.policy}.yaml").read_text(encoding="utf-8"))
    return make_policy({**given, **dict(cell.parameters)})


def presets() -> dict[str, bool]:
    """Return, for each file of conf/policy, whether its policy is installed."""
    found = {}
    for path in sorted((conf_dir() / "policy").glob("*.yaml")):
        name = yaml.safe_load(path.read_text(encoding="utf-8")).get("name")
        found[path.stem] = name in entry_points("clustergym.policies")
    return found


def choose(wanted: Sequence[str], asked: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the policies to run, and those of the paper that are not installed.

    Raises
    ------
    InputError
        If one that was asked for is not there.
    """
    installed = [name for name, there in presets().items() if there]
    for name in asked or ():
        if name not in installed:
            raise InputError(f"unknown policy {name!r}", field="--policies", remedy=nearest(name, installed))
    chosen = list(dict.fromkeys(asked)) if asked else [name for name in wanted if name in installed]
    return chosen, [] if asked else [name for name in wanted if name not in installed]


def check_published(paths: Iterable[Path]) -> None:
    """Raise an `InputError` unless published files, and folders (no suffix), are there."""
    for path in paths:
        if not (path.is_file() if path.suffix else path.is_dir()):
            remedy = "name the folder of the published data with --data DIR or CLUSTERGYM_DATA"
            raise InputError("no such file", file=path, remedy=remedy)


def run_cells(cells: Iterable[Cell], scenario_of: ScenarioOf, options: Options) -> dict[Cell, Figures]:
    """Run each distinct cell, or read what an earlier call has left in `options.work`."""
    distinct = list(dict.fromkeys(cells))
    run = partial(_run_cell, scenario_of, options.work)
    if options.workers == 1:
        return {cell: run(cell) for cell in distinct}
    with ProcessPoolExecutor(options.workers) as pool:
        return dict(zip(distinct, pool.map(run, distinct), strict=True))


def _run_cell(scenario_of: ScenarioOf, work: Path, cell: Cell) -> Figures:
    from clustergym.output import measurement_of, run_key
    from clustergym.sim.run import simulate

    scenario, policy, placer = scenario_of(cell), make_preset(cell), make_placer({"name": "buddy"})
    key = hashlib.sha256(
        f"{code_sha256()} {cell} {run_key(scenario, policy, placer, cell.seed)}".encode()
    ).hexdigest()
    path = work / f"{key[:40]}.json"
    if path.is_file():
        kept: Figures = json.loads(path.read_text(encoding="utf-8"))
        return kept
    started = time.perf_counter()
    run = simulate(scenario, policy, placer, cell.seed)
    measurement = measurement_of(run.simulation)
    figures: Figures = {
        **measurement.metrics,
        **details_of(run.simulation, measurement.records),
        "counters": dict(policy.counters()),
        "unfit": int((scenario.request_gpus == 0).sum()),
    }
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    until = "to completion" if cell.horizon_s is None else f"for {cell.horizon_s:,.0f} s"
    lasted = time.perf_counter() - started
    print(f"{cell.trace} {until}, {cell.setting}: {cell.label} took {lasted:.1f} s", file=sys.stderr)
    return figures


@cache
def code_sha256() -> str:
    """Return the digest of all modules that can change a result: of this package and of its policies."""
    digest = hashlib.sha256()
    for folder in [PACKAGE, *(Path(place) for place in policies.__path__)]:
        for path in sorted(folder.rglob("*.py")):
            if "reproduction" not in path.parts:
                digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)) -> str:
    """Return a Markdown table: columns of `words`, by position, to the left, the others to the right."""
    lines = [headers, ["---" if at in words else "---:" for at in range(len(headers))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | int | None, decimals: int = 0) -> str:
    """Return a figure for a table; `-` where there is none."""
    return "-" if value is None else f"{value:,.{decimals}f}"


def change(value: float | None, reference: float | None) -> str:
    """Return a relative difference in percent, signed; `-` where it has no meaning."""
    return "-" if value is None or not reference else f"{100 * (value / reference - 1):+.0f} %"
