"""Figures of the README and the docs that follow from committed boards, claims and the oracle's page."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from clustergym.papers.claims import LARGER, REPRODUCED, REVERSED, SMALLER, TOLERANCE, PaperClaim
from clustergym.papers.planning import PAPER_COUNTS

from clustergym.benchmark.leaderboard.board import Board, board_names, load_board
from clustergym.benchmark.leaderboard.cells import BOUND, FigureTable, read_rows
from clustergym.benchmark.leaderboard.fill import load_fresh_table
from clustergym.benchmark.leaderboard.pairs import BEST, Comparison
from clustergym.benchmark.leaderboard.table_text import compare_all, find_title, format_ratio
from clustergym.cluster.cluster_files import load_cluster
from clustergym.common.tables import table
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.trace.formats import FORMATS

ROOT = Path(__file__).parent.parent
WORLDS = {
    "testbed": "Arena's testbed: 64 GPUs of two types",
    "ares": "Ares's cluster: 64 GPUs of one type",
    "scale": "Arena's simulation: 1,280 GPUs of four types",
    "llm-2026": "LLM cluster of 2026: 1,024 H100 and 576 GB200",
}
"""Clusters of boards whose jobs run for up to a week; a table of figures is a column of the README's."""


@cache
def load_tables() -> dict[str, FigureTable]:
    """Return the tables of figures of all boards, without stale rows; those of `WORLDS` first."""
    names = [*WORLDS, *(name for name in board_names(ROOT / "leaderboards") if name not in WORLDS)]
    return {name: load_fresh_table(load_board(name, ROOT / "leaderboards")) for name in names}


def rank_policies(one: FigureTable) -> list[tuple[str, Comparison]]:
    """Return the rows of a table that have a figure, the best first, without what is no policy."""
    found = compare_all(one).items()
    return [(name, of) for name, of in found if of.overall and name not in (BEST, BOUND)]


def other_boards() -> str:
    """Return the best row of each board that is no column of the README, and what it is compared with."""
    rows = []
    for name, one in load_tables().items():
        if name in WORLDS:
            continue
        title = f"[{one.board.title}](leaderboards/{name}/README.md)"
        reference = find_title(one, one.keys.reference)
        best, of = next(iter(rank_policies(one)), ("", None))
        figure = format_ratio(of.overall if of else None)
        how = f"{one.keys.compare}, {one.board.better} is better"
        rows.append(
            [title, f"`{one.board.metric}`", how, reference, find_title(one, best) if best else "-", figure]
        )
    heads = ["board", "compared by", "how", "reference", "best row", "over families"]
    return table(heads, rows, words=(0, 1, 2, 3, 4))


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


def find_language_errors() -> list[tuple[float, float, int, int]]:
    """Return `oracle=stack`'s least and greatest median error by source left out, rows and sources.

    The first is of dense models, the second of mixtures of experts.
    """
    text = (ROOT / "docs" / "oracle-accuracy.md").read_text(encoding="utf-8")
    said = []
    for of in ("dense", "experts"):
        found = re.findall(rf"^\| [\w-]+, {of} \| (\d+) \| ([\d.]+) %", text, re.MULTILINE)
        medians = sorted(float(median) for _, median in found)
        said.append((medians[0], medians[-1], sum(int(rows) for rows, _ in found), len(found)))
    return said


def error_on_language_models() -> str:
    """Return how far `oracle=stack` is from measured training throughputs of today's models, in words."""
    (low, high, rows, sources), (least, most, more, fewer) = find_language_errors()
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


def count_verdicts() -> tuple[Counter[str], Counter[str], int]:
    """Return the verdicts on figures of papers, and on signs that they state alone, and how many papers.

    A figure that a paper took over from its preprint counts once.
    """
    pages = (ROOT / "docs" / "reproduction").glob("*.claims.json")
    papers = [page.name.removesuffix(".claims.json") for page in pages]
    found = [PaperClaim.from_row(one) for paper in papers for one in claims(paper)]
    ours = [claim for claim in found if claim.ours and not claim.first_stated_by]
    stated = Counter(claim.main_verdict for claim in ours if claim.paper is not None)
    return stated, Counter(claim.main_verdict for claim in ours if claim.direction), len(papers)


