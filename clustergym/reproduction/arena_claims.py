"""The table of claims that opens Arena's page: sections 2.3, 5.2, 5.3 and 5.6 to 5.8."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from clustergym.reproduction import arena_elsewhere as elsewhere
from clustergym.reproduction import arena_parts as parts
from clustergym.reproduction.arena_scenarios import DEADLINE_BUDGETS, FAIR, PUBLISHED, cell
from clustergym.reproduction.claims import REPRODUCED, Claim
from clustergym.reproduction.details import padded_jct
from clustergym.reproduction.study import Cell, Figures

Found = Mapping[Cell, Figures]
BASELINES = {"fcfs": 81.3, "elasticflow-ls": 80.5, "gavel": 76.6, "sia": 75.2}
"""By how many percent Arena's mean JCT is below each (section 5.3)."""
LOST = "the text at hand has lost the paper's figure"
PREPRINT = "the figure is the preprint's (Crius), whose text kept it"


def measured(
    claim: str, source: str, paper: float | None, of: Callable[[str], float | None], **more: Any
) -> Claim:
    """Return a row whose figure is `of(setting)`; one that was run in neither setting says so.

    Where ours is not the paper's and no reason is given, the reason is not known.
    """
    fair, published = _value(of, FAIR), _value(of, PUBLISHED)
    missing = fair is None and published is None
    row = Claim(claim, source, paper, fair, published, quick=not missing, **more)
    unexplained = not (missing or row.why or row.verdict == REPRODUCED)
    return replace(row, why="not known") if unexplained else row


def _value(of: Callable[[str], float | None], setting: str) -> float | None:
    """Return a figure; None where a run of it is not there, or its divisor is nothing."""
    try:
        return of(setting)
    except (KeyError, ZeroDivisionError, ValueError, TypeError):
        return None


def lower(ours: float, theirs: float) -> float:
    """Return a relative difference in percent."""
    return 100 * (ours / theirs - 1)


def claims(found: Found, rounds: int) -> list[Claim]:
    """Return all rows; those of the trace at the number of rounds that the page runs longest."""
    return [
        *_simulator(found),
        *_week(found, rounds),
        *_places(found),
        *deadlines(found, "arena", "section 5.6"),
        *_ablations(found, rounds),
        *_sensitivity(found, rounds),
        *_not_simulated(),
    ]


def _simulator(found: Found) -> Iterator[Claim]:
    """Yield Arena against the artifact's own simulator."""
    known = (
        ("jobs_finished", "jobs finished", 269.0, "jobs", 0),
        ("jct_mean", "JCT of finished jobs", 20322.0, "s", 0),
    )
    for metric, what, figure, unit, decimals in (
        *known,
        ("throughput_mean", "mean throughput", 4521.0, "samples/s", 0),
    ):
        yield measured(
            f"arena's {what}, 664 rounds of Philly",
            "the artifact's simulator",
            figure,
            lambda s, metric=metric: float(found[parts.arena(s)][metric]),  # type: ignore[misc]
            unit=unit,
            neutral=None,
            decimals=decimals,
            why="see Departures from the paper's text, each switched alone",
        )
    yield measured(
        f"arena's JCT of finished jobs, mean of {parts.JITTERS} draws of submissions up to a round late",
        "the artifact's simulator",
        20322.0,
        lambda s: (
            sum(float(found[one]["jct_mean"]) for one in parts.jitters()) / parts.JITTERS
            if s == PUBLISHED
            else None
        ),
        unit="s",
        neutral=None,
        decimals=0,
    )


