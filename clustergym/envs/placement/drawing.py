"""The placement problem of an environment: a cluster, a job, and the free nodes of an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameter_types import AtLeastOne
from clustergym.common.parameters import checked
from clustergym.envs.placement import free_nodes as states
from clustergym.envs.placement.communication import PretrainingJob
from clustergym.envs.placement.settings import SETTINGS

_SETTINGS = {setting.name: setting for setting in SETTINGS}
_DEGREES = ("gpus", "tensor_parallel", "pipeline_parallel")


@dataclass(frozen=True, eq=False)
class Problem:
    """The cluster and the job, which are the same in all episodes.

    Attributes
    ----------
    cluster : ClusterSpec
    job : PretrainingJob
    minipod_nodes : ndarray of int, shape (M,)
        Nodes of each minipod, free or not.
    """

    cluster: ClusterSpec
    job: PretrainingJob
    minipod_nodes: Ints


def load_problem(setting: str, changes: Mapping[str, Any]) -> Problem:
    """Return the problem of a setting of `clustergym.envs.placement.settings`, with some values changed.

    Parameters
    ----------
    setting : str
    changes : mapping
        `cluster`, `gpus`, `tensor_parallel`, `pipeline_parallel`, `core_oversubscription`.

    Raises
    ------
    InputError
        For an unknown setting or cluster, a cluster of more than one kind of nodes, a job that is
        impossible, or one so large that no random state of the cluster has room for it.
    """
    if setting not in _SETTINGS:
        raise InputError(f"unknown setting {setting!r}", field="setting", remedy=nearest(setting, _SETTINGS))
    chosen = _SETTINGS[setting]
    cluster = _cluster(changes.get("cluster", chosen.cluster), changes.get("core_oversubscription"))
    degrees = {name: changes.get(name, getattr(chosen.job, name)) for name in _DEGREES}
    job = PretrainingJob.of(**degrees, gpus_per_node=int(cluster.node_gpus[0]))
    sizes = states.minipod_sizes(cluster)
    states.draw_free_nodes(sizes, job.nodes, random_streams.ROOM_CHECK.generator(0))
    return Problem(cluster, job, sizes)


def _cluster(name: str, core_oversubscription: float | None) -> ClusterSpec:
    cluster = load_cluster(name)
    if len(cluster.groups) > 1:
        remedy = "choose a cluster of equal nodes"
        raise InputError(f"{cluster.name} has nodes of several kinds", field="cluster", remedy=remedy)
    if core_oversubscription is None:
        return cluster
    checked(core_oversubscription, AtLeastOne | None, "core_oversubscription")
    return replace(cluster, fabric=replace(cluster.fabric, core_oversubscription=core_oversubscription))


def draw_free_nodes(problem: Problem, fits: bool, rng: np.random.Generator) -> Ints:
    """Draw the free nodes of each minipod, as `clustergym.envs.placement.free_nodes` does, shape (M,).

    Where the job shall not fit though it would, single nodes drawn at random are taken away until
    one is lacking.
    """
    sizes, needed = problem.minipod_nodes, problem.job.nodes
    if fits:
        return states.draw_free_nodes(sizes, needed, rng)
    free = states.draw_free_nodes(sizes, 0, rng)
    beyond = int(free.sum()) - needed + 1
    return free - rng.multivariate_hypergeometric(free, beyond) if beyond > 0 else free
