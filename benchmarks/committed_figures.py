"""Figures of the README and the docs that follow from committed boards, claims and the oracle's page."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from clustergym.papers.claims import LARGER, REPRODUCED, REVERSED, SMALLER, TOLERANCE, PaperClaim

from clustergym.benchmark.leaderboard.board import Board, Cell, board_names, load_board
from clustergym.benchmark.leaderboard.entry import Entry
from clustergym.benchmark.leaderboard.gains import read_chance
from clustergym.benchmark.leaderboard.score import RankedEntry, cell_bounds, gap_text, optimum, standings
from clustergym.common.arrays import Floats
from clustergym.common.paths import conf_dir
from clustergym.common.tables import table
from clustergym.oracle.calibration.accuracy import PAPER_COUNTS
from clustergym.results.metrics.statistics import Aggregate, aggregate_stratified

ROOT = Path(__file__).parent.parent
WORLDS = {
    "llm-2026": "LLM cluster of 2026: 1,024 H100 and 576 GB200",
    "testbed": "Arena's testbed: 64 GPUs of two types",
    "ares": "Ares's cluster: 64 GPUs of one type",
    "scale": "Arena's simulation: 1,280 GPUs of four types",
}
"""Jobs run for up to a week: all are scored on llm-2026, on the others those of a stated window."""
FORMER = {
    "testbed": ("elastic-hetero, version 2", "elastic-hetero"),
    "ares": ("fair, version 3", "fair"),
    "scale": ("scale, version 2", "scale"),
}
"""Boards of the same cluster whose jobs are cut at four hours, and their names in former_boards.json."""
COMPARED = frozenset(
    (
        "learned-none-newtrace", "learned-bootstrap-newtrace", "learned-profiled-newtrace",
        "learned-newtrace", "hesrpt", "optimus", "ares", "sia", "gandiva", "arena", "gavel", "srtf",
        "tiresias", "fcfs-backfill", "random", "fcfs",
    )
)  # fmt: skip
"""Entries that the README's table compares: of learned ones, those that saw no traces like the boards'.
Pages and docs/results.md have all."""
TOLD = {
    "none": "none",
    "bootstrap": "speed on the fewest GPUs that fit",
    "data_parallel": "speed on every GPU count, data-parallel",
    "profiled": "speed on every GPU count, best parallelism",
    "clairvoyant": "true speed (an oracle, not a scheduler)",
}
KINDS = {
    **dict.fromkeys(("fcfs", "sjf", "srtf", "las"), "simple"),
    **dict.fromkeys(("hesrpt", "optimus", "gandiva"), "published, with rules of ours"),
    "random": "random",
    "learned": "learned",
}
"""Of the policies that are not as somebody published them. Rules of ours are parameters of heSRPT
(`hysteresis`, `leftover`), Optimus (`hysteresis`, `turn_restarts`) and Gandiva (`slice_per_restart`)."""
NEWEST, LISTED = "placement", 5
TUNED = "tuned-"
"""How the names of entries with tuned parameters begin."""


class World:
    """A board's entries by their mean JCT over that of first come, first served in the same cell."""

    def __init__(self, name: str) -> None:
        self.board: Board = load_board(name, ROOT / "leaderboards")
        self.standings: dict[str, RankedEntry] = {one.name: one for one in standings(self.board)}
        self._fcfs = self._means(self.standings["fcfs"])
        self._of_jct = self.board.metric == "jct_mean"

    def _means(self, one: RankedEntry) -> dict[Cell, float]:
        return {row.cell: float(row.metrics["jct_mean"] or 0.0) for row in one.rows}

    def _ratios(self, means: Mapping[Cell, float]) -> list[Floats]:
        """Return means over those of FCFS, an array over seeds for each scenario."""
        cells, of = self.board.cells, self._fcfs
        return [
            np.array([means[cell] / of[cell] for cell in cells if cell.scenario == scenario.name])
            for scenario in self.board.scenarios
        ]

    def _aggregate(self, means: Mapping[Cell, float]) -> Aggregate:
        return aggregate_stratified(self._ratios(means), self.board.families)

    def figure(self, name: str) -> Aggregate:
        """Return that of an entry: of its cells within each family of traces, then over families."""
        return self._aggregate(self._means(self.standings[name]))

    def ratios(self, name: str) -> list[Floats]:
        """Return those of an entry."""
        return self._ratios(self._means(self.standings[name]))

    def bound(self) -> Aggregate:
        """Return that of the lower bound."""
        frozen = {cell: self.board.constants(cell).jct_bound for cell in self.board.cells}
        return self._aggregate(frozen | (cell_bounds(self.board) if self._of_jct else {}))

    def known(self) -> Aggregate | None:
        """Return that of the lowest mean JCT of each cell; None on boards of another metric."""
        return self._aggregate(read_chance(self.board).best) if self._of_jct else None

    def shown(self, name: str) -> str:
        """Return the figure of an entry, a dash if the board has no such entry."""
        return interval(self.figure(name)) if name in self.standings else "-"


