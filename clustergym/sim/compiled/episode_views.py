"""Views of a compiled episode."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Ints
from clustergym.scenario.policy import InformationClass, Setting, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.coverage import UncoveredError
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.state import JobStates
from clustergym.sim.views import ViewMaker


class EpisodeJobs(JobStates):
    """The state of an episode's jobs, in named columns that share the episode's memory."""

    def __init__(self, scenario: Scenario, episode: Episode) -> None:
        n = len(scenario.trace)
        self.take_rows(scenario, episode.job[:n], episode.figures[:n], episode.searched[:n])
        self.profiles = bool(episode.clock[c.PROFILE_GPUS])
        self.batch, self.checkpointed = scenario.trace.global_batch, self.iterations
        self.unsaved = self.checkpoint_every = np.zeros(n, dtype=np.int64)
        self.ends_at, self.disturbed, self.partner, self.part = np.zeros(1), False, None, None


def refuse_places() -> None:
    """Raise an UncoveredError, since a compiled run does not say on which nodes jobs are."""
    message, remedy = "a compiled run does not say where jobs are", "declare Policy.needs_places = True"
    raise UncoveredError(message, field="run.engine", remedy=remedy)


class EpisodeViews(ViewMaker):
    """Builds the Views, from which policies decide, of a compiled episode.

    Parameters
    ----------
    scenario : Scenario
    episode : Episode
    information : InformationClass
    setting : Setting
    capacity : ndarray of int, shape (T,), optional
        GPUs of each type that are there, read anew for each View; all by default.
    """

    def __init__(
        self,
        scenario: Scenario,
        episode: Episode,
        information: InformationClass,
        setting: Setting,
        capacity: Ints | None = None,
    ) -> None:
        self._episode = episode
        self._capacity = scenario.cluster.capacity if capacity is None else capacity
        self._runs = np.zeros(len(scenario.trace), dtype=np.bool_)
        super().__init__(scenario, EpisodeJobs(scenario, episode), information, setting)

    def find_queued(self, rows: Ints) -> Bools:
        """Return a mask of those jobs in view that wait, shape (n,)."""
        running = self._episode.running[: self._episode.clock[c.RUNNING_JOBS]]
        self._runs[running] = True
        queued: Bools = ~self._runs[rows]
        self._runs[running] = False
        return queued

    def view_of_now(self) -> View:
        """Return the View of the present time: the jobs that run or wait, and the free GPUs."""
        episode, clock, available = self._episode, self._episode.clock, self._capacity.copy()
        if self.jobs.profiles:
            running = episode.profile[: clock[c.RUNNING_PROFILES], c.NTH_RUNNING]
            np.subtract.at(available, running % len(available), clock[c.PROFILE_GPUS])
        rows = episode.in_view[: clock[c.IN_VIEW]].copy()
        return self.view(int(clock[c.NOW]), rows, available, episode.free.copy(), where=refuse_places)
