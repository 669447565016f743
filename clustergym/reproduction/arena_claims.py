"""Makes the claims of Arena's page: sections 2.3, 5.2, 5.3 and 5.6 to 5.8."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from clustergym.reproduction import arena_sections as parts
from clustergym.reproduction import claims as c
from clustergym.reproduction.arena_scenarios import BUDGET_FACTOR, RunOf, runs_at
from clustergym.reproduction.claims import Measure, PaperClaim, difference, measured, only_published
from clustergym.reproduction.details import padded_jct
from clustergym.reproduction.page import Section
from clustergym.reproduction.study import Found

BASELINES = {"fcfs": 81.3, "elasticflow-ls": 80.5, "gavel": 76.6, "sia": 75.2}
"""The baselines, and by how many percent Arena's mean JCT is below theirs (section 5.3)."""
LOST = "the text at hand has lost the paper's figure"
PREPRINT = "the figure is the preprint's (Crius), whose text kept it"
METRICS = {
    "jct_mean": "mean JCT",
    "queue_mean": "mean queueing time",
    "throughput_mean": "mean throughput",
    "throughput_peak": "peak throughput",
    "jobs_finished": "jobs finished",
    "deadline_satisfaction": "share of deadlines met",
}


class Compared(NamedTuple):
    """Runs of policies, or of variants of a policy, that are compared in each setting.

    `run` returns the run of a setting and a name. The first name is the paper's own policy.
    """

    found: Found
    run: RunOf
    names: Sequence[str]

    def _figure(self, setting: str, name: str, metric: str) -> float:
        return float(self.found[self.run(setting, name)][metric])

    def of(self, name: str, metric: str) -> Measure:
        """Return a metric of a run."""
        return lambda setting: self._figure(setting, name, metric)

    def change(self, metric: str, ours: str, theirs: str) -> Measure:
        """Return the difference of a metric between two runs, percent."""
        return lambda s: difference(self._figure(s, ours, metric), self._figure(s, theirs, metric))

    def best(self, metric: str) -> Measure:
        """Return the greatest gain of the first over the others: percent where less is better, else times."""

        def of(setting: str) -> float:
            own, *others = (self._figure(setting, name, metric) for name in self.names)
            ratios = [own / other for other in others]
            return 100 * (min(ratios) - 1) if unit_of(metric) == c.PERCENT else max(ratios)

        return of

    def padded_times(self, ours: str, theirs: str) -> Measure:
        """Return the ratio of two padded mean JCTs; the first of `names` sets how far lists are padded."""

        def of(setting: str) -> float:
            runs = {name: self.found[self.run(setting, name)] for name in self.names}
            means = padded_jct(runs, self.names[0])
            return means[ours] / means[theirs]

        return of

    def padded_change(self, ours: str, theirs: str) -> Measure:
        """Return the difference of two padded mean JCTs, percent."""
        times = self.padded_times(ours, theirs)
        return lambda setting: difference(times(setting) or 0.0, 1.0)


def labelled(found: Found, section: Section, *names: str) -> Compared:
    """Compare runs of a table whose labels are a name and a setting; by default, all of them."""
    every = list(dict.fromkeys(name for name, _ in section.runs))
    return Compared(found, lambda setting, name: section.runs[name, setting], names or every)


def unit_of(metric: str) -> c.ClaimUnit:
    """Return how the gain in a metric is shown."""
    return c.PERCENT if metric in ("jct_mean", "queue_mean") else c.TIMES


def claims_of(found: Found, rounds: int) -> list[PaperClaim]:
    """Return all claims; those on the Philly trace are measured over the page's longest run."""
    return [
        *(*_simulator(found), *_week(found, rounds), *place_claims(found, ("arena", *BASELINES), PLACES)),
        *(*_testbeds(found), *deadline_claims(found, "arena", "section 5.6")),
        *(*_ablations(found, rounds), *_sensitivity(found, rounds), *c.not_simulated("arena")),
    ]


def _simulator(found: Found) -> Iterator[PaperClaim]:
    """Yield the claims on Arena against the artifact's own simulator."""
    ours, source = Compared(found, runs_at("philly", parts.ROUNDS), ["arena"]), "the artifact's simulator"
    for metric, what, figure, unit in (
        ("jobs_finished", "jobs finished", 269.0, "jobs"),
        ("jct_mean", "JCT of finished jobs", 20322.0, "s"),
        ("throughput_mean", "mean throughput", 4521.0, "samples/s"),
    ):
        claim = f"arena's {what}, 664 rounds of Philly"
        why = "see Departures from the paper's text, each switched alone"
        yield measured(claim, source, figure, ours.of("arena", metric), c.ClaimUnit(unit, None, 0), why)
    late, many = parts.JITTER_RUNS, len(parts.JITTER_RUNS)
    claim = f"arena's JCT of finished jobs, mean of {many} draws of submissions up to a round late"
    jct = only_published(lambda: sum(float(found[spec]["jct_mean"]) for spec in late) / many)
    yield measured(claim, source, 20322.0, jct, c.ClaimUnit("s", None, 0))


