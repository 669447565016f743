"""The replay of a live run from its decision log and its journal, without policy and scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.live.bridge import LiveSimulation
from clustergym.live.journal import FILE_NAME, REMEDY, answering, read_journal
from clustergym.live.link import Answer
from clustergym.live.slurm import PREFIX
from clustergym.scenario.policy import InformationClass, Placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import follow, replay
from clustergym.sim.engine import Change, Simulation


def rebuilder(folder: Path) -> Callable[..., Simulation]:
    """Return a function that makes a run's Simulation and repeats its changes, with the journal's answers."""
    path = folder / FILE_NAME
    if not path.is_file():
        return replay
    header, entries, _ = read_journal(path)
    if header.clock == "lockstep":
        return replay
    answers, nodes = answering(entries), 0

    def ask(call: str, given: dict[str, Any]) -> Answer:
        answer = answers(call, given)
        if answer is None:
            raise InputError(f"does not answer {call} {given}", file=path, remedy=REMEDY)
        beyond = [node for node in answer.get("down", ()) if node >= nodes]
        if beyond:
            raise InputError(f"node {beyond[0]} is down, of {nodes}", file=path, remedy=REMEDY)
        return answer

    def rebuild(
        scenario: Scenario,
        placer: Placer,
        information: InformationClass,
        round_s: float | None,
        seed: int,
        changes: Sequence[Change],
    ) -> Simulation:
        nonlocal nodes
        nodes = len(scenario.cluster.node_type)
        run = PREFIX + header.run
        simulation = LiveSimulation(scenario, placer, information, round_s, seed, ask, run)
        follow(simulation, changes)
        return simulation

    return rebuild
