"""Parts of a step, compiled to be repeated on their own."""

from __future__ import annotations

from clustergym.envs.vector import edits, observation
from clustergym.envs.vector.desk import Desk, DeskRules
from clustergym.envs.vector.step import desk_of
from clustergym.sim.compiled import batch
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compiled, compiled_in_place

NOTHING, FEATURES, MASKS, FEATURES_OF_EDIT, MASKS_OF_EDIT = range(5)
"""What is repeated: nothing; what a decision point, and what an edit of the first row, does to features and
masks."""


@compiled
def repeat(episodes: Episode, cluster: ClusterArrays, desks: Desk, rules: DeskRules, part: int) -> None:
    """Do a part of a step once for each episode of a batch, at a decision point."""
    _repeat(episodes, cluster, desks, rules, part)


@compiled_in_place
def _repeat(episodes: Episode, cluster: ClusterArrays, desks: Desk, rules: DeskRules, part: int) -> None:
    for at in range(len(episodes.clock)):
        episode, desk = batch.row_of(episodes, at), desk_of(desks, at)
        if part == FEATURES:
            observation.begin(episode, cluster, desk, rules)
        elif part == MASKS:
            edits.begin(episode, cluster, desk, rules)
        elif part == FEATURES_OF_EDIT:
            observation.edited(episode, cluster, desk, rules, 0)
        elif part == MASKS_OF_EDIT:
            edits.refresh(episode, cluster, desk, rules)
