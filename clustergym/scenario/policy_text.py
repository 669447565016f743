"""Reads a policy with parameters from a text: `ares alpha=0.6 work_conserving=true`."""

from __future__ import annotations

from typing import Any

import yaml

from clustergym.common.errors import InputError
from clustergym.scenario.policy import Policy
from clustergym.scenario.registry import make_policy


def policy_of(text: str, where: str) -> Policy:
    """Build a policy from its name and words `parameter=value`, with YAML values.

    Raises
    ------
    InputError
        For an unknown policy or parameter, or a word that is neither.
    """
    name, *words = text.split() or [""]
    parameters: dict[str, Any] = {"name": name}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{word!r} is not a parameter", field=where, remedy="write policy key=value …")
        try:
            parameters[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(
                f"{value!r} is not a value", field=f"{where}.{key}", remedy="give YAML"
            ) from error
    return make_policy(parameters)
