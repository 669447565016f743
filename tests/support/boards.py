"""A board of one scenario that is small enough to be run in a test, and what its check finds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from checked_entries import check
from entry_logs import change_headers

from clustergym.benchmark.leaderboard.add import freeze
from clustergym.benchmark.leaderboard.board import Board, board_names, boards_dir, load_board
from clustergym.benchmark.leaderboard.cell_replay import Flag, FlagReason
from clustergym.benchmark.leaderboard.cells import KEYS_FILE

WITH_ENTRIES = [name for name in board_names() if not (boards_dir() / name / KEYS_FILE).is_file()]
"""Committed boards whose figures are entries."""


def small_board(seeds: Sequence[int], jobs: int = 24) -> dict[str, Any]:
    """Return a board.yaml: some jobs, at a load at which they queue, on 16 GPUs, with each seed."""
    overrides = ["scenario=testbed", "cluster=arena-16", "trace=philly-like", f"trace.jobs={jobs}"]
    return {
        "name": "small",
        "version": 1,
        "title": "Small",
        "summary": "Jobs.",
        "metric": "jct_mean",
        "better": "lower",
        "split": "test",
        "seeds": list(seeds),
        "placer": {"name": "buddy"},
        "reference": {"name": "srtf"},
        "scenarios": [
            {"name": "philly", "overrides": [*overrides, "trace.load=6.0", "trace.max_duration_s=3600"]}
        ],
    }


def found(root: Path, entry: str, strict: int = 0) -> list[Flag]:
    """Return the flags of an entry of the one board in a folder."""
    (board,) = (folder.name for folder in root.iterdir() if (folder / "board.yaml").is_file())
    return list(check(load_board(board, root), entry, strict))


def flags(root: Path, entry: str, strict: int = 0) -> list[str]:
    return [str(flag) for flag in found(root, entry, strict)]


def kinds(root: Path, entry: str, strict: int = 0) -> set[FlagReason]:
    return {flag.reason for flag in found(root, entry, strict)}


def frozen(root: Path, content: Mapping[str, Any]) -> Board:
    """Write a board's content below a folder, freeze it, and return it."""
    folder = root / content["name"]
    folder.mkdir()
    (folder / "board.yaml").write_text(yaml.safe_dump(dict(content), sort_keys=False))
    freeze(load_board(folder.name, root))
    return load_board(folder.name, root)


def claims(folder: Path, **changes: Any) -> None:
    """Change keys of entry.yaml; None takes one out."""
    path = folder / "entry.yaml"
    content = yaml.safe_load(path.read_text()) | changes
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(yaml.safe_dump(kept, allow_unicode=True))


def claims_throughout(folder: Path, **changes: Any) -> None:
    """Change keys of entry.yaml, and the headers of its logs so that they agree with it."""
    claims(folder, **changes)
    same = {key: value for key, value in changes.items() if key == "information_class"}
    if "policy" in changes:
        same["policy"] = changes["policy"]["name"]
    if "placer" in changes:
        same["placer"] = {"name": changes["placer"]["name"], **changes["placer"]["parameters"]}
    change_headers(folder, **same)
