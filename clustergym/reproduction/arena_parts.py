"""Arena (EuroSys '26), sections 2.3, 5.2 and 5.6 to 5.8: its ablations, sensitivity and departures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clustergym.reproduction.arena_scenarios import (
    DEADLINE_BUDGETS,
    FAIR,
    PROFILING_RATIO,
    PUBLISHED,
    cell,
    variant,
)
from clustergym.reproduction.details import padded_jct
from clustergym.reproduction.study import Cell, Figures, change, number, table

Parameters = tuple[tuple[str, Any], ...]
Found = Mapping[Cell, Figures]
SETTINGS = (FAIR, PUBLISHED)
ROUNDS = 664


class Line(NamedTuple):
    """A row of a table: its label, the run, and what the label means."""

    label: str
    cell: Cell


def arena(setting: str, rounds: int | None = ROUNDS, **parameters: Any) -> Cell:
    """Return a run of Arena on the Philly trace."""
    return cell("philly", rounds, setting, "arena", tuple(parameters.items()))


# Departures from the paper, one at a time

JITTERS = 8
DEPARTURES: Sequence[tuple[str, dict[str, Any]]] = (
    ("as the paper", {}),
    ("normalised throughput", {"throughput": "normalised"}),
    ("queues by estimated run time", {"queues": "run_time", "overtaking": "any"}),
    ("scalings up beyond the search depth", {"grow_freely": True}),
    ("a scaling up repays its restart", {"repay_restarts": True}),
    ("half to twice the request only (Crius)", {"span": 2}),
    ("jobs beside a blocked head are suspended (Crius)", {"opportunistic": True}),
    ("integer program", {"ilp": True}),
)


def departures() -> list[Line]:
    """Return runs that differ from the paper's text in one parameter, and one that pays for profiling."""
    lines = [Line(label, arena(PUBLISHED, **given)) for label, given in DEPARTURES]
    lines.append(Line("our price of profiling", arena(variant(PUBLISHED, "profiling"))))
    lines.append(Line("our own parameters (arena-tuned)", cell("philly", ROUNDS, PUBLISHED, "arena-tuned")))
    return lines


def jitters() -> list[Cell]:
    """Return runs in which each job comes up to a round later."""
    return [arena(variant(PUBLISHED, "jitter", seed)) for seed in range(JITTERS)]


def departures_section(found: Found, quick: bool) -> str:
    """Return what each departure changes, and how far chance does."""
    lines = departures()
    base = found[lines[0].cell]
    rows = [
        [label, *columns(found[one]), change(found[one]["jct_mean"], base["jct_mean"])]
        for label, one in lines
    ]
    text = (
        f"## Departures from the paper's text, one at a time: {ROUNDS} rounds\n\nAs published. The policy's "
        "parameters default to the text; its `scheduler` in the artifact has one queue in order of "
        "submission and adds samples/s (`_get_delta_thr`).\n\n"
        f"{table([*HEADERS, 'JCT finished, relative'], rows)}"
    )
    if not quick:
        jcts = np.array([found[one]["jct_mean"] for one in jitters()])
        finished = [found[one]["jobs_finished"] for one in jitters()]
        text += (
            f"\n\nWith every submission late by up to a round, {JITTERS} draws: {min(finished)} to "
            f"{max(finished)} finished, JCT of the finished {jcts.min():,.0f} to {jcts.max():,.0f} s, mean "
            f"{jcts.mean():,.0f} s: differences below that are chance."
        )
    return text


# Ablations (section 5.7, Fig. 17) and search depth (section 5.8)

ABLATIONS: Sequence[tuple[str, Callable[[str], Cell]]] = (
    ("arena", lambda s: arena(s)),
    ("no elastic scaling", lambda s: arena(s, elastic=False)),
    ("no heterogeneous scaling", lambda s: arena(s, hetero=False)),
    ("neither", lambda s: arena(s, elastic=False, hetero=False)),
    ("without planner: data-parallel profiles", lambda s: arena(s, planner="dp")),
    ("without pruning: full search", lambda s: arena(variant(s, "full-search"))),
    ("without profiler: profiling of whole plans", lambda s: arena(variant(s, "full-profiling"))),
    ("objective finish-time fairness", lambda s: arena(s, objective="finish_time_fairness")),
)
DEPTHS = (1, 3, 5)


