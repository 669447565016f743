"""Lucid's binder, which lets jobs share GPUs by labels, and run times estimated from records (ASPLOS '23)."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import PairOptions, View

from .requests import find_requested_level, request_options

HEAVY_BELOW, MEDIUM_BELOW = 0.85, 0.95
"""A job that keeps less of its speed on average has label 2, or 1."""
MOST_LABELS = 2
"""Two jobs share only if their labels add up to at most this."""
MOST_GPUS = 8
LONGER = 2.0
"""A host's priority, times this, is at least that of the job that joins it."""
UNKNOWN_S = 3600.0
"""Run time estimated while no job has finished."""


class Join(NamedTuple):
    """A job that will share a running job's GPUs: trace rows of both, GPU type index, number of GPUs."""

    job: int
    host: int
    gpu_type: int
    gpus: int


def mark_counted_jobs(view: View) -> Bools:
    """Mark jobs such that each GPU in use counts once: of two jobs that share GPUs only the first; (n,)."""
    if view.partner is None:
        return np.ones(len(view), dtype=np.bool_)
    once: Bools = (view.partner < 0) | (view.job < view.partner)
    return once


def labels(pairs: PairOptions) -> Ints:
    """Rate how much jobs of each class lose by sharing GPUs, from 0 (little) to 2, by GPU type and count.

    Shape (C, T, K).
    """
    if pairs.kept is None:
        raise ValueError("the information class knows no speeds of pairs")
    number = pairs.allowed.sum(axis=1)
    mean = np.where(number > 0, pairs.kept.sum(axis=1) / np.maximum(number, 1), 1.0)
    label: Ints = (mean < HEAVY_BELOW).astype(np.int64) + (mean < MEDIUM_BELOW)
    return label


class Binder:
    """Chooses which waiting jobs share the GPUs of which running jobs (hosts)."""

    def __init__(self) -> None:
        self._started: dict[int, float] = {}

    def joins(self, view: View, order: Ints, hosts: Bools, left_s: Floats) -> list[Join]:
        """Return the waiting jobs that will share a running job's GPUs, each with that job.

        Parameters
        ----------
        view : View
        order : ndarray of int
            Positions of waiting jobs, the first to be served first.
        hosts : ndarray of bool, shape (n,)
            Running jobs that may be hosts.
        left_s : ndarray of float, shape (n, T)
            Estimated run time at the request; inf: not on this type.
        """
        pairs = view.pair_options()
        for at in np.flatnonzero(hosts).tolist():
            self._started.setdefault(int(view.job[at]), view.now_s)
        if pairs is None or view.partner is None:
            return []
        label, options, level = labels(pairs), request_options(view), find_requested_level(view)
        priority = view.requested_gpus * left_s.min(axis=1)
        lone = np.flatnonzero(hosts & (view.partner < 0) & (view.gpus == view.requested_gpus)).tolist()
        lone.sort(key=lambda at: (self._started[int(view.job[at])], int(view.job[at])))
        found: list[Join] = []
        for at in order.tolist():
            if view.gpus[at] or view.requested_gpus[at] > MOST_GPUS:
                continue
            for host in lone:
                gpu_type, of = int(view.gpu_type[host]), (pairs.job_class[at], pairs.job_class[host])
                cell = gpu_type, int(level[at])
                if (
                    view.gpus[host] == view.requested_gpus[at]
                    and options[at, gpu_type]
                    and pairs.allowed[(*of, *cell)]
                    # Lucid, section 3.3: two jobs that both need most of a GPU never share.
                    and label[(of[0], *cell)] + label[(of[1], *cell)] <= MOST_LABELS
                    and LONGER * priority[host] >= priority[at]
                ):
                    found.append(Join(int(view.job[at]), int(view.job[host]), gpu_type, int(view.gpus[host])))
                    lone.remove(host)
                    break
        return found


class Records:
    """Records the run times of finished jobs, and estimates those of others from them."""

    def __init__(self) -> None:
        self._last_seen: dict[int, tuple[int, int, float]] = {}
        self._ran_s: dict[tuple[int, ...], list[float]] = defaultdict(list)

    def follow(self, view: View) -> None:
        """Record the run times of jobs that have left since the last View."""
        table = zip(
            view.job.tolist(),
            view.requested_gpus.tolist(),
            view.global_batch.tolist(),
            (view.attained_gpu_s / view.requested_gpus).tolist(),
            strict=True,
        )
        now = {job: (gpus, batch, ran_s) for job, gpus, batch, ran_s in table}
        for job in sorted(self._last_seen.keys() - now.keys()):
            gpus, batch, ran_s = self._last_seen[job]
            for key in ((gpus, batch), (gpus,), ()):
                self._ran_s[key].append(ran_s)
        self._last_seen = now

    def estimate_s(self, view: View) -> Floats:
        """Return the estimated total run time (s) of each job on its requested GPUs, shape (n,)."""
        means = {key: float(np.mean(ran_s)) for key, ran_s in self._ran_s.items()}
        jobs = zip(view.requested_gpus.tolist(), view.global_batch.tolist(), strict=True)
        return np.array(
            [
                next((means[key] for key in ((gpus, batch), (gpus,), ()) if key in means), UNKNOWN_S)
                for gpus, batch in jobs
            ]
        )
