"""Scores and ranks of a board's entries, how far they are from the optimum, and these as texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.bounds import read_bounds
from clustergym.benchmark.leaderboard.entry import (
    RAW,
    Entry,
    ResultRow,
    entry_folder,
    entry_names,
    read_entry,
    read_results,
)
from clustergym.benchmark.leaderboard.gains import (
    Chance,
    compare_with_baseline,
    list_values,
    read_chance,
)
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.results.metrics.catalogue import METRICS
from clustergym.results.metrics.statistics import (
    Aggregate,
    aggregate_paired_difference,
    aggregate_stratified,
    probability_of_improvement,
)
from clustergym.scenario.policy import KNOWS

DECIMALS = 4
"""Of scores and of P(better), wherever they are written."""


@dataclass(frozen=True)
class RankedEntry:
    """A leaderboard entry with its scores and ranks.

    Attributes
    ----------
    name : str
        Name of the entry's folder.
    entry : Entry
    rows : tuple of ResultRow
        In the order of the board's cells.
    division : str
    score : Aggregate
        Interquartile mean of the cells' scores within each family of traces, and the mean over families.
    by_scenario : dict of str to float
        Mean score.
    raw : dict of str to float or None
        Means of `RAW` and of what else the board shows, and decision_s_p50 and decision_s_p99.
    rank : int
        Rank in its division.
    rank_all : int
        Rank over all divisions.
    over_next : Aggregate or None
        Probability that it is better in a cell than the next entry of its division.
    gained : Aggregate or None
        (random - x) / (random - best known) over cells; None where nobody entered random play.
    relative : Aggregate or None
        The board's metric over that of the baseline in the same cell; None where a baseline has 0.
    """

    name: str
    entry: Entry
    rows: tuple[ResultRow, ...]
    division: str
    score: Aggregate
    by_scenario: dict[str, float]
    raw: dict[str, float | None]
    rank: int = 0
    rank_all: int = 0
    over_next: Aggregate | None = None
    gained: Aggregate | None = None
    relative: Aggregate | None = None


def standings(board: Board) -> list[RankedEntry]:
    """Score and rank entries not found in hindsight; return them by division (ranked together), best first.

    Schedules that were found in hindsight are in no division, and left out.
    """
    entries = {name: read_entry(entry_folder(board, name), board) for name in entry_names(board)}
    real = {name: entry for name, entry in entries.items() if not entry.hindsight}
    chance = read_chance(board)
    found = [_standing(board, name, entry, chance) for name, entry in real.items()]
    # Equal scores stand in the order of their names, so that pages are the same on any machine.
    ordered = sorted(found, key=lambda standing: (-standing.score.value, standing.name))
    cells = {standing.name: compute_scores(board, standing.rows) for standing in ordered}
    families = board.families
    overall = dict(zip(cells, ranks(list(cells.values()), families), strict=True))
    out: list[RankedEntry] = []
    for division in sorted({standing.division for standing in found}):
        inside = [standing for standing in ordered if standing.division == division]
        places = ranks([cells[standing.name] for standing in inside], families)
        for at, (standing, rank) in enumerate(zip(inside, places, strict=True)):
            # The probability that it is better is against the next entry below, as a reader compares
            # neighbours.
            below = cells[inside[at + 1].name] if at + 1 < len(inside) else None
            over = None
            if below is not None:
                over = _round_aggregate(probability_of_improvement(cells[standing.name], below, families))
            out.append(replace(standing, rank=rank, rank_all=overall[standing.name], over_next=over))
    return out


def ranks(ordered: Sequence[Sequence[Floats]], families: Sequence[str]) -> list[int]:
    """Return the ranks of entries, given best first; entries without a significant difference share a rank.

    An entry is an array of scores for each scenario, and `families` names the family (the source of the
    jobs) of each scenario.

    An entry shares the rank before it unless the best of that rank is better by a paired difference whose
    whole interval is above 0. With one seed the interval is the range over the loads of each family.
    """
    out: list[int] = []
    for place, scores in enumerate(ordered, start=1):
        # Each is compared with the best of the rank before it, not with its neighbour: differences that are
        # not significant one by one would otherwise chain first and last into one rank.
        head = ordered[out[-1] - 1] if out else None
        shares = head is not None and aggregate_paired_difference(head, scores, families).low <= 0.0
        out.append(out[-1] if shares else place)
    return out


def compute_scores(board: Board, rows: Sequence[ResultRow]) -> list[Floats]:
    """Return an entry's scores as an array over seeds for each scenario of the board."""
    value = {row.cell: row.metrics[board.metric] for row in rows}
    out = []
    for scenario in board.scenarios:
        cells = [cell for cell in board.cells if cell.scenario == scenario.name]
        out.append(np.array([board.score(cell, float(value[cell] or 0.0)) for cell in cells]))
    return out


