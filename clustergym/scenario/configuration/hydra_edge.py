"""Call Hydra: compose configurations, run sweeps, and turn its errors into one line each."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError, nearest, out_of_memory
from clustergym.common.paths import conf_dir
from clustergym.scenario.configuration.overrides import (
    GROUPS,
    check_composed,
    check_switched_off,
    check_used,
    check_words,
)

Job = Callable[[Mapping[str, Any], Path], float | None]
"""Runs a configuration into a folder; returns the metric that `objective` names, if any."""


def run_hydra(
    job: Job,
    argv: list[str],
    program: str,
    cells: Mapping[str, Sequence[str]] | None = None,
    name: str = "config",
    after_sweep: Callable[[Path], None] | None = None,
) -> int:
    """Compose `conf/NAME.yaml`, call `job` once or for each run of a sweep; return 2 if one failed, else 0.

    Parameters
    ----------
    job : callable
    argv : list of str
    program : str
        What messages of Hydra call the program.
    cells : mapping of str to sequence of str, optional
        The runs of a study: folder below the sweep's to overrides. Hydra then composes `conf/study.yaml`, and
        `argv` says which runs, where, and by which launcher.
    name : str
        `config`, or a configuration that has all of its keys.
    after_sweep : callable, optional
        Called with the folder of a sweep of which a table is wanted.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from clustergym.scenario.configuration.sweeps import ENDED, FAILED, EndedSweep

    os.environ["HYDRA_FULL_ERROR"] = "1"
    runs = list((cells or {}).items())
    OmegaConf.register_new_resolver("clustergym.folder", folder_name, replace=True)
    OmegaConf.register_new_resolver("clustergym.cell", lambda number: runs[number][0], replace=True)
    _offer_plugins()
    ended: list[EndedSweep] = []
    ENDED.set(ended)
    failed: list[InputError] = []

    def task(config: Any) -> float | None:
        folder = Path(HydraConfig.get().runtime.output_dir)
        overrides = [str(override) for override in HydraConfig.get().overrides.task]
        try:
            if cells is None:
                plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            else:
                overrides = list(runs[config.cell][1])
                plain = compose_config("config", overrides)
            check_composed(plain)
            check_used(plain, overrides)
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                # A line a run; whoever started the sweep prints one table of all of them.
                plain["table"] = False
            return job(_name_overridden(_absolute(plain), overrides), folder)
        except (InputError, OmegaConfBaseException, SystemExit, MemoryError, OSError) as error:
            failure = _one_line(error, overrides)
            if HydraConfig.get().mode != RunMode.MULTIRUN:
                # Raised only after Hydra has returned, as Hydra would print a line of its own about it.
                failed.append(failure)
                return None
            # Runs of a sweep may be in other processes, or on other machines: they share a folder.
            folder.mkdir(parents=True, exist_ok=True)
            (folder / FAILED).write_text(f"{' '.join(overrides)}: {failure}\n", encoding="utf-8")
            return None
        finally:
            remove_empty(folder)

    words = _flags_first(argv)
    check_words(words)
    status = _call_hydra(task, name if cells is None else "study", program, words)
    if failed:
        raise failed[0]
    for sweep in ended:
        status = status or _report(sweep.failures)
        if sweep.table and after_sweep is not None:
            after_sweep(sweep.folder)
    return status