def interval(found: Aggregate) -> str:
    """Return a figure with its brackets, to two digits after the point, or three where it is small."""
    decimals = 2 if abs(found.value) >= 0.1 else 3
    return " ".join((f"{found.value:.{decimals}f}", f"[{found.low:.{decimals}f}, {found.high:.{decimals}f}]"))


HEADS = ["scheduler", "from", "information available", *WORLDS.values()]
"""Of the README's table."""


def best_table() -> str:
    """Return the README's table: a row for each scheduler that it compares, a column for each world."""
    worlds = [World(name) for name in WORLDS]
    entries: dict[str, Entry] = {}
    for world in worlds:
        compared = [name for name in world.standings if name in COMPARED]
        for name in sorted(compared, key=lambda one: world.figure(one).value):
            entries.setdefault(name, world.standings[name].entry)
    rows = [
        [entry.title, find_kind(entry), TOLD[entry.information_class]]
        + [world.shown(name) for world in worlds]
        for name, entry in entries.items()
    ]
    known = [world.known() for world in worlds]
    shown = ["-" if one is None else interval(one) for one in known]
    rows.append(["*the best entry in each cell*", "", "", *shown])
    rows.append(["*lower bound*", "", "", *(interval(world.bound()) for world in worlds)])
    text = table(HEADS, rows, words=range(len(HEADS)))
    return f"{describe_limits(worlds)}\n\n{text}\n\n{speeds_of(world.board for world in worlds)}"


def describe_limits(worlds: Iterable[World]) -> str:
    """Return what the README's figures cannot say: how many seeds they have, and what a search costs."""
    by_name = {world.board.name: world for world in worlds}
    seeds = {name: len(world.board.seeds) for name, world in by_name.items()}
    assert seeds == {"llm-2026": 3, "testbed": 1, "ares": 1, "scale": 1}, "the text below says otherwise"
    testbed = by_name["testbed"]
    families = len(set(testbed.board.families))
    (pai,) = testbed.ratios("arena")[testbed.board.families.index("pai-like")]
    share = pai / families / testbed.figure("arena").value
    costs = yaml.safe_load((conf_dir() / "costs" / "default.yaml").read_text(encoding="utf-8"))
    most_s = costs["search_s_max"][costs["search"]]
    return f"""\
**These figures do not decide an order:**

- On three clusters a cell (a trace at a load) has one seed. Brackets are the range over the two loads, \
and no confidence interval. The LLM cluster has {seeds["llm-2026"]} traces, each used twice (with and \
without failures); its brackets are the range of resamples of these. Of ratios measured anew with other \
seeds most are outside of the brackets. A single cell, PAI's, makes {100 * share:.0f} % of Arena's figure \
on its testbed.
- A search for a parallel plan costs at most {most_s:.0f} s on Arena's clusters; its paper (section 5.8) \
says one to two minutes. Speeds on more than {max(PAPER_COUNTS)} GPUs are extrapolated: on Arena's \
simulation Arena spends most GPU time on such counts, and without them the order is another one.
- *Rules of ours* are not in the paper: they prevent frequent restarts, and heSRPT's use idle GPUs. Ares \
and Gavel have none.
- *Learned* policies were trained on other jobs, but three of the four with the testbed's cluster, speeds \
and prices. The recipe of one was changed after its entries had been scored."""


def find_kind(entry: Entry) -> str:
    """Return whether an entry's policy is learned, published, simple or random."""
    name = str(entry.keys["name"])
    kind = KINDS.get(name, "published")
    return f"{kind} on {trained_on(entry)}" if kind == KINDS["learned"] else kind


def trained_on(entry: Entry) -> str:
    """Return in words what the checkpoint of a learned entry was trained on."""
    checkpoint = str(entry.keys.get("checkpoint", ""))
    return "Sia's newTrace" if "newtrace" in checkpoint else "all kinds of traces"


