"""Why the learned agent is ahead of heSRPT, guarded, and where not: the figures of two pages, on dev seeds.

    python benchmarks/why_the_agent_wins.py without     plays it with parts of its score left out
    python benchmarks/why_the_agent_wins.py states      asks other schedulers in the agent's states
    python benchmarks/why_the_agent_wins.py beyond      plays it where it was not trained
    python benchmarks/why_the_agent_wins.py rule        plays the rule of ten lines, `policy=auction`
    python benchmarks/why_the_agent_wins.py draw        draws the picture of the page

Each run is kept in benchmarks/why_the_agent_wins.json (`--json` names another file) and not played again.
`python benchmarks/results_table.py` writes the tables made of them. No seed is one of a board's tests.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import clustergym.policies.learned as learned
import numpy as np
from committed_figures import load_tables

from clustergym.agents import auction_features as features
from clustergym.agents.auction_checkpoints import load, save
from clustergym.benchmark.leaderboard.board import Cell, load_board
from clustergym.benchmark.leaderboard.cells import load_table
from clustergym.benchmark.leaderboard.pairs import compare_with_reference
from clustergym.benchmark.leaderboard.runs import play
from clustergym.benchmark.leaderboard.table_text import format_ratio
from clustergym.common.arrays import Ints
from clustergym.common.progress import track_results
from clustergym.common.tables import table
from clustergym.common.writing import atomic_path
from clustergym.results.measured_run import simulate
from clustergym.results.report.colours import choose_style
from clustergym.scenario.policy import Decision, Policy, Setting, View
from clustergym.scenario.registry import make_policy
from clustergym.scenario.scenario import Scenario

FIGURES = Path(__file__).with_suffix(".json")
PICTURE = Path(__file__).parents[1] / "docs" / "why-the-learned-agent-wins.svg"
AGENT, REFERENCE, RULE = "learned-clusters", "hesrpt-guarded", "auction"
FAMILIES = {
    "testbed": ("philly", "helios", "pai"),
    "ares": ("philly", "helios", "pai"),
    "llm-2026": ("llm-2026",),
    "scale": ("philly",),
}
WORLDS = ("testbed", "ares", "llm-2026")
"""Without `scale`, on which a run takes long."""
SCALE_SEEDS = (900, 901)
SEEDS, FRESH = (900, 901, 902), (903, 904, 905)
"""Seeds on which the rule was chosen, and others."""
WITHOUT_SEEDS = SEEDS[1:]
WITHOUT = {
    "what another GPU adds to a job's speed": (
        *("rate", "rate_double", "marginal_start", "marginal_double", "efficiency"),
    ),
    "what a restart costs, and what a job holds": ("keep", "change", "overhead", "overhead_double"),
    "a job's GPUs beside an even share": ("share_double",),
    "which GPU type suits whom": ("type", "type_size", "type_double", "advantage", "advantage_rank"),
    "how much work a job has left": (
        *("rate", "rate_double", "size", "size_double", "rank", "rank_double", "soon"),
    ),
    "how long a job is in the system": ("age", "stretch", "attained", "lag"),
    "the backlog": ("backlog_double",),
}
"""Parts of the agent's score by what they look at, each left out alone: these weights are 0."""
BEYOND_BOARD, BEYOND_SEEDS = "testbed", (902,)
BEYOND: dict[str, Sequence[str]] = {
    "as on the board": (),
    "jobs of four hours to a week": ["trace.min_duration_s=14400"],
    "checkpoints are saved and loaded ten times slower": ["costs.storage_gbs=0.1"],
    "nodes fail as on RSC-1": ["failures=rsc-1"],
}
"""Overrides of the cells of that board."""
ASKED = {"heSRPT, guarded": REFERENCE, "Sia": "sia", "Arena": "arena"}
WATCHED = {"testbed": ("philly", 902), "ares": ("philly", 902)}
OF_RUNS = {"restarts_mean": 1, "overhead_gpu_hours": 0, "profiling_gpu_hours": 0}
"""Metrics of whole runs, with the digits that are shown."""
HEADS = (
    *("in the agent's states", "jobs that wait", "GPUs idle", "running jobs stopped", "resized or moved"),
    *("runs, the agent's waits", "waits, the agent's runs"),
    *("in its own run: restarts a job", "GPU-hours of restarts", "of profiles"),
)
EVERY = 20
"""Of the agent's decisions, one in so many is put to the others."""
FIFTHS = 5


