"""The placement problem of an episode: the options of `reset` give it, or a seed draws it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameters import checked
from clustergym.envs.placement.drawing import Problem, draw_free_nodes
from clustergym.envs.placement.instances import Instance
from clustergym.envs.placement.parameters import PlacementParameters
from clustergym.envs.placement.settings import ALPHAS

OPTIONS = ("instance", "free_nodes", "alpha")


def episode_instance(
    parameters: PlacementParameters,
    problem: Problem,
    options: Mapping[str, Any],
    rng: np.random.Generator,
) -> Instance:
    """Return the instance to place; `rng` draws what the options leave open.

    Raises
    ------
    InputError
        For an unknown option, or an instance that is not one of the environment's job and cluster.
    """
    for name in options:
        if name not in OPTIONS:
            remedy = nearest(str(name), OPTIONS)
            raise InputError(f"unknown option {name!r}", field=f"options.{name}", remedy=remedy)
    if "instance" in options:
        return _given(parameters, problem, options)
    alpha = checked(options.get("alpha", parameters.alpha), float | None, "options.alpha")
    if alpha is None:
        alpha = ALPHAS[int(rng.integers(len(ALPHAS)))]
    free = _free_nodes(options.get("free_nodes"))
    if free is None:
        fits = not (parameters.infeasible and rng.random() < parameters.infeasible)
        free = draw_free_nodes(problem, fits, rng)
    instance = Instance(problem.job, free, alpha, parameters.unit)
    _check_cluster(instance, problem, "options.free_nodes")
    return instance


def _free_nodes(given: Any) -> Ints | None:
    if given is None:
        return None
    plain = given.tolist() if isinstance(given, np.ndarray) else given
    return np.array(checked(plain, tuple[int, ...], "options.free_nodes"), dtype=np.int64)


def _given(parameters: PlacementParameters, problem: Problem, options: Mapping[str, Any]) -> Instance:
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
