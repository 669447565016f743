"""Compares policies and checkpoints on a split: runs in the simulator, and ratios with intervals.

The reference rows of a table (`BOUNDS`) are no policies: they see the whole scenario, and show how much a
policy could still gain.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, require
from clustergym.results.bounds.bounds import build_programme, least_work, lower_bounds
from clustergym.results.bounds.price_search import search
from clustergym.results.metrics.metrics import Metrics
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.registry import list_parameters, make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.guard import StepWatchdog
from clustergym.training.distribution import Distribution
from clustergym.training.windows import TraceFiles

METRICS = (
    "jct_mean",
    "jct_p99",
    "slowdown_mean",
    "unfair_fraction",
    "restarts_mean",
    "gpu_utilization",
    "ftf_mean",
    "deadline_satisfaction",
)
"""Columns of a run's figures, NaN: it has none; slowdown_mean is bounded below at `SLOWDOWN_FROM_S`."""
RATIOS = {
    "jct_mean": "mean JCT",
    "jct_p99": "p99 JCT",
    "slowdown_mean": "slowdown",
    "ftf_mean": "mean FTF",
    "deadline_satisfaction": "deadlines met",
}
"""Those that can be compared as ratios, and what tables call them."""
SLOWDOWN_FROM_S = 10.0
RESAMPLES = 10_000
TUNING_SEED_OFFSET = 2_000_003


