"""Each room has at most the lines that `[tool.clustergym.lines]` of pyproject.toml gives it.

A row may rise only by what another row falls in the same commit, so the sum never rises. Lines of code are
those that are neither blank, comment nor docstring.
"""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["clustergym"]["lines"]
SUM = 159_946
"""The sum of the rows when they were first written."""


def files(room: str) -> list[Path]:
    """Return the files of a room that count: claims of papers are data, and count as well."""
    patterns = ("*.py", "*.yaml") if room == "papers" else ("*.py",)
    return [path for pattern in patterns for path in (ROOT / room).rglob(pattern)]


def count_code(text: str) -> int:
    """Return the lines of a Python file that are neither blank, comment nor docstring."""
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            told.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = (line.strip() for number, line in enumerate(text.splitlines(), start=1) if number not in told)
    return sum(bool(line) and not line.startswith("#") for line in lines)


def test_code_is_what_is_no_blank_comment_or_docstring() -> None:
    lines = ['"""A module', 'of two lines."""', "", "# Why.", "A = 1  # code", '"""Of A."""', ""]
    text = "\n".join([*lines, "def f():", '    """Say."""', "    return A"])
    assert count_code(text) == 3


@pytest.mark.parametrize("room", ROWS)
def test_a_room_has_at_most_its_lines(room: str) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in files(room)}
    assert sum(len(text.splitlines()) for text in texts.values()) <= ROWS[room]["raw"]
    if "code" in ROWS[room]:
        python = (text for path, text in texts.items() if path.suffix == ".py")
        assert sum(map(count_code, python)) <= ROWS[room]["code"]


def test_the_sum_never_rises() -> None:
    assert sum(row["raw"] for row in ROWS.values()) <= SUM
