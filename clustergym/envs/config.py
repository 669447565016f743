"""Environments from mappings of an id and parameters, as `clustergym train env=NAME` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clustergym.envs.registration import ENVIRONMENTS, register_envs
from clustergym.errors import InputError, nearest

if TYPE_CHECKING:
    import gymnasium


def make_env(mapping: Mapping[str, Any], render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make the environment of a mapping `{id: …, parameter: value, …}`.

    Raises
    ------
    InputError
        For an unknown id or parameter, or a value that is not valid.
    """
    import gymnasium

    register_envs()
    given = dict(mapping)
    name = given.pop("id", None)
    known = [row.id for row in ENVIRONMENTS]
    if name not in known:
        message = "is missing" if name is None else f"unknown environment {name!r}"
        raise InputError(message, field="env.id", remedy=nearest(str(name), known))
    made: gymnasium.Env[Any, Any] = gymnasium.make(name, render_mode=render_mode, **given)
    return made