def at_rounds(one: Cell, rounds: int) -> Cell:
    """Return the same run for another number of rounds."""
    return cell(one.trace, rounds, one.setting, one.policy, one.parameters)


def ablations(rounds: int) -> Iterator[Cell]:
    """Yield the ablations and search depths."""
    for setting in SETTINGS:
        yield from (at_rounds(make(setting), rounds) for _, make in ABLATIONS)
        yield from (arena(setting, rounds, search_depth=depth) for depth in DEPTHS)


def ablation_jct(found: Found, rounds: int, setting: str) -> dict[str, float]:
    """Return the padded JCT of each ablation, seconds, Arena the reference."""
    runs = {label: found[at_rounds(make(setting), rounds)] for label, make in ABLATIONS}
    return padded_jct(runs, "arena")


def ablations_section(found: Found, rounds: int) -> str:
    """Return the tables of the ablations and of the search depth."""
    rows = []
    for setting in SETTINGS:
        padded = ablation_jct(found, rounds, setting)
        base = found[arena(setting, rounds)]
        for label, make in ABLATIONS:
            figures = found[at_rounds(make(setting), rounds)]
            less = change(figures["throughput_mean"], base["throughput_mean"])
            jct = f"{padded[label] / padded['arena']:.2f}" if padded else "-"
            rows.append([label, setting, *columns(figures), jct, less])
    depths = [
        [str(depth), setting, *columns(found[arena(setting, rounds, search_depth=depth)])]
        for setting in SETTINGS
        for depth in DEPTHS
    ]
    return (
        f"## Ablations (section 5.7, Fig. 17): {rounds:,} rounds\n\nWithout pruning is `costs.search=full`; "
        f"profiling of whole plans is {PROFILING_RATIO} times the seconds of our price (the paper's ratio of "
        "profiling GPU time), also where profiling is free otherwise. The text at hand has lost the figures "
        "of the paper's Fig. 17; those of the preprint are on [Crius's page](crius.md).\n\n"
        f"{table(['variant', 'setting', *HEADERS[1:], 'JCT padded, times', 'samples/s, relative'], rows)}\n\n"
        f"## Search depth (section 5.8): {rounds:,} rounds\n\n"
        f"{table(['search depth', 'setting', *HEADERS[1:]], depths)}"
    )


# Deadlines (section 5.6)


def deadline_cells(setting: str, preset: str = "arena") -> dict[str, Cell]:
    """Return runs of ElasticFlow and of a preset, deadline budgets as long as the artifact makes them."""
    looser = variant(setting, "deadlines-x", DEADLINE_BUDGETS)
    return {
        "elasticflow": cell("philly", ROUNDS, looser, "elasticflow"),
        preset: cell("philly", ROUNDS, looser, preset, (("objective", "deadline"),)),
    }


def deadlines_section(found: Found, preset: str = "arena") -> str:
    """Return the table of deadlines met."""
    rows = []
    for setting in SETTINGS:
        cells = deadline_cells(setting, preset)
        padded = padded_jct({name: found[one] for name, one in cells.items()}, preset)
        for name, one in cells.items():
            figures = found[one]
            met = figures["deadline_satisfaction"]
            cols = [number(figures[key]) for key in ("jobs_finished", "jobs_dropped", "throughput_mean")]
            cols += [
                number(figures["throughput_peak"]),
                number(figures["jct_mean"]),
                number(padded.get(name)),
            ]
            rows.append([name, setting, "-" if met is None else f"{100 * met:.1f} %", *cols])
    headers = ["policy", "setting", "deadlines met", "finished", "dropped", "samples/s", "peak samples/s"]
    return (
        f"## Deadlines: {ROUNDS} rounds\n\nEach job has {DEADLINE_BUDGETS:g} times the time "
        "that the trace gives it until its deadline, as in the artifact's simulator.\n\n"
        f"{table([*headers, 'JCT finished, s', 'JCT padded, s'], rows)}"
    )


# Number of queues (section 5.8)

QUEUES = (1, 2, 3, 4, 5)
CROWDED = 4.0


def queue_cell(queues: int, setting: str = PUBLISHED) -> Cell:
    """Return a run with random priorities, submissions four times as dense."""
    return arena(variant(variant(setting, "density-x", CROWDED), "queues", queues))


