"""The drawing of the floors in docs/architecture.md is the contract that `lint-imports` keeps."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_shows_the_floors_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    kept = [{name.strip().removeprefix("clustergym.") for name in floor.split("|")} for floor in layers]
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(len(layers), 0, -1))
    assert [set(re.findall(r"`(\w+)`", names)) for _, names in rows] == kept


def test_every_room_has_a_floor() -> None:
    rooms = {path.parent.name for path in (ROOT / "clustergym").glob("*/__init__.py")}
    files = {path.stem for path in (ROOT / "clustergym").glob("*.py")}
    shown = set(re.findall(r"`(\w+)`", (ROOT / "docs/architecture.md").read_text()))
    assert (rooms | files) - {"__init__", "__main__"} <= shown
