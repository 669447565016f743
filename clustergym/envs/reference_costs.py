"""The costs of a reference policy on a trace: the baseline of a reward."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict

from clustergym.common.errors import InputError
from clustergym.envs.scheduling_costs import Outcomes, Yardsticks
from clustergym.scenario.policy import Placer
from clustergym.scenario.policy_text import policy_of
from clustergym.scenario.registry import parameters_of
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import simulate
from clustergym.sim.engine import StalledError

KEPT = 1024
"""References that a process keeps for all its environments."""

_kept: OrderedDict[str, Outcomes] = OrderedDict()


class ReferenceCosts:
    """Runs the reference policy once on each scenario, with its own information class and rounds.

    Parameters
    ----------
    text : str
        A policy with parameters.
    placer : Placer
    """

    def __init__(self, text: str, placer: Placer) -> None:
        self._text, self._placer = text, placer
        self._policy = policy_of(text, "env.baseline")
        described = {"policy": text, "placer": [placer.name, parameters_of(placer)]}
        self._key = json.dumps([described, self._policy.fingerprint()], sort_keys=True, default=str)

    def outcomes(self, scenario: Scenario, yardsticks: Yardsticks, seed: int) -> Outcomes:
        """Return when each job leaves under the reference policy.

        Raises
        ------
        InputError
            If the policy does not bring the scenario to its end.
        """
        key = f"{scenario.sha256} {seed} {self._key}"
        if key not in _kept:
            try:
                run = simulate(scenario, copy.deepcopy(self._policy), copy.deepcopy(self._placer), seed)
            except StalledError as error:
                raise InputError(
                    f"{self._text}: {error}", field="env.baseline", remedy="choose another policy"
                ) from error
            found = Outcomes(yardsticks)
            found.read(run.simulation.log.events, run.simulation.end_s)
            _kept[key] = found
            if len(_kept) > KEPT:
                _kept.popitem(last=False)
        return _kept[key]
