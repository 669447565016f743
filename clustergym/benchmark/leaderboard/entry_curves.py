"""The curves of an entry (`curves.json`): GPUs, queue and JCT of one seed per scenario, by replay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from clustergym.benchmark.leaderboard.board import Board, Cell, Name
from clustergym.benchmark.leaderboard.cell_logs import read_logs
from clustergym.benchmark.leaderboard.cell_replay import Flag, replay_cell
from clustergym.benchmark.leaderboard.entry import entry_folder, read_entry
from clustergym.cluster.schema import StrictSchema, validate_content
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.reading import read_json
from clustergym.common.writing import write_text
from clustergym.results.metrics.metrics import Measurement
from clustergym.results.report.series import means
from clustergym.sim.engines import AnySimulation

FILE, SCHEMA = "curves.json", "clustergym.curves/1"
LARGEST_BYTES = 1_000_000
STEPS = 120
"""Equal intervals of a run, of each of which a curve has the mean."""
RANKS = 60
TOLERANCE = 2e-3
"""Of the figures' size, and absolute: they are rounded to four digits and three decimals."""

Figure = Annotated[float, Field(ge=0, lt=1e15)]
Means = Annotated[list[Figure], Field(min_length=STEPS, max_length=STEPS)]


class Curves(StrictSchema):
    """A run's held GPUs and queued jobs over time, and the distribution of job completion times.

    Attributes
    ----------
    end_s : float
        When the run ended.
    gpus : int
        GPUs of the cluster.
    held_gpus : list of float, length STEPS
        GPUs held by running jobs, without those held for profiling.
    queued_jobs : list of float, length STEPS
    jct_s : list of float, length RANKS + 1 or 0
        The `i`-th is the JCT that `i / RANKS` of the finished jobs do not exceed; empty if none finished.
    """

    end_s: Annotated[float, Field(gt=0, lt=1e15)]
    gpus: Annotated[int, Field(ge=1)]
    held_gpus: Means
    queued_jobs: Means
    jct_s: Annotated[list[Figure], Field(max_length=RANKS + 1)]


class EntryCurves(StrictSchema):
    """The content of curves.json: an entry's curves over time in one run of each scenario."""

    schema_name: Annotated[Literal["clustergym.curves/1"], Field(alias="schema")]
    seed: int
    scenarios: dict[Name, Curves]


def select_shown_cells(board: Board) -> list[Cell]:
    """Return the cells (scenario, seed) of which entries show curves: the first seed of each scenario."""
    return [Cell(scenario.name, board.seeds[0]) for scenario in board.scenarios]


def compute_curves(simulation: AnySimulation, measured: Measurement) -> Curves:
    """Compute a run's held GPUs and queued jobs over time, and its distribution of completion times."""
    timeline, end_s = measured.timeline, simulation.end_s
    held, queued = timeline.held_gpus.sum(axis=1, dtype=np.float64), timeline.queued_jobs.astype(np.float64)
    finished = measured.records.jct_s[np.isfinite(measured.records.jct_s)]
    # Of times that jobs have, not between two: rounding then gives the same figure on every machine.
    ranks = np.linspace(0, 1, RANKS + 1)
    jct_s = np.quantile(finished, ranks, method="inverted_cdf") if len(finished) else finished
    return Curves(
        end_s=_round_figures([end_s])[0],
        gpus=int(simulation.scenario.cluster.capacity.sum()),
        held_gpus=_round_figures(means(timeline.time_s, held, end_s, STEPS)),
        queued_jobs=_round_figures(means(timeline.time_s, queued, end_s, STEPS)),
        jct_s=_round_figures(jct_s),
    )


def _round_figures(values: Sequence[float] | Floats) -> list[float]:
    """Return figures rounded so that they are the same on every machine."""
    return [round(float(f"{value:.4g}"), 3) for value in values]


def plain(curves: Curves) -> dict[str, Any]:
    """Return curves as JSON values, with whole numbers as integers to save space."""

    def short(value: float) -> float:
        return int(value) if value == int(value) else value

    content = curves.model_dump()
    return {
        name: [short(figure) for figure in value] if isinstance(value, list) else short(value)
        for name, value in content.items()
    }


def write_curves(board: Board, name: str) -> Path:
    """Replay an entry's decisions in one run of each scenario, and write curves.json."""
    from clustergym.results.measured_run import measure_run

    folder = entry_folder(board, name)
    entry, logs, found = read_entry(folder, board), read_logs(folder), {}
    for cell in select_shown_cells(board):
        made = replay_cell(board, cell, board.scenario(cell), entry, logs)
        # Curves are of the logged decisions, so nothing of a policy is run for them.
        if isinstance(made, Flag):
            remedy = f"run `leaderboard check {board.name} {name}`"
            raise InputError(f"cannot be replayed: {made}", file=folder, remedy=remedy)
        found[cell.scenario] = plain(compute_curves(made[0], measure_run(made[0])))
    content = {"schema": SCHEMA, "seed": board.seeds[0], "scenarios": found}
    write_text(folder / FILE, json.dumps(content, separators=(",", ":")) + "\n")
    return folder / FILE


def read_curves(board: Board, folder: Path) -> dict[str, Curves]:
    """Read an entry's curves from curves.json, by scenario; empty if there is no file."""
    path = folder / FILE
    remedy = f"write it with `leaderboard curves {board.name} {folder.name}`"
    if not path.exists():
        return {}
    found = validate_content(EntryCurves, read_json(path, LARGEST_BYTES, remedy), file=path)
    if [*found.scenarios] != [scenario.name for scenario in board.scenarios] or found.seed != board.seeds[0]:
        message = f"is not of the board's scenarios in order, and of seed {board.seeds[0]}"
        raise InputError(message, file=path, field="scenarios", remedy=remedy)
    return found.scenarios


def difference(
    board: Board, folder: Path, cell: Cell, simulation: AnySimulation, measured: Measurement
) -> str:
    """Describe how an entry's stored curves differ from a replay's; empty if equal, or if `cell` has none."""
    if cell not in select_shown_cells(board):
        return ""
    try:
        found = read_curves(board, folder).get(cell.scenario)
    except InputError as error:
        return str(error)
    if found is None:
        return f"no {FILE}; `leaderboard curves {board.name} {folder.name}` writes it"
    expected = compute_curves(simulation, measured)
    for name in Curves.model_fields:
        if not _close(np.atleast_1d(getattr(found, name)), np.atleast_1d(getattr(expected, name))):
            return f"{name} is not that of the decisions"
    return ""


def _close(found: Floats, expected: Floats) -> bool:
    return found.shape == expected.shape and np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
