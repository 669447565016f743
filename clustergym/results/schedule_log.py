"""The log of both a policy's decisions and its placer's answers in a run: write, read and replay it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.results.decision_log import MOST_CHANGES, open_log, parse_changes
from clustergym.results.placement_log import Answer, ReplayingPlacer, answer_lines, parse_answers
from clustergym.results.result_writing import decision_lines
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import follow
from clustergym.sim.engine import Change, Simulation
from clustergym.sim.engines import AnySimulation

SCHEDULE_SCHEMA = "clustergym.schedule/1"


def schedule_lines(
    simulation: AnySimulation,
    answers: Sequence[Answer],
    result: Mapping[str, Any],
    defragment_s: float | None,
) -> Iterator[object]:
    """Yield a schedule log: a header, a line for each decision, and one for each answer of the placer.

    Parameters
    ----------
    simulation : Simulation
    answers : sequence of Answer
    result : mapping
        Content of result.json.
    defragment_s : float or None
        Of the placer.
    """
    own = {"schema": SCHEDULE_SCHEMA, "defragment_s": defragment_s, "decisions": len(simulation.changes)}
    header, *decisions = decision_lines(simulation, result)
    assert isinstance(header, dict)
    yield header | own
    yield from decisions
    yield from answer_lines(simulation.scenario, answers)


def read_schedule(
    path: Path, scenario: Scenario, packed: bytes | None = None
) -> tuple[dict[str, Any], list[Change], list[Answer]]:
    """Read an untrusted schedule log, or its gzip bytes `packed`; return header, decisions and answers.

    Arguments and errors are those of `clustergym.results.decision_log.read_decisions`.
    """
    header, lines = open_log(path, "schedule", SCHEDULE_SCHEMA, packed)
    count = header.get("decisions")
    if type(count) is not int or not 0 <= count <= MOST_CHANGES:
        message, remedy = f"{count!r} is not a number of decisions", "the log was edited"
        raise InputError(message, file=path, line=1, field="decisions", remedy=remedy)
    changes = parse_changes(path, scenario, islice(lines, count))
    return header, changes, parse_answers(path, scenario, lines)


def replay_schedule(
    scenario: Scenario,
    information: InformationClass,
    round_s: float | None,
    defragment_s: float | None,
    seed: int,
    changes: Sequence[Change],
    answers: Sequence[Answer],
) -> Simulation:
    """Rebuild a run from logged decisions and placements, without running its policy or placer.

    Raises
    ------
    DecisionError, PlacementError
        If a decision or an answer is not legal where it stands.
    InputError
        If the log has a decision or answer that nobody asks for, or lacks an answer.
    """
    placer = ReplayingPlacer(answers, defragment_s)
    simulation = Simulation(scenario, placer, information, round_s, seed)
    placer.clock = lambda: simulation.now_s
    follow(simulation, changes)
    placer.finish()
    return simulation