def changes_table() -> str:
    """Return for each cluster the figures of jobs of at most four hours, and of those of up to a week."""
    return "\n\n".join(tabulate_changes(name) for name in FORMER)


def tabulate_changes(name: str) -> str:
    """Return entries of a board, those with tuned parameters left out, as the longest duration changes."""
    world, (title, former) = World(name), FORMER[name]
    before, rows = read_former()[former], []
    for entry in list_untuned(world):
        was = f"{before[entry]:.2f}" if entry in before else "-"
        rows.append([world.standings[entry].entry.title, was, f"{world.figure(entry).value:.2f}"])
    now = f"jobs of up to a week (board {name}, version {world.board.version})"
    heads = ["scheduler", f"jobs of at most four hours (board {title})", now]
    return f"{WORLDS[name]}:\n\n{table(heads, rows, words=(0,))}"


def list_untuned(world: World) -> list[str]:
    """Return the entries whose parameters nobody tuned on the board's train split, the best first."""
    names = [name for name in world.standings if not name.startswith(TUNED)]
    return sorted(names, key=lambda name: world.figure(name).value)


def conditions_table() -> str:
    """Return for each world its entries under the board's other conditions, and with tuned parameters."""
    worlds = [(title, World(name)) for name, title in WORLDS.items()]
    return "\n\n".join(
        f"{title}:\n\n{tabulate_conditions(world)}" for title, world in worlds if world.board.conditions
    )


def tabulate_conditions(world: World) -> str:
    """Return the entries of a board under its other conditions, and with tuned parameters if any has them."""
    tuned = any(name.startswith(TUNED) for name in world.standings)
    rows = []
    for name in list_untuned(world):
        one = world.standings[name]
        figures = [world.figure(name), *(one.conditions[condition] for condition in world.board.conditions)]
        if tuned:
            figures.append(world.figure(f"{TUNED}{name}") if f"{TUNED}{name}" in world.standings else None)
        shown = ["-" if figure is None else f"{figure.value:.2f}" for figure in figures]
        rows.append([one.entry.title, *shown])
    heads = ["scheduler", "published clock", *world.board.conditions, *["tuned"] * tuned]
    return table(heads, rows, words=(0,))


TRAININGS = {
    "learned-none": "learned-none-newtrace",
    "learned-bootstrap": "learned-bootstrap-newtrace",
    "learned": "learned-newtrace",
}
"""Entries of agents that were trained on all kinds of traces; entry of the same class on newTrace alone."""


def training_table() -> str:
    """Return, for agents of one information class, the figures of two trainings on each world."""
    worlds, rows = [World(name) for name in WORLDS], []
    for pair in TRAININGS.items():
        for name in pair:
            entry = next(world.standings[name].entry for world in worlds if name in world.standings)
            shown = [world.shown(name) for world in worlds]
            rows.append([TOLD[entry.information_class], trained_on(entry), *shown])
    return table(["information available", "trained on", *WORLDS.values()], rows, words=(0, 1))


def read_former() -> dict[str, dict[str, float]]:
    """Return the figures of boards of jobs of at most four hours, by board and entry."""
    found: dict[str, dict[str, float]]
    found = json.loads((ROOT / "benchmarks" / "former_boards.json").read_text(encoding="utf-8"))
    return found


def world_tables() -> str:
    """Return all entries of each world, the best first."""
    parts = []
    for name, title in WORLDS.items():
        world = World(name)
        order = sorted(world.standings, key=lambda entry: world.figure(entry).value)
        bound = world.bound().value
        rows = []
        for entry in order:
            found, one = world.figure(entry), world.standings[entry]
            link = f"[{one.entry.title}](leaderboards/{name}/{entry}/README.md)"
            gap = f"{found.value / bound:.1f}x"
            rows.append([link, TOLD[one.division.split(", ")[0]], interval(found), gap])
        headers = ["scheduler", "information available", "mean JCT, FCFS = 1", "over the bound"]
        cells = len(world.board.cells)
        parts.append(f"### {title}\n\n{cells} cells of the board [{name}](leaderboards/{name}/README.md).\n")
        parts[-1] += f"{speeds_of([world.board])}\n\n" + table(headers, rows, words=(0, 1))
    return "\n\n".join(parts)


