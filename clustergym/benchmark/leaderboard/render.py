"""The pages of a board: a table in Markdown, and an HTML page that works without a server."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.cells import has_table
from clustergym.benchmark.leaderboard.entry import (
    entry_folder,
    entry_names,
    read_entry,
    read_results,
)
from clustergym.benchmark.leaderboard.entry_curves import plain, read_curves
from clustergym.benchmark.leaderboard.fill import load_fresh_table
from clustergym.benchmark.leaderboard.gains import compare_with_baseline, read_chance
from clustergym.benchmark.leaderboard.score import (
    Optimum,
    RankedEntry,
    cell_bounds,
    compute_scores,
    division_words,
    interval,
    is_of_fcfs,
    list_raw_figures,
    optimum,
    standings,
    texts,
    titles,
)
from clustergym.benchmark.leaderboard.table_text import render_table
from clustergym.common.errors import InputError
from clustergym.common.paths import PACKAGE
from clustergym.common.tables import table
from clustergym.common.writing import write_text
from clustergym.results.metrics.catalogue import METRICS
from clustergym.results.report.colours import Style, choose_styles

TEMPLATE = PACKAGE / "benchmark" / "leaderboard" / "page.html"

RULES = """\
A cell is a scenario and a seed. Its score is 0 for what {baseline} reaches and 1 for what the
reference ({reference}) does, by {metric} ({better} is better); beyond either, on the same line. An entry's
score is the mean over families of traces of the interquartile mean of each family's cells, so that every
family weighs the same. Brackets are the range, without its outer twentieth, of a bootstrap over {seeds} \
seeds of a scenario.
Divisions are by the information about jobs' speeds that a policy has; clairvoyant entries are oracles,
which know the times jobs will really run at, as no real scheduler can. *rank* is inside the division and
*rank, all* over all of them; an entry shares the rank of those before it unless the best of them is ahead
by all of the brackets of their difference in the same cells. *P(better)*: the probability that the entry is
better in a cell than the next of its division.
*Gained over chance*: (random - x) / (random - best known) in a cell, 0 for random play and 1 for the best
that any entry reaches, those found in hindsight among them; *{relative}*: {metric} over that of the baseline
in the same cell; both over cells as scores are, with the same brackets. *Gap
to optimum*: by how much the entry's mean over cells of {metric} misses that of the best possible schedules:
at least by as much as that of the best schedules known, at most by as much as the proven bound.
"""

PLACERS = """\
Entries are placers: they say which nodes a job gets, and when it moves. Which jobs run is up to the board's
policy ({policy}).
"""

BOTH = """\
Entries are a policy and a placer: which jobs run, and on which nodes and parts of GPUs.
"""


def pages(board: Board) -> dict[Path, str]:
    """Return the text of every page of a leaderboard, by the path of its file."""
    if has_table(board):
        return {board.folder / "README.md": render_table(load_fresh_table(board))}
    found, best = standings(board), optimum(board)
    return {
        board.folder / "README.md": markdown(board, found, best),
        board.folder / "index.html": page(board, found, best),
    }


def write(board: Board) -> list[Path]:
    """Write a leaderboard's pages; return their paths."""
    made = pages(board)
    for path, text in made.items():
        write_text(path, text)
    return list(made)


