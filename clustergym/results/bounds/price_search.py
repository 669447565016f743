"""Search for the prices that prove the tightest bound: supergradient ascent on intervals that are refined."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.results.bounds.bounds import Certificate, Programme, evaluate_certificate, proven
from clustergym.results.bounds.priced_jobs import PricedJobs

INTERVALS = 48
"""Of the first, coarsest search."""
LEVELS = 8
STEPS = 300
"""At most, of each ascent."""
CLOSE = 0.005
"""Two refinements that differ by less end the search."""
PATIENCE = 10
DIGITS = 6
MANY_JOBS = 4000
"""Of more scored jobs, prices are searched for on a part of about `SOME_JOBS` of them."""
SOME_JOBS = 250

Report = Callable[[int, float], None]
"""Told the intervals of each refinement, and the bound that it reached."""


class Bound(NamedTuple):
    """A proven lower bound on a metric, with the prices of GPU time that prove it.

    Attributes
    ----------
    value : float
        No schedule has a lower metric; of `deadline_satisfaction`, none a higher one.
    certificate : Certificate
    refinements : tuple of (int, float)
        Intervals, and the bound reached with them, from coarse to fine.
    """

    value: float
    certificate: Certificate
    refinements: tuple[tuple[int, float], ...]


def search(programme: Programme, report: Report | None = None) -> Bound:
    """Search for prices that prove a high lower bound, on finer and finer time intervals; return the bound.

    Of more scored jobs than `MANY_JOBS` a part is searched for the prices of all.
    """
    found: list[tuple[int, float]] = []

    def note_bound(certificate: Certificate) -> None:
        found.append((certificate.price.shape[1], proven(programme, certificate)))
        if report is not None:
            report(*found[-1])

    # Jobs that are not scored may wait for ever, so they take no part.
    scored = int(np.count_nonzero(programme.jobs.weight > 0))
    if scored > MANY_JOBS and programme.metric != "deadline_satisfaction":
        part, share = sample_programme(programme, -(-scored // SOME_JOBS))
        edges_s, price = search(part).certificate
        # Prices found on a part are no worse as a proof: any prices at or above 0 give a valid bound for the
        # whole, only a weaker one than its own search would find.
        certificate = round_certificate(Certificate(edges_s, share * price))
        note_bound(certificate)
        return Bound(found[-1][1], certificate, tuple(found))
    edges_s = first_edges(programme)
    certificate = Certificate(edges_s, np.zeros((len(programme.capacity), len(edges_s) - 1)))
    # How far above the best value the next one is aimed at (Polyak's step with an estimated optimum). A
    # refined certificate starts from prices that are nearly right, so it aims closer.
    ahead = 0.1
    for level in range(LEVELS):
        certificate = ascend_prices(programme, certificate, ahead)
        note_bound(certificate)
        if level and abs(found[-1][1] - found[-2][1]) <= CLOSE * abs(found[-1][1]):
            break
        ahead = 0.02
        if level + 1 < LEVELS:
            certificate = split(programme, certificate)
    certificate = round_certificate(certificate)
    return Bound(proven(programme, certificate), certificate, tuple(found))


def sample_programme(programme: Programme, every: int) -> tuple[Programme, float]:
    """Return the problem for every `every`-th job on a smaller cluster, and these jobs' share of the metric.

    Its prices times that share are good ones for the whole, where jobs are many.
    """
    jobs = programme.jobs
    rows = np.flatnonzero(jobs.weight > 0)[::every]
    own = np.concatenate([np.arange(jobs.first[row], jobs.first[row + 1]) for row in rows] or [rows])
    first = np.append(0, np.cumsum(np.diff(jobs.first)[rows]))
    share = float(jobs.weight[rows].sum())
    part = PricedJobs(
        jobs.arrival_s[rows],
        jobs.weight[rows] / max(share, 1e-300),
        jobs.deadline_s[rows],
        jobs.relaunch_s[rows],
        first,
        jobs.gpu_type[own],
        jobs.gpus[own],
        jobs.rate[own],
    )
    return Programme(programme.metric, part, programme.capacity / every, programme.before), share


def round_certificate(certificate: Certificate) -> Certificate:
    """Return a certificate with its prices rounded, which proves a slightly different bound."""
    price = [[float(f"{value:.{DIGITS}g}") for value in row] for row in certificate.price.tolist()]
    return Certificate(certificate.edges_s, np.array(price).reshape(certificate.price.shape))


def first_edges(programme: Programme) -> Floats:
    """Choose the edges of the initial time intervals: half at quantiles of arrivals, half evenly spaced."""
    jobs = programme.jobs
    rows = np.flatnonzero((jobs.weight > 0) & (np.diff(jobs.first) > 0))
    if not len(rows):
        return np.arange(min(0.0, float(jobs.arrival_s.min(initial=0.0))), 2.0)
    arrivals = np.sort(jobs.arrival_s[rows])
    instants, end_s = arrivals, _end_s(programme, rows)
    if programme.metric == "deadline_satisfaction":
        instants = np.append(arrivals, jobs.deadline_s[rows])
        instants, end_s = instants[np.isfinite(instants)], float(instants[np.isfinite(instants)].max())
    half = INTERVALS // 2 + 1
    edges_s = np.append(np.quantile(instants, np.linspace(0, 1, half)), np.linspace(arrivals[0], end_s, half))
    edges_s = np.unique(np.floor(edges_s * 1000) / 1000)
    return edges_s if len(edges_s) > 1 else np.append(edges_s, edges_s[-1] + 1.0)


def _end_s(programme: Programme, rows: np.ndarray) -> float:
    """Return a time by which all jobs can be done at their least work or at their fastest."""
    jobs = programme.jobs
    lean = np.array([(jobs.gpus / jobs.rate)[jobs.first[r] : jobs.first[r + 1]].min() for r in rows])
    fast = np.array([1.0 / jobs.rate[jobs.first[r] : jobs.first[r + 1]].max() for r in rows])
    order = np.argsort(jobs.arrival_s[rows], kind="stable")
    arrivals = jobs.arrival_s[rows][order]
    pending = lean[order][::-1].cumsum()[::-1] / programme.capacity.sum()
    span_s = max(float((arrivals + pending).max()), float((arrivals + fast[order]).max())) - float(
        arrivals[0]
    )
    return float(arrivals[0]) + 1.5 * span_s


def split(programme: Programme, certificate: Certificate) -> Certificate:
    """Return a certificate with half of its time intervals cut in two, where prices change most."""
    edges_s, price = certificate
    padded = np.pad(price, ((0, 0), (1, 1)), mode="edge")
    # After the last edge everything is free, which is a step like any other.
    padded[:, -1] = 0.0
    step = programme.capacity @ np.abs(np.diff(padded, axis=1))
    gain = np.diff(edges_s) * (step[:-1] + step[1:])
    chosen = np.argsort(-gain, kind="stable")[: (len(gain) + 1) // 2]
    halves = np.round((edges_s[chosen] + edges_s[chosen + 1]) / 2, 3)
    finer = np.unique(np.append(edges_s, halves))
    parent = np.searchsorted(edges_s, finer[:-1], side="right") - 1
    return Certificate(finer, price[:, parent])


def ascend_prices(programme: Programme, certificate: Certificate, ahead: float) -> Certificate:
    """Improve a certificate's prices by Polyak's steps, whose target is the best bound times 1 + `ahead`.

    `ahead` grows as long as steps reach part of it, and shrinks after `PATIENCE` steps that do not. The
    metric of a step weighs an interval by its GPU-seconds, so that refining intervals does not change it.
    """
    edges_s, price = certificate
    there = programme.capacity[:, None] * np.diff(edges_s)
    best, best_price, reached, idle = -np.inf, price, -np.inf, 0
    for _ in range(STEPS):
        value, slope = evaluate_certificate(programme, Certificate(edges_s, price))
        if value > best:
            best, best_price = value, price
        if best > reached + 0.25 * ahead * abs(best):
            ahead = ahead if np.isinf(reached) else min(1.5 * ahead, 0.5)
            reached, idle = best, 0
        else:
            idle += 1
        if idle >= PATIENCE:
            # No progress: the aim was too high. Back to the best prices with a lower aim, as the iterates
            # swing around it.
            ahead, idle, reached, price = 0.6 * ahead, 0, best, best_price
            if ahead < 1e-4:
                break
            continue
        # Prices stay at or above 0: a direction that would be cut off there must not lengthen the step of
        # others. Divided by GPU-seconds, so that long intervals do not move faster than short ones.
        direction = np.where((price <= 0) & (slope < 0), 0.0, slope / there)
        length = float((there * direction**2).sum())
        if length == 0.0:
            break
        goal = best + ahead * max(abs(best), 1e-9)
        price = np.maximum(price + max(goal - value, 0.0) / length * direction, 0.0)
    return Certificate(edges_s, best_price)
