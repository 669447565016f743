"""The table of claims that opens Crius's page: sections 8.3 to 8.7 of the preprint."""

from __future__ import annotations

from collections.abc import Iterator

from clustergym.reproduction import arena_elsewhere as elsewhere
from clustergym.reproduction.arena_claims import deadlines, lower, measured
from clustergym.reproduction.arena_scenarios import PUBLISHED, cell
from clustergym.reproduction.claims import Claim
from clustergym.reproduction.crius_parts import (
    ABLATIONS,
    CROWDED,
    DEPTHS,
    JCT_LOWER,
    Ablation,
    ablation,
    ablation_jct,
    depth_cell,
    depth_jct,
)
from clustergym.reproduction.details import padded_jct
from clustergym.reproduction.study import Cell, Figures

Found = dict[Cell, Figures]


def claims(found: Found, lengths: list[int]) -> list[Claim]:
    """Return all rows; those of the trace at each number of rounds that the page runs."""
    return [
        *(one for rounds in lengths for one in _against(found, rounds)),
        *_cluster(found, lengths[-1]),
        *_places(found),
        *deadlines(found, "crius", "section 8.5, Fig. 19"),
        *_ablations(found, lengths[-1]),
        *_depths(found),
    ]


def _against(found: Found, rounds: int) -> Iterator[Claim]:
    """Yield Fig. 17a."""

    def gain(setting: str, policy: str) -> float:
        runs = {one: found[cell("philly", rounds, setting, one)] for one in ("crius", *JCT_LOWER)}
        means = padded_jct(runs, "crius")
        return lower(means["crius"], means[policy])

    for policy, percent in JCT_LOWER.items():
        claim = f"mean JCT against {policy}, padded as in the preprint, {rounds:,} rounds"
        of = lambda s, p=policy: gain(s, p)  # noqa: E731
        yield measured(claim, "section 8.4, Fig. 17a", -percent, of)


def _cluster(found: Found, rounds: int) -> Iterator[Claim]:
    """Yield Figs 16, 17b and 17c."""

    def run(setting: str, policy: str, metric: str) -> float:
        return float(found[cell("philly", rounds, setting, policy)][metric])

    def best(setting: str, metric: str) -> float:
        return max(run(setting, "crius", metric) / run(setting, one, metric) for one in JCT_LOWER)

    for what, source, metric, figure in (
        ("jobs finished, at most", "section 8.4, Fig. 17b", "jobs_finished", 1.29),
        ("mean throughput, at most", "section 8.4, Figs 16 and 17c", "throughput_mean", 1.54),
        ("peak throughput, at most", "section 8.4, Figs 16 and 17c", "throughput_peak", 1.57),
    ):
        of = lambda s, m=metric: best(s, m)  # noqa: E731
        claim = f"{what}, over a baseline, {rounds:,} rounds"
        yield measured(claim, source, figure, of, unit="x", neutral=1.0, decimals=2)

    def peak(setting: str) -> float:
        return lower(
            run(setting, "elasticflow-ls", "throughput_peak"), run(setting, "crius", "throughput_peak")
        )

    claim = f"peak throughput of elasticflow-ls against crius, {rounds:,} rounds"
    yield measured(claim, "section 8.4, Fig. 17c", -10.7, peak)
    restarts = lambda s: run(s, "crius", "restarts_mean")  # noqa: E731
    claim = f"restarts a job of crius, {rounds:,} rounds"
    yield measured(claim, "section 8.4", 2.29, restarts, unit="", neutral=None, decimals=2)
    claim, why = "distribution of model sizes", "an input: the sizes are those of the trace"
    yield Claim(claim, "section 8.4, Fig. 15", None, why=why)


