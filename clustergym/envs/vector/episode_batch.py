"""Episodes on the compiled simulation: what single and vector environments share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.actions import EditActions
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_costs import Outcomes, ReferenceCostTimes
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.base import check_discrete
from clustergym.envs.vector.costs import job_costs
from clustergym.envs.vector.episode_state import SHOWN, EpisodeRules, EpisodeState
from clustergym.envs.vector.episode_states import EpisodeStates, PreparedScenario
from clustergym.results.metrics.metrics import Metrics, measure_scenario
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.batch import Batch
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import Direct, announce_compilation
from clustergym.sim.compiled.scenario_arrays import ClusterArrays, cluster_arrays
from clustergym.sim.log import EventLog

TOGETHER = 16
"""Episodes that are stepped and copied together, at most: their arrays stay in the processor's cache."""
PARTS = 4
"""Parts of the episodes for each of several threads: a thread takes the next, so that none waits long."""
LEAST = 64
"""Episodes for each thread, at least: of fewer, handing them over takes longer than stepping them."""


class Summary(NamedTuple):
    """The outcome of an episode so far, from which metrics and a digest are computed on request."""

    scenario: Scenario
    log: EventLog
    end_s: float
    stalled: bool

    def get_digest(self) -> str:
        """Compute the digest (a hash) of the event log."""
        return self.log.digest

    def get_metrics(self) -> Metrics:
        """Compute the metrics of the episode, named as in a run's `result.json`."""
        return measure_scenario(self.scenario, self.log.events, self.end_s, self.stalled).metrics