def queues_section(found: Found) -> str:
    """Return how the number of queues changes what jobs of high priority, and all jobs, wait."""
    rows = []
    for queues in QUEUES:
        figures = found[queue_cell(queues)]
        groups = figures["by_priority"]
        ends = [groups[key] for key in sorted(groups, key=int, reverse=True)] if groups else []
        shown = [number(one["jct_mean_so_far"]) for one in (ends[0], ends[-1])] if ends else ["-", "-"]
        longest = max((one["queue_max"] for one in ends), default=None)
        rows.append([str(queues), *columns(figures), *shown, number(longest)])
    headers = ["queues", *HEADERS[1:], "JCT so far, highest priority, s", "lowest, s", "longest wait, s"]
    return (
        f"## Number of queues (section 5.8): {ROUNDS} rounds, submissions {CROWDED:g} times as dense\n\nAs "
        "published. No trace has priorities: each job draws one of as many values as there are queues, with "
        "equal chance. At the trace's own density no job waits longer than a round or two, and the number of "
        "queues changes nothing.\n\n"
        f"{table(headers, rows)}"
    )


# Sia with precise data (section 2.3)

PRECISE = (1, 3, 5)


def knob_cell(precise: int) -> Cell:
    """Return Sia's run with so many precise counts in its linear estimate."""
    return cell("philly", ROUNDS, variant(PUBLISHED, "precise", precise), "sia")


def knob_section(found: Found) -> str:
    """Return what precise data is worth to Sia."""
    base = found[knob_cell(1)]
    rows = []
    for precise in PRECISE:
        figures = found[knob_cell(precise)]
        rows.append(
            [str(precise), *columns(figures), change(figures["throughput_mean"], base["throughput_mean"])]
        )
    return (
        f"## Share of precise data in Sia's linear estimate (section 2.3): {ROUNDS} rounds\n\nAs published. "
        "With 1 Sia knows the least count of each type that runs and scales it linearly; with 5 it knows "
        "the five least counts as they are. It corrects its estimates by what it observes in every row.\n\n"
        f"{table(['precise counts', *HEADERS[1:], 'samples/s, relative'], rows)}"
    )


# GPU time by job class (section 5.7, Fig. 18)


def classes_cells() -> dict[str, Cell]:
    """Return the runs whose GPU time by model is compared."""
    return {
        "arena": arena(PUBLISHED),
        "without pruning": arena(variant(PUBLISHED, "full-search")),
        "sia": cell("philly", ROUNDS, PUBLISHED, "sia"),
    }


def gpu_time(found: Found, name: str, against: str) -> dict[str, float]:
    """Return, by model family, the mean ratio of GPU time a sample over the models that both ran."""
    one, other = (found[classes_cells()[who]]["gpu_s_per_sample"] for who in (name, against))
    ratios: dict[str, list[float]] = {}
    for model in one.keys() & other.keys():
        for family in (model.split("-")[0], "all"):
            ratios.setdefault(family, []).append(one[model] / other[model])
    return {family: float(np.mean(values)) for family, values in sorted(ratios.items())}


def classes_section(found: Found) -> str:
    """Return GPU time by job class."""
    pruned, sia = gpu_time(found, "without pruning", "arena"), gpu_time(found, "sia", "arena")
    rows = [[family, f"{pruned.get(family, 1.0):.2f}", f"{sia[family]:.2f}"] for family in sia]
    return (
        f"## GPU time by job class (section 5.7, Fig. 18): {ROUNDS} rounds\n\nAs published. GPU-seconds of "
        "work a sample over Arena's, the mean over models. The artifact's measurements do not part "
        "computation from communication, so the paper's second split is left out.\n\n"
        f"{table(['family', 'arena without pruning', 'sia'], rows)}"
    )


# Lifespan (section 5.7, Fig. 19)

LIFESPANS = (0.25, 1.0, 4.0)
LIFESPAN_BASELINES = ("fcfs", "elasticflow-ls", "gavel")


def lifespan_cell(policy: str, factor: float) -> Cell:
    """Return a run with iterations times a factor; Arena on data-parallel profiles."""
    parameters: Parameters = (("planner", "dp"),) if policy == "arena" else ()
    return cell("philly", ROUNDS, variant(PUBLISHED, "lifespan-x", factor), policy, parameters)


