"""Check the words of a command line before Hydra composes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal

from clustergym.common.errors import InputError, nearest, require
from clustergym.common.parameter_types import Duration, Seed
from clustergym.common.paths import conf_dir

GROUPS = ("policy", "placer", "cluster", "trace", "oracle", "costs", "scenario", "logger")
"""Groups of `conf/config.yaml` that every run needs."""
OPTIONAL_GROUPS = ("capacity", "experiment", "failures", "sweep")
NAME_PATTERN = re.compile(r"""['"]?[A-Za-z][\w.+-]*['"]?$""")
FILE_ENDINGS = (".csv", ".yaml", ".yml", ".json", ".gz", ".trace", ".swf", ".txt")
"""Endings of names that are of files rather than of options of a group."""
READ_WITH_FILE = {
    "cluster": ("path",),
    "trace": (
        *("path", "format", "rule", "reference_cluster", "counts", "any_type", "gavel_steps", "sia_profiles"),
        *("sia_lengths", "keep_shares", "outcomes", "time_limits", "nodes", "seed", "load"),
    ),
}
"""Keys of a group that are still used if its `path` names a file, which sets all other keys."""


MOST_FILES = 500
"""Most YAML files in a folder of configuration."""

OPTIONS: Mapping[str, Any] = {
    "seed": Seed,
    "run": Mapping[str, float | str | None],
    "horizon_s": Duration | None,
    "compare": str | None,
    "objective": str | None,
    "progress": bool,
    "table": bool,
    "report": bool | Literal["auto"],
}
"""Keys of `conf/config.yaml` outside of its groups, with their types."""
EXTENSIONS: Mapping[str, Any] = {"live": Mapping[str, Any]}
"""Keys of configurations that extend it, with their types."""


def check_words(words: Sequence[str]) -> None:
    """Raise an `InputError` for the first override that Hydra cannot parse, with a readable message."""
    if "--resolve" in words and not {"-c", "--cfg"} & {word.partition("=")[0] for word in words}:
        raise InputError("--resolve alone shows nothing", remedy="give --cfg job --resolve")
    for folder in _config_folders(words):
        _check_folder(folder)
    # The word after such an option is its value, which may look like anything.
    after_option = False
    for word in words:
        if not (word.startswith("-") or after_option):
            _check_word(word)
        after_option = word in ("-c", "--cfg", "-p", "--package", "-cd", "--config-dir", "-i", "--info")
    check_switched_off(words)


def check_switched_off(words: Sequence[str]) -> None:
    """Raise an `InputError` if overrides set a key to null and also a key below it."""
    # Hydra applies overrides in turn, so that the later of the two would win without a word.
    pairs = [(key.lstrip("+"), value) for key, _, value in (word.partition("=") for word in words)]
    off = {key for key, value in pairs if value == "null"}
    for key, _ in pairs:
        for at in (found.start() for found in re.finditer(r"\.", key)):
            if key[:at] in off:
                message = f"has no effect beside {key[:at]}=null"
                raise InputError(message, field=key, remedy="leave out one of the two")


def _config_folders(words: Sequence[str]) -> list[Path]:
    """Return the configuration folders that a command line adds to `conf/`."""
    options = ("-cd", "--config-dir")
    given = [after for word, after in pairwise(words) if word in options]
    pairs = [word.partition("=") for word in words]
    return [Path(name) for name in [*given, *(value for key, is_, value in pairs if key in options and is_)]]


def _check_folder(folder: Path) -> None:
    """Raise an `InputError` if a folder has a YAML file that would keep Hydra's reader busy for ever."""
    from clustergym.common.yaml_file import read_mapping

    if not folder.is_dir():
        raise InputError("is not a folder", file=folder, field="--config-dir", remedy="name a folder of YAML")
    # A listing that is cut off, as the folder may be a home directory given by mistake.
    files = list(islice(folder.rglob("*.yaml"), MOST_FILES + 1))
    if len(files) > MOST_FILES:
        message = f"holds more than {MOST_FILES} YAML files"
        raise InputError(message, file=folder, field="--config-dir", remedy="name a folder of configuration")
    for path in sorted(files):
        read_mapping(path)


