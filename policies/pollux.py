"""Pollux: a policy that chooses GPU counts and batches for goodput, by a genetic search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats, Ints, dot_in_order
from clustergym.common.parameter_types import AtLeastTwo, NonNegativeFloat, NonZeroFloat, Period, PositiveInt
from clustergym.scenario.policy import Decision, InformationClass, Setting, View

from .shared.genetic import GeneticSearch
from .shared.goodput import (
    GoodputPolicy,
    ObservedSpeeds,
    batch_options,
    get_requested_time_s,
    goodput_at_best_batch,
    open_configurations,
    restart_factor,
)
from .shared.integer_programs import Choices
from .shared.least_squares import fit_nonnegative
from .shared.requests import find_held_level

FLOOR = 0.004
"""Speedup that any allotment counts as at least, about that of the published simulator; with a power below
0 a job without GPUs would decide everything."""
NOTHING = FLOOR * (1 - 1e-6)
"""Speedup of a job without GPUs: however little an allotment is worth, it is worth more than none."""
LEAST_FACTOR = 1e-6
"""A restart factor of 0 would forbid what nobody else may want: a job of age 0 could wait for ever."""

DAMPING = (1e-3, 0.0, 1e-5, 1e-5, 1e-5, 1e-5)
"""Of the terms of the speed model, relative to the times: a constant only where the data call for it."""


@dataclass
class Pollux(GoodputPolicy):
    """The policy Pollux (OSDI '21), which searches GPU counts and batches of greatest goodput genetically.

    A job's speedup is its goodput over that on a fair share of the GPUs, times the restart factor
    max(age - restarts x S, 0) / (age + S) where it would be started or rescaled; the fitness of an
    allocation is the power mean of the speedups. Goodput comes from a speed model per job, fitted to the
    iteration times it was observed to have (section 4.1); a job gets at most twice the GPUs it has had so
    far, whatever it asked for. A genetic search (population, mutation, crossover, repair) goes on from the
    last round's population.

    As its published simulator has it: the fair share of n jobs is the GPUs over
    n, rounded up; waiting jobs have the restart factor too; S is 30 s; no speedup counts as less than
    about 0.004; repair cuts the jobs with most attained service, where the paper cuts at random.

    A job's global batch is the one of greatest goodput, throughput times statistical efficiency, on its
    allotment; it is chosen anew at every decision point, and changes without a restart (section 4.1).

    Differences from the paper: the batch is one of a few (`View.batch_options`), where Pollux chooses the
    local batch from a range; its efficiency is known, where Pollux measures the noise scale at the
    present batch; the speed model is of GPU counts alone, at the requested batch and without overlap of
    computation and communication: the seconds that it adds to the bootstrap are added at every batch. The
    genes are GPU counts, since a policy does not choose nodes. Jobs on several nodes take whole nodes, so
    that no two of them share a node; this is the paper's avoidance of interference. Pollux knows one GPU
    type: on a heterogeneous cluster each type is searched separately; a waiting job joins the type with
    the highest throughput per job, and a running job moves only to a type that has no job.

    Parameters
    ----------
    batch, solver, gap, nodes
        As of `policies.shared.goodput.GoodputPolicy`.
    power : float
        Power p of the mean, not 0.
    at_least_request : bool
        Ours, not the paper's: no job gets fewer GPUs than it asked for, which count as GPUs it has had.
    restart_s : float or None
        S, seconds; None: what the scenario charges for each restart.
    search : str
        `genetic`, as published, or `exact`: the same fitness by one integer program.
    population, generations : int
        Individuals and generations of the genetic search.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "pollux"
    information_class: ClassVar[InformationClass] = InformationClass.BOOTSTRAP
    power: NonZeroFloat = -1.0
    at_least_request: bool = False
    restart_s: NonNegativeFloat | None = 30.0
    search: Literal["genetic", "exact"] = "genetic"
    population: AtLeastTwo = 100
    generations: PositiveInt = 100
    round_s: Period | None = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._forget(random_streams.POLICY.generator(0), 0)

    def _forget(self, rng: np.random.Generator, types: int) -> None:
        self._speeds = ObservedSpeeds()
        self._fits: dict[tuple[int, int], Floats] = {}
        self._searches = [GeneticSearch(rng, self.population, self.generations) for _ in range(types)]
        self.forget_solutions()

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget the observed speeds, genetic populations and solver counters of the last run."""
        self._forget(rng, len(setting.gpu_types))

    def schedule(self, view: View) -> Decision:
        """Search on each GPU type for the GPU counts of greatest fitness, a power mean of jobs' speedups."""
        if not len(view):
            return Decision.keep(view)
        options = batch_options(self.batch, view)
        # A new observation invalidates the fit of that job on that type alone.
        for at in self._speeds.observe(view, options).tolist():
            self._fits.pop((int(view.job[at]), int(view.gpu_type[at])), None)
        time_s = self._fit_times(view, get_requested_time_s(view, options).copy())
        good, batch = goodput_at_best_batch(view, options, time_s)
        allowed = self._find_allowed(view)
        home = self._homes(view, np.where(self._enough(view), good, 0.0))
        factor = np.maximum(restart_factor(view, True, self.restart_s), LEAST_FACTOR)
        allotments: list[tuple[int, int, int]] = []
        for gpu_type in range(len(view.setting.gpu_types)):
            row = np.flatnonzero(home == gpu_type)
            if len(row):
                # Section 4.2: the penalty multiplies the speedup of every allotment but the present one.
                now = np.where(allowed[row, gpu_type], good[row, gpu_type] * factor[row, gpu_type], 0.0)
                gpus = self._on_type(view, gpu_type, row, good[row, gpu_type], now)
                allotments += [
                    (int(view.job[at]), gpu_type, int(count))
                    for at, count in zip(row, gpus, strict=True)
                    if count
                ]
        decision = Decision.of(sorted(allotments))
        if options is not None:
            at = np.searchsorted(view.job, decision.job)
            level = np.searchsorted(view.setting.counts, decision.gpus)
            decision = replace(decision, batch=batch[at, decision.gpu_type, level])
        self._speeds.record_decision(view, decision, options)
        return decision

    def _enough(self, view: View) -> Bools:
        """Return which counts each job accepts, by `at_least_request`, shape (n, 1, K)."""
        least = view.requested_gpus if self.at_least_request else np.ones(len(view), dtype=np.int64)
        enough: Bools = view.setting.counts >= least[:, None, None]
        return enough

    def _find_allowed(self, view: View) -> Bools:
        """Return which GPU types and counts each job may hold now, shape (n, T, K)."""
        most_gpus = self._speeds.most_gpus(view)
        if not self.at_least_request:
            return open_configurations(view, most_gpus, 2)
        open_now = open_configurations(view, np.maximum(most_gpus, view.requested_gpus), 2)
        enough = open_now & self._enough(view)
        return np.where(enough.any(axis=(1, 2), keepdims=True), enough, open_now)

    def _fit_times(self, view: View, time_s: Floats) -> Floats:
        """Return seconds per iteration by each job's fitted speed model, shape (n, T, K)."""
        seen = self._speeds.get_observed_times(view)
        counts, per_node = view.setting.counts, view.setting.gpus_per_node
        for at, gpu_type in np.argwhere(np.isfinite(seen).any(axis=2)).tolist():
            key = (int(view.job[at]), gpu_type)
            if key not in self._fits:
                known = np.isfinite(seen[at, gpu_type])
                least = int(np.argmax(np.isfinite(time_s[at, gpu_type])))
                times = np.where(known, seen[at, gpu_type], time_s[at, gpu_type])
                known[least] = True
                self._fits[key] = fit_time_s(counts, per_node[gpu_type], known, times)
            time_s[at, gpu_type] = np.where(np.isfinite(time_s[at, gpu_type]), self._fits[key], np.inf)
        return time_s

    def _homes(self, view: View, good: Floats) -> Ints:
        """Return the GPU type on which each job takes part in the search, shape (n,); -1: none."""
        home = view.gpu_type.copy()
        jobs = np.bincount(home[home >= 0], minlength=good.shape[1])
        # Per GPU, so that the wide counts of a large type do not decide which type is the faster.
        single = np.where(good > 0, good / view.setting.counts, 0.0).max(axis=2)
        for at in np.flatnonzero(home < 0).tolist():
            share = single[at] * view.available / (jobs + 1)
            if share.max() > 0:
                home[at] = int(np.argmax(share))
                jobs[home[at]] += 1
        for gpu_type in np.flatnonzero((jobs == 0) & (view.available > 0)).tolist():
            gain = single[:, gpu_type] / np.maximum(single[np.arange(len(view)), home], 1e-12)
            # A type without jobs may take one from a crowded type; never the last one of a type, or they
            # would swap at each decision.
            gain = np.where((view.gpus > 0) & (jobs[home] > 1), gain * jobs[home], 0.0)
            if gain.max(initial=0.0) > 1.0:
                at = int(np.argmax(gain))
                jobs[home[at]] -= 1
                home[at] = gpu_type
        return home

    def _on_type(self, view: View, gpu_type: int, row: Ints, good: Floats, now: Floats) -> Ints:
        """Run the genetic search on one GPU type; return the GPUs for each of its jobs, shape (len(row),).

        Parameters
        ----------
        view : View
        gpu_type : int
        row : ndarray of int
            Positions of the jobs in the View.
        good, now : ndarray of float, shape (len(row), K)
            Goodput; goodput times the restart factor, 0 where not allowed now.
        """
        counts, capacity = view.setting.counts, int(view.available[gpu_type])
        # Section 4.2: speedup is relative to the goodput of a fair share, here rounded up as in the
        # simulator.
        at_fair = goodput_of_share(counts, good, -(-capacity // len(row)))
        speedup = np.maximum(now / at_fair[:, None], FLOOR)
        # A power mean of p < 0 grows as the sum of the powers falls, so the sign turns it into a
        # maximisation.
        sign = 1.0 if self.power > 0 else -1.0
        # The outer root of the mean is left out: it is monotonic and changes no comparison.
        fitness = np.where((now > 0) & (counts <= capacity), sign * speedup**self.power, -np.inf)
        held = np.where(view.gpu_type[row] == gpu_type, find_held_level(view)[row], -1)
        nothing = sign * NOTHING**self.power
        if self.search == "genetic":
            value = np.concatenate([np.full((len(row), 1), nothing), fitness], axis=1)
            gpus = np.concatenate([[0], counts])
            start = np.where(np.isfinite(value[np.arange(len(row)), held + 1]), held + 1, 0)
            attained = view.attained_gpu_s[row]
            return gpus[
                self._searches[gpu_type].search(view.job[row], value, gpus, capacity, start, attained)
            ]
        any_type = np.zeros(len(counts), dtype=np.int64)
        problem = Choices(fitness - nothing, any_type, counts, np.array([capacity]))
        solution = self.solve(problem, held)
        return np.where(solution.choice >= 0, counts[solution.choice], 0)


def goodput_of_share(counts: Ints, good: Floats, gpus: int) -> Floats:
    """Return each job's goodput on `gpus` GPUs, interpolated between GPU counts, shape (n,).

    Below a job's least count it is the goodput on that count; more GPUs never give less goodput.

    Parameters
    ----------
    counts : ndarray of int, shape (K,)
    good : ndarray of float, shape (n, K)
        Goodput; 0 where infeasible; each job has some.
    gpus : int
    """
    shares = [
        np.interp(gpus, counts[of_job > 0], np.maximum.accumulate(of_job[of_job > 0])) for of_job in good
    ]
    return np.array(shares, dtype=np.float64)


def fit_time_s(counts: Ints, per_node: int, known: Bools, times: Floats) -> Floats:
    """Fit a speed model to the known times; return its seconds per iteration at every GPU count, shape (K,).

    With the global batch M fixed, Pollux's model (section 3.2) of N GPUs, without overlap, is
    a + b / N, plus c + d (N - 2) for N > 1 inside a node or, with its own c and d, across nodes; all at
    least 0, by least squares of relative errors. What the known counts leave open is 0 (perfect
    scaling), as the paper's priors have it.

    Parameters
    ----------
    counts : ndarray of int, shape (K,)
    per_node : int
        GPUs on a node.
    known : ndarray of bool, shape (K,)
        At least one.
    times : ndarray of float, shape (K,)
        Seconds per iteration where known.
    """
    inside, across = (counts > 1) & (counts <= per_node), counts > per_node
    more = np.maximum(counts - 2, 0)
    terms = np.stack(
        [np.ones(len(counts)), 1 / counts, inside, inside * more, across, across * more], axis=1
    ).astype(np.float64)
    # Dividing each row by its time makes the errors relative.
    weighted = terms[known] / times[known][:, None]
    damping = np.diag(DAMPING) / times[known].min()
    target = np.concatenate([np.ones(known.sum()), np.zeros(6)])
    fit = fit_nonnegative(np.concatenate([weighted, damping]), target)
    fitted = dot_in_order(terms, fit)
    return np.where(known, times, fitted)
