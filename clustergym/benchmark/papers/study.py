"""Runs of a study: which policy runs under which setting. Each run is made once and kept."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from clustergym import policies
from clustergym.benchmark.papers.details import details_of
from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import PACKAGE, conf_dir
from clustergym.common.processes import in_order
from clustergym.common.writing import write_text
from clustergym.scenario.policy import Policy
from clustergym.scenario.registry import entry_points, make_placer, make_policy
from clustergym.scenario.scenario import Scenario

Figures = Mapping[str, Any]
"""A run's metrics by name, its details, and the `counters` of its policy."""
Parameters = tuple[tuple[str, Any], ...]
"""Names and values of a policy's parameters."""


@dataclass(frozen=True)
class Options:
    """What the user asks a reproduction for.

    `data` is the folder of the published data; `work` is that of finished runs, which are not run again.
    `quick` asks for only what fits in a few minutes. `policies` are files of conf/policy; None: the paper's.
    `workers` counts processes. `workloads` and `seeds` are for papers in `BY_WORKLOAD`; None: the paper's.
    """

    data: Path
    quick: bool
    policies: tuple[str, ...] | None
    work: Path
    workers: int = 1
    workloads: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None


@dataclass(frozen=True)
class RunSpec:
    """What one run consists of.

    The paper's module gives the names of the trace and of the setting a meaning. `policy` is a file of
    conf/policy, and `parameters` are those that differ from that file.
    """

    trace: str
    horizon_s: float | None
    setting: str
    policy: str
    parameters: Parameters = ()
    seed: int = 0

    @property
    def label(self) -> str:
        """Policy and parameters."""
        return " ".join([self.policy, *(f"{name}={value}" for name, value in self.parameters)])

    def make_policy(self) -> Policy:
        """Build the policy."""
        given = yaml.safe_load((conf_dir() / "policy" / f"{self.policy}.yaml").read_text(encoding="utf-8"))
        return make_policy({**given, **dict(self.parameters)})

    def plain(self, figures: Figures) -> dict[str, Any]:
        """Return the run and its figures as JSON values."""
        where = {"trace": self.trace, "setting": self.setting, "policy": self.policy}
        return {**where, "parameters": dict(self.parameters), **figures}


Found = Mapping[RunSpec, Figures]
ScenarioOf = Callable[[Path, RunSpec], Scenario]
"""Returns the scenario of a run, given the folder of the published data."""


def presets() -> list[str]:
    """Return the files of conf/policy whose policy is installed."""
    files = sorted((conf_dir() / "policy").glob("*.yaml"))
    names = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")).get("name") for path in files}
    return [preset for preset, name in names.items() if name in entry_points("policy")]


def choose(wanted: Sequence[str], asked: Sequence[str] | None) -> tuple[list[str], str]:
    """Return the policies to run, and a sentence on those of the paper that are not installed.

    Raises an `InputError` if the user asks for a policy that does not exist, or no policy is left.
    """
    installed = presets()
    for name in asked or ():
        if name not in installed:
            raise InputError(f"unknown policy {name!r}", field="--policies", remedy=nearest(name, installed))
    chosen = [name for name in wanted if name in installed] if asked is None else list(dict.fromkeys(asked))
    if not chosen:
        raise InputError("names no policy", field="--policies", remedy=f"give some of {', '.join(wanted)}")
    missing = [name for name in wanted if name not in installed] if asked is None else []
    return chosen, f"\n\nNot installed, so left out: {', '.join(missing)}." if missing else ""


def check_published(paths: Iterable[Path]) -> None:
    """Raise an `InputError` unless published files, and folders (no suffix), are there."""
    for path in paths:
        if not (path.is_file() if path.suffix else path.is_dir()):
            remedy = "name the folder of the published data with --data DIR or CLUSTERGYM_DATA"
            raise InputError("no such file", file=path, remedy=remedy)


def kept(work: Path, what: str, make: Callable[[], Figures]) -> Figures:
    """Return figures that are kept in the folder `work`; make them if this code has not made them yet."""
    key = hashlib.sha256(f"{code_sha256()} {what}".encode()).hexdigest()
    path = work / f"{key[:40]}.json"
    if not path.is_file():
        write_text(path, json.dumps(make()) + "\n")
    figures: Figures = json.loads(path.read_text(encoding="utf-8"))
    return figures


def run_all(specs: Iterable[RunSpec], scenario_of: ScenarioOf, options: Options) -> dict[RunSpec, Figures]:
    """Run each distinct spec, or read what an earlier call has left in `options.work`."""
    distinct = list(dict.fromkeys(specs))
    run = partial(_run, scenario_of, options.data, options.work)
    return dict(zip(distinct, in_order(run, distinct, options.workers), strict=True))


def _run(scenario_of: ScenarioOf, data: Path, work: Path, spec: RunSpec) -> Figures:
    from clustergym.results.measured_run import simulate
    from clustergym.results.result_writing import run_key

    scenario, policy, placer = scenario_of(data, spec), spec.make_policy(), make_placer({"name": "buddy"})

    def make() -> Figures:
        started = time.perf_counter()
        result = simulate(scenario, policy, placer, spec.seed)
        figures = {**result.metrics, **details_of(result), "counters": dict(policy.counters())}
        figures["unfit"] = int((scenario.request_gpus == 0).sum())
        until = "to completion" if spec.horizon_s is None else f"for {spec.horizon_s:,.0f} s"
        lasted = time.perf_counter() - started
        print(f"{spec.trace} {until}, {spec.setting}: {spec.label} took {lasted:.1f} s", file=sys.stderr)
        return figures

    return kept(work, f"{spec} {run_key(scenario, policy, placer, spec.seed)}", make)


@cache
def code_sha256() -> str:
    """Return the digest of all modules that can change a result: of this package and of its policies."""
    digest = hashlib.sha256()
    for folder in [PACKAGE, *(Path(place) for place in policies.__path__)]:
        for path in sorted(folder.rglob("*.py")):
            if "papers" not in path.parts or path.name.startswith(("arnold_", "fgd_")):
                digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
