"""Trace files to compare policies on: each is a scenario, and all share a setting."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clustergym.common.errors import InputError, nearest
from clustergym.scenario.scenario import Scenario
from clustergym.training.windows import data_folder

KEYS = ("scenario", "overrides", "files")


@dataclass(frozen=True)
class TraceFiles:
    """Trace files on a scenario's cluster.

    Attributes
    ----------
    scenario : str
        Of conf/scenario.
    overrides : tuple of str
        As on `clustergym.run`'s command line, without `trace.path`.
    files : tuple of str
    """

    scenario: str
    overrides: tuple[str, ...]
    files: tuple[str, ...]

    @classmethod
    def of(cls, given: Any, least: int = 2) -> TraceFiles:
        """Read `{scenario: …, overrides: […], files: [pattern, …]}`; `{data}` is the public data's folder.

        There must be `least` files at least: intervals need two.

        Raises
        ------
        InputError
            If something else is given, or a pattern finds no file.
        """
        if not isinstance(given, Mapping):
            raise InputError(
                f"{given!r} is not a mapping", field="traces", remedy=f"give {{{', '.join(KEYS)}}}"
            )
        for key in given:
            if key not in KEYS:
                raise InputError("unknown key", field=f"traces.{key}", remedy=nearest(str(key), KEYS))
        texts = {key: cls._texts(given.get(key), f"traces.{key}") for key in KEYS[1:]}
        files: list[str] = []
        for pattern in texts["files"]:
            found = sorted(glob.glob(pattern))
            if not found:
                raise InputError(
                    "no such file", file=pattern, field="traces.files", remedy="name trace files"
                )
            files += found
        if len(files) < least:
            need = "two files" if least == 2 else "a file"
            raise InputError(f"needs {need} at least", field="traces.files", remedy="name more")
        return cls(str(given.get("scenario", "testbed")), texts["overrides"], tuple(files))

    @staticmethod
    def _texts(given: Any, field: str) -> tuple[str, ...]:
        given = [] if given is None else given
        if not isinstance(given, list | tuple) or not all(isinstance(text, str) for text in given):
            raise InputError(f"{given!r} is not a list of texts", field=field, remedy="give a list")
        return tuple(text.replace("{data}", str(data_folder().absolute())) for text in given)

    def draw(self, split: str, seed: int, index: int) -> Scenario:
        """Return the scenario of a file, with decision points at events.

        Nobody profiles, as in drawn windows, unless `overrides` name costs.
        """
        from clustergym.scenario.by_name import load_scenario

        overrides = ["trace=file", *self.overrides, f"trace.path='{self.files[index]}'"]
        scenario = replace(load_scenario(self.scenario, overrides), rounds="event")
        if any(word.lstrip("+~").startswith("costs") for word in self.overrides):
            return scenario
        return replace(scenario, costs=replace(scenario.costs, profile={}))
