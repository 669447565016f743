"""Lets a trained network decide as a policy: it sees observations, and its greedy actions decide."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from clustergym.common.errors import InputError
from clustergym.envs.actions import EditActions
from clustergym.envs.auction_actions import make_actions
from clustergym.envs.observations import FEATURES, times_known
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.scenario.policy import Decision, InformationClass, Setting, View
from clustergym.trace.trace import Trace
from clustergym.training.network_checkpoints import NetworkCheckpoint


class NetworkPlayer:
    """Makes a scheduling policy's decisions with a trained network.

    It needs nothing but Views: the jobs that have left are those that an earlier one showed.

    Parameters
    ----------
    checkpoint : NetworkCheckpoint

    Raises
    ------
    InputError
        If it was not trained to schedule.
    """

    def __init__(self, checkpoint: NetworkCheckpoint) -> None:
        core = checkpoint.env.unwrapped
        if not isinstance(core, SchedulingEnv):
            raise InputError(
                f"is of {checkpoint.about['environment']}, which schedules no jobs",
                field="policy.checkpoint",
                remedy="give one of Elastic, Fair, Deadline or Meta",
            )
        self.information_class: InformationClass = core.parameters.information_class
        self.round_s = core.parameters.round_s
        self._parameters = core.parameters
        self._trained = core.features.setting
        self._checkpoint = checkpoint
        self._known = times_known(self.information_class)

    def check(self, trace: Trace, setting: Setting) -> None:
        """Raise an InputError if the cluster's GPU types, GPUs or counts differ from the training's."""
        trained, message = self._trained, ""
        if setting.gpu_types != trained.gpu_types or not np.array_equal(setting.counts, trained.counts):
            message = (
                f"was trained for {', '.join(trained.gpu_types)} and {len(trained.counts)} counts, the "
                f"cluster has {', '.join(setting.gpu_types)} and {len(setting.counts)}"
            )
        elif not np.array_equal(setting.capacity, trained.capacity):
            there, here = trained.capacity.tolist(), setting.capacity.tolist()
            message = f"was trained for {there} GPUs, the cluster has {here}"
        if message:
            remedy = f"give cluster={self._parameters.cluster}, or train it there"
            raise InputError(message, field="policy.checkpoint", remedy=remedy)
        self._trace = trace

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Prepare for a new run."""
        self._met: set[int] = set()
        self._actions = make_actions(self._parameters, setting)
        self._features = FEATURES[self._parameters.features](setting, self._parameters.rows)
        self._actions.reset(self._trace, setting, copy.deepcopy(rng))

    def schedule(self, view: View) -> Decision:
        """Return the decision that the network's most probable actions lead to."""
        actions, features = self._actions, self._features
        self._met.update(view.job.tolist())
        actions.begin(view)
        features.begin(view, actions, len(self._met) - len(view), self._known)
        while True:
            action = self._choose(features.values())
            decision = actions.act(action)
            if decision is not None:
                return decision
            features.update_edited(actions, action)

    def _choose(self, observation: Any) -> Any:
        """Return the greedy action, or stop where it is illegal (in training it changes nothing)."""
        if hasattr(self._checkpoint.policy, "greedy_masked"):
            return self._checkpoint.policy.greedy_masked(observation, self._actions.mask())
        found = self._checkpoint.policy.predict(observation, deterministic=True)[0]
        action = found if found.ndim else int(found)
        if not self._actions.legal(action):
            assert isinstance(self._actions, EditActions)
            return self._actions.stop
        return action