def _week(found: Found, rounds: int) -> Iterator[Claim]:
    """Yield section 5.3, Figs 11 and 12."""

    def run(setting: str, policy: str) -> Figures:
        return found[cell("philly", rounds, setting, policy)]

    def padded(setting: str) -> dict[str, float]:
        return padded_jct({one: run(setting, one) for one in ("arena", *BASELINES)}, "arena")

    def best(setting: str, metric: str) -> float:
        return max(float(run(setting, "arena")[metric] / run(setting, one)[metric]) for one in BASELINES)

    where = f"{rounds:,} rounds of Philly"
    source = "section 5.3, Fig. 12"
    for policy, percent in BASELINES.items():
        yield measured(
            f"mean JCT against {policy}, padded as in the paper, {where}",
            source,
            -percent,
            lambda s, p=policy: lower(padded(s)["arena"], padded(s)[p]),  # type: ignore[misc]
        )
    for what, metric, figure in (
        ("jobs finished, at most", "jobs_finished", 1.45),
        ("mean throughput, at most", "throughput_mean", 1.55),
        ("peak throughput, at most", "throughput_peak", 1.58),
    ):
        where_from = "section 5.3, Figs 11 and 12"
        of = lambda s, m=metric: best(s, m)  # noqa: E731
        yield measured(
            f"{what}, over a baseline, {where}", where_from, figure, of, unit="x", neutral=1.0, decimals=2
        )
    yield measured(
        f"reschedulings a job of arena, {where}",
        "section 5.3",
        2.29,
        lambda s: float(run(s, "arena")["restarts_mean"]),
        unit="",
        neutral=None,
        decimals=2,
    )
    yield measured(
        f"mean JCT of gavel against elasticflow-ls, padded, {where}",
        source,
        lower(1 - BASELINES["elasticflow-ls"] / 100, 1 - BASELINES["gavel"] / 100),
        lambda s: lower(padded(s)["gavel"], padded(s)["elasticflow-ls"]),
        why="the paper's figure follows from its gains over the two; the gap: not known",
    )


def _places(found: Found) -> Iterator[Claim]:
    """Yield sections 5.2 (Fig. 10), 5.3 (Fig. 13) and 5.7 (one GPU type)."""

    def gain(name: str, setting: str, metric: str, low: bool) -> float:
        runs = {one: found[elsewhere.run_of(name, setting, one)][metric] for one in ("arena", *BASELINES)}
        ratios = [float(runs["arena"] / runs[one]) for one in BASELINES]
        return 100 * (min(ratios) - 1) if low else max(ratios)

    fig_10, fig_13 = "section 5.2, Fig. 10", "section 5.3, Fig. 13"
    rows: tuple[tuple[str, str, str, tuple[float | None, ...], str], ...] = (
        ("testbed-a", "testbed A", fig_10, (-48.9, -71.0, 1.49, 1.36), PREPRINT),
        ("testbed-b", "testbed B", fig_10, (None, None, None, None), f"{LOST}; ours by our oracle"),
        ("venus-day", "Helios Venus day", fig_13, (-64.7, None, 1.48, 1.92), PREPRINT),
        (
            "pai-day",
            "PAI day, low load",
            fig_13,
            (-66.3, None, 1.29, 2.63),
            "its own day is not published: ours is generated",
        ),
    )
    metrics = (
        ("mean JCT", "jct_mean", True),
        ("mean queueing time", "queue_mean", True),
        ("mean throughput", "throughput_mean", False),
        ("peak throughput", "throughput_peak", False),
    )
    for name, title, source, figures, why in rows:
        for (what, metric, low), figure in zip(metrics, figures, strict=True):
            if figure is None and name != "testbed-b":
                continue
            of = lambda s, n=name, m=metric, d=low: gain(n, s, m, d)  # noqa: E731
            unit, neutral, decimals = ("%", 0.0, 1) if low else ("x", 1.0, 2)
            yield measured(
                f"{what} against the baselines, at best, {title}",
                source,
                figure,
                of,
                unit=unit,
                neutral=neutral,
                decimals=decimals,
                why=why,
            )
    for policy in BASELINES:

        def homogeneous(setting: str, policy: str = policy) -> float:
            ours, other = (found[elsewhere.run_of("h100", setting, one)] for one in ("arena", policy))
            return float(ours["throughput_mean"] / other["throughput_mean"])

        claim = f"mean throughput against {policy} on 128 H100"
        source = "section 5.7, homogeneous study"
        yield measured(claim, source, None, homogeneous, unit="x", neutral=1.0, decimals=2, why=LOST)
    yield measured(
        "error of simulated JCT against the testbed",
        "section 5.2, simulation fidelity",
        7.31,
        lambda s: parts.fidelity_error(found) if s == PUBLISHED else None,
        neutral=None,
        why=f"{PREPRINT}; ours against the artifact's logs of two policies, whose length is not known",
    )
    why = f"{PREPRINT}: 3.16 %; the stored logs have no throughput"
    yield Claim(
        "error of simulated throughput against the testbed",
        "section 5.2, simulation fidelity",
        3.16,
        neutral=None,
        why=why,
    )


