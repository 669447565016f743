"""Simulate from a moment at which jobs already run and wait."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.columns import DAY_S
from clustergym.scenario.policy import QUEUED, Decision, Placer, Policy, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation, StalledError

MARK = "now"
"""Job of no work that is submitted now and dropped at once, so that there is a decision point."""
LONGEST_S = 30 * DAY_S
"""Simulated time after which a job that still waits counts as never started."""


@dataclass(frozen=True)
class Moment:
    """A decision point of a running cluster, with the policy's decision.

    Attributes
    ----------
    view : View
    decision : Decision
    job_id : tuple of str
        Of the rows of the view.
    """

    view: View
    decision: Decision
    job_id: tuple[str, ...]


def list_moments(
    scenario: Scenario, policy: Policy, placer: Placer, running: Collection[str], now_s: float
) -> Iterator[Moment]:
    """Yield a policy's decisions from `now_s` on; only the running jobs start earlier.

    Parameters
    ----------
    scenario : Scenario
        Its jobs run or wait at `now_s`, or come later; `MARK` is submitted then. A running job's work is what
        it does until `now_s`, and what is left of it.
    policy : Policy
    placer : Placer
    running : collection of str
        Jobs that run.
    now_s : float
        On the scenario's clock.
    """
    simulation = Simulation(scenario, placer, policy.information_class, policy.round_s, 0)
    policy.check(simulation.known_trace, simulation.setting)
    policy.reset(simulation.setting, random_streams.POLICY.generator(0))
    job_id = scenario.trace.job_id
    row_of = {name: row for row, name in enumerate(job_id)}
    held, mark = {row_of[name] for name in running}, row_of[MARK]
    begun = False
    with contextlib.suppress(StalledError):
        while (view := simulation.advance()) is not None:
            begun = begun or mark in view.job
            if view.now_s > now_s + LONGEST_S:
                return
            if not begun:
                # The past is a fact, not a decision: jobs that run now are started as they were, and nobody
                # else.
                simulation.apply(Decision.keep(view).also(_held_now(view, held)))
                continue
            marked = mark in view.job
            decision = policy.schedule(drop_row(view, mark) if marked else view)
            yield Moment(view, decision, job_id)
            simulation.apply(replace(decision, drop=np.append(decision.drop, mark)) if marked else decision)


def _held_now(view: View, running: Collection[int]) -> list[tuple[int, int, int]]:
    """Return the starts of the jobs that run now, each on the first type that has room."""
    free, found = view.free.copy(), []
    for at in np.flatnonzero((view.state == QUEUED) & np.isin(view.job, list(running))).tolist():
        gpus, asked = int(view.requested_gpus[at]), int(view.requested_type[at])
        types = [asked] if asked >= 0 else np.flatnonzero(free >= gpus).tolist()
        if types and free[types[0]] >= gpus:
            free[types[0]] -= gpus
            found.append((int(view.job[at]), types[0], gpus))
    return found


def drop_row(view: View, row: int) -> View:
    """Return a view without one job."""
    keep = view.job != row
    columns: dict[str, Any] = {}
    for column in fields(view):
        value = getattr(view, column.name)
        if isinstance(value, np.ndarray) and column.name not in ("available", "free", "coming"):
            columns[column.name] = value[keep]
    columns["times"] = lambda: view.times()[keep]
    columns["costs"] = lambda: view.costs()[keep]
    columns["stops"] = lambda: view.stop_costs().select(np.flatnonzero(keep))
    return view.with_columns(columns)
