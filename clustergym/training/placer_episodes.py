"""Scenarios as compiled episodes of placement: `clustergym.agents.minipods`."""

from __future__ import annotations

import numpy as np

from clustergym.agents.minipods import PlacementEpisode
from clustergym.common.errors import InputError
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario


def placement_episode(scenario: Scenario, round_s: float, defragment_s: float) -> PlacementEpisode:
    """Return the episode of a scenario under `sjf`.

    Failures and shared links are left out, and nodes that jobs hold inside a minipod are not told apart.

    Raises
    ------
    InputError
        If the cluster has several GPU types, or a job asks for a part of a node.
    """
    spec, trace, asked = scenario.cluster, scenario.trace, scenario.request_gpus
    per_node = int(spec.gpus_per_node[0])
    if len(spec.gpu_types) != 1 or (asked < per_node).any() or (asked % per_node).any():
        remedy = "take jobs of whole nodes on one GPU type, as those of scenario=pretraining"
        raise InputError(f"cannot train a placer on {scenario.name}", field="agent.board", remedy=remedy)
    level, nodes = np.searchsorted(scenario.tables.counts, asked), asked // per_node
    iteration_s = scenario.execution[scenario.class_of, 0, level]
    known = scenario.known_times(InformationClass.CLAIRVOYANT)[scenario.class_of, 0, level]
    return PlacementEpisode(
        submit_s=trace.submit_s.astype(np.float64),
        order_s=known * trace.iterations,
        run_s=np.ascontiguousarray(iteration_s[:, 2:] * trace.iterations[:, None]),
        nodes=nodes.astype(np.int64),
        first_s=scenario.costs.search_s(scenario.tables.counts)[level].astype(np.float64),
        move_s=scenario.checkpoint_s[scenario.class_of].astype(np.float64),
        sizes=np.bincount(spec.node_minipod).astype(np.int64),
        round_s=round_s,
        defragment_s=defragment_s,
    )
