"""Themis: a policy that auctions GPUs to even out finish-time fairness."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.parameter_types import FractionBelowOne, NonNegativeFloat, OneOf, Period
from clustergym.scenario.policy import Decision, InformationClass, Setting, View

from .shared import finish_times
from .shared.integer_programs import OPTIMAL, Choices, improve_choice, solve
from .shared.requests import find_held_level, find_requested_level
from .shared.restart_guard import GuardedPolicy


@dataclass
class Themis(GuardedPolicy):
    """The policy Themis (NSDI '20), which auctions GPUs to the jobs with the worst finish-time fairness.

    A job's rho is its finish time in the shared cluster / that on an exclusive 1/N of the cluster
    (section 3.1). Each round the GPUs whose lease has ended are offered to the fraction 1 - f
    of jobs with the worst rho (section 4.2). A job bids the rho that each (type, count) would
    give it; the auction maximises the product of improvements of 1/rho. GPUs that are left over
    go to the other jobs, gang by gang: first to those that hold them, then by rho.

    Differences from the paper: hidden payments, which leave GPUs over for the other jobs, are left out,
    since jobs bid truthfully here; remaining GPUs go to the job with the worst rho, not to a random one;
    a gang is moved whole; a bid for no GPUs counts as waiting for one more lease and then having the 1/N
    share, so that the product is finite; bids count the restart. N is the mean number of jobs since the job
    came. Bids use data-parallel profiles; the speed of a job without
    one is guessed (`finish_times.request_times`, counted in `counters`).

    Parameters
    ----------
    fairness : float
        The knob f, at least 0 and below 1: larger offers to fewer jobs.
    lease_s : float
        Seconds a job keeps GPUs that it was given before they are offered again.
    auction : str
        `greedy`: by improvement per GPU; `ilp`: the paper's integer program.
    counts : str
        `up_to_request`: bids for the requested count and smaller ones, as a bid in the paper is for any
        part of the offer; `request`: for that alone, so that wide gangs starve behind narrow ones.
    guard : bool
        Whether a lease lasts for 20 restarts at least (`GuardedPolicy`).
    round_s : float or None
        Seconds between decision points.
    """

    name: ClassVar[str] = "themis"
    information_class: ClassVar[InformationClass] = InformationClass.DATA_PARALLEL
    fairness: FractionBelowOne = 0.8
    lease_s: NonNegativeFloat = 600.0
    auction: Annotated[str, OneOf(AUCTIONS)] = "greedy"
    counts: Literal["request", "up_to_request"] = "up_to_request"
    round_s: Period | None = 360.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._start()

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all jobs of the last run."""
        super().reset(setting, rng)
        self._start()

    def _start(self) -> None:
        self._lease_end_s: dict[int, float] = {}
        self._guessed: set[int] = set()
        self._failures = self._auctions = 0
        # Integral of the number of jobs over time, up to now and up to when each job was first seen.
        self._job_s, self._last_s, self._last_jobs = 0.0, 0.0, 0
        self._first_seen: dict[int, tuple[float, float]] = {}

    def counters(self) -> Mapping[str, int]:
        """Return the number of auctions, of auctions without a proven optimum, and of guessed speeds."""
        return {
            "auctions": self._auctions,
            "solver_fallbacks": self._failures,
            "jobs_without_profile": len(self._guessed),
        }

    def schedule(self, view: View) -> Decision:
        """Auction GPUs under no lease (the time for which winners keep GPUs), then give away the rest."""
        times = finish_times.request_times(view)
        self._guessed.update(view.job[times.guessed].tolist())
        left_s = self._options_s(view, times)
        elapsed_s = view.now_s - view.submit_s
        # Without GPUs a job is taken to wait for one lease and to have its 1/N share from then on.
        none_s = elapsed_s + finish_times.compute_isolated_remaining_s(view, times)
        ideal_s = finish_times.ideal_s(view, times, self._contention(view))
        # Finish-time fairness: the expected shared finish time over that alone on a 1/N share.
        rho = self._finish_s(view, elapsed_s, left_s, none_s) / np.where(np.isfinite(ideal_s), ideal_s, 1.0)
        rho = np.where(np.isfinite(rho) & np.isfinite(ideal_s), rho, 0.0)
        # The auction maximises a product of ratios (Nash), so logarithms turn it into a sum.
        gain = _log_improvement(none_s + self.lease_s, elapsed_s[:, None, None] + left_s)
        # GPUs under a lease are no part of the auction.
        chosen = self._list_leased(view)
        order = [int(at) for at in np.argsort(-rho, kind="stable") if int(at) not in chosen]
        # The fairness knob f: GPUs are offered to the 1 - f of the apps that are furthest from fair.
        offered = order[: math.ceil((1 - self.fairness) * len(order) - 1e-9)]
        chosen |= self._auction(view, np.array(offered, dtype=np.int64), gain, chosen)
        self._give_leftovers(view, [at for at in order if at not in chosen], left_s, chosen)
        self._lease_end_s = self._leases(view, chosen)
        return Decision.of((int(view.job[at]), gpu_type, gpus) for at, (gpu_type, gpus) in chosen.items())

    def _options_s(self, view: View, times: finish_times.RequestTimes) -> Floats:
        """Return seconds to each job's end by allotment, shape (n, T, K); inf where it may not bid."""
        asked, level = find_requested_level(view), np.arange(len(view.setting.counts))
        left_s = finish_times.remaining_s(view)
        may = level <= asked[:, None] if self.counts == "up_to_request" else level == asked[:, None]
        left_s = np.where(may[:, None, :], left_s, np.inf)
        at_request = finish_times.remaining_at_request_s(view, times)
        np.put_along_axis(left_s, asked[:, None, None], at_request[..., None], axis=2)
        return left_s

    def _finish_s(self, view: View, elapsed_s: Floats, left_s: Floats, none_s: Floats) -> Floats:
        """Return each job's expected finish time, seconds since its submission, shape (n,)."""
        # Section 3.1's T_sh: a job that holds GPUs is taken to keep them until it ends.
        held = np.flatnonzero(view.gpus > 0)
        finish_s = none_s.copy()
        finish_s[held] = elapsed_s[held] + left_s[held, view.gpu_type[held], find_held_level(view)[held]]
        return np.where(np.isfinite(finish_s), finish_s, none_s)

    def _contention(self, view: View) -> Floats:
        """Return the mean number of jobs in the system since each job was first seen, shape (n,)."""
        # N of T_id = T_alone x N is not the present contention but its mean over the job's life.
        self._job_s += self._last_jobs * (view.now_s - self._last_s)
        self._last_s, self._last_jobs = view.now_s, len(view)
        now = (view.now_s, self._job_s)
        self._first_seen = {row: self._first_seen.get(row, now) for row in view.job.tolist()}
        seen = np.array(list(self._first_seen.values())).reshape(-1, 2)
        spent_s = view.now_s - seen[:, 0]
        mean = (self._job_s - seen[:, 1]) / np.where(spent_s > 0, spent_s, 1.0)
        return np.where(spent_s > 0, mean, float(len(view)))

    def _list_leased(self, view: View) -> dict[int, tuple[int, int]]:
        """Return the type and GPUs of each job whose lease still runs, by its position in the View."""
        guarded = self.find_guarded(view)
        return {
            int(at): (int(view.gpu_type[at]), int(view.gpus[at]))
            for at in np.flatnonzero(view.gpus > 0)
            if guarded[at] or self._lease_end_s.get(int(view.job[at]), 0.0) > view.now_s
        }

    def _leases(self, view: View, chosen: Mapping[int, tuple[int, int]]) -> dict[int, float]:
        """Return when the lease ends of each job that will hold GPUs."""
        ends = {row: self._lease_end_s.get(row, 0.0) for row in view.job[list(chosen)].tolist()}
        return {row: end if end > view.now_s else view.now_s + self.lease_s for row, end in ends.items()}

    def _auction(
        self, view: View, offered: Ints, gain: Floats, chosen: Mapping[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        """Return the allotments that jobs win, by the job's position."""
        if not (gain[offered] > 0).any():
            return {}
        self._auctions += 1
        counts, types = view.setting.counts, len(view.setting.gpu_types)
        value = gain[offered].reshape(len(offered), -1)
        gpu_type, gpus = np.repeat(np.arange(types), len(counts)), np.tile(counts, types)
        bids = Choices(np.where(value > 0, value, -np.inf), gpu_type, gpus, self._free(view, chosen))
        won, solved = AUCTIONS[self.auction](bids)
        self._failures += not solved
        return {int(offered[i]): (int(gpu_type[won[i]]), int(gpus[won[i]])) for i in np.flatnonzero(won >= 0)}

    def _free(self, view: View, chosen: Mapping[int, tuple[int, int]]) -> Ints:
        free = view.available.copy()
        for gpu_type, gpus in chosen.values():
            free[gpu_type] -= gpus
        return free

    def _give_leftovers(
        self, view: View, rest: list[int], left_s: Floats, chosen: dict[int, tuple[int, int]]
    ) -> None:
        """Give leftover GPUs to the other jobs: those that they hold, else those on which they end first."""
        free = self._free(view, chosen).tolist()
        for at in rest:
            gpu_type, gpus = int(view.gpu_type[at]), int(view.gpus[at])
            if gpus and free[gpu_type] >= gpus:
                free[gpu_type] -= gpus
                chosen[at] = (gpu_type, gpus)
        for at in rest:
            if not any(free):
                return
            if at in chosen:
                continue
            room = view.setting.counts[None, :] <= np.array(free)[:, None]
            end_s = np.where(room, left_s[at], np.inf)
            gpu_type, level = divmod(int(np.argmin(end_s)), end_s.shape[1])
            if np.isfinite(end_s[gpu_type, level]):
                gpus = int(view.setting.counts[level])
                free[gpu_type] -= gpus
                chosen[at] = (gpu_type, gpus)


def _log_improvement(without_s: Floats, with_s: Floats) -> Floats:
    """Return log(finish time without / with a bid), shape (n, T, K); 0: impossible."""
    possible = np.isfinite(with_s) & np.isfinite(without_s)[:, None, None] & (with_s > 0)
    ratio = np.where(possible, without_s[:, None, None], 1.0) / np.where(possible, with_s, 1.0)
    gain: Floats = np.log(ratio)
    return gain


def _greedily(bids: Choices) -> tuple[Ints, bool]:
    """Take bids by improvement per GPU while GPUs are free; return as `_by_program` does."""
    return improve_choice(bids, np.full(len(bids.value), -1, dtype=np.int64)), True


def _by_program(bids: Choices) -> tuple[Ints, bool]:
    """Return the bid that each job wins (-1: none), and whether the choice is proven optimal."""
    solution = solve(bids, np.full(len(bids.value), -1, dtype=np.int64))
    return solution.choice, solution.status == OPTIMAL


AUCTIONS: dict[str, Callable[[Choices], tuple[Ints, bool]]] = {"greedy": _greedily, "ilp": _by_program}
