"""Jobs that share GPUs in pairs: which launches a decision needs, and what it must obey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Bools, Ints
from clustergym.scenario.policy import Decision, Infeasible
from clustergym.scenario.scenario import Scenario
from clustergym.sim.log import NO_JOB
from clustergym.sim.state import JobStates


class PairFault(NamedTuple):
    """An error in a decision's pairs of jobs that share GPUs: the job's position in it, why, and a remedy."""

    row: int
    message: str
    remedy: str


def find_pair_fault(decision: Decision, scenario: Scenario) -> PairFault | None:
    """Return the first error in a decision's pairs of jobs that share GPUs, or None."""
    partner = decision.partner
    if partner is None or not (partner != NO_JOB).any():
        return None
    first = int(np.argmax(partner != NO_JOB))
    if scenario.pairs is None:
        return PairFault(first, "shares GPUs, but the scenario has no pairs", "give scenario.pairs=FILE")
    at = {int(row): place for place, row in enumerate(decision.job.tolist())}
    level = np.searchsorted(scenario.tables.counts, decision.gpus)
    for row, other in enumerate(partner.tolist()):
        if other == NO_JOB:
            continue
        there = at.get(other)
        if there is None or there == row or partner[there] != decision.job[row]:
            name = scenario.trace.job_id[other] if 0 <= other < len(scenario.trace) else f"#{other}"
            remedy = "let two jobs of the decision name each other, or give -1"
            return PairFault(row, f"shares with {name}, which does not share with it", remedy)
        if decision.gpu_type[there] != decision.gpu_type[row] or decision.gpus[there] != decision.gpus[row]:
            theirs = (
                f"{int(decision.gpus[there])} {scenario.cluster.gpu_types[int(decision.gpu_type[there])]}"
            )
            message = (
                f"shares {int(decision.gpus[row])} {scenario.cluster.gpu_types[int(decision.gpu_type[row])]} "
                f"with job {scenario.trace.job_id[other]}, which has {theirs}"
            )
            return PairFault(row, message, "give both the same type and count")
        classes = scenario.class_of[decision.job[row]], scenario.class_of[other]
        if not scenario.pairs.allowed[(*classes, int(decision.gpu_type[row]), int(level[row]))]:
            message = f"may not share with job {scenario.trace.job_id[other]}"
            return PairFault(row, message, "choose where view.pair_options().allowed is true")
    return None


def mark_counted_jobs(decision: Decision) -> Bools:
    """Return a mask (m,) of the decided jobs whose GPUs count as used: of two that share GPUs, only one."""
    if decision.partner is None:
        return np.ones(len(decision.job), dtype=np.bool_)
    counts: Bools = (decision.partner == NO_JOB) | (decision.job < decision.partner)
    return counts


class PairedLaunches(NamedTuple):
    """The jobs that a decision launches, and whose GPUs each of them joins, where jobs share GPUs.

    Attributes
    ----------
    changed : ndarray of bool, shape (m,)
        Jobs of the decision that are launched.
    joins : mapping of int to int
        A launched job -> the job whose GPUs it joins.
    """

    changed: Bools
    joins: Mapping[int, int]