def _check_word(word: str) -> None:
    key, equals, value = word.partition("=")
    plain = key.lstrip("+~")
    if key.startswith("~") and plain in GROUPS:
        raise InputError(f"a run needs a {plain}", field=word, remedy=f"give {plain}=NAME")
    if not equals and not key.startswith("~"):
        raise InputError(f"{word!r} is not key=value", remedy=_find_group(word))
    # Hydra imports and calls what `_target_` names: a configuration is data, and names no code.
    if key.endswith("_target_"):
        chosen = "hydra/sweeper=NAME or hydra/launcher=NAME"
        raise InputError("names code to be run", field=plain, remedy=f"choose with {chosen}")
    if plain in GROUPS and equals:
        _check_choice(plain, value)
    if plain in OPTIONAL_GROUPS and value != "null":
        _check_choice(plain, value)


def _check_choice(group: str, value: str) -> None:
    """Check the names in `group=NAME` or `group=NAME,NAME` (a sweep); leave Hydra's functions unchecked."""
    if value[:1] == "[" and value[-1:] == "]":
        remedy = f"give {group}=NAME; or {group}=NAME,NAME with --multirun for a run of each"
        raise InputError(f"{value} names several, and a run has one", field=group, remedy=remedy)
    # choice(a,b), range(…) and the like are sweeps that Hydra takes apart.
    if value[:1] in ("[", "{") or "(" in value:
        return
    for name in value.split(","):
        if name.strip().endswith(FILE_ENDINGS):
            raise InputError(f"{name} is a file", field=group, remedy=_with_file(group, name.strip()))
        if (name and not NAME_PATTERN.match(name.strip())) or name.strip() == "null":
            options = [path.stem for path in (conf_dir() / group).glob("*.yaml")]
            raise InputError(f"{name} is not a name", field=group, remedy=nearest(name, options))


def _with_file(group: str, file: str) -> str:
    """Return the override to give instead of `group=FILE`."""
    if (conf_dir() / group / "file.yaml").is_file():
        return f"give {group}=file {group}.path={file}"
    if group == "oracle":
        return f"give oracle=table oracle.path={file} for measured iteration times"
    name = Path(file).stem
    return (
        f"give {group}=NAME {group}.KEY=VALUE, or put it into FOLDER/{group}/ and give "
        f"--config-dir FOLDER {group}={name}"
    )


def _find_group(word: str) -> str:
    found = [group for group in GROUPS if (conf_dir() / group / f"{word}.yaml").is_file()]
    return f"did you mean {found[0]}={word}?" if found else "give key=value"


def check_composed(config: Mapping[str, Any]) -> None:
    """Raise an `InputError` if a composed configuration has unknown or missing keys, or wrong types."""
    from clustergym.common.parameters import check_value

    groups = (*GROUPS, *OPTIONAL_GROUPS)
    for group in GROUPS:
        require(isinstance(config.get(group), Mapping), group, config.get(group), f"give {group}=NAME")
    options = {**OPTIONS, **EXTENSIONS}
    for key in [key for key in config if key not in groups]:
        if key not in options:
            raise InputError(f"unknown key {key!r}", field=key, remedy=nearest(key, [*groups, *OPTIONS]))
        check_value(config[key], options[key], key)
    name = config["scenario"].get("name")
    require(isinstance(name, str) and name != "", "scenario.name", name, "give a name")


def check_used(config: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Raise an `InputError` for an override of a key that a file given by `path` replaces."""
    for word in overrides:
        group, _, key = word.lstrip("+~").partition("=")[0].partition(".")
        used = READ_WITH_FILE.get(group)
        if used is None or not key or key.partition(".")[0] in used or config[group].get("path") is None:
            continue
        message = f"has no effect: {config[group]['path']} says it"
        raise InputError(message, field=f"{group}.{key}", remedy=f"edit the file, or drop {group}.path")