def deadlines(found: Found, preset: str, source: str) -> Iterator[Claim]:
    """Yield Arena's section 5.6, or the preprint's 8.5."""

    def pair(setting: str, metric: str) -> tuple[float, float]:
        cells = parts.deadline_cells(setting, preset)
        return float(found[cells[preset]][metric]), float(found[cells["elasticflow"]][metric])

    def padded(setting: str) -> float:
        cells = parts.deadline_cells(setting, preset)
        means = padded_jct({name: found[one] for name, one in cells.items()}, preset)
        return lower(means[preset], means["elasticflow"])

    why = f"budgets x{DEADLINE_BUDGETS:g} as in the artifact's simulator; {parts.ROUNDS} rounds"
    for what, metric, figure in (
        ("share of deadlines met", "deadline_satisfaction", 1.69),
        ("mean throughput", "throughput_mean", 1.72),
        ("peak throughput", "throughput_peak", 1.96),
    ):
        of = lambda s, m=metric: pair(s, m)[0] / pair(s, m)[1]  # noqa: E731
        claim = f"{what} against elasticflow"
        yield measured(claim, source, figure, of, unit="x", neutral=1.0, decimals=2, why=why)
    yield measured("mean JCT against elasticflow, padded", source, -33.1, padded, why=why)


def _ablations(found: Found, rounds: int) -> Iterator[Claim]:
    """Yield section 5.7: Figs 17, 18 and 19."""
    source = "section 5.7, Fig. 17"
    for label, what in (
        ("without profiler: profiling of whole plans", "without profiler"),
        ("without planner: data-parallel profiles", "without planner"),
        ("no heterogeneous scaling", "without heterogeneity-aware scheduling"),
        ("no elastic scaling", "without elastic scheduling"),
        ("without pruning: full search", "without pruning"),
    ):
        make = next(make for name, make in parts.ABLATIONS if name == label)

        def jct(setting: str, label: str = label) -> float:
            means = parts.ablation_jct(found, rounds, setting)
            return means[label] / means["arena"]

        def throughput(setting: str, make: Callable[[str], Cell] = make) -> float:
            runs = [found[parts.at_rounds(one(setting), rounds)] for one in (make, parts.arena)]
            return lower(float(runs[0]["throughput_mean"]), float(runs[1]["throughput_mean"]))

        yield measured(
            f"mean JCT {what}, padded", source, None, jct, unit="x", neutral=1.0, decimals=2, why=LOST
        )
        yield measured(f"mean throughput {what}", source, None, throughput, why=LOST)

    def hetero_over_elastic(setting: str) -> float:
        means = parts.ablation_jct(found, rounds, setting)
        return means["no heterogeneous scaling"] / means["no elastic scaling"]

    yield measured(
        "leaving out heterogeneity hurts the JCT more than leaving out elasticity",
        source,
        3.53 / 2.54,
        hetero_over_elastic,
        unit="x",
        neutral=1.0,
        decimals=2,
        why=PREPRINT,
    )
    for name, what in (
        ("sia", "GPU time of sia a sample"),
        ("without pruning", "GPU time a sample without pruning"),
    ):
        of = lambda s, n=name: parts.gpu_time(found, n, "arena")["all"] if s == PUBLISHED else None  # noqa: E731
        yield measured(
            f"{what}, over arena's",
            "section 5.7, Fig. 18",
            None,
            of,
            unit="x",
            neutral=1.0,
            decimals=2,
            why=LOST,
        )
    for factor in parts.LIFESPANS:
        of = lambda s, f=factor: parts.lifespan_gain(found, f) if s == PUBLISHED else None  # noqa: E731
        claim = f"mean throughput of scheduling alone over the worst baseline, iterations x{factor:g}"
        yield measured(
            claim,
            "section 5.7, Fig. 19",
            None,
            of,
            unit="x",
            neutral=1.0,
            decimals=2,
            why=f"{LOST}; it says the gain grows",
        )


