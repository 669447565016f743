"""The scenarios of a vector environment's episodes, prepared for compiled episodes."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.paths import install_line
from clustergym.envs.auction_actions import NAMES as OF_AUCTIONS
from clustergym.envs.episodes import KEPT
from clustergym.envs.scheduling import SchedulingEnv, check_queues, read_run_seed
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.envs.vector.costs import NAMES
from clustergym.envs.vector.episode_states import PreparedScenario, prepare_scenario
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled.numba_cache import has_numba
from clustergym.sim.compiled.scenario_arrays import (
    UncoveredError,
    check_covered,
    check_known,
)

__all__ = ["PreparedScenarios", "UncoveredError", "fall_back"]

log = logging.getLogger(__name__)
_told: set[str] = set()


class PreparedScenarios:
    """Chooses the scenarios of a vector environment's episodes, and keeps their arrays for compiled episodes.

    Parameters
    ----------
    single : SchedulingEnv

    Raises
    ------
    UncoveredError
        If compiled episodes do not cover what the parameters ask for.
    """

    def __init__(self, single: SchedulingEnv) -> None:
        self._single, self._cluster = single, single.episodes.cluster
        if not has_numba():
            message, remedy = "compiled episodes need the package numba", install_line("learn")
            raise UncoveredError(message, field="env.engine", remedy=remedy)
        self._kept: OrderedDict[tuple[int, int], tuple[Scenario, PreparedScenario]] = OrderedDict()
        for name in single.parameters.reward:
            if name not in NAMES:
                message = f"the term {name} is not covered by compiled episodes"
                raise UncoveredError(message, field="env.reward", remedy="give engine='simpy'")

    def check(self) -> None:
        """Raise an UncoveredError if the compiled engine cannot run the scenarios that episodes may have."""
        single, plain = self._single, SchedulingParameters()
        fixed, chosen = single.episodes.fixed, single.parameters
        of_scenario = ("costs", "placer", "failures", "queues", "checkpoint_every_s")
        usual = all(getattr(chosen, name) == getattr(plain, name) for name in of_scenario)
        if fixed is None and usual:
            return
        options = {} if fixed is not None else {"trace_seed": 0}
        scenario = single.episodes.choose(options, random_streams.ROOM_CHECK.generator(0))
        self._check(scenario)

    def choose(
        self, options: Mapping[str, Any], rng: np.random.Generator
    ) -> tuple[Scenario, PreparedScenario]:
        """Return the scenario of the next episode, as `reset`'s options say, and its arrays."""
        run_seed = read_run_seed(options)
        return self.prepare(self._single.episodes.choose(options, rng), run_seed)

    def prepare(self, scenario: Scenario, run_seed: int) -> tuple[Scenario, PreparedScenario]:
        """Return a scenario and its arrays for compiled episodes; `run_seed` seeds the policies that play it.

        Raises
        ------
        UncoveredError
            If compiled episodes do not cover it.
        """
        key = id(scenario), run_seed
        found = self._kept.pop(key, None)
        if found is None:
            self._check(scenario)
            reference = self._single.reference_outcomes(scenario, run_seed)
            found = scenario, prepare_scenario(scenario, self._single.parameters, reference, run_seed)
        self._kept[key] = found
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    def _check(self, scenario: Scenario) -> None:
        """Raise an UncoveredError if compiled episodes do not cover a scenario."""
        own, chosen = self._cluster, self._single.parameters
        if scenario.cluster is not own and scenario.cluster.fingerprint() != own.fingerprint():
            message = f"scenario {scenario.name} has another cluster, which compiled episodes do not cover"
            raise UncoveredError(message, field="options.scenario", remedy="choose engine=simpy")
        self._cluster = scenario.cluster
        check_queues(scenario, chosen)
        shown = chosen.features == "tenants"
        check_covered(scenario, chosen.information_class, self._single.placer, queues=shown)
        if chosen.actions in OF_AUCTIONS:
            check_known(scenario, chosen.information_class)


def fall_back(refusal: UncoveredError, engine: str) -> None:
    """Warn once why episodes run on the slower SimPy engine; raise if the compiled engine was asked for."""
    if engine == "compiled":
        raise refusal
    if str(refusal) not in _told:
        _told.add(str(refusal))
        log.warning("engine=auto chooses simpy, which is slower: %s", refusal)
