"""`leaderboard retrain`: train a learned entry anew as its checkpoint says, and score the new weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.benchmark.leaderboard.board import Board
from clustergym.benchmark.leaderboard.entry import Entry, entry_folder, read_entry, read_results
from clustergym.benchmark.leaderboard.registered import LEARNED, WORD
from clustergym.benchmark.leaderboard.run_cells import run_cells
from clustergym.benchmark.leaderboard.score import compute_scores
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.processes import Processes
from clustergym.results.metrics.statistics import Aggregate, aggregate_stratified


class RetrainingOutcome(NamedTuple):
    """The score of an entry's agent after it was trained again, beside the entry's score.

    Attributes
    ----------
    checkpoint : Path
    seed : int
        Of the training.
    largest_difference : float
        Of a new weight and that of the entry.
    same_traces : bool
        They were trained on the traces that the entry's were.
    entered, found : Aggregate
        Scores of the entry and of the new weights.
    """

    checkpoint: Path
    seed: int
    largest_difference: float
    same_traces: bool
    entered: Aggregate
    found: Aggregate

    @property
    def inside(self) -> bool:
        """Whether the retrained agent's score lies within the interval of the entry's score."""
        return self.entered.low <= self.found.value <= self.entered.high


def retrain(
    board: Board,
    name: str,
    output: Path,
    seed: int | None = None,
    processes: Processes = 1,
    workers: Processes = 1,
) -> RetrainingOutcome:
    """Retrain an entry's agent, run it in all scenarios and seeds, and compare its score with the entry's.

    Parameters
    ----------
    board : Board
    name : str
        Of the entry.
    output : Path
        Folder of the training; a killed one goes on there.
    seed : int, optional
        Of the training; by default the one that the checkpoint was trained with.
    processes, workers : int
        Processes of the training (0: one per core), and of the runs.
    """
    from clustergym.agents.checkpoints import read, read_schema
    from clustergym.scenario.configuration.hydra_edge import compose_config
    from clustergym.training.training import train

    folder = entry_folder(board, name)
    entry = read_entry(folder, board)
    component, checkpoint = _find_learned_part(entry, folder)
    schema = read_schema(checkpoint)
    about = read(checkpoint, schema).about
    chosen = int(about["seed"]) if seed is None else seed
    config = compose_config("train", []) | {
        "agent": _agent(about, folder),
        "seed": chosen,
        "output": str(output),
        "processes": processes,
        "allow_test": bool(about.get("trained_on_test")),
    }
    path = train(config, [f"(retrained: {board.name} {name})", f"seed={chosen}"])
    changed = {name: chosen.keys for name, chosen in entry.choices.items()}
    changed[component]["checkpoint"] = str(path)
    runs = run_cells(board, changed if len(changed) > 1 else changed[board.chooses], board.cells, workers)
    return RetrainingOutcome(
        path,
        chosen,
        float(np.abs(_weights(component, str(path)) - _weights(component, checkpoint)).max()),
        read(str(path), schema).about.get("traces") == about.get("traces"),
        aggregate_stratified(compute_scores(board, read_results(folder)), board.families),
        aggregate_stratified(compute_scores(board, [run.row for run in runs]), board.families),
    )


def _find_learned_part(entry: Entry, folder: Path) -> tuple[str, str]:
    """Return the learned component of an entry and the checkpoint of the package that it uses.

    No file that an entry names is opened.
    """
    from clustergym.agents.checkpoints import is_network
    from clustergym.scenario.registry import default_parameters

    found = [(component, chosen) for component, chosen in entry.choices.items() if chosen.name == LEARNED]
    component, chosen = found[0] if found else next(iter(entry.choices.items()))
    name = {**default_parameters(component, LEARNED), **chosen.parameters}["checkpoint"]
    if not found or not isinstance(name, str) or not WORD.fullmatch(name):
        message = f"{chosen.name} is not learned from a checkpoint of the package"
        raise InputError(
            message, file=folder / "entry.yaml", remedy=f"name an entry of the {component} learned"
        )
    if is_network(name):
        message = f"{name} is a network, trained in an environment"
        remedy = "run the command in its YAML"
        raise InputError(message, file=folder / "entry.yaml", remedy=remedy)
    return component, name


def _weights(component: str, checkpoint: str) -> Floats:
    """Return the weights of a checkpoint, those of a policy in this version's layout."""
    from clustergym.agents.auction_checkpoints import load
    from clustergym.agents.checkpoints import read, read_schema

    if component == "policy":
        return load(checkpoint).weights
    return read(checkpoint, read_schema(checkpoint)).tensors["weights"]


def _agent(about: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of the agent that a checkpoint records."""
    settings = about.get("training")
    if not isinstance(settings, Mapping) or not isinstance(about.get("seed"), int):
        message = "its checkpoint does not say how it was trained"
        raise InputError(message, file=folder / "entry.yaml", remedy="it cannot be trained anew")
    return dict(settings)
