"""Hidden tests: seeds that follow from a secret salt; until the release a board publishes only its hash."""

from __future__ import annotations

from pathlib import Path

from clustergym.benchmark.leaderboard.add import check_measurable, freeze, write_yaml
from clustergym.benchmark.leaderboard.board import Board
from clustergym.benchmark.leaderboard.salted_seeds import HiddenSplit, commitment_of, hidden_seeds
from clustergym.common.errors import InputError
from clustergym.common.visible_text import visible

LEAST_SALT, LONGEST_SALT = 16, 200


def commit(board: Board, salt: str, workers: int = 1, progress: bool = False) -> Path:
    """Draw as many hidden seeds as the board has seeds, and publish the hash of their salt in board.yaml.

    Baseline and reference run in every hidden cell, so that the reveal cannot fail; nothing of it is written.

    Raises
    ------
    InputError
        If the salt is too short to be a secret, the board has a hidden split already, or the reference is
        not better than the baseline in a hidden cell.
    """
    if not LEAST_SALT <= len(salt) <= LONGEST_SALT or visible(salt) != salt:
        message = f"a salt of {len(salt)} characters"
        remedy = f"give {LEAST_SALT} to {LONGEST_SALT} plain characters, as of `openssl rand -hex 16`"
        raise InputError(message, field="--salt", remedy=remedy)
    path = board.folder / "board.yaml"
    if board.hidden is not None and board.hidden.salt is None:
        remedy = "reveal it by `freeze --reveal SALT`"
        raise InputError("has a hidden split", file=path, field="hidden", remedy=remedy)
    count = len(board.seeds)
    check_measurable(board.changed(seeds=hidden_seeds(board.name, salt, count)), workers, progress)
    hidden = HiddenSplit(commitment=commitment_of(board.name, salt), seeds=count)
    write_yaml(path, board.changed(hidden=hidden.model_dump(exclude_none=True)).content())
    return path


def reveal(board: Board, salt: str, workers: int = 1, progress: bool = False) -> Path:
    """Publish the salt, and score the board's next version on the hidden seeds.

    The seeds that were scored on so far become a further split, `SPLIT-VERSION`.

    Raises
    ------
    InputError
        If the board has no hidden split, or the salt is not its.
    """
    path, hidden = board.folder / "board.yaml", board.hidden
    if hidden is None or hidden.salt is not None:
        remedy = "draw one by `freeze --salt SALT`"
        raise InputError("has no hidden split", file=path, field="hidden", remedy=remedy)
    if commitment_of(board.name, salt) != hidden.commitment:
        remedy = "give the salt that it was drawn with"
        raise InputError("is not the salt of the board's hidden split", field="--reveal", remedy=remedy)
    changed = board.changed(
        seeds=hidden_seeds(board.name, salt, hidden.seeds),
        tuning_seeds={**board.tuning_seeds, f"{board.split}-{board.version}": board.seeds},
        hidden=hidden.model_copy(update={"salt": salt}).model_dump(),
    )
    return freeze(changed, workers, next_version=True, progress=progress)
