"""Find policies and placers by name, in this package and in installed plugins, and build them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import yaml

from clustergym.common.errors import InputError, nearest
from clustergym.common.parameter_types import Period
from clustergym.common.parameters import build, check_value
from clustergym.common.paths import conf_dir
from clustergym.common.yaml_file import read_mapping
from clustergym.scenario.policy import Placer, Policy


class ComponentType(NamedTuple):
    """Where policies, or placers, are found: their base class, entry points and package."""

    base: type[Any]
    group: str
    package: str


COMPONENTS = {
    "policy": ComponentType(Policy, "clustergym.policies", "clustergym.policies"),
    "placer": ComponentType(Placer, "clustergym.placers", "clustergym.policies.placers"),
}


@cache
def entry_points(component: str) -> Mapping[str, str]:
    """Return each installed policy's (or placer's) module by name, or `module:Class` if from another package.

    A file of `policies/` is a policy, and one of `policies/placers/` a placer, in whose name `-` stands for
    `_`; other packages name theirs
    in an entry point.
    """
    # A file of this package wins over an entry point of its name: nobody replaces a published policy unseen.
    found = {point.name: point.value for point in metadata.entry_points(group=COMPONENTS[component].group)}
    return found | dict(_list_built_in(COMPONENTS[component].package))


def _list_built_in(package: str) -> Iterator[tuple[str, str]]:
    for folder in importlib.import_module(package).__path__:
        # A folder listing, as importing every policy would take seconds and need what only some of them need.
        for path in sorted(Path(folder).glob("[!_]*.py")):
            yield path.stem.replace("_", "-"), f"{package}.{path.stem}"


def make_policy(parameters: Mapping[str, Any]) -> Policy:
    """Build a policy from its name and parameters, `{name: …, parameter: value, …}`.

    Others are as in the file of conf/policy of this name; `crius` is another policy with parameters.
    """
    policy: Policy = _make("policy", parameters)
    check_value(policy.round_s, Period | None, "policy.round_s")
    return policy


def make_placer(parameters: Mapping[str, Any]) -> Placer:
    """Build a placer from its name and parameters; raises the errors of `make_policy`."""
    placer: Placer = _make("placer", parameters)
    check_value(placer.defragment_s, Period | None, "placer.defragment_s")
    return placer


@cache
def presets(component: str) -> Mapping[str, Path]:
    """Return the files of conf/policy (or conf/placer), each of which says what its name alone stands for."""
    points, own = entry_points(component), dict(_list_built_in(COMPONENTS[component].package))
    # A policy of another package is not what a file of this one says that happens to have its name.
    files = (path for path in (conf_dir() / component).glob("*.yaml") if path.stem not in points.keys() - own)
    return {path.stem: path for path in files}


_read_preset = cache(read_mapping)


def _make(component: str, parameters: Mapping[str, Any]) -> Any:
    given = dict(parameters)
    path = presets(component).get(str(given.get("name")))
    if path is not None:
        preset = _read_preset(path).content
        given |= {**preset, **given, "name": preset["name"]}
    name = str(given.pop("name", ""))
    return build(choose_class(component, name, given), given, component)


def choose_class(component: str, name: str, keys: Collection[str]) -> type[Any]:
    """Return the class of a policy or placer by its name, or by `Policy.with_options` if a key needs that."""
    made_by = find_class(component, name)
    module = getattr(made_by, "with_options", "")
    # By the names of the keys, not their values: recorded parameters then have the class that recorded them.
    if module and not set(keys) <= {f.name for f in dataclasses.fields(made_by)}:
        return _only_class(importlib.import_module(module), Policy)
    return made_by


def find_class(component: str, name: str) -> type[Any]:
    """Return the class of a policy or placer by its registered name; load its module if necessary."""
    base, points = COMPONENTS[component].base, entry_points(component)
    if name not in points:
        raise InputError(
            f"unknown {component} {name!r}",
            field=f"{component}.name",
            remedy=nearest(name, [*points, *presets(component)]),
        )
    target = points[name]
    module, _, attribute = target.partition(":")
    try:
        loaded = importlib.import_module(module)
        made_by = getattr(loaded, attribute) if attribute else _only_class(loaded, base)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{component} {name!r} cannot be loaded from {target}: {error}",
            field=f"{component}.name",
            remedy="install what it needs, or mend its entry point",
        ) from error
    if not (isinstance(made_by, type) and issubclass(made_by, base)):
        message = f"{target} is not a {base.__name__}"
        raise InputError(message, field=f"{component}.name", remedy="mend the entry point")
    # Here, as building it would end in a TypeError of Python's own.
    lacks = ", ".join(sorted(getattr(made_by, "__abstractmethods__", ())))
    if lacks:
        raise InputError(f"{made_by.__name__} lacks {lacks}", field=f"{component}.name", remedy="define it")
    return made_by


def _only_class(module: ModuleType, base: type[Any]) -> type[Any]:
    """Return the one class of a base that a module defines."""
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ImportError(f"it defines {len(found)} classes of {base.__name__}, not one")
    return found[0]


def list_parameters(made: Policy | Placer) -> dict[str, Any]:
    """Return the parameter values of a policy or placer, by the parameter's name."""
    if not dataclasses.is_dataclass(made):
        return {}
    return {f.name: getattr(made, f.name) for f in dataclasses.fields(made) if f.init}


def default_parameters(component: str, name: str, keys: Collection[str] = ()) -> dict[str, Any]:
    """Return a policy's or placer's name and default parameters as one mapping; `keys` as `choose_class`."""
    made_by = choose_class(component, name, keys)
    parameters: dict[str, Any] = {"name": name}
    for f in (f for f in dataclasses.fields(made_by) if f.init):
        value = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        parameters[f.name] = "???" if value is dataclasses.MISSING else value
    return parameters


def parse_policy(text: str, where: str) -> Policy:
    """Build a policy from a text such as `NAME parameter=value`; errors name the field `where`.

    Values are YAML.
    """
    name, *words = text.split() or [""]
    return make_policy({"name": name, **parse_parameters(words, where, "write policy key=value …")})


def parse_parameters(words: Iterable[str], where: str, remedy: str) -> dict[str, Any]:
    """Read words `key=value`, whose values are YAML; errors name the field `where`."""
    parameters = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{word!r} is not a parameter", field=where, remedy=remedy)
        try:
            parameters[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            message = f"{value!r} is not a value"
            raise InputError(message, field=f"{where}.{key}", remedy="give YAML") from error
    return parameters