def _standing(board: Board, name: str, entry: Entry, chance: Chance) -> RankedEntry:
    folder = entry_folder(board, name)
    every = {row.cell: row for row in read_results(folder)}
    # Figures of two versions of a board are never in one table (docs/versions.md).
    if entry.board_version != board.version:
        message = f"is of version {entry.board_version} of the board, which is at {board.version}"
        raise InputError(message, file=folder / "entry.yaml", remedy="run it anew with `leaderboard add`")
    for cell in board.cells:
        if cell not in every or every[cell].metrics.get(board.metric) is None:
            message = f"has no {board.metric} in {cell}"
            raise InputError(message, file=folder / "results.csv", remedy="run `leaderboard check`")
    rows = tuple(every[cell] for cell in board.cells)
    scores = compute_scores(board, rows)
    names = [scenario.name for scenario in board.scenarios]
    shown = dict.fromkeys((*RAW, *(board.shows or ())))
    raw: dict[str, float | None] = {key: _mean([row.metrics.get(key) for row in rows]) for key in shown}
    for time in ("decision_s_p50", "decision_s_p99"):
        raw[time] = _mean([row.times[time] for row in rows])
    return RankedEntry(
        name,
        entry,
        rows,
        entry.division(board),
        _round_aggregate(aggregate_stratified(scores, board.families)),
        {label: round(float(by_seed.mean()), DECIMALS) for label, by_seed in zip(names, scores, strict=True)},
        raw,
        gained=_round_known(chance.gained(board, list_values(board, rows))),
        relative=_round_known(compare_with_baseline(board, list_values(board, rows))),
    )


def _round_known(found: Aggregate | None) -> Aggregate | None:
    return None if found is None else _round_aggregate(found)


def _round_aggregate(found: Aggregate) -> Aggregate:
    return Aggregate(*(round(value, DECIMALS) for value in found))


def _mean(values: Sequence[float | None]) -> float | None:
    # A mean over the cells that happen to have the figure would be of other cells than the rest of the row.
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


SHOWN = {
    "jct_mean": ("mean JCT, s", "s"),
    "jct_p99": ("p99 JCT, s", "s"),
    "makespan": ("makespan, s", "s"),
    "ftf_mean": ("mean FTF", ""),
    "unfair_fraction": ("unfair", "%"),
    "deadline_satisfaction": ("deadlines met", "%"),
    "throughput_mean": ("samples/s", ""),
    "restarts_mean": ("restarts", ""),
    "decision_s_p99": ("decision p99, ms", "ms"),
}
"""Columns of raw figures, of boards that name no others: title and unit."""
TENANT_COLUMNS = {
    "tenant_ftf_mean": ("FTF per tenant", ""),
    "tenant_jct_mean": ("JCT per tenant, s", "s"),
    "tenant_owed_time": ("time under quota", "%"),
    "tenant_owed_longest": ("longest under quota, s", "s"),
    "tenant_share_error": ("share error", "%"),
    "tenant_borrowed_gpu_hours": ("borrowed, GPU h", ""),
    "tenant_stopped": ("stopped for others", ""),
    "tenant_shrunk": ("shrunk for others", ""),
}
"""Columns that are called otherwise than their metric."""

DECISION_TIME = "decision_s_p99"
"""Of raw figures that every board shows, the one that is no metric."""


def list_raw_figures(board: Board) -> dict[str, tuple[str, str]]:
    """Return title and unit of each metric that the leaderboard shows unscaled, by the metric's name."""
    names = list(SHOWN) if board.shows is None else [*board.shows, DECISION_TIME]
    titles = SHOWN | TENANT_COLUMNS
    return {name: titles[name] if name in titles else _column(name) for name in names}


def _column(name: str) -> tuple[str, str]:
    unit = METRICS[name].unit
    return name.replace("_", " ") + (f", {unit}" if unit == "s" else ""), "%" if unit == "share" else unit