def newest_board() -> str:
    """Return the first entries of the newest board, over all divisions."""
    board = load_board(NEWEST, ROOT / "leaderboards")
    found = sorted(standings(board), key=lambda one: (one.rank_all, -one.score.value))[:LISTED]
    rows = [
        [
            str(one.rank_all),
            f"[{one.entry.title}](leaderboards/{NEWEST}/{one.name}/README.md)",
            interval(one.score),
        ]
        for one in found
    ]
    title = f"[{board.title}](leaderboards/{NEWEST}/README.md)"
    head = (
        f"{title}: {len(board.cells)} cells, {len(standings(board))} entries; a higher score is better.\n\n"
    )
    return head + table(["rank", "entry", "score"], rows, words=(1,))


def other_boards() -> str:
    """Return the best entry of each board that is no world, oracles left out."""
    rows = []
    for name in board_names(ROOT / "leaderboards"):
        if name in WORLDS:
            continue
        board = load_board(name, ROOT / "leaderboards")
        real = [one for one in standings(board) if not one.division.startswith("clairvoyant")]
        best = max(real, key=lambda one: one.score.value)
        title = f"[{board.title}](leaderboards/{name}/README.md)"
        entry = f"[{best.entry.title}](leaderboards/{name}/{best.name}/README.md)"
        gap = gap_text(optimum(board).gap(board, best.rows))
        rows.append([title, f"`{board.metric}`", str(len(board.cells)), entry, interval(best.score), gap])
    return table(
        ["board", "scored by", "cells", "best entry", "score", "gap to optimum"], rows, words=(0, 1, 3)
    )