def stale(board: Board) -> list[Path]:
    """Return the paths of a leaderboard's pages whose files are out of date."""
    return [
        path
        for path, text in pages(board).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def markdown(board: Board, found: Sequence[RankedEntry], best: Optimum) -> str:
    """Return the leaderboard as Markdown text, with a table for each division (group ranked together)."""
    price = [board.price, ""] if board.price else []
    lines = [f"# {board.title}", "", board.summary, "", *price, _rules(board)]
    cells = f"Version {board.version}: {len(board.cells)} cells, {len(board.scenarios)} scenarios of "
    cells += f"{len(board.seeds)} seeds. `index.html` sorts and filters, and has the curves of each entry."
    lines += [cells, "", *_render_best_known(board, "[{0}]({1}/)")]
    lines += _render_ends(board, found, best)
    heads = titles(board)
    for division in dict.fromkeys(standing.division for standing in found):
        shown = [
            texts(board, standing, best.gap(board, standing.rows))
            | {"title": f"[{_cell(standing.entry.title)}]({standing.name}/)"}
            for standing in found
            if standing.division == division
        ]
        rows = [[row[key] for key in heads] for row in shown]
        text = table(list(heads.values()), rows, words=[list(heads).index("title")])
        lines += [f"## {division_words(division)}", "", text, ""]
        first = [one.entry.title for one in found if one.division == division and one.rank == 1]
        if len(first) > 1:
            lines += [f"They share rank 1: {', '.join(map(_cell, first))}.", ""]
    return "\n".join(lines)


def _render_ends(board: Board, found: Sequence[RankedEntry], best: Optimum) -> list[str]:
    """Return a table of random play, the best known and the bound, and the entries that random play beats."""
    chance, bounds = read_chance(board), cell_bounds(board)
    ends: list[tuple[str, Mapping[Cell, float]]] = [("best known", chance.best)]
    if chance.random is not None:
        ends.insert(0, ("random play", chance.random))
    if best.bound is not None:
        ends.append(("no schedule can beat", bounds))
    rows = []
    for title, values in ends:
        figures = chance.gained(board, values), compare_with_baseline(board, values)
        mean = sum(values[cell] for cell in board.cells) / len(board.cells)
        rows.append([title, f"{mean:.4g}", *("-" if one is None else interval(one) for one in figures)])
    heads = ["", f"mean {board.metric}", titles(board)["gained"], titles(board)["relative"]]
    lines = [table(heads, rows, words=[0]), ""]
    beaten = [one.entry.title for one in found if one.gained is not None and one.gained.high < 0.0]
    if beaten:
        lines += [f"Random play beats, by all of the brackets: {', '.join(map(_cell, beaten))}.", ""]
    return lines


def _rules(board: Board) -> str:
    reference = _words(board, board.reference, board.reference_overrides)
    baseline = (
        "first come, first served" if is_of_fcfs(board) else f"the baseline ({_words(board, board.baseline)})"
    )
    words = {"metric": board.metric, "better": board.better, "relative": titles(board)["relative"]}
    text = RULES.format(baseline=baseline, reference=reference, seeds=len(board.seeds), **words)
    if board.chooses == "placer":
        text = PLACERS.format(policy=_describe_keys(board.policy or {})) + text
    return (BOTH if len(board.components) > 1 else "") + text


def _render_best_known(board: Board, link: str = "{0}") -> list[str]:
    """Return a paragraph on the schedules that were found in hindsight; nothing if there are none."""
    lines = []
    for name in entry_names(board):
        entry = read_entry(entry_folder(board, name), board)
        if entry.hindsight:
            title = link.format(_cell(entry.title), name)
            values = [row.metrics[board.metric] or 0.0 for row in read_results(board.folder / name)]
            mean = f"mean {board.metric} {sum(values) / len(values):.4g} over {len(values)} cells"
            lines.append(f"{title}, found in hindsight: {mean} ({entry.search_budget}).")
    return ["Outside all divisions: " + " ".join(lines), ""] if lines else []


def _words(board: Board, chosen: Mapping[str, Any], overrides: Sequence[str] = ()) -> str:
    return " ".join(
        [" on ".join(_describe_keys(keys) for keys in board.keys_by_component(chosen).values()), *overrides]
    )


def _describe_keys(keys: Mapping[str, Any]) -> str:
    words = [f"{key}={value}" for key, value in keys.items() if key != "name"]
    return " ".join([str(keys.get("name")), *words])


def _cell(text: str) -> str:
    return (
        html.escape(" ".join(text.split())).replace("|", "&#124;").replace("[", "&#91;").replace("]", "&#93;")
    )


def page(board: Board, found: Sequence[RankedEntry], best: Optimum) -> str:
    """Return the leaderboard as one HTML page; an entry's data appear in it as text, never as markup."""
    try:
        template = TEMPLATE.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(str(error), file=TEMPLATE, remedy="install clustergym anew") from error
    # Keys in order: a page of equal figures is equal to the byte.
    data = json.dumps(_data(board, found, best), separators=(",", ":"), sort_keys=True)
    # Data of others stand inside of a script: nothing in them may end it.
    for mark, text in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        data = data.replace(mark, text)
    return template.replace("__TITLE__", html.escape(board.title)).replace("__DATA__", data)


def _data(board: Board, found: Sequence[RankedEntry], best: Optimum) -> dict[str, Any]:
    styles = _styles(found)
    return {
        "board": board.name,
        "title": board.title,
        "version": board.version,
        "summary": board.summary,
        "rules": _rules(board).replace("`", "").replace("*", ""),
        "price": (board.price or "").replace("`", ""),
        "known": html.unescape("".join(_render_best_known(board))),
        "columns": [{"key": key, "title": title} for key, title in titles(board).items()],
        "divisions": {standing.division: division_words(standing.division) for standing in found},
        "better": {
            **{key: METRICS[key].better if key in METRICS else "lower" for key in list_raw_figures(board)},
            "gained": "higher",
            "relative": board.better,
        },
        "scenarios": [scenario.name for scenario in board.scenarios],
        "seeds": board.seeds,
        "beside": next((standing.name for standing in found if _is_baseline(board, standing)), ""),
        "entries": [_entry(board, standing, best, styles[standing.name]) for standing in found],
    }


def _styles(found: Sequence[RankedEntry]) -> dict[str, Style]:
    """Return each entry's style; an entry named like its policy has the style of that policy."""
    ordered = sorted(
        found, key=lambda standing: (standing.name != _choose_style_name(standing), standing.name)
    )
    styles = choose_styles([_choose_style_name(standing) for standing in ordered])
    return {standing.name: style for standing, style in zip(ordered, styles, strict=True)}


def _choose_style_name(standing: RankedEntry) -> str:
    """Return the policy, or the algorithm of the placer if that is all that the entry chooses."""
    chosen = next(iter(standing.entry.choices.values()))
    return str(chosen.parameters.get("algorithm", chosen.name))


def _is_baseline(board: Board, standing: RankedEntry) -> bool:
    entered, wanted = board.keys_by_component(standing.entry.keys), board.keys_by_component(board.baseline)
    return all(
        entered[component].get(key) == value
        for component in wanted
        for key, value in wanted[component].items()
    )


def _entry(board: Board, standing: RankedEntry, best: Optimum, style: Style) -> dict[str, Any]:
    gap = best.gap(board, standing.rows)
    return {
        "name": standing.name,
        "title": standing.entry.title,
        "division": standing.division,
        "rank": standing.rank,
        "rank_all": standing.rank_all,
        "score": list(standing.score),
        "over_next": None if standing.over_next is None else standing.over_next.value,
        "gap": list(gap),
        "raw": {
            **{key: standing.raw[key] for key in list_raw_figures(board)},
            "gained": None if standing.gained is None else standing.gained.value,
            "relative": None if standing.relative is None else standing.relative.value,
        },
        "shown": texts(board, standing, gap),
        "cells": [
            [round(float(score), 4) for score in scores] for scores in compute_scores(board, standing.rows)
        ],
        "curves": [plain(curves) for curves in read_curves(board, board.folder / standing.name).values()],
        "authors": list(standing.entry.authors),
        "command": standing.entry.command,
        "facts": {
            **{
                component: _describe_keys(chosen.keys) for component, chosen in standing.entry.choices.items()
            },
            "version": standing.entry.version,
            "trained on": ", ".join(standing.entry.trained_on) or "nothing",
            "search budget": standing.entry.search_budget,
            "solver": standing.entry.solver,
            "limits": standing.entry.limits,
            "hardware": standing.entry.hardware,
            "licence": standing.entry.licence,
        },
        "colour": style.colour,
        "dash": style.dash,
    }