def _places(found: Found) -> Iterator[Claim]:
    """Yield section 8.3 (Fig. 14) and Fig. 18."""

    def gain(name: str, setting: str, metric: str, low: bool) -> float:
        runs = {one: found[elsewhere.run_of(name, setting, one)] for one in ("crius", *JCT_LOWER)}
        ratios = [float(runs["crius"][metric] / runs[one][metric]) for one in JCT_LOWER]
        return 100 * (min(ratios) - 1) if low else max(ratios)

    own = "its own day is not in the artifact: ours is generated"
    for name, title, source, metric, low, figure, why in (
        ("testbed-a", "testbed", "section 8.3, Fig. 14a", "jct_mean", True, -48.9, ""),
        ("testbed-a", "testbed", "section 8.3, Fig. 14b", "queue_mean", True, -71.0, ""),
        ("testbed-a", "testbed", "section 8.3, Fig. 14c", "throughput_mean", False, 1.49, ""),
        ("testbed-a", "testbed", "section 8.3, Fig. 14c", "throughput_peak", False, 1.36, ""),
        ("venus-day", "Helios Venus day", "section 8.4, Fig. 18", "jct_mean", True, -64.7, ""),
        ("venus-day", "Helios Venus day", "section 8.4, Fig. 18", "throughput_mean", False, 1.48, ""),
        ("venus-day", "Helios Venus day", "section 8.4, Fig. 18", "throughput_peak", False, 1.92, ""),
        ("pai-day", "PAI day, low load", "section 8.4, Fig. 18", "jct_mean", True, -66.3, own),
        ("pai-day", "PAI day, low load", "section 8.4, Fig. 18", "throughput_mean", False, 1.29, own),
        ("pai-day", "PAI day, low load", "section 8.4, Fig. 18", "throughput_peak", False, 2.63, own),
    ):
        of = lambda s, n=name, m=metric, d=low: gain(n, s, m, d)  # noqa: E731
        unit, neutral, decimals = ("%", 0.0, 1) if low else ("x", 1.0, 2)
        what = {"jct_mean": "mean JCT", "queue_mean": "mean queueing time"}.get(metric)
        what = what or f"{metric.removeprefix('throughput_')} throughput"
        claim = f"{what} against the baselines, at best, {title}"
        yield measured(claim, source, figure, of, unit=unit, neutral=neutral, decimals=decimals, why=why)
    for what, figure in (("throughput", 3.16), ("JCT", 7.31)):
        why = "needs the testbed's logs; for two policies' JCT see Arena's page"
        yield Claim(
            f"error of simulated {what}", "section 8.3, simulation fidelity", figure, neutral=None, why=why
        )


def _ablations(found: Found, rounds: int) -> Iterator[Claim]:
    """Yield Fig. 20."""
    source = "section 8.6, Fig. 20"
    for one in ABLATIONS:
        if one.jct is None:
            continue
        jct = lambda s, o=one: _slower(found, o, rounds, s)  # noqa: E731
        claim = f"mean JCT with {one.label}, padded, {rounds:,} rounds"
        yield measured(claim, source, one.jct, jct, unit="x", neutral=1.0, decimals=2)
        for what, metric, figure in (
            ("jobs finished", "jobs_finished", one.finished),
            ("mean throughput", "throughput_mean", one.throughput),
            ("peak throughput", "throughput_peak", one.peak),
        ):
            of = lambda s, o=one, m=metric: _without(found, o, rounds, s, m)  # noqa: E731
            yield measured(f"{what} with {one.label}, {rounds:,} rounds", source, figure, of)


def _slower(found: Found, one: Ablation, rounds: int, setting: str) -> float:
    """Return how many times the padded JCT is without a part."""
    means = ablation_jct(found, rounds, setting)
    return means[one.label] / means["crius"]


def _without(found: Found, one: Ablation, rounds: int, setting: str, metric: str) -> float:
    """Return how much less there is without a part, percent."""
    runs = [float(found[ablation(it, rounds, setting)][metric]) for it in (one, ABLATIONS[0])]
    return lower(runs[0], runs[1])


def _depths(found: Found) -> Iterator[Claim]:
    """Yield Fig. 21."""
    low, high = DEPTHS[0], DEPTHS[-1]

    def jct(setting: str) -> float | None:
        means = depth_jct(found, CROWDED)
        return lower(means[str(high)], means[str(low)]) if setting == PUBLISHED else None

    def throughput(setting: str) -> float | None:
        runs = [float(found[depth_cell(depth, CROWDED)]["throughput_mean"]) for depth in (high, low)]
        return lower(runs[0], runs[1]) if setting == PUBLISHED else None

    where = f"search depth {high} against {low}, submissions x{CROWDED:g}"
    yield measured(f"mean JCT, padded, {where}", "section 8.7, Fig. 21b", -14.6, jct)
    yield measured(f"mean throughput, {where}", "section 8.7, Fig. 21c", 1.03, throughput, decimals=2)
    why = "the speed of a program, not of a cluster"
    claim = "decision time a job at the greatest depth"
    yield Claim(claim, "section 8.7, Fig. 21a", 5.98, unit="s", neutral=None, decimals=2, why=why)
