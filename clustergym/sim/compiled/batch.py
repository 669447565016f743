"""The arrays of a batch of episodes, which grow where an episode needs more room."""

from __future__ import annotations

import numpy as np

from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.event_log import LazyLog
from clustergym.sim.compiled.numba_cache import compile_fields
from clustergym.sim.compiled.scenario_arrays import ClusterArrays, ScenarioArrays

ROUNDS = 4
"""Rounds that may be planned at a time."""


class Batch:
    """A batch of episodes on the same cluster, each in one row of common arrays.

    Parameters
    ----------
    cluster : ClusterArrays
    size : int
        Episodes.
    logged : bool
        Whether events are logged.

    Attributes
    ----------
    episodes : Episode
        With one more axis, the first; the arrays are replaced when they grow.
    full_at : tuple of (int, int)
        Numbers of events, and of their nodes, beyond which an episode needs more room.
    """

    def __init__(self, cluster: ClusterArrays, size: int, logged: bool) -> None:
        self.cluster, self.size, self.logged = cluster, size, logged
        types, levels, nodes = len(cluster.capacity), len(cluster.counts), len(cluster.leaf)
        widest, whole, figure = int(cluster.nodes.max()), np.int64, np.float64
        self.episodes = Episode(
            clock=np.zeros((size, c.CLOCK_COLUMNS), whole),
            job=np.zeros((size, 0, c.JOB_COLUMNS), whole),
            figures=np.zeros((size, 0, c.FIGURE_COLUMNS), figure),
            searched=np.zeros((size, 0, types, levels), np.bool_),
            in_view=np.zeros((size, 0), whole),
            rounds=np.zeros((size, ROUNDS, 2), whole),
            free=np.zeros((size, types), whole),
            free_on_node=np.zeros((size, nodes), whole),
            closed=np.zeros((size, nodes), whole),
            running=np.zeros((size, 0), whole),
            share=np.zeros((size, int(cluster.capacity.sum()), c.SHARE_COLUMNS), whole),
            placed=np.zeros((size, 2, widest), whole),
            event=np.zeros((size, 0, c.EVENT_COLUMNS), whole),
            event_iteration_s=np.zeros((size, 0), figure),
            event_node=np.zeros((size, 0, 2), whole),
            execution_s=np.zeros((size, 0, types, levels, 4), figure),
            known_s=np.zeros((size, 0, types, levels), figure),
            feasible=np.zeros((size, 0, types, levels), np.bool_),
            checkpoint_s=np.zeros((size, 0), figure),
            search_s=np.zeros((size, levels), figure),
            profile=np.zeros((size, 0, c.PROFILE_COLUMNS), whole),
        )
        self._node_gpus = np.repeat(cluster.per_node, cluster.nodes)
        self._gpus = int(self._node_gpus.sum())
        self.full_at = -1, -1
        self._next_share = np.append(np.arange(1, self._gpus), c.NONE)

    def load(self, at: int, scenario: ScenarioArrays) -> None:
        """Copy the initial state of an episode of a scenario into row `at`."""
        n, classes, profiles = len(scenario.job), len(scenario.checkpoint_s), len(scenario.profile)
        self._grow(n, "job", "figures", "searched", "in_view", "running")
        self._grow(profiles, "profile")
        self._grow(classes, "execution_s", "known_s", "feasible", "checkpoint_s")
        episodes = self.episodes
        episodes.clock[at] = scenario.clock
        episodes.job[at, :n], episodes.figures[at, :n] = scenario.job, scenario.figures
        episodes.searched[at], episodes.closed[at] = False, 0
        episodes.rounds[at] = c.NEVER
        episodes.free[at], episodes.free_on_node[at] = self.cluster.capacity, self._node_gpus
        episodes.share[at, :, c.NEXT_SHARE] = self._next_share
        episodes.execution_s[at, :classes] = scenario.execution_s
        episodes.known_s[at, :classes] = scenario.known_s
        episodes.feasible[at, :classes] = scenario.feasible
        episodes.checkpoint_s[at, :classes] = scenario.checkpoint_s
        episodes.search_s[at] = scenario.search_s
        episodes.profile[at, :profiles] = scenario.profile
        # More jobs need more room.
        self.full_at = -1, -1
        self.make_room()

    def make_room(self) -> None:
        """Enlarge the log's arrays for all events up to each episode's next decision point."""
        clock = self.episodes.clock
        if not self.logged or (
            clock[:, c.EVENTS].max() <= self.full_at[0] and clock[:, c.EVENT_NODES].max() <= self.full_at[1]
        ):
            return
        most = np.maximum.reduce(clock).tolist()
        # A decision may preempt or launch every job once; then every job may arrive, move and leave.
        events = most[c.EVENTS] + 5 * most[c.JOBS]
        # Rented nodes are ordered, come and go.
        rented = 4 * len(self._node_gpus) * most[c.ALWAYS]
        events += rented
        # Each GPU is launched on at most once by the decision, and moved to once.
        nodes = most[c.EVENT_NODES] + 2 * self._gpus + rented
        if gpus := most[c.PROFILE_GPUS]:
            # A job may ask for a profile on each type and leave; each profile passed on ends and starts.
            more = 8 * most[c.JOBS] * len(self.cluster.capacity)
            events, nodes = events + more, nodes + more * min(gpus, self._gpus)
        self._grow(events, "event", "event_iteration_s", used=most[c.EVENTS])
        self._grow(nodes, "event_node", used=most[c.EVENT_NODES])
        room = self.episodes.event.shape[1], self.episodes.event_node.shape[1]
        self.full_at = room[0] - (events - most[c.EVENTS]), room[1] - (nodes - most[c.EVENT_NODES])

    def log(self, at: int) -> LazyLog:
        """Return the event log so far of the episode in row `at`; later events do not change it."""
        episodes = self.episodes
        events, nodes = episodes.clock[at, c.EVENTS], episodes.clock[at, c.EVENT_NODES]
        return LazyLog(
            episodes.event[at, :events].copy(),
            episodes.event_iteration_s[at, :events].copy(),
            episodes.event_node[at, :nodes].copy(),
        )

    def _grow(self, least: int, *names: str, used: int | None = None) -> None:
        """Replace arrays by longer ones, at least half as long again, where they are too short.

        No more than the rows that are `used` is copied: memory that was never written takes no room.
        """
        longer = {}
        for name in names:
            array = getattr(self.episodes, name)
            size, length, *rest = array.shape
            if length < least:
                longer[name] = np.zeros((size, max(least, length * 3 // 2), *rest), array.dtype)
                kept = length if used is None else used
                longer[name][:, :kept] = array[:, :kept]
        if longer:
            self.episodes = self.episodes._replace(**longer)


select_episode = compile_fields(Episode, "episodes, at", "episodes.{}[at]")
"""(Batch of episodes, number) -> one of them, as views of the batch's arrays."""
