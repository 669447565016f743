"""Shortest remaining time first, as a program to evolve: a search changes what is between the marks."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.scenario.policy import Decision, InformationClass, Policy

BARRED = 1e9
"""Options whose number is not below it are none."""


# EVOLVE-BLOCK-START
def rank_jobs(left_s, gpus, age_s, held_gpu_s):
    """Return a number for each job, shape (n,), the least first; `left_s` is at its request."""
    return left_s


def rank_options(left_s, gpus, asked, other, share):
    """Return a number for each option, shape (n, T, K): a job takes the least that has room."""
    return left_s + (abs(gpus - asked) + other) * 1e9


def worth_moving(saved_s, moved_s):
    """Return whether a running job may change, shape (n, T, K), above 0: yes; `saved_s` is till its end."""
    return -1.0


# EVOLVE-BLOCK-END


@dataclass
class Evolved(Policy):
    """Goes through jobs by rank, and gives each its best option with room."""

    name: ClassVar[str] = "evolved"
    information_class: ClassVar[InformationClass] = InformationClass.CLAIRVOYANT
    round_s: float | None = 300.0

    def schedule(self, view):
        """Return the allotments of all jobs that shall run from now on."""
        with np.errstate(all="ignore"):
            jobs, options = self.rank(view)
        free, counts, allotments = view.available.tolist(), view.setting.counts.tolist(), []
        for row in np.argsort(jobs, kind="stable").tolist():
            flat = options[row].ravel()
            for at in np.argsort(flat, kind="stable").tolist():
                gpu_type, level = divmod(at, len(counts))
                if flat[at] == np.inf:
                    break
                if counts[level] <= free[gpu_type]:
                    free[gpu_type] -= counts[level]
                    allotments.append((int(view.job[row]), gpu_type, counts[level]))
                    break
        return Decision.of(allotments)

    def rank(self, view):
        """Return the ranks of jobs, shape (n,), and of their options, shape (n, T, K); inf: not possible."""
        counts, moved_s = view.setting.counts, view.restart_cost_s()
        types = np.arange(len(view.setting.gpu_types))[:, None]
        asked, asked_type, held, held_type = (
            one[:, None, None] for one in (view.requested_gpus, view.requested_type, view.gpus, view.gpu_type)
        )
        holds, other = (types == held_type) & (counts == held), (asked_type >= 0) & (types != asked_type)
        until_s = np.where(holds, view.standstill_s[:, None, None], moved_s)
        left_s = view.iteration_time_s() * view.remaining_iterations[:, None, None] + until_s
        now_s = np.where(holds, left_s, 0.0).sum(axis=(1, 2), keepdims=True)
        may = (held == 0) | holds | (worth_moving(now_s - left_s, moved_s) > 0)
        # A job is ranked by its request: on the type it holds, or on the best that it asks for.
        here = np.where(held > 0, types == held_type, ~other) & (counts == asked)
        columns = view.requested_gpus, view.now_s - view.submit_s, view.attained_gpu_s
        at_request_s = np.where(here, left_s, np.inf).min(axis=(1, 2))
        jobs = rank_jobs(at_request_s, *(one.astype(float) for one in columns))
        gpus, share = counts.astype(float), view.available.sum() / len(view)
        options = rank_options(left_s, gpus, asked, other, share)
        return jobs, np.where(may & np.isfinite(left_s) & (options < BARRED), options, np.inf)
