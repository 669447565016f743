"""Policies and checkpoints compared on one split: runs in the simulator, ratios with intervals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError
from clustergym.learn.bounds import BOUNDS
from clustergym.learn.distribution import Distribution
from clustergym.policy import Policy
from clustergym.registry import make_placer, make_policy, parameters_of
from clustergym.scenario import Scenario

Floats = npt.NDArray[np.float64]
METRICS = ("jct_mean", "jct_p99", "slowdown_mean", "unfair_fraction", "restarts_mean", "gpu_utilization")
"""Columns of a run's figures; slowdown_mean is bounded below at `SLOWDOWN_FROM_S`."""
RATIOS = METRICS[:3]
"""Those that are compared as ratios."""
SLOWDOWN_FROM_S = 10.0
RESAMPLES = 10_000
TUNING_SEED_OFFSET = 2_000_003


class Source(Protocol):
    """Where scenarios come from: a distribution, or files."""

    def draw(self, split: str, seed: int, index: int) -> Scenario:
        """Return a scenario, the same for the same arguments."""


class Ratio(NamedTuple):
    """A geometric-mean ratio with its 95 % bootstrap interval over windows."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Entrant:
    """A policy to compare, with the values that its knobs were chosen from.

    Attributes
    ----------
    label : str
    parameters : dict
        Of `make_policy`.
    knobs : dict
        Parameter -> values to choose from on training windows.
    """

    label: str
    parameters: dict[str, Any]
    knobs: dict[str, list[Any]]

    @classmethod
    def of(cls, given: Any) -> Entrant:
        """Read an entrant: a policy's name, a checkpoint, or a mapping whose lists are knobs to tune.

        Raises
        ------
        InputError
            If it is neither.
        """
        if isinstance(given, str):
            given = (
                {"name": "learned", "checkpoint": given}
                if given.endswith(".safetensors")
                else {"name": given}
            )
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
            raise InputError(f"{given!r} is no policy", field="policies", remedy="give a name, or {name: …}")
        knobs = {key: list(value) for key, value in given.items() if isinstance(value, list | tuple)}
        for key, values in knobs.items():
            if not values:
                raise InputError(
                    "has no value", field=f"policies.{key}", remedy="list the values to choose from"
                )
        fixed = {str(key): value for key, value in given.items() if key not in knobs}
        own = [f"{key}={value}" for key, value in fixed.items() if key != "name"]
        return cls(" ".join([str(fixed["name"]), *own]), fixed, knobs)

    def choices(self) -> list[dict[str, Any]]:
        """Return every combination of the knobs, as parameters of `make_policy`."""
        values = itertools.product(*self.knobs.values())
        return [{**self.parameters, **dict(zip(self.knobs, one, strict=True))} for one in values]


def run_figures(
    source: Source, split: str, seed: int, policies: Sequence[Mapping[str, Any]], index: int
) -> Floats:
    """Return the figures of each policy on one drawn scenario, shape (policies, METRICS)."""
    from clustergym.output import measurement_of
    from clustergym.sim.engine import StalledError
    from clustergym.sim.run import simulate

    scenario = source.draw(split, seed, index)
    placer = make_placer({"name": "buddy", "defragment_s": None})
    rows = []
    for parameters in policies:
        if parameters["name"] in BOUNDS:
            given = {key: value for key, value in parameters.items() if key != "name"}
            jct_s, mean_s = BOUNDS[str(parameters["name"])](scenario, seed, given)
            p99_s, slowdown = float(np.percentile(jct_s, 99)), _slowdown(scenario, jct_s)
            rows.append([mean_s, p99_s, slowdown, np.nan, np.nan, np.nan])
            continue
        try:
            run = simulate(scenario, make_policy(parameters), placer, seed)
        except StalledError as error:
            raise InputError(
                str(error), field=f"policy {parameters['name']}", remedy="leave it out"
            ) from error
        metrics = measurement_of(run.simulation).metrics
        finish_s = np.zeros(len(scenario.trace))
        for event in run.simulation.log.events:
            if event.kind.value == "complete":
                finish_s[event.job] = event.time_s
        slowdown = _slowdown(scenario, finish_s - scenario.trace.submit_s)
        rows.append([slowdown if m == "slowdown_mean" else float(metrics[m] or 0.0) for m in METRICS])
    return np.array(rows)


def _slowdown(scenario: Scenario, jct_s: Floats) -> float:
    """Return the mean bounded slowdown."""
    alone_s = scenario.reference_iteration_time_s * scenario.trace.iterations
    return float(np.maximum(jct_s / np.maximum(alone_s, SLOWDOWN_FROM_S), 1.0).mean())


def tuned(
    entrant: Entrant,
    distribution: Distribution,
    seed: int,
    windows: int,
    run: Callable[..., Iterable[Floats]],
) -> dict[str, Any]:
    """Return the parameters of least mean log(mean JCT) on training windows."""
    choices = entrant.choices()
    if len(choices) == 1:
        return choices[0]
    task = partial(run_figures, distribution, "train", seed + TUNING_SEED_OFFSET, choices)
    means = np.stack(list(run(task, range(windows))))[:, :, 0]
    return choices[int(np.argmin(np.log(means).mean(axis=0)))]


def ratio(mine: Floats, reference: Floats, seed: int = 0) -> Ratio:
    """Return the geometric mean of mine / reference over windows, with its percentile bootstrap.

    Parameters
    ----------
    mine, reference : ndarray of float, shape (windows,)
        Above 0, of the same windows.
    """
    logs = np.log(mine / reference)
    rng = np.random.default_rng([seed, 617])
    means = logs[rng.integers(len(logs), size=(RESAMPLES, len(logs)))].mean(axis=1)
    low, high = np.exp(np.percentile(means, [2.5, 97.5]))
    return Ratio(float(np.exp(logs.mean())), float(low), float(high))


def knowledge(parameters: Mapping[str, Any]) -> str:
    """Return what a policy knows of iteration times; of a bound: everything."""
    if parameters["name"] in BOUNDS:
        return "all, in hindsight"
    return make_policy(parameters).information_class.value


def full_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy's name and all its parameters, after checking them; of a bound those given."""
    if parameters["name"] in BOUNDS:
        return dict(parameters)
    policy: Policy = make_policy(parameters)
    return {"name": policy.name, **parameters_of(policy)}
