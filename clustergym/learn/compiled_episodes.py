"""Turns a scenario into the arrays of a compiled episode, and runs it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.inputs.errors import InputError
from clustergym.interface.policy import InformationClass
from clustergym.scenarios.clock import TICKS_PER_S, ticks
from clustergym.scenarios.scenario import Scenario


@dataclass(frozen=True, eq=False)
class EpisodeOutcome:
    """The outcome of an episode, arrays of length n.

    Attributes
    ----------
    jct_s : ndarray of float
    restarts : ndarray of int
    attained_gpu_s : ndarray of float
    decisions : int
    """

    jct_s: Floats
    restarts: Ints
    attained_gpu_s: Floats
    decisions: int


@dataclass(frozen=True, eq=False)
class Episode:
    """The arrays `clustergym.learn.kernel.run` takes after the weights."""

    capacity: Ints
    counts: Ints
    submit: Ints
    submit_s: Floats
    iterations: Floats
    deadline_s: Floats
    execution_s: Floats
    known_s: Floats
    checkpoint_s: Floats
    search_s: Floats
    round_ticks: int

    @classmethod
    def of(cls, scenario: Scenario, information: InformationClass, round_s: float | None = None) -> Episode:
        """Return the episode of a scenario for a policy of an information class.

        Parameters
        ----------
        scenario : Scenario
        information : InformationClass
        round_s : float or None
            The policy's round, where the scenario leaves rounds to it.

        Raises
        ------
        InputError
            If the compiled episode would not be the engine's: the scenario ends at a horizon, profiles new
            jobs, has a job that fits nowhere or whose times are unknown to the information class, or
            iteration times depend on which nodes a job has.
        """
        rows = scenario.class_of
        known = scenario.known_times(information)[rows]
        _refuse(scenario, information, known)
        chosen = {"policy": round_s, "event": None}.get(str(scenario.rounds), scenario.rounds)
        execution = scenario.known_times(InformationClass.CLAIRVOYANT)[rows]
        return cls(
            scenario.cluster.capacity.astype(np.int64),
            scenario.tables.counts.astype(np.int64),
            np.array([ticks(t) for t in scenario.trace.submit_s.tolist()], dtype=np.int64),
            scenario.trace.submit_s.astype(np.float64),
            scenario.trace.iterations.astype(np.float64),
            scenario.trace.deadline_s.astype(np.float64),
            np.ascontiguousarray(execution),
            np.ascontiguousarray(known),
            scenario.checkpoint_s[rows].astype(np.float64),
            scenario.costs.search_s(scenario.tables.counts).astype(np.float64),
            0 if chosen is None else ticks(float(chosen)),
        )

    def run(self, weights: Floats) -> EpisodeOutcome:
        """Run the auction with these weights to the end."""
        from clustergym.learn import kernel

        finish, restarts, attained, decisions = kernel.run(
            weights,
            self.capacity,
            self.counts,
            self.submit,
            self.submit_s,
            self.iterations,
            self.deadline_s,
            self.execution_s,
            self.known_s,
            self.checkpoint_s,
            self.search_s,
            self.round_ticks,
        )
        return EpisodeOutcome((finish - self.submit) / TICKS_PER_S, restarts, attained, int(decisions))


def _refuse(scenario: Scenario, information: InformationClass, known: Floats) -> None:
    """Raise an InputError if compiled episodes do not cover the scenario."""
    times = np.where(scenario.feasible[..., None], scenario.execution, 0.0)
    reachable = times[..., scenario.compact.min() :]
    unknown = np.flatnonzero(~np.isfinite(known).any(axis=(1, 2)))
    profiles = information.value in scenario.costs.profile
    reasons = (
        (scenario.horizon_s is not None, "ends at a horizon", "horizon_s"),
        (profiles, f"profiles new jobs for policies of class {information.value}", "costs.profile"),
        (scenario.costs.first_launch, "charges the first launch", "costs.first_launch"),
        (bool((scenario.request_gpus == 0).any()), "has jobs that fit nowhere", "trace"),
        (bool(len(unknown)), f"has jobs without times for class {information.value}", "oracle"),
        (
            bool((reachable != reachable[..., :1]).any()),
            "has iteration times that depend on the nodes",
            "oracle",
        ),
    )
    for refused, reason, field in reasons:
        if refused:
            free = "choose costs=profiled-free, or " if field == "costs.profile" else ""
            raise InputError(
                f"scenario {scenario.name} {reason}, which compiled episodes do not cover",
                field=field,
                remedy=f"{free}run it in the simulator: clustergym run policy=learned",
            )
