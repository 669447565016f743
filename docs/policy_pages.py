"""Pages of the policies, from their docstrings and presets, and the gallery of their schedules."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import yaml

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.fill import load_fresh_table
from clustergym.benchmark.leaderboard.pairs import Comparison
from clustergym.benchmark.leaderboard.table_text import compare_all, find_title, format_ratio
from clustergym.scenario.policy import KNOWS
from clustergym.scenario.registry import make_policy

ROOT = Path(__file__).parent.parent
PRESETS = sorted((ROOT / "conf" / "policy").glob("*.yaml"))
Rows = dict[str, tuple[str, Comparison]]
"""Title and comparison by the name of a row."""
BOARDS = ("testbed", "ares", "scale", "llm-2026", "fair", "deadline", "faults")
DIFFERS = re.compile(
    "Differences from the (paper|program)|Every departure|Where the text leaves|As its published|"
    "The paper has no gangs|We generalise|The paper's ablations"
)
"""How a paragraph begins that says where a policy leaves its paper."""
REPRODUCED = {
    "arena": ("arena",),
    "arena-tuned": ("arena",),
    "ares": ("ares",),
    "crius": ("crius",),
    "elasticflow": ("arena",),
    "elasticflow-ls": ("arena",),
    "gavel": ("gavel", "sia"),
    "pollux": ("sia", "ares"),
    "sia": ("sia", "arena"),
}
"""The reproductions that a policy is part of."""
CAPTION = (
    "Ten jobs, `a` to `j`, on eight A40 and eight A10, the same for every policy; a row is a GPU. Grey: a "
    "job is profiled; pale: it is restored, or its plan searched for; below, how many jobs wait."
)


def policy_pages() -> dict[str, str | bytes]:
    """Return the page of each policy, and the gallery, by path."""
    found = {name: _rows_of(name) for name in BOARDS}
    pages: dict[str, str | bytes] = {"policies.md": _gallery()}
    return pages | {f"policies/{path.stem}.md": _page(path, found) for path in PRESETS}


def told(path: Path) -> str:
    """Return what a policy is told with the parameters of its preset, in words."""
    return KNOWS[make_policy(yaml.safe_load(path.read_text(encoding="utf-8"))).information_class]


def parts(cls: type) -> tuple[list[str], list[str], list[str]]:
    """Return paragraphs of a docstring: how the policy decides, more of that, what differs from the paper."""
    text = inspect.cleandoc(cls.__doc__ or "").split("\nParameters\n")[0]
    paragraphs = [part.strip() for part in text.split("\n\n")]
    differs = [part for part in paragraphs if DIFFERS.match(part)]
    rest = [part for part in paragraphs if part not in differs]
    # Up to the first paragraph that is more than a line, with the list that it announces.
    until = next(at for at, part in enumerate(rest) if at and len(part.split()) > 15) + 1
    until += rest[until - 1].endswith(":")
    return rest[:until], rest[until:], differs


def _gallery() -> str:
    cards = []
    for path in PRESETS:
        comment = re.match(r"# (.+)\n", path.read_text(encoding="utf-8"))
        summary = comment[1] if comment else " ".join(parts(_class(path)[1])[0][0].split())
        cards.append(
            f"-   [![The schedule under {path.stem}](policies/{path.stem}.svg)](policies/{path.stem}.md)\n\n"
            f"    **[{path.stem}](policies/{path.stem}.md)**: {summary} *({told(path)})*"
        )
    cards_text = "\n\n".join(cards)
    return (
        "# Policies\n\nEach runs by `policy=NAME`; its page says how it decides, what differs from its "
        f"paper, its parameters and where it stands. {CAPTION}\n\n"
        f'<div class="grid cards schedules" markdown>\n\n{cards_text}\n\n</div>\n\n'
        "The pictures are made by `python docs/schedule_pictures.py`; to run one in a checkout: `clustergym "
        "run cluster=arena-16 trace=file trace.path=docs/ten-jobs.csv policy=arena compare=null`.\n"
    )


def _class(path: Path) -> tuple[str, type]:
    cls = type(make_policy(yaml.safe_load(path.read_text(encoding="utf-8"))))
    return f"{cls.__module__}.{cls.__qualname__}", cls


def _page(path: Path, boards: dict[str, Rows]) -> str:
    name, text = path.stem, path.read_text(encoding="utf-8").strip()
    where, cls = _class(path)
    how, more, differs = parts(cls)
    blocks = [
        f"# {name}",
        f"`clustergym run policy={name}` · {told(path)} ([class](../concepts.md#information-class))",
        "## How it decides",
        *how,
        f"![The schedule of ten jobs under {name}]({name}.svg)",
        f"{CAPTION} [All policies side by side](../policies.md).",
        *(["## In detail", *more] if more else []),
        "## What differs from the paper",
        *(differs or ["It is a rule of textbooks, or of ours: no paper prescribes more than stands above."]),
        "## Where it stands",
        _stands(name, boards),
        "## Parameters",
        f"`conf/policy/{path.name}` has:\n\n```yaml\n{text}\n```",
        # The page is read from the source, which lies in the folder `policies/` of the checkout.
        f"::: {where.removeprefix('clustergym.')}\n    options:\n      members: false\n"
        "      show_docstring_description: false\n      heading_level: 3\n",
    ]
    return "\n\n".join(blocks)


def _rows_of(board: str) -> Rows:
    """Return title and comparison of each row of a board, with its class and parameters' name."""
    table = load_fresh_table(load_board(board, ROOT / "leaderboards"))
    return {
        name: (find_title(table, name), of)
        for name, of in compare_all(table).items()
        if name in table.policies
    }


def _stands(name: str, boards: dict[str, Rows]) -> str:
    rows = [
        f"| [{board}](../boards/{board}/README.md) | {title} | {format_ratio(of.overall)} |"
        for board, found in boards.items()
        for row, (title, of) in found.items()
        if row.removesuffix("-guarded") == name
    ]
    table = "\n".join(["| board | row | to the reference |", "| --- | --- | ---: |", *rows])
    papers = ", ".join(f"[{paper}](../reproduction/{paper}.md)" for paper in REPRODUCED.get(name, ()))
    said = (
        f"Beside published figures: {papers}." if papers else "No published figure of it is reproduced here."
    )
    return f"{table}\n\n{said}" if rows else f"It is on no board. {said}"