def _call_hydra(task: Callable[[Any], float | None], name: str, program: str, words: list[str]) -> int:
    """Let Hydra compose `conf/NAME.yaml` with words and call a task on it; return the exit status."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from clustergym.scenario.configuration.composing import composing_once

    wrapped = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=name)(task)
    if "hydra/launcher=ray" in words:
        # Otherwise Ray joins the cluster that the address file of an earlier one names, even if it is gone.
        os.environ.setdefault("RAY_ADDRESS", "local")
    # Hydra reads the command line itself, and gives it no other way in.
    before = sys.argv
    sys.argv = [program, *_open_overrides(words)]
    try:
        with composing_once():
            wrapped()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    except (OmegaConfBaseException, HydraException, OSError) as error:
        raise _one_line(error, words) from error
    finally:
        sys.argv = before
    return 0


def compose_config(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Return `conf/NAME.yaml` composed with overrides as plain values, without a run or any output."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for word in overrides:
        if word.startswith("-"):
            raise InputError(f"unknown option {word!r}", remedy="give key=value")
    check_switched_off(overrides)
    _offer_plugins()
    try:
        with _hydra():
            plain: Any = OmegaConf.to_container(
                hydra.compose(name, overrides=_open_overrides(overrides)), resolve=True, throw_on_missing=True
            )
    except (OmegaConfBaseException, HydraException) as error:
        raise _one_line(error, list(overrides)) from error
    if name == "config":
        check_used(plain, overrides)
    return dict(plain)


@contextlib.contextmanager
def _hydra() -> Iterator[None]:
    """Let Hydra read `conf/` inside a `with` block; a surrounding Hydra run is restored afterwards."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    from clustergym.scenario.configuration.composing import composing_once

    # Hydra is one object a process, and a task of a sweep composes while the sweep's own is alive.
    around = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with composing_once(), initialize_config_dir(str(conf_dir()), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = around


def _report(failures: Sequence[str]) -> int:
    """Print one line for each failed run of a sweep; return the exit status."""
    for line in failures:
        print(f"error: {line}", file=sys.stderr)
    return 2 if failures else 0


FLAGS = (
    *("-m", "--multirun", "-c", "--cfg", "-p", "--package", "--resolve", "-h", "--help", "--hydra-help"),
    *("-i", "--info", "-r", "--run", "--version", "-cd", "--config-dir", "-sc", "--shell-completion"),
)


def _flags_first(argv: list[str]) -> list[str]:
    """Move `-m` to the front of the overrides, and refuse unknown flags in one line."""
    for word in argv:
        flag = word.partition("=")[0]
        if flag.startswith("-") and flag not in FLAGS:
            raise InputError(f"unknown option {flag!r}", remedy=nearest(flag, FLAGS))
    multirun = [word for word in argv if word in ("-m", "--multirun")]
    return [*multirun, *(word for word in argv if word not in multirun)]


_OPEN = re.compile(r"costs\.(measured_s|search_s_per_gpu|search_s_max)[.=]")
"""Mappings that accept keys which are not in `conf/`."""
_OF_FCFS = re.compile(r"policy\.(any_type|backfill|moves_per_hour|notice)=")
"""Options of `policy=fcfs`, whose file has none of them: with one it is the policy of another class."""


def _open_overrides(words: Sequence[str]) -> list[str]:
    """Prefix overrides of open mappings with `++`, without which Hydra refuses new keys."""
    return [
        f"++{word}" if _OPEN.match(word) or ("policy=fcfs" in words and _OF_FCFS.match(word)) else word
        for word in words
    ]


def _offer_plugins() -> None:
    """Register policies, placers and environments that have no YAML file in `conf/` with Hydra."""
    from clustergym.scenario.configuration.composing import offer
    from clustergym.scenario.environments import ENVIRONMENTS
    from clustergym.scenario.registry import COMPONENTS, default_parameters, entry_points

    for group in COMPONENTS:
        for name in entry_points(group):
            if not (conf_dir() / group / f"{name}.yaml").is_file():
                offer(group, name, default_parameters(group, name))
    for row in ENVIRONMENTS:
        offer("env", row.short_name, {"id": row.id})


def folder_name(text: str) -> str:
    """Return the name of the folder for a run of a sweep, made from its overrides."""
    # What was changed or cut gets a digest, so that two sets of overrides never share a folder.
    plain = re.sub(r"[^A-Za-z0-9_.,=+-]+", "_", text) or "default"
    if plain == text and len(plain) <= 120:
        return plain
    return f"{plain[:100]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def remove_empty(folder: Path) -> None:
    """Remove a folder if it is empty, and then its empty parents inside the working directory."""
    # Never above the working directory: those folders are not ours.
    below = [path for path in folder.parents if path.is_relative_to(Path.cwd()) and path != Path.cwd()]
    for path in (folder, *below):
        try:
            path.rmdir()
        except OSError:
            return


FILES = (
    ("trace", "path"),
    ("cluster", "path"),
    ("scenario", "pairs"),
    *(("oracle", key) for key in ("path", "models", "calibration")),
)
"""Configuration keys (group, key) whose values are files."""


def _absolute(plain: Any) -> dict[str, Any]:
    """Make the paths in a configuration absolute, so that it can be replayed from any folder."""
    config: dict[str, Any] = dict(plain)
    for group, key in FILES:
        if config[group].get(key) is not None:
            config[group] = {**config[group], key: str(Path(str(config[group][key])).absolute())}
    config["scenario"] = dict(config["scenario"])
    from clustergym.scenario.tenants.queue_tree import BY_COLUMN, list_queue_files

    queues = config["scenario"].get("queues")
    if queues is not None and queues not in (*BY_COLUMN, *list_queue_files()):
        config["scenario"]["queues"] = str(Path(str(queues)).absolute())
    for name, given in config["scenario"].items():
        for key in ("path", "switch_path"):
            if isinstance(given, Mapping) and given.get(key) is not None:
                given = {**given, key: str(Path(str(given[key])).absolute())}
        config["scenario"][name] = given
    return config


def _name_overridden(plain: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Add the overridden parts to the scenario's name, so that different scenarios differ in name."""
    config = dict(plain)
    keys = {override.lstrip("+~").partition("=")[0] for override in overrides}
    changed = [
        f"{group}={_short(config[group])}"
        for group in ("cluster", "trace", "oracle", "costs")
        if any(key == group or key.startswith(f"{group}.") for key in keys)
    ]
    changed += [preset for preset in overrides if preset.startswith("failures=")]
    rules = sorted(key for key in keys if key.startswith("scenario.") and key != "scenario.name")
    changed += [f"{key.removeprefix('scenario.')}={_rule(config['scenario'], key)}" for key in rules]
    changed += ["horizon"] * ("horizon_s" in keys)
    config["scenario"] = {**config["scenario"], "name": "+".join([config["scenario"]["name"], *changed])}
    return config


def _rule(scenario: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key such as `scenario.failures.path`; for a file, its name without suffix."""
    value: Any = scenario
    for part in key.split(".")[1:]:
        value = value.get(part) if isinstance(value, Mapping) else None
    return Path(str(value)).stem if key.endswith("path") and value is not None else value


def _short(group: Mapping[str, Any]) -> str:
    """Return the short name of a group for the scenario's name: its file, its name, or `changed`."""
    if group.get("path"):
        return Path(str(group["path"])).stem
    return str(group.get("name") or group.get("committed") or group.get("source") or "changed")


def _one_line(error: BaseException, argv: list[str]) -> InputError:
    if isinstance(error, InputError):
        return error
    if isinstance(error, SystemExit):
        remedy = "a policy, or a module it imports, must not exit"
        return InputError(f"called sys.exit({error.code!r})", field="the run", remedy=remedy)
    if isinstance(error, OSError) and error.errno is not None:  # Hydra's own have no number.
        message, remedy = f"cannot be written: {error.strerror}", "choose another hydra.run.dir"
        return InputError(message, file=error.filename, remedy=remedy)
    if isinstance(error, MemoryError):
        return out_of_memory(error)
    text = " ".join(str(error).split())
    # Hydra has no types for these errors, only texts; what no pattern knows is passed on as it is.
    for pattern, explain in _EXPLAIN:
        found = re.search(pattern, text)
        if found:
            return explain(found, argv)
    return InputError(text, field="configuration", remedy=f"given: {' '.join(argv)}")


def _missing_option(found: re.Match[str], argv: Sequence[str]) -> InputError:
    group, _, name = found.group(1).rpartition("/")
    from clustergym.scenario.environments import ENVIRONMENTS

    options = [path.stem for path in (conf_dir() / group).glob("*.yaml")]
    options += [row.short_name for row in ENVIRONMENTS if group == "env"]
    return InputError(f"unknown {group} {name!r}", field=group, remedy=nearest(name, options))


def _missing_group(found: re.Match[str], argv: Sequence[str]) -> InputError:
    groups = ["env", *(path.name for path in conf_dir().iterdir() if path.is_dir())]
    return InputError(
        f"unknown key {found.group(1)!r}",
        field=found.group(1),
        remedy=nearest(found.group(1), [*groups, *_keys(argv)]),
    )


def _missing_value(found: re.Match[str], argv: Sequence[str]) -> InputError:
    return InputError("has no value", field=found.group(1), remedy=f"give {found.group(1)}=…")


def _keys(argv: Sequence[str]) -> list[str]:
    """Return every dotted key of the configuration with the groups chosen in `argv`."""
    from hydra import compose
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    chosen = [word for word in argv if word.partition("=")[0] in GROUPS and "," not in word]

    def walk(node: Any, prefix: str) -> list[str]:
        if not isinstance(node, dict):
            return [prefix]
        return [prefix] * bool(prefix) + [
            name
            for key, value in node.items()
            for name in walk(value, f"{prefix}.{key}" if prefix else str(key))
        ]

    with _hydra():
        try:
            # With the chosen groups, as keys differ between the files of a group.
            composed = compose("config", overrides=chosen)
        except HydraException:
            composed = compose("config")
        return walk(OmegaConf.to_container(composed), "")


_EXPLAIN: list[tuple[str, Callable[[re.Match[str], Sequence[str]], InputError]]] = [
    (r"Could not find '([^']+/[^']*)'", _missing_option),
    (r"Could not override '([^']+)'", _missing_group),
    (r"Could not find '([^'/]+)'", _missing_group),
    (r"Missing mandatory value: .*full_key: (\S+)", _missing_value),
    (r"Missing mandatory value: (\S+)", _missing_value),
]
