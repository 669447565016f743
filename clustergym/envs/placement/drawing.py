"""The placement problem of an episode: a cluster, a job, and random free nodes.

The options of `reset` give it, or a seed draws it from the clusters and jobs of the placement benchmark. The
parameters of the Placement environment are here too; the site's page of them is made from this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError, require_known
from clustergym.common.parameter_types import Fraction, NonNegativeFloat, PositiveInt
from clustergym.common.parameters import Parameters, check_value
from clustergym.scenario.placement_problem import Instance, PretrainingJob, Unit

MOST_DRAWS = 100_000


def minipod_sizes(cluster: ClusterSpec) -> Ints:
    """Return how many nodes each of a cluster's M minipods (nodes below a spine switch) has, (M,)."""
    return np.bincount(cluster.node_minipod).astype(np.int64)


def draw_free_nodes(sizes: Ints, needed: int, rng: np.random.Generator) -> Ints:
    """Sample how many nodes of each of M minipods are free, at least `needed` in all, shape (M,).

    Each is uniform from 0 to the size of its minipod, independently; states in which fewer than
    `needed` nodes are free in all are drawn again.
    """
    if needed > sizes.sum():
        raise InputError(
            f"{needed} nodes are more than the cluster's {int(sizes.sum())}",
            field="nodes",
            remedy="take a larger cluster",
        )
    # Rejection, so that the states keep their distribution, given that the job fits.
    for _ in range(MOST_DRAWS):
        free: Ints = rng.integers(0, sizes + 1)
        if free.sum() >= needed:
            return free
    raise InputError(
        f"no state with {needed} free nodes in {MOST_DRAWS} draws",
        field="nodes",
        remedy="take a larger cluster",
    )


class PlacementSetting(NamedTuple):
    """A named pair of a cluster and a pre-training job to place on it."""

    name: str
    cluster: str
    job: PretrainingJob


SETTINGS = (
    PlacementSetting("i", "arnold-i", PretrainingJob(96, 12, 4, 2)),
    PlacementSetting("ii", "arnold-ii", PretrainingJob(768, 24, 4, 8)),
    PlacementSetting("iii", "arnold-iii", PretrainingJob(2944, 46, 8, 8)),
)
"""Arnold's, with PP groups as units."""

ALPHAS = tuple(round(0.1 * step, 1) for step in range(11))
"""Weights of the DP spread beside the PP spread that the benchmark compares algorithms at."""


_SETTINGS = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, eq=False)
class Problem:
    """The cluster and the job to place on it, which are the same in all episodes.

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


@dataclass(frozen=True)
class PlacementParameters(Parameters):
    """The parameters of a Placement environment; the text below each field describes it."""

    config_key: ClassVar[str] = "env"
    setting: str = "ii"
    """Arnold's benchmark setting: i, ii or iii; the next four fields change it."""
    cluster: str | None = None
    """A name of conf/cluster, or a YAML file; its nodes are all alike."""
    gpus: int | None = None
    """GPUs of the job."""
    tensor_parallel: int | None = None
    """TP of the job."""
    pipeline_parallel: int | None = None
    """PP of the job; DP is what TP and PP leave."""
    unit: Unit = "pp"
    """The communication groups that are placed one after the other."""
    alpha: Fraction | None = 0.5
    """Weight of the DP spread, 0 to 1; null: each episode draws one of 0, 0.1 … 1."""
    reward: Mapping[str, float] = field(default_factory=lambda: {"spread": 1.0})
    """Weights of the terms spread, dp_spread and pp_spread."""
    on_illegal: Literal["penalty", "noop", "raise"] = "penalty"
    """What follows when the agent chooses a full minipod."""
    illegal_penalty: NonNegativeFloat = 1.0
    """What `penalty` takes off the reward, from 0."""
    observation: Literal["dict", "flat"] = "dict"
    """The form of an observation: a dict of arrays, or one array."""
    max_steps: PositiveInt | None = None
    """Steps after which an episode is truncated; null: twice the nodes of the job."""

    def problem(self) -> Problem:
        """Return the cluster and the job of the environment's episodes.

        Raises
        ------
        InputError
            For an unknown setting or cluster, a cluster of more than one type of node, a job that is
            impossible, or one so large that no random state of the cluster has room for it.
        """
        require_known(self.setting, _SETTINGS, "setting", "setting")
        chosen = _SETTINGS[self.setting]
        cluster = load_cluster(self.cluster or chosen.cluster)
        if len(cluster.groups) > 1:
            remedy = "choose a cluster of equal nodes"
            raise InputError(f"{cluster.name} has nodes of several types", field="cluster", remedy=remedy)
        own = ((name, getattr(self, name)) for name in ("gpus", "tensor_parallel", "pipeline_parallel"))
        degrees = {name: getattr(chosen.job, name) if value is None else value for name, value in own}
        job = PretrainingJob.from_gpus(**degrees, gpus_per_node=int(cluster.node_gpus[0]))
        sizes = minipod_sizes(cluster)
        # Drawn once and thrown away: that some state has room is said here, not in the hundredth episode.
        draw_free_nodes(sizes, job.nodes, random_streams.ROOM_CHECK.generator(0))
        return Problem(cluster, job, sizes)


OPTIONS = ("instance", "free_nodes", "alpha")


def episode_instance(
    parameters: PlacementParameters, problem: Problem, options: Mapping[str, Any], rng: np.random.Generator
) -> Instance:
    """Return the placement problem of an episode; what the options do not give is sampled."""
    for name in options:
        require_known(name, OPTIONS, "option", f"options.{name}")
    if "instance" in options:
        return _make_given_instance(parameters, problem, options)
    alpha = check_value(options.get("alpha", parameters.alpha), float | None, "options.alpha")
    if alpha is None:
        alpha = ALPHAS[int(rng.integers(len(ALPHAS)))]
    free = _free_nodes(options.get("free_nodes"))
    if free is None:
        free = draw_free_nodes(problem.minipod_nodes, problem.job.nodes, rng)
    instance = Instance(problem.job, free, alpha, parameters.unit)
    _check_cluster(instance, problem, "options.free_nodes")
    return instance


def _free_nodes(given: Any) -> Ints | None:
    if given is None:
        return None
    plain = given.tolist() if isinstance(given, np.ndarray) else given
    return np.array(check_value(plain, tuple[int, ...], "options.free_nodes"), dtype=np.int64)


def _make_given_instance(
    parameters: PlacementParameters, problem: Problem, options: Mapping[str, Any]
) -> Instance:
    instance, field = options["instance"], "options.instance"
    if len(options) > 1:
        raise InputError("goes with no other option", field=field, remedy="give an Instance alone")
    if not isinstance(instance, Instance):
        raise InputError(f"{instance!r} is not an Instance", field=field, remedy="give an Instance")
    if (instance.job, instance.unit) != (problem.job, parameters.unit):
        remedy = f"give unit {parameters.unit} of {problem.job}"
        raise InputError("is of another job or unit than the environment", field=field, remedy=remedy)
    _check_cluster(instance, problem, field)
    return instance


def _check_cluster(instance: Instance, problem: Problem, field: str) -> None:
    sizes = problem.minipod_nodes
    if len(instance.free_nodes) != len(sizes) or (instance.free_nodes > sizes).any():
        free = instance.free_nodes.tolist()
        remedy = f"its minipods have {sizes.tolist()} nodes"
        raise InputError(f"free nodes {free} do not fit the cluster", field=field, remedy=remedy)
