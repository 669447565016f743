"""Evaluate a program on a task: drawn traces, on which its runs are compared with a reference's.

The result has the form in which searches of programs read it: `combined_score`, `metrics`, `artifacts`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, require, require_known
from clustergym.common.parameter_types import PositiveInt, Seed
from clustergym.common.parameters import Parameters, build, check_value
from clustergym.common.paths import conf_dir
from clustergym.common.processes import measure_cpu_s
from clustergym.common.random_streams import derive_seeds
from clustergym.common.yaml_file import read_mapping
from clustergym.results.measured_run import Result, simulate
from clustergym.results.metrics.catalogue import METRICS
from clustergym.scenario.policy import Policy
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.scenario_config import build_scenario
from clustergym.sim.engine import StalledError
from clustergym.sim.program import Limits, Program, find_rights, read_program

if TYPE_CHECKING:
    from clustergym.training.agent_task import AgentTask


@dataclass(frozen=True, eq=False)
class Task(Parameters):
    """A task for programs: traces of one scenario, the metric and a reference, as conf/task says it.

    Attributes
    ----------
    summary : str
    metric : str
        Of `clustergym.results.metrics.catalogue`; lower is better.
    reference, placer : mapping
        Name and parameters of the policy to compare with, and of the placer of all runs.
    overrides : tuple of str
        Overrides of the main job that make the scenario, without the seed.
    train, test : tuple of int
        Seeds of the traces of each mode.
    limits : Limits
        Of a program, over all traces of a mode together.
    """

    config_key: ClassVar[str] = "task"
    summary: str
    metric: str
    reference: Mapping[str, Any]
    placer: Mapping[str, Any]
    overrides: tuple[str, ...]
    train: tuple[Seed, ...]
    test: tuple[Seed, ...]
    limits: Limits

    def __post_init__(self) -> None:
        super().__post_init__()
        lower = [name for name, metric in METRICS.items() if metric.better == "lower"]
        require_known(self.metric, lower, "metric where lower is better", "metric")
        require(bool(self.train and self.test), "train", "no seed", "list seeds of train and of test")
        both = sorted({*self.train} & {*self.test})
        require(not both, "test", both, "give other seeds than those of train")
        # So that what a program is told is not the fault of the task.
        for key, make in {"reference": make_policy, "placer": make_placer}.items():
            try:
                make(getattr(self, key))
            except InputError as error:
                raise InputError(error.message, field=key, remedy=error.remedy) from None

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """The composed configuration of every trace, without its seed."""
        from clustergym.scenario.by_name import compose

        return compose(self.overrides)

    def make(self, seed: int) -> Any:
        """Return the scenario of a seed."""
        return _make_scenario(self, seed)

    def start(self, text: str, rights: Mapping[str, Any] | None) -> Any:
        """Start the process of a program."""
        return Program(text, self.limits, rights)

    def run(self, scenario: Scenario, policy: Policy) -> Result:
        """Run a policy with the task's placer."""
        return simulate(scenario, policy, make_placer(self.placer))

    def compare(
        self, results: Sequence[Result], seeds: Sequence[int]
    ) -> tuple[dict[str, float], dict[str, list[Any]]]:
        """Return the metrics of a program's runs, and the figures of each trace by name."""
        references = [compute_reference(self, seed) for seed in seeds]
        numbers: dict[str, list[float]] = {
            self.metric: [_get_metric(result, self.metric) for result in results],
            f"reference_{self.metric}": references,
            "wait_s": [float(result.metrics["queue_mean"] or 0.0) for result in results],
            "restarts": [int(result.jobs.restarts.sum()) for result in results],
            "idle_gpu_hours": [_idle_gpu_hours(result) for result in results],
        }
        scores = [best / own for best, own in zip(references, numbers[self.metric], strict=True)]
        metrics = {"combined_score": float(np.exp(np.log(scores).mean())), "score_worst": min(scores)}
        metrics |= {name: float(np.mean(column)) for name, column in numbers.items()}
        worst = [describe_worst_jobs(result) for result in results]
        return metrics, {"score": scores, **numbers, "worst_jobs": worst}


@cache
def load_task(name: str) -> Task | AgentTask:
    """Read a task: of conf/task by its name, or a YAML file (`*.yaml`)."""
    files = {path.stem: path for path in sorted((conf_dir() / "task").glob("*.yaml"))}
    if not name.endswith((".yaml", ".yml")):
        require_known(name, files, "task", "--task")
    source = read_mapping(files.get(name, Path(name)))
    made_by: type[Task | AgentTask] = Task
    if "environment" in source.content:
        from clustergym.training.agent_task import AgentTask

        made_by = AgentTask
    try:
        task: Task | AgentTask = build(made_by, source.content, "")
    except InputError as error:
        raise source.locate(error) from None
    return task


@cache
def _make_scenario(task: Task, seed: int) -> Scenario:
    return build_scenario({**task.configuration, "seed": seed})


@cache
def compute_reference(task: Task, seed: int) -> float:
    """Return the metric of the task's reference policy on the trace of a seed."""
    return _get_metric(task.run(_make_scenario(task, seed), make_policy(task.reference)), task.metric)