class Ratio(NamedTuple):
    """A geometric-mean ratio of two policies' results: 95 % bootstrap interval, and range over seeds."""

    value: float
    low: float
    high: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Entrant:
    """A policy that takes part in a comparison, with the parameter values among which to choose.

    Attributes
    ----------
    label : str
    parameters : dict
        Of `make_policy`.
    knobs : dict
        Parameter -> values to choose from on training windows.
    checkpoints : list of str
        Training seeds of one agent, pooled in one row; empty: `parameters` has all.
    """

    label: str
    parameters: dict[str, Any]
    knobs: dict[str, list[Any]]
    checkpoints: list[str] = field(default_factory=list)

    @classmethod
    def from_given(cls, given: Any) -> Entrant:
        """Make an entrant from a policy's name, a checkpoint, or a mapping whose lists are values to tune.

        A list of checkpoints is not tuned: its members are training seeds of one agent.
        """
        if isinstance(given, str):
            learned = given.endswith(".safetensors")
            given = {"name": "learned", "checkpoint": given} if learned else {"name": given}
        named = isinstance(given, Mapping) and isinstance(given.get("name"), str)
        require(named, "policies", given, "give a name, or {name: …}")
        lists = {str(key): list(value) for key, value in given.items() if isinstance(value, list | tuple)}
        for key, values in lists.items():
            require(len(values) > 0, f"policies.{key}", values, "list the values to choose from")
        fixed = {str(key): value for key, value in given.items() if str(key) not in lists}
        checkpoints = _distinct(lists.pop("checkpoint", []))
        own = [f"{key}={value}" for key, value in fixed.items() if key != "name"]
        pooled = [f"checkpoint=[{', '.join(checkpoints)}]"] if checkpoints else []
        return cls(" ".join([str(fixed["name"]), *own, *pooled]), fixed, lists, checkpoints)

    def choices(self) -> list[dict[str, Any]]:
        """Return every combination of the values to tune, as the policy's parameters without checkpoints."""
        values = itertools.product(*self.knobs.values())
        return [{**self.parameters, **dict(zip(self.knobs, chosen, strict=True))} for chosen in values]

    def seeds(self, choice: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the policy's parameters for one of `choices`, once with each training seed's checkpoint."""
        return [{**choice, "checkpoint": name} for name in self.checkpoints] or [dict(choice)]


def _distinct(checkpoints: list[Any]) -> list[str]:
    """Check the names of checkpoints: the same name twice would count as two seeds that agree."""
    for at, name in enumerate(checkpoints):
        if not isinstance(name, str) or name in checkpoints[:at]:
            message = f"{name!r} is " + ("there twice" if isinstance(name, str) else "not a checkpoint")
            raise InputError(message, field="policies.checkpoint", remedy="name each training seed's once")
    return list(checkpoints)


def run_figures(
    source: Distribution | TraceFiles,
    split: str,
    seed: int,
    policies: Sequence[Mapping[str, Any]],
    index: int,
) -> Floats:
    """Run each policy on one scenario, and return the metrics, shape (policies, len(METRICS))."""
    from clustergym.sim.child import run_supervised
    from clustergym.sim.engine import StalledError

    scenario = source.draw(split, seed, index)
    # No moves of running jobs: they would be compared along with the policies.
    placer = make_placer({"name": "buddy", "defragment_s": None})
    rows = []
    for parameters in policies:
        if parameters["name"] in BOUNDS:
            # The p99 and the slowdown are those of every job alone.
            alone_s, mean_s = least_work(scenario)[0], BOUNDS[str(parameters["name"])](scenario)
            p99_s, slowdown = float(np.percentile(alone_s, 99)), _slowdown(scenario, alone_s)
            rows.append([mean_s, p99_s, slowdown, *[np.nan] * (len(METRICS) - 3)])
            continue
        try:
            policy = make_policy(parameters)
            metrics, finish_s = run_supervised(partial(_run, scenario, policy, placer, seed), policy, placer)
        except StalledError as error:
            raise InputError(
                str(error), field=f"policy {parameters['name']}", remedy="leave it out"
            ) from error
        slowdown = _slowdown(scenario, finish_s - scenario.trace.submit_s)
        found: dict[str, float | None] = {**metrics, "slowdown_mean": slowdown}
        rows.append([np.nan if (value := found[name]) is None else float(value) for name in METRICS])
    return np.array(rows)


def _run(
    scenario: Scenario, policy: Policy, placer: Placer, seed: int, watch: StepWatchdog
) -> tuple[Metrics, Floats]:
    """Return the metrics of a run, and when each job completed; NaN if it did not."""
    from clustergym.results.measured_run import simulate

    result = simulate(scenario, policy, placer, seed, watch=watch)
    finish_s = np.full(len(scenario.trace), np.nan)
    for event in result.run.simulation.log.events:
        if event.event_type == "complete":
            finish_s[event.job] = event.time_s
    return result.metrics, finish_s


def _slowdown(scenario: Scenario, jct_s: Floats) -> float:
    """Return the mean bounded slowdown of the jobs that ended; NaN if none did. Dropped jobs have JCT NaN."""
    # Bounded slowdown (Feitelson): max(JCT / max(time alone, 10 s), 1).
    alone_s = scenario.reference_iteration_time_s * scenario.trace.work_iterations
    slowdown = np.maximum(jct_s / np.maximum(alone_s, SLOWDOWN_FROM_S), 1.0)
    ended = np.isfinite(slowdown)
    return float(slowdown[ended].mean()) if ended.any() else float("nan")


def tune_entrant(
    entrant: Entrant,
    distribution: Distribution,
    seed: int,
    windows: int,
    run: Callable[..., Iterable[Floats]],
) -> dict[str, Any]:
    """Return the parameters of a policy with the least mean log(mean JCT) on `windows` training scenarios.

    `run` maps a function over the numbers of the scenarios.
    """
    choices = entrant.choices()
    if len(choices) == 1:
        return choices[0]
    members = [member for choice in choices for member in entrant.seeds(choice)]
    # Windows that no comparison and no training with this seed meets.
    task = partial(run_figures, distribution, "train", seed + TUNING_SEED_OFFSET, members)
    means = np.stack(list(run(task, range(windows))))[:, :, 0].reshape(windows, len(choices), -1)
    return choices[int(np.argmin(np.log(means).mean(axis=(0, 2))))]


def ratio(mine: Floats, reference: Floats, seed: int = 0) -> Ratio:
    """Return the geometric mean of mine / reference over scenarios (rows) and seeds, with a 95 % interval.

    The percentile bootstrap draws windows anew, the same for both, and each side's seeds: the two factors are
    crossed, as every seed meets every window (Owen, The pigeonhole bootstrap, 2007).

    Parameters
    ----------
    mine, reference : ndarray of float, shape (windows,) or (windows, seeds)
        Above 0, of the same windows.
    """
    # log ratio = mean over windows and seeds of log mine - the same of log reference, in each resample.
    sides = [np.log(side).reshape(len(side), -1) for side in (mine, reference)]
    rng = random_streams.COMPARISON.generator(seed)
    windows = _draws(rng, len(sides[0]))
    means = [np.einsum("rw,ws,rs->r", windows, side, _draws(rng, side.shape[1])) for side in sides]
    low, high = np.exp(np.percentile(means[0] - means[1], [2.5, 97.5]))
    single = [side.mean(axis=0) for side in sides]
    pairs = np.exp(single[0][:, None] - single[1])
    value = float(np.exp(single[0].mean() - single[1].mean()))
    return Ratio(value, float(low), float(high), float(pairs.min()), float(pairs.max()))


def _draws(rng: np.random.Generator, count: int) -> Floats:
    """Return how often each of `count` values is in each bootstrap resample, as shares."""
    if count == 1:
        return np.ones((RESAMPLES, 1))
    # Each resample counts in a range of numbers of its own: one bincount does for all.
    drawn = rng.integers(count, size=(RESAMPLES, count)) + np.arange(RESAMPLES)[:, None] * count
    return np.bincount(drawn.ravel(), minlength=RESAMPLES * count).reshape(RESAMPLES, count) / count


def common_knowledge(seeds: Sequence[Mapping[str, Any]]) -> str:
    """Return what an agent knows of iteration times; raise an error if its training seeds differ in that."""
    known = [knowledge(parameters) for parameters in seeds]
    for own, parameters in zip(known, seeds, strict=True):
        if own != known[0]:
            raise InputError(
                f"knows {own}, and {seeds[0]['checkpoint']} {known[0]}",
                field=f"policies.checkpoint {parameters['checkpoint']}",
                remedy="compare them as entries of their own",
            )
    return known[0]


def knowledge(parameters: Mapping[str, Any]) -> str:
    """Return the name of a policy's information class, which says what it knows of iteration times."""
    if parameters["name"] in BOUNDS:
        return "all, in hindsight"
    return make_policy(parameters).information_class.value


def full_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Check a policy's parameters, and return its name and all of them, with defaults filled in."""
    if parameters["name"] in BOUNDS:
        for key in parameters.keys() - {"name"}:
            raise InputError("a bound has no parameters", field=f"policies.{key}", remedy="leave it out")
        return dict(parameters)
    policy: Policy = make_policy(parameters)
    return {"name": policy.name, **list_parameters(policy)}


BOUNDS: dict[str, Callable[[Scenario], float]] = {
    "lower_bound": lambda scenario: lower_bounds(scenario).jct_mean,
    "proved_bound": lambda scenario: search(build_programme(scenario, "jct_mean")).value,
}
"""Name of a row -> function that returns a lower bound on the mean JCT."""
