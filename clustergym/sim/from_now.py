"""Simulate from a moment at which jobs already run and wait."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Nodes
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
    """A decision point of a running cluster: what the policy sees, and what it decides.

    Attributes
    ----------
    view : View
    decision : Decision
    job_id : tuple of str
        Of the rows of the view.
    started : frozenset of int
        The jobs that waited and have GPUs by the decision. A job that it starts is not among them where no
        nodes have these GPUs as the job asks for them: it waits on.
    """

    view: View
    decision: Decision
    job_id: tuple[str, ...]
    started: frozenset[int]


def list_moments(
    scenario: Scenario,
    policy: Policy,
    placer: Placer,
    running: Collection[str],
    now_s: float,
    hosts: Mapping[str, Sequence[str]] | None = None,
    at_once: Mapping[str, int] | None = None,
) -> Iterator[Moment]:
    """Simulate a cluster from `now_s` on, on which jobs already run; yield each decision of the policy.

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
    hosts : mapping of str to sequence of str, optional
        Names of the nodes on which running jobs are, by job; jobs that share a node share it again.
    at_once : mapping of str to int, optional
        How many tasks of an array run at once, by the array's name, with which the names of its tasks begin,
        before an underscore. The policy does not see those beyond.
    """
    simulation = Simulation(scenario, placer, policy.information_class, policy.round_s, 0)
    policy.check(simulation.known_trace, simulation.setting)
    policy.reset(simulation.setting, random_streams.POLICY.generator(0))
    job_id = scenario.trace.job_id
    row_of = {name: row for row, name in enumerate(job_id)}
    held, mark = {row_of[name] for name in running}, row_of[MARK]
    named = {row_of[name]: on for name, on in (hosts or {}).items() if on}
    begun = False
    with contextlib.suppress(StalledError):
        while (view := simulation.advance()) is not None:
            begun = begun or mark in view.job
            if view.now_s > now_s + LONGEST_S:
                return
            if not begun:
                # The past is a fact, not a decision: jobs that run now are started as they were, and nobody
                # else.
                starts = _held_now(view, held)
                nodes = match_hosts(starts, named, scenario.cluster)
                simulation.apply(replace(Decision.keep(view).also(starts), move=nodes))
                continue
            marked = mark in view.job
            hidden = {*_find_beyond(view, job_id, at_once), *([mark] if marked else [])}
            decision = policy.schedule(drop_rows(view, hidden) if hidden else view)
            simulation.apply(replace(decision, drop=np.append(decision.drop, mark)) if marked else decision)
            waited = view.job[view.gpus == 0].tolist()
            started = frozenset(row for row in waited if simulation.allocations.holding(row))
            yield Moment(view, decision, job_id, started)


def _held_now(view: View, running: Collection[int]) -> list[tuple[int, int, int]]:
    """Return (job, GPU type, GPUs) of the jobs that run now, each on the first type with room."""
    free, found = view.free.copy(), []
    for at in np.flatnonzero((view.state == QUEUED) & np.isin(view.job, list(running))).tolist():
        gpus, asked = int(view.requested_gpus[at]), int(view.requested_type[at])
        types = [asked] if asked >= 0 else np.flatnonzero(free >= gpus).tolist()
        if types and free[types[0]] >= gpus:
            free[types[0]] -= gpus
            found.append((int(view.job[at]), types[0], gpus))
    return found


def match_hosts(
    starts: Sequence[tuple[int, int, int]], hosts: Mapping[int, Sequence[str]], cluster: ClusterSpec
) -> dict[int, Nodes]:
    """Choose nodes for starting jobs such that jobs with a common host name in `hosts` share a node.

    Nodes of one type are alike, so that any may be the host of any name. A type whose hosts do not fit on its
    nodes is left out, as are jobs without names, or with other than equally many GPUs on each host.

    Parameters
    ----------
    starts : sequence of (int, int, int)
        Job, GPU type and GPUs.
    hosts : mapping of int to sequence of str
        By job.
    cluster : ClusterSpec
    """
    found: dict[int, Nodes] = {}
    for gpu_type in {gpu_type for _, gpu_type, _ in starts}:
        each = {
            job: gpus // len(hosts[job])
            for job, of, gpus in starts
            if of == gpu_type and hosts.get(job) and gpus % len(hosts[job]) == 0
        }
        used = Counter[str]()
        for job, gpus in each.items():
            used.update(dict.fromkeys(hosts[job], gpus))
        nodes = np.flatnonzero(cluster.node_type == gpu_type)
        node_of = dict(zip(sorted(used), nodes.tolist(), strict=False))
        if len(used) <= len(nodes) and max(used.values(), default=0) <= cluster.node_gpus[nodes[0]]:
            found |= {
                job: tuple(sorted((node_of[host], gpus) for host in hosts[job])) for job, gpus in each.items()
            }
    return found


def _find_beyond(view: View, job_id: Sequence[str], at_once: Mapping[str, int] | None) -> list[int]:
    """Return the waiting tasks of arrays beyond those that may run at once."""
    if not at_once:
        return []
    left, found = dict(at_once), []
    # Those that run come first, then those that wait, in order of submission.
    for at in np.argsort(view.gpus == 0, kind="stable").tolist():
        row = int(view.job[at])
        array = job_id[row].partition("_")[0]
        left[array] = left.get(array, len(view.job)) - 1
        if left[array] < 0 and not view.gpus[at]:
            found.append(row)
    return found


def drop_rows(view: View, rows: Collection[int]) -> View:
    """Return a View without the jobs of some rows of the trace."""
    keep = ~np.isin(view.job, list(rows))
    columns: dict[str, Any] = {}
    for column in fields(view):
        value = getattr(view, column.name)
        if isinstance(value, np.ndarray) and column.name not in ("available", "free", "coming"):
            columns[column.name] = value[keep]
    columns["times"] = lambda: view.times()[keep]
    columns["costs"] = lambda: view.costs()[keep]
    columns["stops"] = lambda: view.stop_costs().select(np.flatnonzero(keep))
    return view.with_columns(columns)
