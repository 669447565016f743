"""Texts that are kept beside the tests, in `tests/golden/`: what changes in them has to be meant."""

import os
from collections.abc import Iterable
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"


def check_lines(name: str, lines: Iterable[str]) -> None:
    """Compare lines with those of a file of `tests/golden/`; with GOLDEN=write, write them there first."""
    found = [one.rstrip() for line in lines for one in line.splitlines()]
    path = GOLDEN / name
    if os.environ.get("GOLDEN") == "write":
        path.write_text("".join(f"{one}\n" for one in found), encoding="utf-8")
    known = path.read_text(encoding="utf-8").splitlines()
    gone, new = [one for one in known if one not in {*found}], [one for one in found if one not in {*known}]
    assert (gone, new) == ([], []), f"tests/golden/{name}: GOLDEN=write writes it anew"
    assert found == known, f"tests/golden/{name} has other lines, or another order"
