"""The scenarios of a vector environment's episodes, prepared for compiled episodes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from clustergym.compiled.scenario_arrays import uncovered
from clustergym.envs.episodes import KEPT
from clustergym.envs.scheduling import SchedulingEnv, run_seed_of
from clustergym.inputs.errors import InputError
from clustergym.scenarios.scenario import Scenario
from clustergym.vector.costs import NAMES
from clustergym.vector.desks import PreparedScenario, prepared


class PreparedScenarios:
    """Chooses scenarios as a single environment does, and prepares each only once.

    Parameters
    ----------
    single : SchedulingEnv

    Raises
    ------
    InputError
        If compiled episodes do not cover what the parameters ask for.
    """

    def __init__(self, single: SchedulingEnv) -> None:
        self._single = single
        self._kept: OrderedDict[int, tuple[Scenario, PreparedScenario]] = OrderedDict()
        chosen = single.parameters
        other = [name for name in chosen.reward if name not in NAMES]
        reasons = (
            (chosen.actions == "meta", "env.actions", "policies that choose"),
            (chosen.baseline is not None, "env.baseline", "a baseline"),
            (bool(other), "env.reward", f"the term {other[0] if other else ''}"),
        )
        for applies, field, what in reasons:
            if applies:
                message = f"{what} is not covered by compiled episodes"
                raise InputError(message, field=field, remedy="give engine='simpy'")

    def choose(
        self, options: Mapping[str, Any], rng: np.random.Generator
    ) -> tuple[Scenario, PreparedScenario]:
        """Return the scenario of an episode; `SchedulingEnv.reset` describes the options."""
        run_seed_of(options)
        scenario = self._single.episodes.choose(options, rng)
        found = self._kept.pop(id(scenario), None)
        if found is None:
            refusal = uncovered(scenario, self._single.parameters.information_class, self._single.placer)
            if refusal is not None:
                raise refusal
            found = scenario, prepared(scenario, self._single.parameters)
        self._kept[id(scenario)] = found
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found
