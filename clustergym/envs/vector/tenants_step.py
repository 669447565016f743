"""Steps of a batch of episodes with queues of tenants, compiled."""

from __future__ import annotations

from clustergym.common.arrays import Floats, Ints
from clustergym.envs.vector import episode_state as d
from clustergym.envs.vector import queues as of_queues
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.episode_state import Bytes, EpisodeRules, EpisodeState
from clustergym.envs.vector.queues import QueueState
from clustergym.envs.vector.step import BEGIN, EDITED, LEAVE
from clustergym.sim.compiled import batch
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import entry_in_place
from clustergym.sim.compiled.scenario_arrays import ClusterArrays


@entry_in_place
def apply_actions_with_queues(
    episodes: Episode,
    cluster: ClusterArrays,
    episode_states: EpisodeState,
    rules: EpisodeRules,
    queue_states: QueueState,
    usual: int,
    actions: Ints,
    terms: Floats,
    rewards: Floats,
    outcomes: Bytes,
    first: int,
    last: int,
) -> None:
    """Apply an action in each of the episodes first..last - 1, as `step.apply_actions` does, and to queues.

    Parameters
    ----------
    usual : int
        Numbers of an observation before those of queues.
    """
    for at in range(first, last):
        action = actions[at]
        if action == LEAVE:
            continue
        episode, queues = batch.select_episode(episodes, at), of_queues.select_queues(queue_states, at)
        whole = steps.select_state(episode_states, at)
        episode_state = steps.take_usual_part(whole, usual)
        table, costs = whole.observation[usual:], whole.queue_costs
        terms[at], rewards[at] = 0.0, 0.0
        if action == BEGIN:
            of_queues.begin_episode(queues)
        outcome = steps.play(episode, cluster, episode_state, rules, action)
        outcomes[at] = outcome
        if outcome == EDITED:
            of_queues.observe(episode, cluster, episode_state, queues, rules.total, table, False)
            continue
        of_queues.read_events(episode, queues, rules.total)
        if not episode_state.state[d.ILLEGAL]:
            of_queues.observe(episode, cluster, episode_state, queues, rules.total, table, True)
        if action != BEGIN:
            for baseline in range(2 if len(episode_state.reference) > 0 else 1):
                until_s = steps.find_end_s(episode, episode_state, rules, outcome, baseline == 1)
                costs[baseline] = of_queues.compute_owed(queues, baseline == 1, until_s)
            rewards[at] = steps.charge(episode, episode_state, rules, outcome, terms[at])
