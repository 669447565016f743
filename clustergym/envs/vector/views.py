"""The allotments of a compiled episode as edited, as the actions of the SimPy engine keep them."""

from __future__ import annotations

import numpy as np

from clustergym.envs.actions import EditActions, Edits
from clustergym.envs.vector import desk as d
from clustergym.envs.vector.desk import EpisodeState
from clustergym.scenario.policy import View
from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode


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