def list_paired_launches(decision: Decision, jobs: JobStates) -> PairedLaunches:
    """Return which jobs a decision launches, and whose GPUs each of them joins, where jobs share GPUs.

    Each pair, or job on its own, stays on the GPUs that one of its jobs holds now, if they have the type and
    count; each GPU is kept by one pair or job, that of the lowest row: two want the same GPUs only where a
    pair parts. The other job of a pair joins.
    """
    gpu_type, gpus = dict(_rows(decision, decision.gpu_type)), dict(_rows(decision, decision.gpus))
    partner = {row: NO_JOB for row in gpu_type}
    if decision.partner is not None:
        partner.update(_rows(decision, decision.partner))
    stays: dict[int, int] = {}
    # In ascending rows, so that which unit keeps contested GPUs does not depend on the decision's order.
    units = sorted(row for row, other in partner.items() if other == NO_JOB or row < other)
    kept: set[int] = set()
    for unit in units:
        members = [unit] if partner[unit] == NO_JOB else [unit, partner[unit]]
        for row in members:
            same = jobs.gpus[row] == gpus[row] and jobs.gpu_type[row] == gpu_type[row]
            if same and _name_held_gpus(row, jobs) not in kept:
                kept.add(_name_held_gpus(row, jobs))
                # The whole unit stays there: the member that holds the GPUs keeps them, and the other joins
                # it.
                stays.update(dict.fromkeys(members, row))
                break
    moved, joins = set[int](), dict[int, int]()
    for row, other in partner.items():
        # A pair of which neither holds the GPUs is launched as its lower row, which the other joins.
        anchor = stays.get(row, row if other == NO_JOB else min(row, other))
        is_there = row in stays and (row == anchor or jobs.get_partner(row) == anchor)
        if not is_there:
            moved.add(row)
            if row != anchor:
                joins[row] = anchor
    return PairedLaunches(np.array([row in moved for row in decision.job.tolist()], dtype=np.bool_), joins)


def _name_held_gpus(row: int, jobs: JobStates) -> int:
    """Return an identifier of the GPUs that a running job holds: the lowest row that holds them."""
    other = jobs.get_partner(row)
    return row if other == NO_JOB else min(row, other)


def _rows(decision: Decision, column: Ints) -> Iterable[tuple[int, int]]:
    return zip(decision.job.tolist(), column.tolist(), strict=True)


class Sharing:
    """Keeps account of which two jobs share the same GPUs, and how fast each of them then is.

    Attributes
    ----------
    launches : Counter of str
        Launches beside another job, by where the speeds are from: `table`, or the rule for missing pairs.
    """

    def __init__(self, scenario: Scenario, jobs: JobStates, allocations: Allocations) -> None:
        assert scenario.pairs is not None
        assert jobs.partner is not None
        self.launches: Counter[str] = Counter()
        self._speeds, self._partner, self._class_of = scenario.pairs, jobs.partner, scenario.class_of
        self._trace, self._counts = scenario.trace, scenario.tables.counts
        self._jobs, self._allocations = jobs, allocations
        self._changed: set[int] = set()

    def join(self, row: int, other: int, now: int) -> Nodes | Infeasible:
        """Let a job share another job's GPUs from tick `now`; return (node, GPUs) pairs, or why it cannot."""
        jobs = self._jobs
        if not jobs.gpus[other]:
            return Infeasible(f"{self._trace.job_id[other]}, whose GPUs it was to share, has none")
        jobs.settle(other, now)
        self._partner[row], self._partner[other] = other, row
        self._changed.add(other)
        level = int(np.searchsorted(self._counts, jobs.gpus[other]))
        classes = self._class_of[row], self._class_of[other]
        missing = self._speeds.missing[(*classes, int(jobs.gpu_type[other]), level)]
        self.launches[self._speeds.interference if missing else "table"] += 1
        return self._allocations.share(row, other)

    def part(self, row: int, now: int) -> None:
        """End a job's sharing of GPUs at tick `now`, if it shares them."""
        other = int(self._partner[row])
        if other != NO_JOB:
            self._jobs.settle(other, now)
            self._partner[row] = self._partner[other] = NO_JOB
            self._changed.add(other)

    def list_changed_jobs(self) -> list[int]:
        """Return the running jobs that began or ended to share GPUs since the last call."""
        rows = sorted(row for row in self._changed if self._jobs.gpus[row])
        self._changed.clear()
        return rows

    def get_kept_speed(self, row: int, gpu_type: int, level: int) -> float:
        """Return the share of its speed a job keeps beside its partner, by GPU count index; 1 if alone."""
        other = int(self._partner[row])
        return 1.0 if other == NO_JOB else self.get_pair_speed(row, other, gpu_type, level)

    def get_pair_speed(self, row: int, other: int, gpu_type: int, level: int) -> float:
        """Return the share of its speed that a job would keep beside another, by GPU count index `level`."""
        return float(self._speeds.kept[self._class_of[row], self._class_of[other], gpu_type, level])