def _sensitivity(found: Found, rounds: int) -> Iterator[Claim]:
    """Yield sections 2.3 and 5.8."""

    def deeper(setting: str, metric: str) -> float:
        one, three = (found[parts.arena(setting, rounds, search_depth=depth)][metric] for depth in (1, 3))
        return lower(float(three), float(one))

    source = "section 5.8"
    why = f"{PREPRINT}, at denser submission: see its page"
    yield measured(
        "mean JCT of finished jobs, search depth 3 against 1",
        source,
        -14.6,
        lambda s: deeper(s, "jct_mean"),
        why=why,
    )
    of = lambda s: deeper(s, "throughput_mean")  # noqa: E731
    yield measured("mean throughput, search depth 3 against 1", source, 1.03, of, decimals=2, why=why)

    def queues(setting: str) -> float | None:
        if setting != PUBLISHED:
            return None
        one, five = (found[parts.queue_cell(count)]["jct_mean_censored"] for count in (1, max(parts.QUEUES)))
        return lower(float(five), float(one))

    def urgent(setting: str) -> float | None:
        groups = found[parts.queue_cell(max(parts.QUEUES))]["by_priority"]
        first, last = max(groups, key=int), min(groups, key=int)
        mean = groups[first]["jct_mean_so_far"] / groups[last]["jct_mean_so_far"]
        return 100 * (mean - 1) if setting == PUBLISHED else None

    yield measured("censored JCT with 5 queues against 1, submissions x4", source, None, queues, why=LOST)
    yield measured("JCT of the highest of 5 priorities against the lowest", source, None, urgent, why=LOST)

    def knob(setting: str) -> float | None:
        linear, precise = (found[parts.knob_cell(k)]["throughput_mean"] for k in (1, max(parts.PRECISE)))
        return lower(float(precise), float(linear)) if setting == PUBLISHED else None

    yield measured(
        "throughput of sia with precise data against its linear estimate", "section 2.3", None, knob, why=LOST
    )


def _not_simulated() -> Iterator[Claim]:
    """Yield what no simulation shows."""
    for claim, source, paper, unit, why in (
        (
            "decision time a job at search depth 5",
            "section 5.8",
            5.98,
            "s",
            "the speed of a program, not of a cluster",
        ),
        ("profiling of a job", "section 5.8", 510.0, "s", "an input here: costs.profile"),
        ("search of a plan, at most", "section 5.8", 120.0, "s", "an input here: costs.search_s_max"),
        ("checkpoint and resume, at most", "section 5.8", 300.0, "s", "an input here: costs.storage_gbs"),
        (
            "profiling of collectives before a cluster starts",
            "section 5.8",
            3.5,
            "h",
            "no cluster is set up here",
        ),
        ("deviation of the loss when a job is rescaled", "section 5.8", 0.06, "", "no model is trained here"),
    ):
        yield Claim(claim, source, paper, unit=unit, neutral=None, decimals=2, why=why)
