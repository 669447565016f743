"""What Crius's preprint claims in sections 8.3 to 8.7, and the runs of its ablations and search depths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clustergym.reproduction import arena_claims as arena
from clustergym.reproduction import claims as c
from clustergym.reproduction.arena_claims import METRICS, Compared, PlaceRow, labelled
from clustergym.reproduction.arena_scenarios import run_of, runs_at, variant
from clustergym.reproduction.arena_sections import DEPTHS, ROUNDS, SETTINGS
from clustergym.reproduction.claims import PUBLISHED, PaperClaim, measured, quantity
from clustergym.reproduction.page import Labelled
from clustergym.reproduction.study import Found

JCT_LOWER = {"fcfs": 81.3, "elasticflow-ls": 75.8, "gandiva": 80.1, "gavel": 66.4}
"""By how many percent the preprint's mean JCT is below each baseline's (section 8.4)."""


class Ablation(NamedTuple):
    """A part left out, and the preprint's JCT (times), jobs and throughput (percent) without it."""

    parameters: dict[str, Any]
    jct: float | None = None
    finished: float | None = None
    throughput: float | None = None
    peak: float | None = None


ABLATIONS = {
    "crius": Ablation({}),
    "no elastic scaling": Ablation({"elastic": False}, 2.54, -8.69, -13.6, -14.1),
    "no heterogeneous scaling": Ablation({"hetero": False}, 3.53, -16.8, -17.3, -17.7),
    "no opportunistic execution": Ablation({"opportunistic": False}),
    "any multiple of the request": Ablation({"span": None}),
}
DENSITIES = (1.0, 2.0, 4.0)


def ablation_runs(rounds: int | None) -> Labelled:
    """Return the ablations, by label and setting."""
    return {
        (label, setting): run_of("philly", rounds, setting, "crius", **one.parameters)
        for setting in SETTINGS
        for label, one in ABLATIONS.items()
    }


def depth_runs() -> Labelled:
    """Return runs by search depth and by how many times as dense submissions are."""
    settings = {f"{density:g}": variant(PUBLISHED, "density-x", density) for density in DENSITIES}
    return {
        (str(depth), density): run_of("philly", ROUNDS, setting, "crius", search_depth=depth)
        for density, setting in settings.items()
        for depth in DEPTHS
    }


def claims_of(found: Found, lengths: Sequence[int]) -> list[PaperClaim]:
    """Return all rows; those of the trace at each number of rounds that the page runs."""
    return [
        *(claim for rounds in lengths for claim in _against(found, rounds)),
        *(*_cluster(found, lengths[-1]), *arena.place_claims(found, ("crius", *JCT_LOWER), PLACES), *NO_LOGS),
        *arena.deadline_claims(found, "crius", "section 8.5, Fig. 19"),
        *(*_ablations(found, lengths[-1]), *_depths(found)),
    ]


def _against(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield Fig. 17a."""
    runs = Compared(found, runs_at("philly", rounds), ("crius", *JCT_LOWER))
    for policy, percent in JCT_LOWER.items():
        claim = f"mean JCT against {policy}, padded as in the preprint, {rounds:,} rounds"
        yield measured(claim, "section 8.4, Fig. 17a", -percent, runs.padded_change("crius", policy))


def _cluster(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield Figs 16, 17b and 17c."""
    runs, lasts = Compared(found, runs_at("philly", rounds), ("crius", *JCT_LOWER)), f"{rounds:,} rounds"
    for source, metric, figure in (
        ("section 8.4, Fig. 17b", "jobs_finished", 1.29),
        ("section 8.4, Figs 16 and 17c", "throughput_mean", 1.54),
        ("section 8.4, Figs 16 and 17c", "throughput_peak", 1.57),
    ):
        claim = f"{METRICS[metric]}, at most, over a baseline, {lasts}"
        yield measured(claim, source, figure, runs.best(metric), c.TIMES)
    peak = runs.change("throughput_peak", "elasticflow-ls", "crius")
    claim = f"peak throughput of elasticflow-ls against crius, {lasts}"
    yield measured(claim, "section 8.4, Fig. 17c", -10.7, peak)
    restarts = runs.of("crius", "restarts_mean")
    yield measured(f"restarts a job of crius, {lasts}", "section 8.4", 2.29, restarts, c.COUNT)
    why = "an input: the sizes are those of the trace"
    yield PaperClaim("distribution of model sizes", "section 8.4, Fig. 15", None, why=why)


FIG_14, FIG_18 = "section 8.3, Fig. 14", "section 8.4, Fig. 18"
OWN_DAY = "its own day is not in the artifact: ours is generated"
THROUGHPUT = {"throughput_mean": 1.49, "throughput_peak": 1.36}
PLACES: Sequence[PlaceRow] = (
    ("testbed-a", "testbed", f"{FIG_14}a", {"jct_mean": -48.9}, ""),
    ("testbed-a", "testbed", f"{FIG_14}b", {"queue_mean": -71.0}, ""),
    ("testbed-a", "testbed", f"{FIG_14}c", THROUGHPUT, ""),
    ("venus-day", "Helios Venus day", FIG_18, arena.VENUS_DAY, ""),
    ("pai-day", "PAI day, low load", FIG_18, arena.PAI_DAY, OWN_DAY),
)
_WHY = "needs the testbed's logs; for two policies' JCT see Arena's page"
NO_LOGS = [
    quantity(f"error of simulated {what}", "section 8.3, simulation fidelity", figure, why=_WHY)
    for what, figure in (("throughput", 3.16), ("JCT", 7.31))
]


def _ablations(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield Fig. 20."""
    source, runs = "section 8.6, Fig. 20", labelled(found, ablation_runs(rounds))
    for label, one in ((label, one) for label, one in ABLATIONS.items() if one.jct is not None):
        jct, lasts = runs.padded_times(label, "crius"), f"{label}, {{}}{rounds:,} rounds"
        yield measured(f"mean JCT with {lasts.format('padded, ')}", source, one.jct, jct, c.TIMES)
        for metric, figure in (
            ("jobs_finished", one.finished),
            ("throughput_mean", one.throughput),
            ("throughput_peak", one.peak),
        ):
            change = runs.change(metric, label, "crius")
            yield measured(f"{METRICS[metric]} with {lasts.format('')}", source, figure, change)


def _depths(found: Found) -> Iterator[PaperClaim]:
    """Yield Fig. 21."""
    low, *_, high = map(str, DEPTHS)
    runs, crowded = depth_runs(), f"{DENSITIES[-1]:g}"
    compared = Compared(found, lambda _, depth: runs[depth, crowded], (high, *map(str, DEPTHS)))
    jct = c.only_published(lambda: compared.padded_change(high, low)(PUBLISHED))
    throughput = c.only_published(lambda: compared.change("throughput_mean", high, low)(PUBLISHED))
    where, source = f"search depth {high} against {low}, submissions x{crowded}", "section 8.7, Fig. 21"
    yield measured(f"mean JCT, padded, {where}", f"{source}b", -14.6, jct)
    yield measured(f"mean throughput, {where}", f"{source}c", 1.03, throughput, c.ClaimUnit(decimals=2))
    claim, why = "decision time a job at the greatest depth", "the speed of a program, not of a cluster"
    yield quantity(claim, f"{source}a", 5.98, unit="s", decimals=2, why=why)
