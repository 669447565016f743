"""What one job decides on the boards `testbed` and `ares`: ratios with and without each trace's longest job.

    python benchmarks/longest_jobs.py

The longest job is the scored one with the longest JCT under the reference. Each trace's figures are kept in
benchmarks/longest_jobs.json; `python benchmarks/results_table.py` writes the table.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from committed_figures import load_tables

from clustergym.benchmark.leaderboard.board import Cell, load_board
from clustergym.benchmark.leaderboard.cells import FigureTable, load_table
from clustergym.benchmark.leaderboard.table_text import find_title
from clustergym.common.progress import track_results
from clustergym.common.tables import table
from clustergym.results.measured_run import simulate

FIGURES = Path(__file__).with_suffix(".json")
BOARDS, ROWS = ("testbed", "ares"), ("learned-clusters", "arena")


def measure(one: FigureTable, cell: Cell) -> dict[str, list[float]]:
    """Return the longest job's share of the sum of JCTs, and each row's ratio with and without that job."""
    scenario = one.board.scenario(cell, one.keys.overrides(cell.scenario, ""))
    names = (one.keys.reference, *ROWS)
    runs = (simulate(scenario, *one.contestants(name), cell.seed) for name in names)
    first, *others = (run.jobs.jct_s[scenario.scored] for run in runs)
    shorter = np.arange(len(first)) != np.argmax(first)
    ratios = ([own.mean() / first.mean(), own[shorter].mean() / first[shorter].mean()] for own in others)
    found = {"share": [first.max() / first.sum()], **dict(zip(ROWS, ratios, strict=True))}
    return {name: [round(float(value), 4) for value in values] for name, values in found.items()}


def show() -> str:
    """Return the table; every family has as many traces, so each weighs alike."""
    kept, rows = json.loads(FIGURES.read_text(encoding="utf-8")), []
    for board in BOARDS:
        cells = [*kept[board].values()]
        shares = 100 * np.array([cell["share"] for cell in cells])
        shown = f"{np.median(shares):.0f} %, at most {shares.max():.0f} %"
        for name in ROWS:
            ratios = np.exp(np.log([cell[name] for cell in cells]).mean(axis=0))
            title = find_title(load_tables()[board], name)
            rows.append([f"`{board}`", str(len(cells)), shown, title, *(f"{ratio:.2f}" for ratio in ratios)])
    heads = ("board", "traces", "its share of the sum of JCTs, median", "policy", "ratio", "without that job")
    return table(heads, rows, words=(0, 3))


def main() -> None:
    """Run the traces of the boards, and keep their figures."""
    tables = {board: load_table(load_board(board)) for board in BOARDS}
    cells = [(board, cell) for board, one in tables.items() for cell in one.keys.least_cells]
    found: dict[str, dict[str, dict[str, list[float]]]] = {board: {} for board in BOARDS}
    for board, cell in track_results("runs", cells, len(cells), wanted=True):
        found[board][f"{cell.scenario} {cell.seed}"] = measure(tables[board], cell)
    FIGURES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {FIGURES}")
    print(show())


if __name__ == "__main__":
    main()
