"""A scenario: everything a run depends on besides its policy, placer and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clustergym.cluster.parts import Parts
from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.base import BatchTables, OracleTables, fill_tiers, linear, same_local_batch
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.scenario.costs import Costs
from clustergym.scenario.disturbance import Disturbance
from clustergym.scenario.gpu_requests import (
    GpuRequests,
    fit_requests,
    fits_nowhere,
    index_named_types,
    make_oversize_error,
)
from clustergym.scenario.pairs import PairSpeeds
from clustergym.scenario.view import BatchOptions, InformationClass
from clustergym.trace.trace import Trace

if TYPE_CHECKING:
    from clustergym.scenario.tenants.queue_tree import Tenants


@dataclass(frozen=True, eq=False)
class Scenario:
    """All that a run depends on besides policy and placer: cluster, trace, iteration times and rules.

    Attributes
    ----------
    name, version : str, int
    cluster : ClusterSpec
    trace : Trace
    tables : OracleTables
        The oracle's times of the trace's model classes on the cluster.
    checkpoint_s : ndarray of float, shape (C,)
        Seconds to save and load the checkpoint of each model class of `tables`.
    costs : Costs
    rounds : str or float
        `policy`: decision points are the policy's rounds; `event`: every event; a number:
        rounds of that many seconds.
    horizon_s : float or None
        Simulated time at which a run stops; None: when every job has left.
    counts_rule : str
        `power_of_two` or `any`: the GPU counts an allotment may have.
    oversize : str
        `error` or `drop`: what to do with a request for more GPUs than the cluster has.
    communication_s : ndarray of float, shape (C, T, K, 4), optional
        Seconds of each iteration of `tables.execution` that traffic between nodes takes on free links. If
        given, jobs share the links between switches (`sim.links`): a job whose traffic is slowed down by
        a factor f takes execution + (f - 1) x communication seconds per iteration. The tables then hold
        for free links (`oracle.oracle_config`).
    disturbances : tuple of Disturbance
        What befalls nodes and jobs whatever the policy decides; at most one of each class.
    parts : Parts, optional
        What each job asks for of a divisible cluster; jobs then have what they ask for, no more and no less.
    tenants : Tenants or None
        Queues among which GPUs may be divided, and the queue of each job.
    pairs : PairSpeeds, optional
        How fast jobs are that share GPUs in pairs; None: no job shares.
    scored_s : pair of float, optional
        Jobs submitted from the first time on and before the second are scored; others arrive before and after
        them, and the run ends when the last of these jobs has left. None: all jobs are.
    apart_s : float
        Least seconds between decision points at events: an event sooner after a decision waits for the next.
    estimates_off : ndarray of float, shape (C, T), optional
        Factors on the iteration times that policies see, but clairvoyant ones; None: they are as the
        oracle says. Jobs run as fast as ever.
    """

    name: str
    version: int
    cluster: ClusterSpec
    trace: Trace
    tables: OracleTables
    checkpoint_s: Floats
    costs: Costs
    rounds: str | float = "policy"
    horizon_s: float | None = None
    counts_rule: str = "power_of_two"
    oversize: str = "error"
    communication_s: Floats | None = None
    disturbances: tuple[Disturbance, ...] = ()
    parts: Parts | None = None
    tenants: Tenants | None = None
    pairs: PairSpeeds | None = None
    scored_s: tuple[float, float] | None = None
    apart_s: float = 0.0
    estimates_off: Floats | None = None

    def round_s(self, policy_round_s: float | None) -> float | None:
        """Return the seconds between decisions: the scenario's own, or the policy's; None: at every event."""
        chosen = {"policy": policy_round_s, "event": None}.get(str(self.rounds), self.rounds)
        return None if chosen is None else float(chosen)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 digest of everything that determines a run besides policy, placer and seed."""
        parts = {
            "cluster": self.cluster.fingerprint(),
            "trace": self.trace.sha256,
            "tables": self.tables.sha256,
            "checkpoint_s": self.checkpoint_s.tolist(),
            "costs": self.costs.fingerprint(),
            "rounds": self.rounds,
            "horizon_s": self.horizon_s,
            "counts_rule": self.counts_rule,
            "oversize": self.oversize,
        }
        # What is off is left out, so that digests of scenarios that were frozen before it existed stay.
        if self.communication_s is not None:
            parts["communication_s"] = self.communication_s.tolist()
        if self.tenants is not None:
            parts["tenants"] = self.tenants.fingerprint()
        if self.pairs is not None:
            parts["pairs"] = self.pairs.fingerprint()
        if self.scored_s is not None:
            parts["scored_s"] = list(self.scored_s)
        if self.apart_s:
            parts["apart_s"] = self.apart_s
        if self.estimates_off is not None:
            parts["estimates_off"] = self.estimates_off.tolist()
        parts |= {disturbance.key: disturbance.fingerprint() for disturbance in self.disturbances}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @cached_property
    def scored(self) -> Bools:
        """Whether each job counts in the metrics: if submitted in the scored period, shape (n,)."""
        if self.scored_s is None:
            return np.ones(len(self.trace), dtype=np.bool_)
        first_s, end_s = self.scored_s
        inside: Bools = (self.trace.submit_s >= first_s) & (self.trace.submit_s < end_s)
        return inside

    @cached_property
    def class_of(self) -> Ints:
        """Index of each job's model class in `tables.classes`, shape (n,)."""
        index = {model: row for row, model in enumerate(self.tables.classes)}
        return np.array([index[model] for model in self.trace.model_classes], dtype=np.int64)

    @cached_property
    def compact(self) -> Ints:
        """Network tier of the most compact placement by GPU type and count, shape (T, K)."""
        types = range(len(self.cluster.gpu_types))
        # A count above a type's capacity is infeasible anyway, but needs a tier, as all arrays are dense.
        return np.array(
            [
                [
                    int(self.cluster.compact_locality(t, min(int(k), int(self.cluster.capacity[t]))))
                    for k in self.tables.counts
                ]
                for t in types
            ],
            dtype=np.int64,
        )

    @cached_property
    def execution(self) -> Floats:
        """Seconds per iteration by model class, GPU type, count and network tier, shape (C, T, K, 4).

        Where the oracle has no time for a tier, that of the next tighter tier is used: a job that fits in
        memory at one locality fits at every locality.
        """
        return self.tables.tighter_where_missing()

    @cached_property
    def batch_choices(self) -> BatchChoices | None:
        """The batches at which jobs may train, with progress per sample; None if no job has a choice."""
        batches = self.tables.batches
        return None if batches is None else BatchChoices(batches, self.class_of, self.trace)

    @cached_property
    def batch_models(self) -> frozenset[ModelClass]:
        """Model classes whose jobs may train at other global batches than the requested one."""
        batches = self.tables.batches
        if batches is None:
            return frozenset()
        several = (batches.sizes > 0).sum(axis=1) > 1
        return frozenset(model for model, some in zip(self.tables.classes, several, strict=True) if some)

    @cached_property
    def batch_execution(self) -> Floats:
        """Seconds per iteration as `execution`, also by global batch, shape (C, T, K, 4, B)."""
        assert self.tables.batches is not None
        return np.moveaxis(fill_tiers(np.moveaxis(self.tables.batches.execution, -1, 1)), 1, -1)

    def segment(self, row: int, gpu_type: int, gpus: int) -> int:
        """Return how many of a job's GPUs must lie in one NVLink domain together; 1: they lie anywhere."""
        if self.tables.segments is None:
            return 1
        level = int(np.searchsorted(self.tables.counts, gpus))
        return int(self.tables.segments[self.class_of[row], gpu_type, level])

    def request_segments(self, rows: Ints) -> Ints:
        """Return `segment` of the given jobs' requests on each GPU type, shape (rows, T)."""
        if self.tables.segments is None:
            return np.ones((len(rows), len(self.cluster.gpu_types)), dtype=np.int64)
        level = np.searchsorted(self.tables.counts, self.request_gpus[rows])
        found: Ints = self.tables.segments[self.class_of[rows], :, level]
        return found

    def iteration_s(
        self, job: int, gpu_type: int, level: int, locality: int, slowdown: float = 1.0, column: int = -1
    ) -> float:
        """Return a job's seconds per iteration by GPU type, count (`level`), tier, link slowdown and batch.

        Parameters
        ----------
        job, gpu_type, level, locality : int
            Row of the trace, type index, index of `tables.counts`, `Locality`.
        slowdown : float
            Factor by which its traffic between nodes is slower than on free links.
        column : int
            Column of its global batch in `BatchTables.sizes`; -1: the requested batch.
        """
        cell = self.class_of[job], gpu_type, level, locality
        alone = float(self.execution[cell] if column < 0 else self.batch_execution[*cell, column])
        if slowdown == 1.0 or self.communication_s is None:
            return alone
        # To six digits, as the tables, so that no last bit differs between machines.
        return float(f"{alone + (slowdown - 1.0) * float(self.communication_s[cell]):.6g}")

    @cached_property
    def feasible(self) -> Bools:
        """Whether each model class fits on each GPU type and count of this cluster, shape (C, T, K)."""
        room = self.tables.counts[None, :] <= self.cluster.capacity[:, None]
        finite: Bools = np.isfinite(self._compact_execution) & room
        return finite

    @cached_property
    def _compact_execution(self) -> Floats:
        return self._at_compact(self.execution)

    def _at_compact(self, table: Floats) -> Floats:
        index = np.broadcast_to(self.compact[None, :, :, None], (*table.shape[:3], 1))
        return np.take_along_axis(table, index, axis=3)[..., 0]

    def known_times(self, information: InformationClass) -> Floats:
        """Return iteration times (s) by class, type and count that policies of `information` see, (C, T, K).

        inf where infeasible, and for data-parallel profiles also where pure data
        parallelism does not fit.
        """
        table = {
            InformationClass.PROFILED: self.tables.profiled,
            InformationClass.DATA_PARALLEL: self.tables.data_parallel,
        }.get(information, self.execution)
        times = self._compact_execution if table is self.execution else self._at_compact(table)
        if information == InformationClass.PROFILED:
            # What can run has an estimate: without one of its own, the time itself.
            times = np.where(np.isfinite(times), times, self._compact_execution)
        times = np.where(self.feasible, times, np.inf)
        if information == InformationClass.BOOTSTRAP:
            # After what is infeasible is gone: the line starts at the least count that fits.
            times = linear(times, self.feasible, self.tables.counts)
        # A clairvoyant policy stands for the truth, so no error of estimates may reach it.
        if self.estimates_off is not None and information != InformationClass.CLAIRVOYANT:
            times = times * self.estimates_off[:, :, None]
        return times

    def get_known_batch_times(self, information: InformationClass) -> Floats:
        """Return seconds per iteration, at each batch, that an information class may see, (C, T, K, B).

        `bootstrap` scales the time of the same batch per GPU on the least count that fits
        (`oracle.base.same_local_batch`); every other class knows the times jobs run at. For model
        classes without a choice of batches it is `known_times`.
        """
        assert self.tables.batches is not None
        sizes = self.tables.batches.sizes
        times = np.stack([self._at_compact(at) for at in np.moveaxis(self.batch_execution, -1, 0)], axis=-1)
        known = np.where(self.feasible[..., None], times, np.inf)
        if information == InformationClass.BOOTSTRAP:
            known = same_local_batch(known, sizes, self.feasible, self.tables.counts)
        # Without a choice the times are those of `known_times`, whose rules differ by information class.
        alone = (sizes > 0).sum(axis=1) == 1
        known[alone, ..., 0] = self.known_times(information)[alone]
        return known

    @cached_property
    def oversize_jobs(self) -> Bools:
        """Whether each job requests more GPUs than the cluster has of its type, shape (n,)."""
        if self.parts is not None:
            return ~self.parts.fits
        # The last entry is for -1, a request of any type: the type with most GPUs.
        most_of = np.append(self.cluster.capacity, self.cluster.capacity.max())
        most = most_of[index_named_types(self.trace, self.cluster)]
        oversize: Bools = self.trace.gpus > np.minimum(most, self.tables.counts[-1])
        return oversize

    @cached_property
    def _requests(self) -> GpuRequests:
        named, oversize = index_named_types(self.trace, self.cluster), self.oversize_jobs
        counts = self.tables.counts
        if self.oversize == "error" and oversize.any():
            row = int(np.argmax(oversize))
            if self.parts is not None:
                raise fits_nowhere(self.trace, self.cluster, self.parts, row)
            raise make_oversize_error(self.trace, self.cluster, int(counts[-1]), row, int(named[row]))
        return fit_requests(named, self.trace.gpus, oversize, self.feasible, self.class_of, counts)

    @property
    def request_type(self) -> Ints:
        """Index of the GPU type that each job requests, shape (n,); -1 for any type."""
        return self._requests.gpu_type

    @property
    def request_gpus(self) -> Ints:
        """Number of GPUs that each job requests, shape (n,); 0 if it fits nowhere on this cluster.

        A count that the scenario does not allow is rounded up to the next allowed one. A request that does
        not fit in memory is raised to the least count of its type that fits, or else moved to the type
        with the least such count, since a user would ask for what can run.
        """
        return self._requests.gpus

    @property
    def request_changed(self) -> Bools:
        """Whether each job's request was changed or the job dropped, shape (n,)."""
        return self._requests.changed

    @cached_property
    def reference_iteration_time_s(self) -> Floats:
        """Seconds per iteration of each job on its requested GPUs, placed most compactly; NaN: fits nowhere.

        A job that requests any type counts with the type that can hold it on which it runs fastest.
        """
        out = np.full(len(self.trace), np.nan)
        rows = np.flatnonzero(self.request_gpus > 0)
        gpu_type, times = self.request_type[rows], self._at_request(self._compact_execution)[rows]
        fastest = np.where(self._at_request(self.feasible)[rows], times, np.inf).min(axis=1)
        out[rows] = np.where(gpu_type < 0, fastest, times[np.arange(len(rows)), gpu_type])
        return out

    @cached_property
    def fair_iteration_time_s(self) -> Floats:
        """Seconds per iteration of each job on its GPU count, at the mean speed of the GPU types it fits on.

        The mean speed is over the types that the job fits on at that count, weighted by their numbers of
        GPUs; NaN if it fits nowhere. On a cluster of one type it is the reference iteration time.
        """
        at_count, fits = self._at_request(self._compact_execution), self._at_request(self.feasible)
        # The mean is of speeds (1 / time), not of times: a fluid share is a share of the work done.
        weight = np.where(fits & (self.request_gpus > 0)[:, None], self.cluster.capacity, 0.0)
        total = weight.sum(axis=1)
        speed = (weight / np.where(fits, at_count, 1.0)).sum(axis=1)
        mean_s: Floats = np.divide(total, speed, out=np.full(len(total), np.nan), where=total > 0)
        return mean_s

    def _at_request(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Look up, in an array by class (C, T, K), each job's value at its requested count, shape (n, T)."""
        level = np.searchsorted(self.tables.counts, self.request_gpus)
        level = np.minimum(level, len(self.tables.counts) - 1)
        return np.swapaxes(table, 1, 2)[self.class_of, level]


def list_allowed_counts(cluster: ClusterSpec, rule: str, kept: Sequence[int] | Ints = ()) -> list[int]:
    """Return the GPU counts that jobs may hold: all if `rule` is "any", else powers of two and `kept` ones.

    Counts of a trace that are `kept` are allowed too where the cluster has as many GPUs.
    """
    most = cluster.most_gpus
    if rule == "any":
        return list(range(1, most + 1))
    powers = {2**level for level in range(most.bit_length())}
    return sorted(powers | {int(count) for count in kept if count <= most})


def model_classes(trace: Trace) -> tuple[ModelClass, ...]:
    """Return the distinct model classes (family, size and batch) of a trace's jobs, sorted."""
    return tuple(sorted(set(trace.model_classes)))


LOCALITIES = len(Locality)


class BatchChoices:
    """The batches at which a trace's jobs may train, and the progress per sample at each over time.

    Work is counted in iterations at the requested batch M0, so that a job's total work is the same
    whatever its batch. One iteration at batch M does the work of M / M0 x E(M) requested iterations. The
    statistical efficiency E is constant within each segment of a job's training; the end point of a
    segment belongs to the next one.

    Parameters
    ----------
    tables : BatchTables
    class_of : ndarray of int, shape (n,)
        Row of the tables of each job.
    trace : Trace
    """

    def __init__(self, tables: BatchTables, class_of: Ints, trace: Trace) -> None:
        self._sizes, self._class_of, self._requested = tables.sizes, class_of, trace.global_batch
        self._efficiency = tables.efficiency
        self._left = trace.iterations[:, None] * (1.0 - tables.ends[class_of])
        self._left[:, -1] = 0.0

    def column(self, row: int, batch: int) -> int:
        """Return the column of a job's batch in `BatchTables.sizes`; -1 for the requested batch."""
        if batch == self._requested[row]:
            return -1
        return int(np.flatnonzero(self._sizes[self._class_of[row]] == batch)[0])

    def allows(self, rows: Ints, batch: Ints) -> Bools:
        """Return whether each job may train at the given batch, in the shape of `rows`."""
        mine: Bools = (self._sizes[self._class_of[rows]] == batch[:, None]).any(axis=1)
        return mine

    def worth(self, row: int, column: int, remaining: float) -> float:
        """Return how many iterations at the requested batch a job's iteration at `column`'s batch is worth.

        Parameters
        ----------
        row, column : int
            The job, and the batch's column in `BatchTables.sizes`.
        remaining : float
            Requested iterations the job has left, which set its segment.
        """
        model = self._class_of[row]
        # M / M0 x E(M): see the class.
        scale = float(self._sizes[model, column] / self._requested[row])
        return scale * float(self._efficiency[model, self._segment(row, remaining), column])

    def next_end(self, row: int, remaining: float) -> float:
        """Return how many iterations a job has left when its progress per sample changes next; 0 if never."""
        return float(self._left[row, self._segment(row, remaining)])

    def options(self, rows: Ints, remaining: Floats, time_s: Floats) -> BatchOptions:
        """Return jobs' batches, the progress per sample now, and `time_s`, the iteration times at each."""
        model = self._class_of[rows]
        segments = (remaining[:, None] <= self._left[rows, :-1]).sum(axis=1)
        return BatchOptions(self._sizes[model], self._efficiency[model, segments], time_s)

    def _segment(self, row: int, remaining: float) -> int:
        return int((remaining <= self._left[row, :-1]).sum())
