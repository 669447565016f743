"""Make the Views of compiled episodes, equal to those of the SimPy engine."""

from __future__ import annotations

import copy

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.envs.actions import EditActions, Edits
from clustergym.envs.vector import desk as d
from clustergym.envs.vector.desk import EpisodeState
from clustergym.scenario.policy import InformationClass, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.state import JobStates, ViewMaker, make_setting


class EpisodeViews:
    """Builds the Views of one compiled episode.

    Parameters
    ----------
    scenario : Scenario
    information : InformationClass
    round_s : float or None
        Seconds between the agent's decision points.
    """

    def __init__(self, scenario: Scenario, information: InformationClass, round_s: float | None) -> None:
        self.scenario, self.setting = scenario, make_setting(scenario, round_s)
        self._maker = ViewMaker(scenario, JobStates(scenario), information, self.setting)

    def view(self, episode: Episode) -> View:
        """Return the View of now; it stays as it is when the episode goes on.

        Parameters
        ----------
        episode : Episode
            Of the same scenario, at a decision point.
        """
        clock = episode.clock
        maker = copy.copy(self._maker)
        maker.jobs = self._states(episode)
        rows = episode.in_view[: clock[c.IN_VIEW]].copy()
        available: Ints = self.setting.capacity.copy()
        running = episode.profile[: clock[c.RUNNING_PROFILES], c.NTH_RUNNING]
        np.subtract.at(available, running % len(available), clock[c.PROFILE_GPUS])
        return maker.view(int(clock[c.NOW]), rows, available, episode.free.copy())

    def _states(self, episode: Episode) -> JobStates:
        """Return the state of all jobs, as the SimPy engine keeps it."""
        jobs = JobStates(self.scenario)
        n, types = len(jobs.iterations), len(self.setting.capacity)
        job, figures = episode.job[:n].T.copy(), episode.figures[:n].T.copy()
        jobs.phase, jobs.gpu_type = job[c.PHASE], job[c.TYPE]
        jobs.gpus = np.where(job[c.LEVEL] == c.NONE, 0, self.setting.counts[job[c.LEVEL]])
        jobs.remaining, jobs.iteration_s = figures[c.REMAINING], figures[c.ITERATION_S]
        jobs.attained_gpu_s = figures[c.ATTAINED_GPU_S]
        jobs.ready, jobs.worked_until = job[c.READY], job[c.WORKED_UNTIL]
        jobs.held_since, jobs.queued_since = job[c.HELD_SINCE], job[c.QUEUED_SINCE]
        jobs.restarts, jobs.launched = job[c.RESTARTS], job[c.LAUNCHED] != 0
        jobs.searched = episode.searched[:n].copy()
        jobs.profiled = (job[c.HIDDEN][:, None] >> np.arange(types)) % 2 == 0
        return jobs


def collect_edits(episode: Episode, desk: EpisodeState, view: View, actions: EditActions) -> Edits:
    """Return the allotments of a View as the agent has edited them.

    Parameters
    ----------
    episode, desk
        At the decision point of the View.
    actions : EditActions
        Those of the environment.
    """
    job, shown = episode.job[view.job], desk.shown[: desk.state[d.SHOWN]]
    level = job[:, c.TARGET_LEVEL]
    decided = job[:, c.DECIDED] != 0
    return Edits(
        shown=np.searchsorted(view.job, shown).astype(np.int64),
        target_type=job[:, c.TARGET_TYPE].copy(),
        target_gpus=np.where(level == c.NONE, 0, view.setting.counts[level]),
        free=desk.free.copy(),
        assigned=job[:, c.ASSIGNED] != 0,
        preempted=job[:, c.PREEMPTED] != 0,
        rejected=job[:, c.REJECTED] != 0,
        undecided=actions.rejects & ~(actions.binding & decided),
        assignable=desk.assignable[: len(shown)].reshape(len(shown), actions.types, actions.levels).copy(),
        legal=desk.mask > 0,
    )
