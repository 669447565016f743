"""The check of a single entry."""

from clustergym.benchmark.leaderboard.board import Board
from clustergym.benchmark.leaderboard.cell_replay import Flag
from clustergym.benchmark.leaderboard.check import check_entries


def check(board: Board, name: str, strict: int = 0, seed: int = 0) -> list[Flag]:
    """Check an entry as `check_entries` does; return its flags, empty if nothing is wrong."""
    return check_entries(board, [name], strict, seed)[name]
