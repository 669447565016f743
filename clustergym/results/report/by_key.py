"""Results in columns by any keys of their configurations, such as two clusters or five loads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError, nearest
from clustergym.common.yaml_file import read_mapping
from clustergym.results.result_files import NamedPart, ResultFile

BESIDE = (
    *("seed", "scenario.name", "compare", "objective", "progress", "table", "report", "logger"),
    *("experiment", "sweep"),
)
"""Keys in which runs of one table may differ. A scenario's name follows from the others."""
SHOWN = 6
"""Most keys that a note about a table names."""


@dataclass(frozen=True)
class ConfiguredResult:
    """A result with its configuration as a flat mapping, such as `{"cluster.nodes.0.count": 4}`."""

    result: ResultFile
    values: Mapping[str, Any]

    def drop_keys(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the configuration without the given keys and those that change no result."""
        left_out = (*BESIDE, *keys)
        return {key: value for key, value in self.values.items() if not _covers(left_out, key)}

    def part(self, key: str) -> NamedPart:
        """Return a key's value as a name or, if the key contains others, a name with those as parameters."""
        if key in self.values:
            value = self.values[key]
            return NamedPart(name=value if isinstance(value, str) and value else json.dumps(value))
        inside = {
            inner[len(key) + 1 :]: value for inner, value in self.values.items() if _covers([key], inner)
        }
        path = Path(str(inside["path"])).stem if inside.get("path") else None
        names = (path, *(inside.get(field_name) for field_name in ("name", "committed", "source")))
        name = next((str(known) for known in names if known), "changed" if inside else "unset")
        return NamedPart(
            name=name, parameters={inner: value for inner, value in inside.items() if inner != "name"}
        )


def read_settings(results: Iterable[ResultFile], keys: Sequence[str]) -> list[ConfiguredResult]:
    """Read each result's configuration from its folder; raise an `InputError` for an unknown key."""
    found = [_setting(result) for result in results]
    known: set[str] = set()
    for setting in found:
        for key in setting.values:
            steps = key.split(".")
            known.update(".".join(steps[:depth]) for depth in range(1, len(steps) + 1))
    for key in keys:
        if key not in known:
            raise InputError(f"no run has a key {key!r}", field="--by", remedy=nearest(key, known))
    return found


def _setting(result: ResultFile) -> ConfiguredResult:
    """Return a result with its configuration; policy and placer are the result's, with all parameters."""
    path = result.path.parent / "config.yaml"
    if not path.exists():
        remedy = "--by a key of the configuration needs it: run it again, or leave it out"
        raise InputError("no such file", file=path, remedy=remedy)
    config = dict(read_mapping(path).content)
    knows = {"information_class": result.information_class}
    config["policy"] = {**result.policy.parameters, **knows, "name": result.policy.name}
    config["placer"] = {**result.placer.parameters, "name": result.placer.name}
    return ConfiguredResult(result, dict(_flat(config)))


def _flat(node: Any, above: str = "") -> Iterable[tuple[str, Any]]:
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    if not inside:
        whole = isinstance(node, float) and node.is_integer()
        yield above, int(node) if whole else node
    for key, value in inside:
        yield from _flat(value, f"{above}.{key}" if above else str(key))


def _covers(keys: Iterable[str], key: str) -> bool:
    return any(key == group or key.startswith(f"{group}.") for group in keys)


def divide_by_keys(settings: Iterable[ConfiguredResult], keys: Sequence[str]) -> list[list[ConfiguredResult]]:
    """Divide results into tables; within a table, configurations differ only in `keys`."""
    found: dict[str, list[ConfiguredResult]] = {}
    for setting in settings:
        found.setdefault(json.dumps(setting.drop_keys(keys), sort_keys=True), []).append(setting)
    return [found[key] for key in sorted(found)]


def describe_differences(tables: Sequence[Sequence[ConfiguredResult]], keys: Sequence[str]) -> list[str]:
    """Return a note for each table on how its configurations differ from the other tables'."""
    every = [table[0].drop_keys(keys) for table in tables]
    names = sorted({key for values in every for key in values if not _covers(("policy", "placer"), key)})
    unset = object()
    apart = [key for key in names if len({repr(values.get(key, unset)) for values in every}) > 1]
    return [_describe_table(values, apart) for values in every]


def _describe_table(values: Mapping[str, Any], apart: Sequence[str]) -> str:
    if not apart:
        return ""
    shown = [f"{key}={json.dumps(values[key]) if key in values else 'unset'}" for key in apart[:SHOWN]]
    more = f" and {len(apart) - SHOWN} more" * (len(apart) > SHOWN)
    return f"apart from other tables by {', '.join(shown)}{more}; --by puts a key's values in one table"
