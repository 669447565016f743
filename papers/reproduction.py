"""Runs of a paper's reproduction, each made once and kept: which policy runs under which setting."""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from clustergym import policies
from clustergym.common.errors import InputError, require_known
from clustergym.common.paths import PACKAGE, conf_dir
from clustergym.common.processes import in_order
from clustergym.common.writing import write_text
from clustergym.results.measured_run import Result
from clustergym.results.metrics.intervals import Outcome
from clustergym.scenario.policy import Policy
from clustergym.scenario.registry import entry_points, make_placer, make_policy
from clustergym.scenario.scenario import Scenario

Figures = Mapping[str, Any]
"""A run's metrics by name, its details, and the `counters` of its policy."""
Parameters = tuple[tuple[str, Any], ...]
"""Names and values of a policy's parameters."""


@dataclass(frozen=True)
class Options:
    """The options of the command `clustergym reproduce`.

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
    """The description of one run of a paper's page: its policy, trace, setting and seed.

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
        """The run's policy and parameters as text."""
        return " ".join([self.policy, *(f"{name}={value}" for name, value in self.parameters)])

    def make_policy(self) -> Policy:
        """Build the run's policy from its file in conf/policy and its parameters."""
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
    """Return the names of the files in conf/policy whose policies are installed."""
    files = sorted((conf_dir() / "policy").glob("*.yaml"))
    names = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")).get("name") for path in files}
    return [preset for preset, name in names.items() if name in entry_points("policy")]


def choose(wanted: Sequence[str], asked: Sequence[str] | None) -> tuple[list[str], str]:
    """Return the policies to run (those `asked` for, else the installed `wanted`), and a note on the rest.

    The note names the paper's policies that are not installed.

    Raises an `InputError` if the user asks for a policy that does not exist, or no policy is left.
    """
    installed = presets()
    for name in asked or ():
        require_known(name, installed, "policy", "--policies")
    chosen = [name for name in wanted if name in installed] if asked is None else list(dict.fromkeys(asked))
    if not chosen:
        raise InputError("names no policy", field="--policies", remedy=f"give some of {', '.join(wanted)}")
    missing = [name for name in wanted if name not in installed] if asked is None else []
    return chosen, f"\n\nNot installed, so left out: {', '.join(missing)}." if missing else ""


def check_published(paths: Iterable[Path]) -> None:
    """Raise an `InputError` for the first path that is missing; one without suffix must be a folder."""
    for path in paths:
        if not (path.is_file() if path.suffix else path.is_dir()):
            remedy = "name the folder of the published data with --data DIR or CLUSTERGYM_DATA"
            raise InputError("no such file", file=path, remedy=remedy)


def load_or_make(work: Path, what: str, make: Callable[[], Figures]) -> Figures:
    """Return results cached in `work` under the key `what` by this code's version; else compute them."""
    key = hashlib.sha256(f"{code_sha256()} {what}".encode()).hexdigest()
    path = work / f"{key[:40]}.json"
    if not path.is_file():
        write_text(path, json.dumps(make()) + "\n")
    figures: Figures = json.loads(path.read_text(encoding="utf-8"))
    return figures


def run_all(specs: Iterable[RunSpec], scenario_of: ScenarioOf, options: Options) -> dict[RunSpec, Figures]:
    """Simulate each distinct run, or read its cached result; return the results by run."""
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
        figures = {**result.metrics, **summarise_run(result), "counters": dict(policy.counters())}
        figures["unfit"] = int((scenario.request_gpus == 0).sum())
        until = "to completion" if spec.horizon_s is None else f"for {spec.horizon_s:,.0f} s"
        lasted = time.perf_counter() - started
        print(f"{spec.trace} {until}, {spec.setting}: {spec.label} took {lasted:.1f} s", file=sys.stderr)
        return figures

    return load_or_make(work, f"{spec} {run_key(scenario, policy, placer, spec.seed)}", make)


@cache
def code_sha256() -> str:
    """Return a digest of the source of all modules that can change a result that is kept.

    Runs are known by their scenario and policy besides; of this folder only Arnold's figures are not.
    """
    digest = hashlib.sha256()
    for folder in [PACKAGE, *(Path(place) for place in policies.__path__)]:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    for path in sorted(Path(__file__).parent.glob("arnold_*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def number(value: float | int | None, decimals: int = 0) -> str:
    """Return a number as text for a table; `-` for None."""
    return "-" if value is None else f"{value:,.{decimals}f}"


def column(values: Sequence[float | None], decimals: int = 0) -> list[str]:
    """Return numbers as texts for a column of a table; `-` for None."""
    return [number(value, decimals) for value in values]


def change(value: float | None, reference: float | None) -> str:
    """Return by how many percent a value is above a reference, as signed text; `-` if undefined."""
    return "-" if value is None or not reference else f"{100 * (value / reference - 1):+.0f} %"


def summarise_run(result: Result) -> dict[str, Any]:
    """Return the figures of a finished run that papers' pages use, as JSON values.

    `jct_max` is the longest JCT (seconds; None where no job finished). `gpu_s_per_sample` is, by model, the
    GPU-seconds of work that a sample took. `by_priority` is, where a trace has priorities, by priority: the
    jobs, the mean JCT of all (unfinished ones up to now) and the longest wait, seconds.
    """
    trace, records = result.run.simulation.scenario.trace, result.jobs
    finished = np.isfinite(records.jct_s)
    classes = map(trace.model_class, range(len(trace)))
    models = np.array([f"{model.family}-{model.size} {model.global_batch}" for model in classes])
    work_s = records.held_gpu_s - records.overhead_gpu_s
    samples = records.iterations_done * trace.global_batch
    per_sample = {}
    for model in sorted(set(models.tolist())):
        rows = models == model
        if samples[rows].sum() > 0:
            per_sample[model] = float(work_s[rows].sum() / samples[rows].sum())
    return {
        "jct_max": float(records.jct_s[finished].max()) if finished.any() else None,
        "gpu_s_per_sample": per_sample,
        "by_priority": _by_priority(result),
    }


def _by_priority(result: Result) -> dict[str, dict[str, float]]:
    simulation, records = result.run.simulation, result.jobs
    trace, submitted = simulation.scenario.trace, records.outcome != Outcome.NOT_SUBMITTED
    so_far_s = np.where(np.isfinite(records.jct_s), records.jct_s, simulation.now_s - trace.submit_s)
    priorities, found = np.unique(trace.priority).tolist(), {}
    for priority in priorities if len(priorities) > 1 else ():
        rows = submitted & (trace.priority == priority)
        if rows.any():
            found[str(priority)] = {
                "jobs": int(rows.sum()),
                "jct_mean_so_far": float(so_far_s[rows].mean()),
                "queue_max": float(records.queue_s[rows].max()),
            }
    return found


def compute_padded_jct(runs: Mapping[str, Mapping[str, Any]], reference: str) -> dict[str, float]:
    """Return mean JCTs (s) by policy; jobs finished by `reference` but not by it count with the greatest JCT.

    The list of a policy that finished fewer jobs than the reference is padded to as many with the greatest
    JCT of any policy; the mean of any other policy is over its finished jobs. Empty where the reference
    finished no job.
    """
    count = int(runs[reference]["jobs_finished"])
    if not count:
        return {}
    greatest = max(float(run["jct_max"] or 0.0) for run in runs.values())
    means = {}
    for name, run in runs.items():
        finished = int(run["jobs_finished"])
        total = finished * float(run["jct_mean"] or 0.0) + max(count - finished, 0) * greatest
        means[name] = total / max(count, finished)
    return means
