"""The replay of a run's log without its policy, and what can be wrong with it; logs are not trusted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.scenario.policy import InformationClass, Placer, Policy
from clustergym.scenario.registry import list_parameters
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engines import AnySimulation

SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 1.0, 1e6
"""A log with shorter rounds would be replayed for ever."""


def describe_choice(made: Policy | Placer) -> dict[str, Any]:
    """Return the name and all parameters of a policy or placer."""
    return {"name": made.name, **list_parameters(made)}


def replay_log(
    path: Path, packed: bytes, scenario: Scenario, of: Mapping[str, Any], placer: Placer | None
) -> AnySimulation:
    """Carry out a log's decisions on its scenario, and return the simulation.

    Parameters
    ----------
    path : Path
        Where the log stands.
    packed : bytes
    scenario : Scenario
    of : mapping
        What its header must say: policy, information_class, placer with all parameters, seed.
    placer : Placer, optional
        It places what the log decides; None where the log has the nodes, too.

    Raises
    ------
    InputError
        If the log cannot be read, is of something else, or decides what is not legal where it stands.
    """
    from clustergym.results.decision_log import read_decisions
    from clustergym.results.schedule_log import read_schedule, replay_schedule
    from clustergym.sim.drive import replay
    from clustergym.sim.engine import StalledError

    information = InformationClass(of["information_class"])
    try:
        if placer is not None:
            header, changes = read_decisions(path, scenario, packed)
            _check_header(header, scenario, of, path)
            run = information, header["round_s"], of["seed"], changes
            made: AnySimulation = replay(scenario, placer, *run)
        else:
            header, changes, answers = read_schedule(path, scenario, packed)
            _check_header(header, scenario, of, path)
            periods = header["round_s"], header["defragment_s"]
            made = replay_schedule(scenario, information, *periods, of["seed"], changes, answers)
    except StalledError as error:
        raise InputError(str(error), file=path, remedy="the log was edited") from error
    # A run's log has what its decisions changed; a log with more was not written by a run.
    if made.changes != changes:
        raise InputError("tells of decisions that change nothing", file=path, remedy="the log was edited")
    return made


def _check_header(header: Mapping[str, Any], scenario: Scenario, of: Mapping[str, Any], path: Path) -> None:
    """Raise an `InputError` if the log is of another scenario, policy, placer or seed, or has no clock."""
    if header.get("scenario_sha256") != scenario.sha256:
        message = "was made on another scenario: other jobs, nodes, speeds or prices"
        raise InputError(message, file=path, line=1, field="scenario_sha256", remedy="make it anew")
    for key, value in of.items():
        # Python's True equals 1: a type that differs is another value.
        if header.get(key) != value or type(header.get(key)) is not type(value):
            raise InputError("is not that of the entry", file=path, line=1, field=key, remedy="make it anew")
    for key in ("round_s", "defragment_s"):
        length_s = header.get(key)
        number = isinstance(length_s, int | float) and not isinstance(length_s, bool)
        # The scenario's clock goes before the policy's: under a common clock nobody has rounds of their own.
        common = key == "round_s" and scenario.rounds != "policy"
        wanted = None if isinstance(scenario.rounds, str) else scenario.rounds
        if (common and length_s != wanted) or (
            length_s is not None and not (number and SHORTEST_PERIOD_S <= length_s <= LONGEST_PERIOD_S)
        ):
            raise InputError(
                f"{length_s!r} is not valid", file=path, line=1, field=key, remedy="make it anew"
            )