Kept = dict[str, Any]
"""The content of the file of figures: `jct_s` by cell and row, `states` by board."""


class Opened(NamedTuple):
    """A cell of a board, and what makes the policies of its rows."""

    scenario: Scenario
    contestants: Any


@lru_cache(maxsize=1)
def open_cell(board: str, family: str, seed: int, more: tuple[str, ...] = ()) -> Opened:
    """Return a cell of a board with further overrides."""
    known = load_board(board)
    figures = load_table(known)
    overrides = [*figures.keys.overrides(family, ""), *more]
    return Opened(known.scenario(Cell(family, seed), overrides), figures.contestants)


def make_agent_without(left_out: Iterable[str]) -> Policy:
    """Return the agent with weights of 0 for some features."""
    kept = load("profiled-clusters")
    weights = dict(zip(features.NAMES, kept.weights.tolist(), strict=True))
    if "rate" in left_out:
        # It is half of the marginal gain less the size: the part that is not left out keeps its weight.
        rate, doubling = weights["rate"], weights["rate_double"]
        weights["size"] -= rate
        weights["size_double"] -= doubling
        weights["marginal_start"] += rate / 2
        weights["marginal_double"] += (rate + doubling) / 2
    weights |= dict.fromkeys(left_out, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.safetensors"
        save(path, np.array([*weights.values()]), kept.information_class, {})
        return make_policy({"name": "learned", "checkpoint": str(path)})


def find_jct(figures: Kept, name: str, cell: tuple[str, str, int], more: Sequence[str] = ()) -> float:
    """Return the mean JCT (s) of a row, of the rule, or of the agent without a part of its score; keep it."""
    key = " | ".join([*map(str, cell), *more, name])
    if key not in figures["jct_s"]:
        opened = open_cell(*cell, tuple(more))
        policy, placer = opened.contestants(name if name in (AGENT, REFERENCE) else AGENT)
        if name == RULE:
            policy = make_policy({"name": RULE})
        elif name in WITHOUT:
            policy = make_agent_without(WITHOUT[name])
        figures["jct_s"][key] = play(opened.scenario, policy, placer, cell[2]).metrics["jct_mean"]
    return float(figures["jct_s"][key])


def find_ratio(
    figures: Kept,
    board: str,
    name: str,
    more: Sequence[str] = (),
    over: str = REFERENCE,
    seeds: Sequence[int] = SEEDS,
) -> float:
    """Return a row's mean JCT over another's on the same traces: geometric mean, families alike."""
    cells = [(board, family, seed) for family in FAMILIES[board] for seed in seeds]
    both = [[find_jct(figures, row, at, more) for row in (name, over)] for at in cells]
    return math.exp(float(np.mean([math.log(jct_s / of) for jct_s, of in both])))


class Asking(learned.Learned):
    """The agent, which decides; every so often other policies say what they would decide in its place."""

    def ask(self, opened: Opened) -> dict[str, dict[str, float]]:
        """Run it on a cell; return the means over the decisions of what each policy would do."""
        self._scenario, self._decisions = opened.scenario, 0
        policies = [opened.contestants(row)[0] for row in ASKED.values()]
        known = [opened.scenario.known_times(one.information_class) for one in policies]
        self._asked = dict(zip(ASKED, zip(policies, known, strict=True), strict=True))
        self._counted: dict[str, list[dict[str, float]]] = {title: [] for title in ("learned", *ASKED)}
        simulate(opened.scenario, self, opened.contestants(AGENT)[1])
        return {
            title: {name: float(np.mean([one[name] for one in counts])) for name in counts[0]}
            for title, counts in self._counted.items()
        }

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Prepare all for a run."""
        super().reset(setting, rng)
        for policy, _ in self._asked.values():
            policy.reset(setting, rng)

    def schedule(self, view: View) -> Decision:
        """Decide as the agent does; count what each would have done."""
        decision = super().schedule(view)
        mine = find_gpus(view, decision)
        self._decisions += 1
        due = self._decisions % EVERY == 0 and len(view) >= FIFTHS
        if due:
            self._counted["learned"].append(count(view, mine, mine))
        for title, (policy, known_s) in self._asked.items():
            # The guard has to see every decision, to know since when a job holds its GPUs.
            if not due and not getattr(policy, "guard", False):
                continue
            time_s = np.where(view.feasible, known_s[self._scenario.class_of[view.job]], np.inf)
            shown = view.with_columns({"times": lambda time_s=time_s: time_s})
            gpus = find_gpus(view, policy.schedule(shown))
            if due:
                self._counted[title].append(count(view, gpus, mine))
        return decision


def find_gpus(view: View, decision: Decision) -> Ints:
    """Return the GPU type and GPUs that a decision gives each job of a View, shape (n, 2); type -1: none."""
    found = np.full((len(view), 2), (-1, 0))
    at = np.searchsorted(view.job, decision.job)
    found[at] = np.stack([decision.gpu_type, decision.gpus], axis=1)
    return found


def count(view: View, gives: Ints, mine: Ints) -> dict[str, float]:
    """Return what a decision does with the jobs of a View, beside what the agent's does."""
    jobs, gpus, available = len(view), gives[:, 1], int(view.available.sum())
    held = np.stack([view.gpu_type, view.gpus], axis=1)[view.gpus > 0]
    after = gives[view.gpus > 0]
    stopped, kept = after[:, 1] == 0, (after == held).all(axis=1)
    gpu_s = view.iteration_time_s() * view.setting.counts
    work = view.remaining_iterations * gpu_s.min((1, 2))
    found = {
        "jobs": jobs,
        "waiting": float((gpus == 0).mean()),
        "idle": 1.0 - float(gpus.sum()) / available,
        "waiting here, running there": float(((gpus == 0) & (mine[:, 1] > 0)).sum()),
        "running here, waiting there": float(((gpus > 0) & (mine[:, 1] == 0)).sum()),
        "stopped": float(stopped.mean()) if len(held) else 0.0,
        "resized": float((~stopped & ~kept).mean()) if len(held) else 0.0,
        "other GPUs than there": float((gives != mine).any(axis=1).mean()),
    }
    for name, by in (("work", work), ("age", view.now_s - view.submit_s)):
        for fifth, rows in enumerate(np.array_split(np.argsort(by, kind="stable"), FIFTHS)):
            found[f"{name} {fifth}"] = float(gpus[rows].mean()) * jobs / available
    return found


def watch(figures: Kept, board: str) -> None:
    """Keep what the policies would do in the agent's states of a trace, and what their own runs come to."""
    opened = open_cell(board, *WATCHED[board])
    asked, runs = Asking(checkpoint="profiled-clusters").ask(opened), {}
    for title, row in {"learned": AGENT, **ASKED}.items():
        metrics = play(opened.scenario, *opened.contestants(row), WATCHED[board][1]).metrics
        runs[title] = {name: metrics[name] for name in OF_RUNS}
    figures["states"][board] = {"asked": asked, "runs": runs}


def read(path: Path = FIGURES) -> Kept:
    """Return the figures that are kept."""
    empty = {"jct_s": {}, "states": {}}
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty


def show_states(figures: Kept) -> str:
    """Return what the policies would do in the agent's states, board by board."""
    parts = []
    for board, found in figures["states"].items():
        rows = [
            [
                "the agent" if title == "learned" else title,
                *(f"{100 * asked[name]:.0f} %" for name in ("waiting", "idle", "stopped", "resized")),
                *(
                    f"{asked[name]:.1f}"
                    for name in ("running here, waiting there", "waiting here, running there")
                ),
                *(f"{found['runs'][title][name]:.{digits}f}" for name, digits in OF_RUNS.items()),
            ]
            for title, asked in found["asked"].items()
        ]
        parts.append(f"`{board}`:\n\n{table(HEADS, rows, words=(0,))}")
    return "\n\n".join(parts)


def show_without(figures: Kept) -> str:
    """Return the agent's ratio to the reference with each part of its score left out."""
    rows = [
        [title, *(f"{find_ratio(figures, board, name, seeds=WITHOUT_SEEDS):.2f}" for board in WORLDS)]
        for title, name in {"nothing": AGENT, **{name: name for name in WITHOUT}}.items()
    ]
    head = f"left out of the score (seeds {WITHOUT_SEEDS[0]} to {WITHOUT_SEEDS[-1]})"
    return table([head, *(f"`{board}`" for board in WORLDS)], rows, words=(0,))


def show_beyond(figures: Kept) -> str:
    """Return the agent's ratio to the reference where it was not trained."""
    rows = [
        [title, f"{find_ratio(figures, BEYOND_BOARD, AGENT, more, seeds=BEYOND_SEEDS):.2f}"]
        for title, more in BEYOND.items()
    ]
    head = f"`{BEYOND_BOARD}`, seed {BEYOND_SEEDS[0]} of each family"
    return table([head, "the agent over heSRPT, guarded"], rows, words=(0,))


def show_rule(figures: Kept) -> str:
    """Return the rule's ratio to the agent, on the seeds on which it was chosen and on others."""
    compared = ((AGENT, SEEDS), (AGENT, FRESH), (REFERENCE, SEEDS))
    ratios = {
        f"`{board}`": [find_ratio(figures, board, RULE, over=over, seeds=seeds) for over, seeds in compared]
        for board in WORLDS
    }
    ratios["all three boards, geometric mean"] = np.exp(np.mean(np.log([*ratios.values()]), axis=0)).tolist()
    rows = [[board, *(f"{ratio:.2f}" for ratio in found)] for board, found in ratios.items()]
    large = [
        f"{find_ratio(figures, 'scale', RULE, over=over, seeds=SCALE_SEEDS):.2f}"
        for over in (AGENT, REFERENCE)
    ]
    rows.append([f"`scale`, seeds {SCALE_SEEDS[0]} to {SCALE_SEEDS[-1]}", large[0], "-", large[1]])
    chosen, fresh = (f"seeds {seeds[0]} to {seeds[-1]}" for seeds in (SEEDS, FRESH))
    heads = (
        "board",
        f"over the agent, {chosen}",
        f"over the agent, {fresh}",
        f"over heSRPT, guarded, {chosen}",
    )
    return table(heads, rows, words=(0,))


def show_on_boards() -> str:
    """Return the rule's ratios on the test seeds of the boards, which it was run on once it was as it is."""
    rows, points = [], []
    for board in (*WORLDS, "scale"):
        known = load_tables()[board]
        compared = [compare_with_reference(known, RULE, "", over) for over in (AGENT, REFERENCE)]
        overall = [one.overall for one in compared if one.overall is not None]
        points.append([one.value for one in overall])
        rows.append([f"`{board}`", *map(format_ratio, overall), str(overall[0].seeds)])
    means = [f"{value:.3f}" for value in np.exp(np.mean(np.log(points), axis=0))]
    heads = ("test seeds of the board", "over the agent", "over heSRPT, guarded", "n")
    return table(heads, [*rows, ["all four boards, geometric mean", *means, ""]], words=(0,))


SHOWN = {"states": show_states, "without": show_without, "beyond": show_beyond, "rule": show_rule}
BLOCKS = {f"agent_{part}": partial(lambda show: show(read()), show) for part, show in SHOWN.items()}
BLOCKS["agent_on_boards"] = show_on_boards
"""Of results_table.py."""


def picture(states: Kept) -> str:
    """Return as SVG how many GPUs jobs get in the agent's states, by the work they have left and by age."""
    wide, high, left, top = 300, 150, 46, 46
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {top + 2 * (high + 56) - 26}" role="img" '
        'font-family="system-ui, sans-serif" font-size="11">',
        "<title>GPUs of a job over an even share, by its work left and by its time in the system</title>",
        f'<rect width="720" height="{top + 2 * (high + 56) - 26}" rx="6" fill="#fff"/>',
    ]
    for row, (board, found) in enumerate(states.items()):
        for column, (by, label) in enumerate((("work", "work left"), ("age", "time in the system"))):
            x, y = left + column * (wide + 56), top + row * (high + 56)
            levels = {share: y + high * (1.0 - share / 1.8) for share in (0.0, 0.5, 1.0, 1.5)}
            parts.append(f'<text x="{x}" y="{y - 8}" font-weight="600">{board}, by {label}</text>')
            for share, at in levels.items():
                parts += [
                    f'<path d="M{x},{at:.1f}h{wide}" stroke="{"#57606a" if share == 1.0 else "#d0d7de"}"/>',
                    f'<text x="{x - 6}" y="{at + 4:.1f}" text-anchor="end">{share}</text>',
                ]
            for fifth, word in ((0, "least fifth"), (2, "middle"), (4, "most")):
                at = f'x="{x + wide * (fifth + 0.5) / FIFTHS}" y="{y + high + 16}"'
                parts.append(f'<text {at} text-anchor="middle">{word}</text>')
            for title, asked in found["asked"].items():
                style = choose_style(title.split(",")[0].lower())
                shares = [asked[f"{by} {fifth}"] for fifth in range(FIFTHS)]
                points = " ".join(
                    f"{x + wide * (fifth + 0.5) / FIFTHS:.1f},{y + high * (1.0 - share / 1.8):.1f}"
                    for fifth, share in enumerate(shares)
                )
                parts.append(
                    f'<polyline points="{points}" fill="none" stroke="{style.colour}" stroke-width="2" '
                    f'stroke-dasharray="{style.dash}"/>'
                )
    for at, title in enumerate(("learned", *ASKED)):
        style, x = choose_style(title.split(",")[0].lower()), left + 160 * at
        stroke = f'stroke="{style.colour}" stroke-width="2" stroke-dasharray="{style.dash}"'
        parts += [
            f'<path d="M{x},14h26" {stroke}/>',
            f'<text x="{x + 32}" y="18">{title.replace("learned", "the agent")}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def list_work(part: str, figures: Kept) -> list[Callable[[], object]]:
    """Return the runs of a part, each of which keeps its figures; those of one cell follow each other."""
    if part == "states":
        return [partial(watch, figures, board) for board in WATCHED]
    names = {"without": (AGENT, REFERENCE, *WITHOUT), "rule": (AGENT, RULE)}.get(part, (AGENT, REFERENCE))
    return [
        partial(find_jct, figures, name, (board, family, seed), more)
        for board in ((BEYOND_BOARD,) if part == "beyond" else WORLDS)
        for more in (BEYOND.values() if part == "beyond" else [()])
        for family in FAMILIES[board]
        for seed in {"rule": (*SEEDS, *FRESH), "beyond": BEYOND_SEEDS, "without": WITHOUT_SEEDS}[part]
        for name in names
    ]


def main(argv: list[str] | None = None) -> int:
    """Measure what is missing, and keep it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=(*SHOWN, "draw"))
    parser.add_argument("--json", type=Path, default=FIGURES)
    given = parser.parse_args(argv)
    if given.part == "draw":
        PICTURE.write_text(picture(read()["states"]), encoding="utf-8")
        print(f"wrote {PICTURE}")
        return 0
    figures = read(given.json)
    work = list_work(given.part, figures)
    for run in track_results(given.part, work, len(work), wanted=True):
        run()
        with atomic_path(given.json) as temporary:
            temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(SHOWN[given.part](figures))
    print(f"wrote {given.json}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
