"""The replay of a run without its policy, from what its folder holds."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.yaml_file import read_mapping
from clustergym.results.decision_log import read_decisions
from clustergym.results.measured_run import measure_run
from clustergym.results.result_files import read_result
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario_config import build_scenario
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import replay
from clustergym.sim.engine import StalledError
from clustergym.sim.engines import AnySimulation

Rebuild = Callable[..., AnySimulation]
"""Makes a run's simulation and repeats its changes, as `clustergym.sim.drive.replay`."""


def find_rebuilder(folder: Path) -> Rebuild:
    """Return what rebuilds the run of a folder: an entry point named like a file that is there, or `replay`.

    A client whose runs need more than the decision log writes that file and names the entry point.
    """
    for point in metadata.entry_points(group="clustergym.rebuilders"):
        if (folder / point.name).is_file():
            made: Rebuild = point.load()(folder)
            return made
    return replay


def replay_folder(folder: Path, rebuild: Rebuild = replay) -> dict[str, Any]:
    """Replay a finished run from its decision log, without its policy, and compare it with the result.

    Returns
    -------
    dict
        `digest` and `metrics` of the replay, `recorded_digest`, and `equal`: whether digest
        and all metrics are the recorded ones.
    """
    if folder.is_file():
        within = (folder.parent / "result.json").is_file()
        remedy = f"give {folder.parent}" if within else "give the folder that `clustergym run` wrote"
        raise InputError("is a file, not the folder of a finished run", file=folder, remedy=remedy)
    config = _read_config(folder / "config.yaml")
    result = read_result(folder / "result.json")
    scenario = build_scenario(config)
    header, changes = read_decisions(folder / "decisions.jsonl.gz", scenario)
    if header.get("scenario_sha256") != scenario.sha256:
        raise InputError(
            "the scenario is not the one that was run: its trace, cluster, oracle or rules have changed",
            file=folder / "decisions.jsonl.gz",
            line=1,
            field="scenario_sha256",
            remedy="restore the files that config.yaml names, and the version that result.json names",
        )
    try:
        information, round_s = InformationClass(header["information_class"]), header["round_s"]
        placer, seed = make_placer(header["placer"]), int(header["seed"])
        if round_s is not None and (isinstance(round_s, bool) or not 1e-3 <= round_s < 1e9):
            raise ValueError(f"round_s is {round_s!r}, no seconds from 0.001 to below a billion")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"its header is damaged: {error}",
            file=folder / "decisions.jsonl.gz",
            line=1,
            remedy="run it again",
        ) from error
    try:
        simulation = rebuild(scenario, placer, information, round_s, seed, changes)
    except (DecisionError, StalledError) as error:
        message, remedy = f"its decisions cannot be replayed: {error}", "run it again"
        raise InputError(message, file=folder / "decisions.jsonl.gz", remedy=remedy) from error
    metrics = measure_run(simulation).metrics
    return {
        "digest": simulation.log.digest,
        "recorded_digest": result.digest,
        "equal": simulation.log.digest == result.digest and metrics == result.metrics,
        "metrics": metrics,
        "decisions": len(changes),
    }


def _read_config(path: Path) -> dict[str, Any]:
    config = read_mapping(path).content
    needed = {"scenario", "cluster", "trace", "oracle", "costs", "seed"}
    if not needed <= set(config):
        raise InputError(
            "is no configuration of a run", file=path, remedy="give the folder of a finished run"
        )
    for key in sorted(needed - {"seed"}):
        if not isinstance(config[key], dict):
            message = f"{config[key]!r} is not a mapping"
            raise InputError(message, file=path, field=key, remedy="give the folder of a finished run")
    return config
