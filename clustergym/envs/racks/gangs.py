"""The gangs of an episode of the Rack environment, and the parameters by which a seed draws them.

The site's page of parameters is made from this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from gymnasium.utils import seeding

from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError, require_known
from clustergym.common.parameter_types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from clustergym.common.parameters import Parameters, check_value
from clustergym.envs.episodes import trace_seed

SHAPES = ((1, 1, 0.25), (2, 1, 0.20), (4, 1, 0.15), (8, 1, 0.15), (16, 1, 0.15), (16, 2, 0.06), (16, 4, 0.04))
"""Trays of a segment, segments, and how often gangs are such; assumed. 4 to 256 GPUs."""
SIZES = tuple(sorted({trays for trays, _, _ in SHAPES}))
MEDIAN_S, LN_SIGMA = 7200.0, 0.8
"""Of log-normal durations; assumed."""
TRACES = 100
"""Episodes of the splits dev and test each."""


class Gangs(NamedTuple):
    """The jobs (gangs) of an episode: submission times, durations, and the rack trays that each needs.

    Attributes
    ----------
    submit_s, duration_s : ndarray of float, shape (n,)
    trays, segments : ndarray of int, shape (n,)
        Trays of each segment, which lies in one rack; number of segments.
    told_s : ndarray of float, shape (n,), or None
        How long gangs say that they will run; None: the truth.
    """

    submit_s: Floats
    duration_s: Floats
    trays: Ints
    segments: Ints
    told_s: Floats | None = None


@dataclass(frozen=True)
class RackParameters(Parameters):
    """The parameters of a Rack environment; the text below each field describes it."""

    config_key: ClassVar[str] = "env"
    racks: PositiveInt = 8
    """Racks whose GPUs NVLink joins."""
    trays: PositiveInt = 18
    """Trays of a rack, of four GPUs each."""
    gang_trays: PositiveInt = 16
    """Trays of a rack that a gang may count on: it has no more of them there."""
    jobs: PositiveInt = 120
    """Gangs of an episode."""
    told_error: NonNegativeFloat | None = None
    """Gangs tell how long they will run, with this error: the standard deviation of its logarithm. Null: they
    do not tell."""
    split: Literal["train", "dev", "test"] | None = None
    """Draw episodes whose `trace_seed` modulo 3 is 0 (train), 1 (dev) or 2 (test); dev and test have 100
    each. Null: any."""
    load: PositiveFloat = 1.0
    """GPU-hours that they ask for, over those of the racks while gangs come."""
    moves_per_hour: NonNegativeFloat = 8.0
    """Gangs that may be moved in an hour, saved up for an hour at most."""
    restart_s: NonNegativeFloat = 300.0
    """Seconds that a gang stands still when it is moved."""
    window: PositiveInt = 8
    """Waiting gangs, the first to come, that are offered each time one comes or ends."""
    reward: Mapping[str, float] = field(default_factory=lambda: {"waiting": 1.0, "moved": 1.0})
    """Weights of the terms waiting and moved."""
    on_illegal: Literal["penalty", "noop", "raise"] = "penalty"
    """What follows when the agent chooses a rack without room, or a move that is not possible."""
    illegal_penalty: NonNegativeFloat = 1.0
    """What `penalty` takes off the reward, from 0."""
    observation: Literal["dict", "flat"] = "dict"
    """The form of an observation: a dict of arrays, or one array."""
    max_steps: PositiveInt | None = None
    """Steps after which an episode is truncated; null: 50 for each gang."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.fitting_shapes():
            remedy = "give at least 1 for each of racks, trays and gang_trays"
            raise InputError("no gang fits", field="env.gang_trays", remedy=remedy)

    @property
    def most_trays(self) -> int:
        """The most trays (of four GPUs each) of one rack that a gang (job) may hold."""
        return min(self.trays, self.gang_trays)

    def fitting_shapes(self) -> list[tuple[int, int, float]]:
        """Return preset gangs that fit: (trays of each one-rack segment, number of segments, probability)."""
        return [shape for shape in SHAPES if self.most_trays // shape[0] * self.racks >= shape[1]]


def episode_gangs(parameters: RackParameters, options: Mapping[str, Any], rng: np.random.Generator) -> Gangs:
    """Return the gangs (jobs) of an episode: those in the option `gangs`, or sampled ones."""
    for name in options:
        require_known(name, ("gangs", "trace_seed"), "option", f"options.{name}")
    if "gangs" in options:
        return _check(parameters, options["gangs"])
    seed = options.get("trace_seed")
    if seed is None and parameters.split is not None:
        below = 2**31 if parameters.split == "train" else TRACES
        seed = trace_seed(parameters.split, int(rng.integers(below)))
    if seed is not None:
        # The episode of `reset(seed=…)`: so other code that seeds episodes by split draws the same.
        rng, _ = seeding.np_random(check_value(seed, NonNegativeInt, "options.trace_seed"))
    return _draw(parameters, rng)


def _check(parameters: RackParameters, given: Any) -> Gangs:
    if not isinstance(given, Gangs) or not len(given.submit_s):
        raise InputError("is not a Gangs with jobs", field="options.gangs", remedy="give a Gangs")
    if (
        len({len(column) for column in given if column is not None}) > 1
        or (np.diff(given.submit_s) < 0).any()
    ):
        remedy = "give as many of each, by time of submission"
        raise InputError("has columns of other lengths, or not by time", field="options.gangs", remedy=remedy)
    fits = parameters.most_trays // np.maximum(given.trays, 1) * parameters.racks >= given.segments
    wrong = np.flatnonzero(~fits | (given.trays < 1) | (given.segments < 1) | ~(given.duration_s > 0))
    if len(wrong):
        at = int(wrong[0])
        message = f"gang {at} has {given.segments[at]} segments of {given.trays[at]} trays"
        message += f" for {given.duration_s[at]:g} s"
        remedy = f"give what fits in {parameters.racks} racks of {parameters.most_trays}, and seconds above 0"
        raise InputError(message, field="options.gangs", remedy=remedy)
    return given


def _draw(parameters: RackParameters, rng: np.random.Generator) -> Gangs:
    trays, segments, weight = np.array(parameters.fitting_shapes()).T
    shape = rng.choice(len(weight), parameters.jobs, p=weight / weight.sum())
    duration_s = np.exp(np.log(MEDIAN_S) + LN_SIGMA * rng.standard_normal(parameters.jobs))
    asked = float((duration_s * (trays * segments)[shape]).sum())
    # load = trays x seconds asked for / (trays of all racks x span): the span follows from it.
    span_s = asked / (parameters.load * parameters.racks * parameters.trays)
    submit_s = np.sort(rng.random(parameters.jobs)) * span_s
    # The first gang comes at 0: before it there is nothing to decide.
    whole, told_s = np.int64, None
    if parameters.told_error is not None:
        told_s = duration_s * np.exp(parameters.told_error * rng.standard_normal(parameters.jobs))
    sizes = trays[shape].astype(whole), segments[shape].astype(whole)
    return Gangs(submit_s - submit_s[0], duration_s, *sizes, told_s)