def titles(board: Board) -> dict[str, str]:
    """Return the headings of a leaderboard's columns by the column's name, in order."""
    return {
        "rank": "rank",
        "rank_all": "rank, all",
        "title": "entry",
        "score": "score",
        "over_next": "P(better)",
        "gained": "gained over chance",
        "relative": "FCFS = 1" if is_of_fcfs(board) else "baseline = 1",
        "gap": "gap to optimum",
        **{key: title for key, (title, _) in list_raw_figures(board).items()},
    }


def is_of_fcfs(board: Board) -> bool:
    """Return whether the board's baseline is first come, first served."""
    return board.chooses == "policy" and board.baseline == {"name": "fcfs"}


def division_words(division: str) -> str:
    """Describe in plain words a division: what its policies know, and whether they train on the board."""
    name, trained = division.split(", ")
    return f"{name}: {KNOWS[name]}" + (", and trained on the board's own traces" if trained == "open" else "")


def texts(board: Board, standing: RankedEntry, gap: Gap) -> dict[str, str]:
    """Return the texts of an entry's row in the leaderboard table, by column, without the entry's title."""
    return {
        "rank": str(standing.rank),
        "rank_all": str(standing.rank_all),
        "score": interval(standing.score),
        "over_next": "" if standing.over_next is None else f"{standing.over_next.value:.2f}",
        "gained": "-" if standing.gained is None else interval(standing.gained),
        "relative": "-" if standing.relative is None else interval(standing.relative),
        "gap": gap_text(gap),
        **{key: format_figure(standing.raw[key], unit) for key, (_, unit) in list_raw_figures(board).items()},
    }


def gap_text(gap: Gap) -> str:
    """Return the distance from the optimum as a text in percent."""
    if gap.most is None:
        return f"{100 * gap.least:.1f} % or more"
    return f"{100 * gap.least:.1f} to {100 * gap.most:.1f} %"


def interval(found: Aggregate) -> str:
    """Return a value with its brackets as text."""
    return f"{found.value:z.2f} [{found.low:z.2f}, {found.high:z.2f}]"


def format_figure(value: float | None, unit: str) -> str:
    """Return a metric's value as text, scaled if its unit is % or ms; `-` if there is none."""
    if value is None:
        return "-"
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "ms":
        return f"{1000 * value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Gap(NamedTuple):
    """Lower and upper bound on the share by which a mean metric is worse than the optimum.

    Attributes
    ----------
    least : float
        From the mean over cells of the best known value.
    most : float or None
        From the mean of what no schedule can beat; None: not known in every cell.
    """

    least: float
    most: float | None


class Optimum(NamedTuple):
    """The mean best known metric and the mean lower bound of a board, between which the optimum lies.

    Attributes
    ----------
    known : float
        The best that any entry reaches in each cell, those found in hindsight among them.
    bound : float or None
        What no schedule can beat.
    """

    known: float
    bound: float | None

    def gap(self, board: Board, rows: Sequence[ResultRow]) -> Gap:
        """Return bounds on the share by which the mean metric of result rows is worse than the optimum."""
        # Of the means, not the mean of ratios: the optimum is known as a mean over cells, from above and
        # below.
        value = sum(float(row.metrics[board.metric] or 0.0) for row in rows) / len(rows)
        least, most = (board.sign * (value / limit - 1.0) if limit else None for limit in self)
        return Gap(round(least or 0.0, 6), None if most is None else round(most, 6))


def optimum(board: Board) -> Optimum:
    """Compute a board's mean best known metric and, if all are known, its mean lower bound."""
    best = read_chance(board).best
    bounds = cell_bounds(board)
    inside = [bounds[cell] for cell in board.cells if cell in bounds]
    return Optimum(
        sum(best[cell] for cell in board.cells if cell in best) / len(board.cells),
        sum(inside) / len(inside) if len(inside) == len(board.cells) else None,
    )


def cell_bounds(board: Board) -> dict[Cell, float]:
    """Return the known lower bounds on the metric, by cell (scenario, seed).

    `bounds.json` of the board says it. In other cells it is the bound of the mean JCT that is frozen with the
    board, if that is the metric and no job may be dropped.
    """
    found: dict[Cell, float] = {}
    if board.metric == "jct_mean" and not board.drops:
        found = {cell: board.constants(cell).jct_bound for cell in board.cells}
    proved = read_bounds(board.folder)
    return found | {
        cell: proved[str(cell)].bound
        for cell in board.cells
        if str(cell) in proved and proved[str(cell)].metric == board.metric
    }
