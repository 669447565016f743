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
from clustergym.benchmark.leaderboard.score import scores_of
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.results.metrics.aggregates import Aggregate, stratified


class Retrained(NamedTuple):
    """The outcome of a new training.

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
        """Whether the new score is inside the interval of the entry's."""
        return self.entered.low <= self.found.value <= self.entered.high


def retrain(
    board: Board, name: str, output: Path, seed: int | None = None, processes: int = 1, workers: int = 1
) -> Retrained:
    """Train an entry's agent anew, run it in every cell of the board, and compare the scores.

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

    Raises
    ------
    InputError
        If the entry has no policy or placer `learned` of a checkpoint of the package, or as `train`.
    """
    from clustergym.agents.checkpoints import read, schema_of
    from clustergym.scenario.configuration.hydra_edge import composed
    from clustergym.training.training import train

    folder = entry_folder(board, name)
    entry = read_entry(folder, board)
    kind, checkpoint = _learned(entry, folder)
    schema = schema_of(checkpoint)
    about = read(checkpoint, schema).about
    chosen = int(about["seed"]) if seed is None else seed
    config = composed("train", []) | {
        "agent": _agent(about, folder),
        "seed": chosen,
        "output": str(output),
        "processes": processes,
        "allow_test": bool(about.get("trained_on_test")),
    }
    path = train(config, [f"(retrained: {board.name} {name})", f"seed={chosen}"])
    changed = {name: chosen.keys for name, chosen in entry.choices.items()}
    changed[kind]["checkpoint"] = str(path)
    runs = run_cells(board, changed if len(changed) > 1 else changed[board.chooses], board.cells, workers)
    return Retrained(
        path,
        chosen,
        float(np.abs(_weights(kind, str(path)) - _weights(kind, checkpoint)).max()),
        read(str(path), schema).about.get("traces") == about.get("traces"),
        stratified(scores_of(board, read_results(folder)), board.families),
        stratified(scores_of(board, [run.row for run in runs]), board.families),
    )


def _learned(entry: Entry, folder: Path) -> tuple[str, str]:
    """Return what of an entry is learned, and from which checkpoint of the package.

    No file that an entry names is opened.
    """
    from clustergym.agents.checkpoints import is_network
    from clustergym.scenario.registry import default_parameters

    found = [(kind, chosen) for kind, chosen in entry.choices.items() if chosen.name == LEARNED]
    kind, chosen = found[0] if found else next(iter(entry.choices.items()))
    name = {**default_parameters(kind, LEARNED), **chosen.parameters}["checkpoint"]
    if not found or not isinstance(name, str) or not WORD.fullmatch(name):
        message = f"{chosen.name} is not learned from a checkpoint of the package"
        raise InputError(message, file=folder / "entry.yaml", remedy=f"name an entry of the {kind} learned")
    if is_network(name):
        message = f"{name} is a network, trained in an environment"
        remedy = "run the command in its YAML"
        raise InputError(message, file=folder / "entry.yaml", remedy=remedy)
    return kind, name


def _weights(kind: str, checkpoint: str) -> Floats:
    """Return the weights of a checkpoint, those of a policy in this version's layout."""
    from clustergym.agents.auction_checkpoints import load
    from clustergym.agents.checkpoints import read, schema_of

    if kind == "policy":
        return load(checkpoint).weights
    return read(checkpoint, schema_of(checkpoint)).tensors["weights"]


def _agent(about: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of the agent that a checkpoint records."""
    settings = about.get("training")
    if not isinstance(settings, Mapping) or not isinstance(about.get("seed"), int):
        message = "its checkpoint does not say how it was trained"
        raise InputError(message, file=folder / "entry.yaml", remedy="it cannot be trained anew")
    return dict(settings)