class EpisodeBatch:
    """A batch of compiled episodes with the same parameters, each in one row of common arrays.

    Parameters
    ----------
    single : SchedulingEnv
        An environment with these parameters.
    size : int
        Episodes.
    logged : bool
        Whether events are logged, for metrics and digests.
    threads : int

    Attributes
    ----------
    cluster : ClusterArrays
    simulated : Batch
        The arrays of the simulations.
    terms : ndarray of float, shape (size, m)
        Terms of the rewards of the last step.
    rewards : ndarray of float, shape (size,)
    outcomes : ndarray of int8, shape (size,)
        What the last step has come to, as of `clustergym.envs.vector.step`.
    scenarios : list of Scenario
    """

    compiled: ClassVar[Callable[..., None]] = staticmethod(steps.apply_actions)
    """Applies actions in episodes first..last - 1; a subclass has its own, with its own `arguments`."""

    def __init__(self, single: SchedulingEnv, size: int, logged: bool, threads: int = 1) -> None:
        episodes, reward = single.episodes, single.parameters.reward
        self.size, self.logged, self.threads = size, logged, threads
        self._reward, self._reward_names = reward, list(reward)
        self._parameters, self._actions = single.parameters, single.actions
        self.cluster = cluster_arrays(episodes.cluster, episodes.setting.counts)
        self.simulated = Batch(self.cluster, size, logged)
        self._episode_states = EpisodeStates(
            self.cluster, size, single.parameters, single.actions, single.features
        )
        self.terms, self.rewards = np.zeros((size, len(reward))), np.zeros(size)
        self.outcomes = np.zeros(size, dtype=np.int8)
        self.scenarios: list[Scenario | None] = [None] * size
        self._compiled, self._rows = Direct(self.compiled), np.arange(size)
        # One thread fewer: the caller's own takes part.
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    @property
    def episode_states(self) -> EpisodeState:
        """The arrays that agents see and edit, one row per episode, such as `mask` and `observation`."""
        return self._episode_states.arrays

    @property
    def arrays(self) -> tuple[Episode, ClusterArrays, EpisodeState, EpisodeRules]:
        """The arrays on which compiled steps work: episodes, cluster, agents' states, and common rules."""
        return self.simulated.episodes, self.cluster, self._episode_states.arrays, self._episode_states.rules

    @property
    def now_s(self) -> Any:
        """Simulated time of each episode, seconds, shape (size,)."""
        return self.simulated.episodes.clock[:, c.NOW] / c.TICKS_PER_S

    def row_jobs(self) -> Ints:
        """Return the position in the trace of each observed row's job, -1 for an empty row, (size, R)."""
        episode_states = self._episode_states.arrays
        filled = np.arange(episode_states.shown.shape[1]) < episode_states.state[:, SHOWN, None]
        return np.where(filled, episode_states.shown, -1)

    def all_jobs(self) -> Ints:
        """Return the positions in the trace of each episode's jobs, padded with -1, shape (size, m)."""
        numbers = self.simulated.episodes.clock[:, c.JOBS]
        every = np.arange(int(numbers.max()))
        return np.where(every < numbers[:, None], every, -1)

    @property
    def reached(self) -> Ints:
        """The time (in ticks, microseconds) until which an episode's costs count: now or its end, (size,)."""
        clock = self.simulated.episodes.clock
        return np.where(self.outcomes >= steps.TERMINATED, clock[:, c.END], clock[:, c.NOW])

    def job_costs(self, jobs: Ints) -> tuple[Floats, Bools]:
        """Return each job's cost so far, a weighted sum of the reward's terms, and whether it has left."""
        return job_costs(self.simulated.episodes, jobs, self.reached, self._reward)

    def begin(self, rows: Sequence[int], scenarios: Sequence[tuple[Scenario, PreparedScenario]]) -> None:
        """Begin new episodes of scenarios in some rows of the batch, up to their first decision point."""
        for row, (scenario, arrays) in zip(rows, scenarios, strict=True):
            self.scenarios[row] = scenario
            self.simulated.load(row, arrays.arrays)
            self._episode_states.load(row, arrays)
        announce_compilation(self.compiled)
        self.simulated.make_room()
        own = self.arguments(np.full(self.size, steps.BEGIN, dtype=np.int64))
        for row in rows:
            self._compiled(*self.arrays, *own, self.terms, self.rewards, self.outcomes, row, row + 1)

    def check_actions(self, actions: npt.ArrayLike) -> Ints | Floats:
        """Check the actions, one per episode, and return them as an array that `take` accepts."""
        return check_discrete(actions, self.size, self.episode_states.mask.shape[1])

    def find_legal(self, taken: Any) -> Bools:
        """Return a mask of the episodes in which the given action is legal, shape (size,)."""
        return self.episode_states.mask[self._rows, taken] > 0

    def is_legal(self, row: int, action: Any) -> bool:
        """Return whether an action is legal in the episode in row `row`."""
        return bool(self.episode_states.mask[row, action])

    def take(self, taken: Any, over: Bools, *copies: npt.NDArray[Any]) -> None:
        """Apply actions where an episode is not over; copy observations and masks to `copies`, if given."""
        actions = taken.copy()
        actions[over] = steps.LEAVE
        self.apply(actions, *copies)

    def answer_illegal(self, taken: Any, illegal: Bools) -> Any:
        """Return the actions to take: legal ones in place of illegal ones, if these are to be repaired."""
        if self._parameters.on_illegal != "repair" or not illegal.any():
            return taken
        assert isinstance(self._actions, EditActions)
        repaired = taken.copy()
        steps.repair_actions(self.episode_states.mask, self._actions.width, illegal, repaired)
        return repaired

    def charge_illegal(self, illegal: Bools) -> None:
        """Take the penalty off the rewards of the last step where its action was illegal, if there is one."""
        if self._parameters.on_illegal == "penalty":
            self.rewards[illegal] -= self._parameters.illegal_penalty

    def draw(self, states: npt.NDArray[np.uint64]) -> Ints | Floats:
        """Return a random legal action for each episode; this advances the random generators' states."""
        actions = np.zeros(self.size, dtype=np.int64)
        steps.draw_legal(self.episode_states.mask, states, actions, 0, self.size)
        return actions

    def arguments(self, actions: Ints) -> tuple[Any, ...]:
        """Return what the compiled function takes between the common arrays and the results' arrays."""
        return (actions,)

    def apply(self, actions: Ints, *copies: npt.NDArray[Any]) -> None:
        """Apply actions (LEAVE: do nothing); copy observations and masks to `copies`, if given."""
        # An edit adds no event, and needs no more room.
        if np.count_nonzero(self.outcomes):
            self.simulated.make_room()
        arguments = (*self.arrays, *self.arguments(actions), self.terms, self.rewards, self.outcomes)
        # Without what follows, a single environment steps a tenth faster.
        if self.threads == 1 and not copies:
            self._compiled(*arguments, 0, self.size)
            return
        shown: tuple[npt.NDArray[Any], ...] = self.episode_states.observation, self.episode_states.mask
        size, threads = self.size, max(min(self.threads, self.size // LEAST), 1)
        together = size if threads == 1 else -(-size // (PARTS * threads))
        together = min(together, TOGETHER) if copies else together
        # Threads take the next piece from one iterator (Python's lock guards it), so that none waits for
        # the slowest.
        firsts = iter(range(0, size, together))

        def work() -> None:
            for first in firsts:
                last = min(first + together, size)
                self._compiled(*arguments, first, last)
                for own, other in zip(shown, copies, strict=False):
                    other[first:last] = own[first:last]

        others = [self._pool.submit(work) for _ in range(1, threads)] if self._pool else []
        work()
        for other in others:
            other.result()

    def info(self, row: int, illegal: bool) -> dict[str, Any]:
        """Return an episode's info: action mask, time in s, whether the action was illegal, reward terms."""
        return {
            "action_mask": self.episode_states.mask[row].copy(),
            "now_s": float(self.simulated.episodes.clock[row, c.NOW]) / c.TICKS_PER_S,
            "illegal": illegal,
            "rewards": dict(zip(self._reward_names, self.terms[row].tolist(), strict=True)),
        }

    def log(self, row: int) -> EventLog:
        """Return all events so far of the episode in row `row`."""
        return self.simulated.log(row)

    def episode(self, row: int) -> tuple[Episode, EpisodeState]:
        """Return the episode in row `row`, and its agent's state, as views of the batch's arrays."""
        episodes, episode_states = self.simulated.episodes, self._episode_states.arrays
        return Episode._make(part[row] for part in episodes), EpisodeState._make(
            part[row] for part in episode_states
        )

    def summary(self, row: int) -> Summary:
        """Return a snapshot of the episode in row `row`, from which metrics can be computed later."""
        scenario, over = self.scenarios[row], self.outcomes[row] >= steps.TERMINATED
        assert scenario is not None
        # While it goes on, an episode ends `now`: metrics of a part of an episode are those of a run cut
        # off there.
        end_s = float(self.simulated.episodes.clock[row, c.END if over else c.NOW]) / c.TICKS_PER_S
        return Summary(scenario, self.simulated.log(row), end_s, self.is_stalled(row))

    def is_stalled(self, row: int) -> bool:
        """Return whether the episode in row `row` ended because its jobs would wait for ever."""
        return bool(self.outcomes[row] == steps.STALLED)

    def get_outcomes(self, row: int) -> Outcomes:
        """Return when each job of the episode in row `row` has left so far, and whether it had completed."""
        scenario, episodes = self.scenarios[row], self.simulated.episodes
        assert scenario is not None
        found = Outcomes(ReferenceCostTimes.from_scenario(scenario))
        job = episodes.job[row, : len(found.leave_s)]
        gone = job[:, c.LEAVE] != c.NEVER
        found.leave_s[gone] = job[gone, c.LEAVE] / c.TICKS_PER_S
        found.completed = job[:, c.PHASE] == c.COMPLETED
        tick = episodes.clock[row, c.END if self.outcomes[row] >= steps.TERMINATED else c.NOW]
        found.now_s = float(tick) / c.TICKS_PER_S
        return found

    def close(self) -> None:
        """Stop the threads that step the episodes."""
        if self._pool is not None:
            self._pool.shutdown()
