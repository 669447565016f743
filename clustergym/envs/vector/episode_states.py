"""The states of a batch of episodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Floats, Ints
from clustergym.envs.actions import EditActions
from clustergym.envs.auction_actions import Actions
from clustergym.envs.observations import Summary, logarithm
from clustergym.envs.scheduling_costs import Outcomes, ReferenceCostTimes
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.envs.vector.costs import NAMES
from clustergym.envs.vector.episode_state import STATE_COLUMNS, EpisodeRules, EpisodeState, Singles
from clustergym.envs.vector.queues import QueueState, make_queue_state
from clustergym.scenario.clock import ticks
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.fluid import simulate_fluid
from clustergym.sim.compiled.scenario_arrays import ClusterArrays, ScenarioArrays, scenario_arrays


class PreparedScenario(NamedTuple):
    """A scenario as arrays for compiled episodes, with speeds and restart costs by model, size and batch.

    Attributes
    ----------
    arrays : ScenarioArrays
        With the yardsticks of the jobs.
    run_seed : int
        Of the policies that play.
    queues : QueueState or None
        The queues of tenants; None: there are none.
    """

    arrays: ScenarioArrays
    least_gpu_s: Floats
    least_s: Floats
    speed: Singles
    restart: Singles
    reference: Ints
    run_seed: int
    queues: QueueState | None = None


def prepare_scenario(
    scenario: Scenario, parameters: SchedulingParameters, reference: Outcomes | None = None, run_seed: int = 0
) -> PreparedScenario:
    """Make a scenario's arrays for compiled episodes; `reference` is the baseline policy's outcome on it."""
    information, counts = parameters.information_class, scenario.tables.counts
    arrays = scenario_arrays(scenario, information, parameters.round_s)
    yardsticks = ReferenceCostTimes.from_scenario(scenario, simulate_fluid)
    arrays.figures[:, c.FAIR_S], arrays.figures[:, c.RUN_S] = yardsticks.fair_s, yardsticks.run_s
    known = information != InformationClass.NONE
    time_s = arrays.known_s if known else np.full_like(arrays.known_s, np.inf)
    types = time_s.shape[1]
    hidden = np.arange(2**types if len(arrays.profile) else 1)
    shown = (hidden[:, None] >> np.arange(types)) % 2 == 0
    time_s = np.where(shown[:, :, None], time_s[:, None], np.inf)
    speed = np.where(arrays.feasible[:, None], 1.0 / time_s, 0.0)
    either = np.stack([speed, speed / counts], axis=-1)
    highest = np.maximum(either.max(axis=(2, 3), keepdims=True), np.finfo(np.float64).tiny)
    pays, has_plan = np.arange(2)[:, None, None], np.arange(2)[:, None]
    cost_s = pays * arrays.checkpoint_s[:, None, None, None] + np.where(has_plan, 0.0, arrays.search_s)
    return PreparedScenario(
        arrays,
        _least(time_s * counts),
        _least(time_s),
        (either / highest).astype(np.float32),
        logarithm(cost_s).astype(np.float32),
        _find_leave_ticks(reference),
        run_seed,
        None if yardsticks.queues is None else make_queue_state(yardsticks.queues, reference),
    )


def _find_leave_ticks(outcomes: Outcomes | None) -> Ints:
    """Return when each job left, in ticks, and whether it had completed, shape (n, 2)."""
    if outcomes is None:
        return np.zeros((0, 2), dtype=np.int64)
    left = [ticks(leave_s) if np.isfinite(leave_s) else c.NEVER for leave_s in outcomes.leave_s.tolist()]
    return np.stack([np.array(left, dtype=np.int64), outcomes.completed.astype(np.int64)], axis=1)


def _least(time_s: Floats) -> Floats:
    """Return the least value by model class and set of GPU types not yet profiled; 0 if all are."""
    least = time_s.min(axis=(2, 3), initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


class EpisodeStates:
    """Agents' states of a batch of episodes, in arrays enlarged when a scenario has more jobs or model types.

    Parameters
    ----------
    cluster : ClusterArrays
    size : int
        Episodes.
    parameters : SchedulingParameters
    actions : EditActions or AuctionActions
        Actions of the single environment.
    features : Summary
        Observations of the single environment.

    Attributes
    ----------
    arrays : EpisodeState
        With one more axis, the first.
    rules : EpisodeRules
    """

    def __init__(
        self,
        cluster: ClusterArrays,
        size: int,
        parameters: SchedulingParameters,
        actions: Actions,
        features: Summary,
    ) -> None:
        types, levels = len(cluster.capacity), len(cluster.counts)
        rows = parameters.rows
        on_jobs = actions.number - 1 if isinstance(actions, EditActions) else 0
        self.rules = EpisodeRules(
            rows,
            isinstance(actions, EditActions) and actions.rejects,
            parameters.actions == "admit",
            parameters.mask_stop_while_idle,
            parameters.features != "summary",
            _size_log(cluster),
            float(cluster.capacity.sum()),
            np.nan if parameters.stall_penalty is None else float(parameters.stall_penalty),
            np.array([NAMES.index(name) for name in parameters.reward], dtype=np.int64),
            np.array([float(weight) for weight in parameters.reward.values()]),
        )
        self.arrays = EpisodeState(
            state=np.zeros((size, STATE_COLUMNS), np.int64),
            shown=np.zeros((size, rows), np.int64),
            free=np.zeros((size, types), np.int64),
            target=np.full((size, 2, rows), c.NONE, np.int8),
            assignable=np.zeros((size, on_jobs), np.bool_),
            # Preempting and rejecting a job need no free GPUs.
            room=np.ones((size, on_jobs), np.bool_),
            waits=np.zeros((size, on_jobs), np.bool_),
            mask=np.zeros((size, actions.number), np.int8),
            observation=np.zeros((size, features.size), np.float32),
            last_cost=np.zeros((size, len(self.rules.terms)), np.float64),
            last_reference=np.zeros((size, len(self.rules.terms)), np.float64),
            queue_costs=np.zeros((size, 2), np.float64),
            reference=np.zeros((size, 0, 2), np.int64),
            least_gpu_s=np.zeros((size, 0, 1), np.float64),
            least_s=np.zeros((size, 0, 1), np.float64),
            speed=np.zeros((size, 0, 1, types, levels, 2), np.float32),
            restart=np.zeros((size, 0, 2, 2, levels), np.float32),
        )

    def load(self, at: int, scenario: PreparedScenario) -> None:
        """Copy the arrays of a scenario into row `at` of the batch."""
        for name in ("least_gpu_s", "least_s", "speed", "restart", "reference"):
            table = getattr(self.arrays, name)
            written = write_row(table, at, getattr(scenario, name))
            if written is not table:
                self.arrays = self.arrays._replace(**{name: written})


def write_row(table: npt.NDArray[Any], at: int, own: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy an episode's array into row `at` of a batch's; return that, a larger one if it was too small."""
    shape = tuple(map(max, table.shape[1:], own.shape))
    if shape != table.shape[1:]:
        larger = np.zeros((len(table), *shape), table.dtype)
        larger[tuple(map(slice, table.shape))] = table
        table = larger
    table[at][tuple(map(slice, own.shape))] = own
    return table


def _size_log(cluster: ClusterArrays) -> Singles:
    """Return the observed value for no GPUs and for each GPU count, shape (K + 1,)."""
    sizes = np.log2(1.0 + np.concatenate([[0], cluster.counts])) / np.log2(1.0 + float(cluster.counts[-1]))
    return sizes.astype(np.float32)