def _week(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield the claims of section 5.3 (Figs 11 and 12)."""
    runs = Compared(found, runs_at("philly", rounds), ("arena", *BASELINES))
    where, source = f"{rounds:,} rounds of Philly", "section 5.3, Fig. 12"
    for policy, percent in BASELINES.items():
        claim = f"mean JCT against {policy}, padded as in the paper, {where}"
        yield measured(claim, source, -percent, runs.padded_change("arena", policy))
    for metric, figure in (("jobs_finished", 1.45), ("throughput_mean", 1.55), ("throughput_peak", 1.58)):
        claim = f"{METRICS[metric]}, at most, over a baseline, {where}"
        yield measured(claim, "section 5.3, Figs 11 and 12", figure, runs.best(metric), c.TIMES)
    claim, restarts = f"reschedulings a job of arena, {where}", runs.of("arena", "restarts_mean")
    yield measured(claim, "section 5.3", 2.29, restarts, c.COUNT)
    claim = f"mean JCT of gavel against elasticflow-ls, padded, {where}"
    figure = difference(*(1 - BASELINES[policy] / 100 for policy in ("elasticflow-ls", "gavel")))
    why = "the paper's figure follows from its gains over the two; the gap: not known"
    yield measured(claim, source, figure, runs.padded_change("gavel", "elasticflow-ls"), why=why)


PlaceRow = tuple[str, str, str, Mapping[str, float | None], str]
"""Name and title of a place, the source, the paper's greatest gain by metric, and why ours differs."""
FIG_10, FIG_13 = "section 5.2, Fig. 10", "section 5.3, Fig. 13"
TESTBED_A = {"jct_mean": -48.9, "queue_mean": -71.0, "throughput_mean": 1.49, "throughput_peak": 1.36}
VENUS_DAY = {"jct_mean": -64.7, "throughput_mean": 1.48, "throughput_peak": 1.92}
PAI_DAY = {"jct_mean": -66.3, "throughput_mean": 1.29, "throughput_peak": 2.63}
OWN_DAY = "its own day is not published: ours is generated"
PLACES: Sequence[PlaceRow] = (
    ("testbed-a", "testbed A", FIG_10, TESTBED_A, PREPRINT),
    ("testbed-b", "testbed B", FIG_10, dict.fromkeys(TESTBED_A), f"{LOST}; ours by our oracle"),
    ("venus-day", "Helios Venus day", FIG_13, VENUS_DAY, PREPRINT),
    ("pai-day", "PAI day, low load", FIG_13, PAI_DAY, OWN_DAY),
)


def place_claims(found: Found, names: Sequence[str], rows: Iterable[PlaceRow]) -> Iterator[PaperClaim]:
    """Yield the first policy's greatest gains over the others, place by place."""
    for place, title, source, figures, why in rows:
        runs = Compared(found, runs_at(place), names)
        for metric, figure in figures.items():
            claim = f"{METRICS[metric]} against the baselines, at best, {title}"
            yield measured(claim, source, figure, runs.best(metric), unit_of(metric), why)


def _testbeds(found: Found) -> Iterator[PaperClaim]:
    """Yield the claims of section 5.7 on one GPU type, and of section 5.2 on fidelity."""
    for policy in BASELINES:
        claim, source = f"mean throughput against {policy} on 128 H100", "section 5.7, homogeneous study"
        runs = Compared(found, runs_at("h100"), ("arena", policy))
        yield measured(claim, source, None, runs.best("throughput_mean"), c.TIMES, LOST)

    def error() -> float:
        stored = {policy: jct_s for policy, (_, jct_s) in parts.STORED.items()}
        ratios = [found[parts.TESTBED[policy]]["jct_mean"] / jct_s for policy, jct_s in stored.items()]
        return float(100 * sum(abs(ratio - 1) for ratio in ratios) / len(ratios))

    claim, source = "error of simulated JCT against the testbed", "section 5.2, simulation fidelity"
    why = f"{PREPRINT}; ours against the artifact's logs of two policies, whose length is not known"
    yield measured(claim, source, 7.31, only_published(error), c.SHARE, why)
    why = f"{PREPRINT}: 3.16 %; the stored logs have no throughput"
    yield c.quantity("error of simulated throughput against the testbed", source, 3.16, why=why)


def deadline_claims(found: Found, preset: str, source: str) -> Iterator[PaperClaim]:
    """Yield the claims on deadlines: of Arena's section 5.6, or of the preprint's 8.5."""
    runs = labelled(found, parts.deadlines(preset), preset, "elasticflow")
    why = f"budgets x{BUDGET_FACTOR:g} as in the artifact's simulator; {parts.ROUNDS} rounds"
    figures = {"deadline_satisfaction": 1.69, "throughput_mean": 1.72, "throughput_peak": 1.96}
    for metric, figure in figures.items():
        claim = f"{METRICS[metric]} against elasticflow"
        yield measured(claim, source, figure, runs.best(metric), c.TIMES, why)
    jct = runs.padded_change(preset, "elasticflow")
    yield measured("mean JCT against elasticflow, padded", source, -33.1, jct, why=why)


def _ablations(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield the claims of section 5.7 (Figs 17, 18 and 19)."""
    source, runs = "section 5.7, Fig. 17", labelled(found, parts.ablations(rounds))
    for label, what in (
        ("without profiler: profiling of whole plans", "without profiler"),
        ("without planner: data-parallel profiles", "without planner"),
        ("no heterogeneous scaling", "without heterogeneity-aware scheduling"),
        ("no elastic scaling", "without elastic scheduling"),
        ("without pruning: full search", "without pruning"),
    ):
        jct = runs.padded_times(label, "arena")
        yield measured(f"mean JCT {what}, padded", source, None, jct, c.TIMES, LOST)
        throughput = runs.change("throughput_mean", label, "arena")
        yield measured(f"mean throughput {what}", source, None, throughput, why=LOST)
    claim = "leaving out heterogeneity hurts the JCT more than leaving out elasticity"
    jct = runs.padded_times("no heterogeneous scaling", "no elastic scaling")
    yield measured(claim, source, 3.53 / 2.54, jct, c.TIMES, PREPRINT)
    for name, what in (("sia", "of sia a sample"), ("without pruning", "a sample without pruning")):
        spent = only_published(lambda name=name: parts.gpu_time(found, name)["all"])  # type: ignore[misc]
        yield measured(f"GPU time {what}, over arena's", "section 5.7, Fig. 18", None, spent, c.TIMES, LOST)
    for factor in parts.FACTORS:
        gain = only_published(lambda factor=factor: _lifespan_gain(found, factor))  # type: ignore[misc]
        claim = f"mean throughput of scheduling alone over the worst baseline, iterations x{factor:g}"
        why = f"{LOST}; it says the gain grows"
        yield measured(claim, "section 5.7, Fig. 19", None, gain, c.TIMES, why)


def _lifespan_gain(found: Found, factor: float) -> float:
    ours, *others = (float(found[spec]["throughput_mean"]) for spec in parts.lifespan_runs(factor))
    return ours / min(others)


def _sensitivity(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield the claims of sections 2.3 and 5.8."""
    source, why = "section 5.8", f"{PREPRINT}, at denser submission: see its page"
    runs = labelled(found, parts.depths(rounds))
    claim = "mean JCT of finished jobs, search depth 3 against 1"
    yield measured(claim, source, -14.6, runs.change("jct_mean", "3", "1"), why=why)
    claim, throughput = "mean throughput, search depth 3 against 1", runs.change("throughput_mean", "3", "1")
    yield measured(claim, source, 1.03, throughput, c.ClaimUnit(decimals=2), why)

    def urgent() -> float:
        jobs = found[parts.QUEUES.specs[-1]]["by_priority"]
        return difference(*(jobs[end(jobs, key=int)]["jct_mean_so_far"] for end in (max, min)))

    queues = _last_against_first(found, parts.QUEUES, "jct_mean_censored")
    precise = _last_against_first(found, parts.PRECISE, "throughput_mean")
    for claim, section, of in (
        ("censored JCT with 5 queues against 1, submissions x4", source, queues),
        ("JCT of the highest of 5 priorities against the lowest", source, urgent),
        ("throughput of sia with precise data against its linear estimate", "section 2.3", precise),
    ):
        yield measured(claim, section, None, only_published(of), why=LOST)


def _last_against_first(found: Found, section: Section, metric: str) -> Callable[[], float]:
    first, *_, last = section.specs
    return lambda: difference(float(found[last][metric]), float(found[first][metric]))
