"""Figures of a board as texts for people, with the same words and rounding on every page."""

from __future__ import annotations

from clustergym.benchmark.leaderboard.board import Board
from clustergym.benchmark.leaderboard.gaps import Gap
from clustergym.benchmark.leaderboard.score import Standing
from clustergym.results.metrics.aggregates import Aggregate
from clustergym.results.metrics.catalogue import METRICS
from clustergym.scenario.policy import KNOWS

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


def figures_of(board: Board) -> dict[str, tuple[str, str]]:
    """Return the columns of raw figures of a board: title and unit."""
    names = list(SHOWN) if board.shows is None else [*board.shows, DECISION_TIME]
    titles = SHOWN | TENANT_COLUMNS
    return {name: titles[name] if name in titles else _column(name) for name in names}


def _column(name: str) -> tuple[str, str]:
    unit = METRICS[name].unit
    return name.replace("_", " ") + (f", {unit}" if unit == "s" else ""), "%" if unit == "share" else unit


def titles(board: Board) -> dict[str, str]:
    """Return the titles of the columns of a board, in order."""
    return {
        "rank": "rank",
        "rank_all": "rank, all",
        "title": "entry",
        "score": "score",
        "over_next": "P(better)",
        "gap": "gap to optimum",
        **{key: title for key, (title, _) in figures_of(board).items()},
    }


def division_words(division: str) -> str:
    """Return the name of a division in plain words."""
    name, trained = division.split(", ")
    return f"{name}: {KNOWS[name]}" + (", and trained on the board's own traces" if trained == "open" else "")


def texts(board: Board, standing: Standing, gap: Gap) -> dict[str, str]:
    """Return an entry's text for each column of `titles` but the title."""
    return {
        "rank": str(standing.rank),
        "rank_all": str(standing.rank_all),
        "score": interval(standing.score),
        "over_next": "" if standing.over_next is None else f"{standing.over_next.value:.2f}",
        "gap": gap_text(gap),
        **{key: shown(standing.raw[key], unit) for key, (_, unit) in figures_of(board).items()},
    }


def gap_text(gap: Gap) -> str:
    """Return a gap as text."""
    if gap.most is None:
        return f"{100 * gap.least:.1f} % or more"
    return f"{100 * gap.least:.1f} to {100 * gap.most:.1f} %"


def interval(found: Aggregate) -> str:
    """Return a figure and its interval as text."""
    return f"{found.value:z.2f} [{found.low:z.2f}, {found.high:z.2f}]"


def shown(value: float | None, unit: str) -> str:
    """Return a raw figure as text."""
    if value is None:
        return "-"
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "ms":
        return f"{1000 * value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