def lifespan_gain(found: Found, factor: float) -> float:
    """Return Arena's throughput over that of the worst baseline."""
    ours = float(found[lifespan_cell("arena", factor)]["throughput_mean"])
    return ours / min(
        float(found[lifespan_cell(one, factor)]["throughput_mean"]) for one in LIFESPAN_BASELINES
    )


def lifespan_section(found: Found) -> str:
    """Return the gain of scheduling alone by job length."""
    rows = []
    for factor in LIFESPANS:
        ours = found[lifespan_cell("arena", factor)]["throughput_mean"]
        others = [found[lifespan_cell(one, factor)]["throughput_mean"] for one in LIFESPAN_BASELINES]
        rows.append([f"{factor:g}", number(ours), *(f"{number(one)} ({ours / one:.2f})" for one in others)])
    headers = ["iterations, times", "arena, data-parallel profiles", *LIFESPAN_BASELINES]
    return (
        f"## Scheduling alone, by job lifespan (section 5.7, Fig. 19): {ROUNDS} rounds\n\nAs published, "
        "samples/s; in brackets Arena's over the baseline's. Arena decides on data-parallel profiles within "
        "the same memory rule as the baselines. Sia is left out for its solver's time.\n\n"
        f"{table(headers, rows)}"
    )


# Simulation fidelity (section 5.2)

STORED = {"crius": (145, 6145.0), "sia": (142, 4717.0)}
"""Jobs finished and their mean JCT, seconds, in the logs of the testbed that the artifact keeps."""
STORED_ROUNDS = 72


def fidelity_cell(policy: str) -> Cell:
    """Return a run of the six hours of testbed A."""
    return cell("testbed-a", STORED_ROUNDS, PUBLISHED, policy)


def fidelity_error(found: Found) -> float:
    """Return the mean relative error of the JCT against the stored logs, percent."""
    errors = [abs(found[fidelity_cell(one)]["jct_mean"] / jct_s - 1) for one, (_, jct_s) in STORED.items()]
    return 100 * float(np.mean(errors))


def fidelity_section(found: Found) -> str:
    """Return ours beside the stored logs of the testbed."""
    rows = []
    for policy, (finished, jct_s) in STORED.items():
        figures = found[fidelity_cell(policy)]
        cols = [
            number(figures["jobs_finished"]),
            number(finished),
            number(figures["jct_mean"]),
            number(jct_s),
        ]
        rows.append([policy, *cols, change(figures["jct_mean"], jct_s)])
    return (
        "## Simulation fidelity (section 5.2): testbed A for six hours\n\nAs published, against the logs "
        "of the testbed that the artifact keeps for two policies. How long those ran is not known; the "
        "trace's jobs come within six hours.\n\n"
        f"{table(['policy', 'finished', 'stored', 'JCT finished, s', 'stored', 'ours'], rows)}"
    )


# All of them

HEADERS = ["variant", "finished", "samples/s", "JCT finished, s", "JCT censored, s", "restarts a job"]


def columns(figures: Figures) -> list[str]:
    """Return the cells under `HEADERS` but the first."""
    names = ("jobs_finished", "throughput_mean", "jct_mean", "jct_mean_censored")
    return [*(number(figures[name]) for name in names), number(figures["restarts_mean"], 1)]


def cells(quick: bool, lengths: Sequence[int], sia: bool) -> Iterator[Cell]:
    """Yield the runs of all sections; those of Sia only where it is asked for."""
    yield from (line.cell for line in departures())
    for rounds in lengths:
        yield from ablations(rounds)
    for setting in SETTINGS:
        yield from deadline_cells(setting).values()
    yield from (queue_cell(queues) for queues in QUEUES)
    if sia:
        yield from (fidelity_cell(one) for one in STORED)
        yield from classes_cells().values()
    if not quick:
        yield from jitters()
        yield from (lifespan_cell(one, f) for f in LIFESPANS for one in ("arena", *LIFESPAN_BASELINES))
        yield from (knob_cell(precise) for precise in PRECISE if sia)


def sections(found: Found, quick: bool, lengths: Sequence[int], sia: bool) -> Iterator[str]:
    """Yield the sections of the page."""
    yield departures_section(found, quick)
    yield from (ablations_section(found, rounds) for rounds in lengths)
    yield deadlines_section(found)
    yield queues_section(found)
    if sia:
        yield fidelity_section(found)
        yield classes_section(found)
    if not quick:
        yield lifespan_section(found)
        if sia:
            yield knob_section(found)