def _get_metric(result: Result, metric: str) -> float:
    found = result.metrics.get(metric)
    if not found:
        raise InputError(f"{metric} is {found}: it has no ratio", field="metric", remedy="choose another")
    return float(found)


def evaluate_program(
    file: Path,
    task: Task | AgentTask,
    mode: str = "train",
    traces: int | None = None,
    user: str | None = None,
    beacon: str | None = None,
) -> dict[str, Any]:
    """Run a program on a task's first traces, all by default, and compare it with the reference.

    Parameters
    ----------
    file : Path
    task : Task
    mode : str
        `train`, or `test`: the traces on which a search is judged once it has ended.
    traces : int, optional
    user : str, optional
        System user that the program runs as, if root evaluates it.
    beacon : str, optional
        A public value later than the program: it and the SHA-256 of the text draw the traces; `sealed`.

    Returns
    -------
    dict
        `status`: success or error. `combined_score`: geometric mean over traces of the reference's metric
        over the program's (of agents, sum over sum), higher is better; 0 where the program fails.
        `metrics`: numbers by name. `artifacts`: lists with an entry for each trace, or where the program
        fails `error` in one line.

    Raises
    ------
    InputError
        If the file cannot be read, the task or the user cannot be taken, or there are not so many traces.
    """
    require_known(mode, ("train", "test"), "mode", "--mode")
    text = read_program(file)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    told, seeds = {"mode": mode, "sha256": sha256}, list[int](getattr(task, mode))
    if beacon is not None:
        told |= {"mode": (mode := "sealed"), "beacon": (beacon := beacon.strip().lower())}
        remedy = "give 16 to 256 hexadecimal digits"
        require(re.fullmatch("[0-9a-f]{16,256}", beacon) is not None, "--beacon", beacon, remedy)
        seeds = derive_seeds([sha256, beacon], len(seeds))
    count = len(seeds) if traces is None else check_value(traces, PositiveInt, "--traces")
    require(count <= len(seeds), "--traces", count, f"the task has {len(seeds)} of mode {mode}")
    began_s, rights = measure_cpu_s(), None if user is None else find_rights(user)
    scenarios, results = list[Any](map(task.make, seeds[:count])), list[Any]()
    artifacts: dict[str, Any] = {**told, "metric": task.metric, "reference": task.reference["name"]}
    status, metrics = "success", {"combined_score": 0.0}
    try:
        with task.start(text, rights) as program:
            artifacts["information_class"] = program.information_class.value
            for scenario in scenarios:
                results.append(task.run(scenario, program))
    except (InputError, StalledError) as error:
        status = "error"
        artifacts |= {"error": " ".join(str(error).split()), "traces_ended": len(results)}
    else:
        metrics, columns = task.compare(results, seeds[:count])
        artifacts |= columns
    metrics["cpu_s"] = round(measure_cpu_s() - began_s, 3)
    score = metrics["combined_score"]
    return {"status": status, "combined_score": score, "metrics": metrics, "artifacts": artifacts}


def _idle_gpu_hours(result: Result) -> float:
    """Return the GPU-hours that no job held while a job waited, those of failed nodes too."""
    line, gpus = result.timeline, result.run.simulation.scenario.cluster.capacity.sum()
    idle = (gpus - line.held_gpus.sum(axis=1) - line.profiling_gpus) * (line.queued_jobs > 0)
    return line.integral(idle) / 3600.0


def describe_worst_jobs(result: Result) -> list[str]:
    """Describe the three jobs that took longest beyond the time that they take alone at their requests."""
    scenario, jobs = result.run.simulation.scenario, result.jobs
    alone_s = jobs.iterations_done * scenario.reference_iteration_time_s
    held_gpu_s = np.maximum(jobs.held_gpu_s, 1e-9)
    stood_s, lost_s = (jobs.run_s * one / held_gpu_s for one in (jobs.overhead_gpu_s, jobs.lost_gpu_s))
    beyond: dict[str, Floats] = {
        "waiting for GPUs": jobs.queue_s + jobs.profile_s,
        "standing still after launches": stood_s,
        "work that was lost": lost_s,
        "fewer or slower GPUs than requested": jobs.run_s - stood_s - lost_s - alone_s,
    }
    # NaN: what no GPU type of the cluster can hold at its request.
    late_s = np.nan_to_num(np.sum([*beyond.values()], axis=0), nan=-np.inf)
    trace = scenario.trace
    return [
        f"job {trace.job_id[row]} ({trace.model_family[row]}, asks for {trace.gpus[row]} "
        f"{trace.gpu_type[row] or 'of any type'}): {late_s[row] + alone_s[row]:.0f} s in the system, "
        f"alone {alone_s[row]:.0f} s; waited {jobs.queue_s[row]:.0f} s, restarts: {jobs.restarts[row]}, "
        f"failures: {jobs.failures[row]}; most of it: {max(beyond, key=lambda name: beyond[name][row])}"
        for row in np.argsort(-late_s, kind="stable")[:3].tolist()
    ]