def claims(paper: str) -> list[dict[str, Any]]:
    """Return the claims of a paper with what came out here."""
    text = (ROOT / "docs" / "reproduction" / f"{paper}.claims.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)["claims"]
    return found


def off(claim: Mapping[str, Any]) -> str:
    """Return how far our figure, under the published rules, is from the published one."""
    return f"{100 * (claim['as_published'] / claim['paper'] - 1):+z.0f} %"


def range_off(paper: str) -> str:
    """Return how far mean JCTs under a simulator's own rules are from what it says, least and greatest."""
    mine = [one for one in claims(paper) if one["claim"].startswith("mean JCT") and one["unit"] == "h"]
    shown = [one for one in mine if one["as_published"] and one["source"].startswith("its simulator")]
    shown.sort(key=lambda one: one["as_published"] / one["paper"])
    return f"{off(shown[0])} to {off(shown[-1])} ({len(shown)} figures)"


def oracle_errors(row: str, oracle: str) -> str:
    """Return a figure of the oracle's page: of `grid`, each model predicted by a fit to all others."""
    text = (ROOT / "docs" / "oracle-accuracy.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    column = next(line for line in lines if "roofline" in line).index(ORACLE_COLUMNS[oracle])
    return next(line for line in lines if line[0] == row)[1:][column]


def error_of(oracle: str) -> str:
    """Return how far an oracle's iteration times are from measured ones, in words."""
    mean, median, rows = (oracle_errors(row, oracle) for row in ("Mean error", "Median error", "Rows"))
    where = f"{rows} measured iteration times on up to {max(PAPER_COUNTS)} GPUs"
    return f"{mean} in the mean and {median} in the median over {where}; {ERROR_IS_OF[oracle]}"


def error_on_language_models() -> str:
    """Return how far `oracle=stack` is from measured training throughputs of today's models, in words."""
    text = (ROOT / "docs" / "oracle-accuracy.md").read_text(encoding="utf-8")
    said = []
    for of in ("dense", "experts"):
        found = re.findall(rf"^\| [\w-]+, {of} \| (\d+) \| ([\d.]+) %", text, re.MULTILINE)
        medians = sorted(float(median) for _, median in found)
        said.append((medians[0], medians[-1], sum(int(rows) for rows, _ in found), len(found)))
    (low, high, rows, sources), (least, most, more, fewer) = said
    return (
        f"{low:g} to {high:g} % in the median, by source, over {rows} measured training throughputs of dense "
        f"models of {sources} sources, and {least:g} to {most:g} % over {more} of mixtures of experts of"
        f" {fewer}; each source is left out whole of the fit that predicts it, which is of its framework"
    )


def speeds_of(boards: Iterable[Board]) -> str:
    """Return the oracles whose speeds made the figures of boards, and their errors."""
    titles: dict[tuple[str, str], list[str]] = {}
    for board in boards:
        (oracle,) = {str(scenario.find_chosen_file("oracle")) for scenario in board.scenarios}
        error = error_on_language_models() if board.name == "llm-2026" else error_of(oracle)
        titles.setdefault((oracle, error), []).append(WORLDS[board.name].partition(":")[0])
    return " ".join(
        f"Speeds of jobs ({', '.join(of)}) come from `oracle={oracle}`. Its error is {error}."
        for (oracle, error), of in titles.items()
    )


ORACLE_COLUMNS = {"grid": "leave one model out", "roofline": "roofline"}
"""The column of an oracle in the first table of its page."""
ERROR_IS_OF = {
    "grid": "each model is left out of the fit that predicts it",
    "roofline": "its constants were chosen on the same measurements",
}


def simulated_instances() -> str:
    """Return on how many random instances the second simulator agrees with the first."""
    text = (ROOT / "tests" / "sim" / "test_plain_simulation.py").read_text(encoding="utf-8")
    found = re.search(r"max_examples=(\d+)", text)
    assert found is not None
    return found[1]


def arena_simulator() -> str:
    """Return what comes out of the trace of Arena's simulator: of its own policy, and of the worst one."""
    of_policy: dict[str, list[dict[str, Any]]] = {}
    for one in claims("arena"):
        policy, of, rest = one["claim"].partition("'s ")
        if of and one["source"] == "the artifact's simulator" and rest.endswith("664 rounds of Philly"):
            of_policy.setdefault(policy, []).append(one)

    def miss(policy: str) -> float:
        return max(abs(float(one["as_published"]) / float(one["paper"]) - 1) for one in of_policy[policy])

    def told(policy: str) -> str:
        jobs, jct, throughput = of_policy[policy]
        finished = f"{jobs['as_published']:.0f} jobs finish here and {jobs['paper']:.0f} there"
        differs = (
            f"mean throughput differs by {off(throughput)}, and the mean JCT of finished jobs by {off(jct)}"
        )
        return f"{finished}, the {differs}"

    worst = max(of_policy, key=miss)
    return (
        f"with its own policy, {told('arena')}; with `{worst}`, the least well reproduced of "
        f"{len(of_policy)} policies, {told(worst)}"
    )


def reproduced() -> str:
    """Return how many figures of papers, and signs that they state without one, come out, in words.

    A figure that a paper took over from its preprint counts once.
    """
    pages = (ROOT / "docs" / "reproduction").glob("*.claims.json")
    papers = [page.name.removesuffix(".claims.json") for page in pages]
    found = [PaperClaim.from_row(one) for paper in papers for one in claims(paper)]
    ours = [claim for claim in found if claim.ours and not claim.first_stated_by]
    stated = Counter(claim.main_verdict for claim in ours if claim.paper is not None)
    signs = Counter(claim.main_verdict for claim in ours if claim.direction)
    return (
        f"Of {stated.total()} figures that {len(papers)} papers state and a simulator can give, "
        f"{stated[REPRODUCED]} are reproduced within {100 * TOLERANCE:.0f} %, {stated[SMALLER]} are "
        f"smaller here, {stated[LARGER]} larger, and {stated[REVERSED]} reversed (of opposite sign, or "
        f"without an effect). Of {signs.total()} other comparisons the papers state only the sign; "
        f"{signs[REVERSED]} of these are reversed"
    )


def validated() -> str:
    """Return what the figures were held against."""
    return f"""\
- **Measured hardware**: `oracle=roofline` made the tables of Ares's cluster. \
Its error is {error_of("roofline")}. `oracle=grid` made those of Arena's clusters. Its error is \
{error_of("grid")}. `oracle=stack` made those of the LLM cluster. Its error is {error_on_language_models()} \
([where the errors are large](docs/oracle-accuracy.md)).
- **Arena's simulator**: {arena_simulator()} ([runs](docs/reproduction/arena.md)).
- **Sia's and Gavel's simulators**: the mean JCT differs from Sia's by {range_off("sia")} \
([runs](docs/reproduction/sia.md)), and from Gavel's by {range_off("gavel")} \
([runs](docs/reproduction/gavel.md)).
- **An independent re-simulation**: a second simulator, written anew, agrees on every event to the \
microsecond on {simulated_instances()} random instances ([how](docs/testing.md#a-second-simulator)).

{reproduced()}: [each one, with its verdict](docs/reproduction/README.md)."""