def reproduced() -> str:
    """Return how many figures of papers, and signs that they state without one, come out, in words."""
    stated, signs, papers = count_verdicts()
    return (
        f"Of {stated.total()} figures that {papers} papers state and a simulator can give, "
        f"{stated[REPRODUCED]} are reproduced within {100 * TOLERANCE:.0f} %, {stated[SMALLER]} are "
        f"smaller here, {stated[LARGER]} larger, and {stated[REVERSED]} reversed (of opposite sign, or "
        f"without an effect). Of {signs.total()} other comparisons the papers state only the sign; "
        f"{signs[REVERSED]} of these are reversed"
    )


def compare_with_real_schedulers() -> str:
    """Return how often policies decide as Kueue and Slurm themselves did, from docs/tenants.md."""
    text = (ROOT / "docs" / "tenants.md").read_text(encoding="utf-8")
    pattern = r"In ([\d,]+) of them Kueue came to rest.*same answer as Kueue in all \1:"
    same = re.search(pattern, text, re.DOTALL)
    table = text.partition("| Slurm and the policy |")[2].partition("\n\n")[0]
    shares = re.findall(r"([\d.]+) % \| ([\d.]+) % \|$", table, re.MULTILINE)
    assert same is not None
    itself, policy = (
        [f"{end(map(float, column)):g}" for end in (min, max)] for column in zip(*shares, strict=True)
    )
    return (
        f"`kueue` decides as Kueue did in all {same[1]} instances; under `slurm-multifactor` {policy[0]} to "
        f"{policy[1]} % of pairs of jobs start in Slurm's order (Slurm run twice: {' to '.join(itself)} %)"
    )


def state_trust() -> str:
    """Return the README's three lines on errors of speeds, published figures and real schedulers."""
    stated, _, papers = count_verdicts()
    (low, high, rows, sources), (least, most, more, fewer) = find_language_errors()
    return f"""\
- **Speeds**: measured throughputs of a source that the estimate never saw differ from it by \
{low:g} to {high:g} % in the median for dense models ({rows} throughputs of {sources} sources), by \
{least:g} to {most:g} % for mixtures of experts ({more} of {fewer}; [all](docs/oracle-accuracy.md)).
- **Papers**: of {stated.total()} figures that {papers} papers state, {stated[REPRODUCED]} are \
reproduced within {100 * TOLERANCE:.0f} % ([each](docs/reproduction/README.md)).
- **Real schedulers**: {compare_with_real_schedulers()} ([tables](docs/tenants.md))."""


def count_contents() -> str:
    """Return the README's list of what is in the box, counted."""
    names = {re.sub(r"-(\d+|small|large)$", "", row.id.rpartition("-v")[0]) for row in ENVIRONMENTS}
    clusters = {path.stem for path in (ROOT / "conf/cluster").glob("*.yaml")} - {"file"}
    gpus = [int(load_cluster(name).capacity.sum()) for name in clusters]
    policies, boards = [*(ROOT / "conf/policy").glob("*.yaml")], board_names(ROOT / "leaderboards")
    return f"""\
- [{len(policies)} policies](conf/policy): of papers, of operators (Slurm, Kueue, KAI), simple, learned.
- [{len(FORMATS)} trace formats](docs/own-trace-and-cluster.md), and generators of jobs like those of \
Philly, Helios and Alibaba.
- [{len(names)} families of environments](docs/environments/README.md) for Gymnasium, one also for PettingZoo.
- [{len(boards)} boards](leaderboards/README.md): fixed jobs, seeds and rules; anyone can enter, and \
check others.
- [{len(clusters)} clusters](conf/cluster), of {min(gpus)} to {max(gpus):,} GPUs."""


def list_claims() -> str:
    """Return the artifact appendix's table: what each command shows, its seconds, and what it prints."""
    text = (ROOT / "benchmarks/measured/readme.json").read_text(encoding="utf-8")
    stated, _, papers = count_verdicts()
    tables = {board: ROOT / "leaderboards" / board / "cells.csv.gz" for board in ("testbed", "ares")}
    figures = {f"{board}_rows": sum(1 for _ in read_rows(path)) for board, path in tables.items()}
    figures |= {
        "papers": papers,
        "reproduced": stated[REPRODUCED],
        "stated": stated.total(),
        "drawn": int(simulated_instances()),
    }
    rows = [
        [
            one["claim"].format(**figures),
            f"`{one['command']}`",
            f"{one['cpu_s']:g}",
            one["shown"].format(**figures),
        ]
        for one in json.loads(text)["appendix"]["lines"]
    ]
    return table(["claim", "command", "CPU-s", "expected"], rows, words=(0, 1, 3))


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
