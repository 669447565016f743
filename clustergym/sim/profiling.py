"""Profiling of jobs before a policy may start them: which profiles wait and which hold GPUs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from clustergym.common.arrays import Bools, Ints
from clustergym.scenario.clock import ticks
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario


@dataclass(eq=False)
class Profile:
    """An unfinished profile on one GPU type.

    Attributes
    ----------
    unit : int
        What is profiled: a job, or with `costs.profile_reuse=model` a row of `scenario.tables.classes`.
    kind : int
        Index of the GPU type.
    row : int
        The job in whose name the profile holds GPUs.
    left : int
        Ticks still to measure, counted from its last start.
    since : int
        Tick of its last start.
    """

    unit: int
    kind: int
    row: int
    left: int
    since: int = -1

    def settle(self, now: int) -> None:
        """Subtract the time measured up to a tick from what is left."""
        self.left, self.since = self.left - (now - self.since), now


class ProfileBook:
    """The profiles of a run that a policy's information class asks for.

    Attributes
    ----------
    gpus : int
        GPUs that a profile holds; 0: nothing is profiled.
    waiting : list of deque of Profile
        One queue per GPU type, first in, first out; a profile that was put off goes first.
    running : list of Profile
        Running profiles, in order of start.
    held : ndarray of int, shape (T,)
        GPUs that running profiles hold.
    """

    def __init__(self, scenario: Scenario, information: InformationClass) -> None:
        types = len(scenario.cluster.gpu_types)
        self._scenario, self._price = scenario, scenario.costs.profile.get(information.value)
        shared = scenario.costs.profile_reuse == "model"
        self._unit_of: Ints = scenario.class_of if shared else np.arange(len(scenario.trace))
        self._begun: dict[tuple[int, int], Profile] = {}
        self.gpus = self._price.gpus if self._price else 0
        self.waiting: list[deque[Profile]] = [deque() for _ in range(types)]
        self.running: list[Profile] = []
        self.held: Ints = np.zeros(types, dtype=np.int64)

    @property
    def active(self) -> bool:
        """Whether any profile waits or runs."""
        return bool(self.running) or any(self.waiting)

    def ask(self, row: int, known: Bools) -> None:
        """Queue the profiles that a job needs, except on types that are known or already being profiled.

        Parameters
        ----------
        row : int
            The job.
        known : ndarray of bool, shape (T,)
            GPU types on which it is already profiled.
        """
        for kind in np.flatnonzero(self._needed(row) & ~known).tolist():
            unit = int(self._unit_of[row])
            profile = self._begun.get((unit, kind))
            if profile is None:
                profile = self._begun[unit, kind] = Profile(unit, kind, row, self._ticks(row, kind))
            elif profile in self.running or profile in self.waiting[kind]:
                continue
            profile.row = row
            self.waiting[kind].append(profile)

    def _needed(self, row: int) -> Bools:
        assert self._price is not None
        scenario = self._scenario
        fits: Bools = scenario.feasible[scenario.class_of[row]].any(axis=1)
        asked = int(scenario.request_type[row])
        if self._price.types == "requested" and asked >= 0:
            fits = fits & (np.arange(len(fits)) == asked)
        return fits

    def _ticks(self, row: int, kind: int) -> int:
        assert self._price is not None
        fits = self._scenario.feasible[self._scenario.class_of[row], kind]
        return ticks(self._price.seconds * (int(fits.sum()) if self._price.per == "configuration" else 1))

    def jobs_of(self, profile: Profile) -> Ints:
        """Return the jobs (rows of the trace) that share the result of a profile."""
        return np.flatnonzero(self._unit_of == profile.unit)

    def made_for(self, row: int) -> list[Profile]:
        """Return the profiles, running or waiting, that are made in the name of a job."""
        there = [*self.running, *(profile for queue in self.waiting for profile in queue)]
        return [profile for profile in there if profile.row == row]

    def start(self, profile: Profile, now: int) -> None:
        """Start a profile at a tick."""
        profile.since = now
        self.running.append(profile)
        self.held[profile.kind] += self.gpus

    def stop(self, profile: Profile, now: int) -> None:
        """Stop a profile at a tick; keep what it has measured."""
        profile.settle(now)
        self.running.remove(profile)
        self.held[profile.kind] -= self.gpus

    def put_off(self, profile: Profile) -> None:
        """Queue a stopped profile before all others of its GPU type."""
        self.waiting[profile.kind].appendleft(profile)

    def forget(self, profile: Profile) -> None:
        """Discard what an unfinished profile has measured."""
        profile.left = self._ticks(profile.row, profile.kind)
