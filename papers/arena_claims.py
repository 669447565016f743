"""Makes the claims of Arena's page: sections 2.3, 5.2, 5.3 and 5.6 to 5.8."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from . import arena_sections as parts
from . import claims as c
from .arena_scenarios import BUDGET_FACTOR, RunOf, make_run_factory
from .claims import (
    Measure,
    PaperClaim,
    difference,
    make_measured_claim,
    only_published,
)
from .page import Section
from .reproduction import Found, compute_padded_jct

BASELINES = {"fcfs": 81.3, "elasticflow-ls": 80.5, "gavel": 76.6, "sia": 75.2}
"""The baselines, and by how many percent Arena's mean JCT is below theirs (section 5.3). That of FCFS is the
preprint's too."""
LOST = "the text at hand has lost the paper's figure"
PREPRINT = "crius"
"""The preprint's module. Where Arena's text at hand has lost a figure, and the preprint has one of the same
experiment, the row has the preprint's, says so, and counts there."""
METRICS = {
    "jct_mean": "mean JCT",
    "queue_mean": "mean queueing time",
    "throughput_mean": "mean throughput",
    "throughput_peak": "peak throughput",
    "jobs_finished": "jobs finished",
    "deadline_satisfaction": "share of deadlines met",
}


class RunComparison(NamedTuple):
    """Runs of several policies in each setting: equal rules for all policies, or the paper's own rules.

    `run` returns the run of a setting and a name. The first name is the paper's own policy.
    """

    found: Found
    run: RunOf
    names: Sequence[str]

    def _figure(self, setting: str, name: str, metric: str) -> float:
        return float(self.found[self.run(setting, name)][metric])

    def measure_metric(self, name: str, metric: str) -> Measure:
        """Return a function: setting -> the metric of one policy's run there."""
        return lambda setting: self._figure(setting, name, metric)

    def change(self, metric: str, ours: str, theirs: str) -> Measure:
        """Return a function: setting -> by how many percent `ours` differs from `theirs` in a metric."""
        return lambda s: difference(self._figure(s, ours, metric), self._figure(s, theirs, metric))

    def best(self, metric: str) -> Measure:
        """Return a function: setting -> greatest gain of the paper's policy over any other, percent or ratio.

        `choose_unit` says which of the two it is.
        """

        def measure_setting(setting: str) -> float:
            own, *others = (self._figure(setting, name, metric) for name in self.names)
            ratios = [own / other for other in others]
            return 100 * (min(ratios) - 1) if choose_unit(metric) == c.PERCENT else max(ratios)

        return measure_setting

    def measure_gain(self, metric: str, other: str) -> Measure:
        """Return a function: setting -> gain of the paper's policy over the policy `other`, percent or ratio.

        `choose_unit` says which of the two it is.
        """
        return RunComparison(self.found, self.run, (self.names[0], other)).best(metric)

    def measure_padded_ratio(self, ours: str, theirs: str) -> Measure:
        """Return a function: setting -> mean JCT of policy `ours` / that of `theirs`; unfinished jobs count.

        An unfinished job counts with the greatest JCT; `compute_padded_jct` says how many count.
        """

        def measure_setting(setting: str) -> float:
            runs = {name: self.found[self.run(setting, name)] for name in self.names}
            means = compute_padded_jct(runs, self.names[0])
            return means[ours] / means[theirs]

        return measure_setting

    def measure_padded_change(self, ours: str, theirs: str) -> Measure:
        """Return a function: setting -> by how many % mean JCT of policy `ours` is above that of `theirs`.

        Unfinished jobs count as in `measure_padded_ratio`.
        """
        times = self.measure_padded_ratio(ours, theirs)
        return lambda setting: difference(times(setting) or 0.0, 1.0)


def compare_labelled_runs(found: Found, section: Section, *names: str) -> RunComparison:
    """Return a comparison of the runs labelled `names` in a section's table; of all its runs if none."""
    every = list(dict.fromkeys(name for name, _ in section.runs))
    return RunComparison(found, lambda setting, name: section.runs[name, setting], names or every)


def choose_unit(metric: str) -> c.ClaimUnit:
    """Return the unit of gains in a metric: percent for means of JCT and queueing time, else a ratio."""
    return c.PERCENT if metric in ("jct_mean", "queue_mean") else c.TIMES


def make_claims(found: Found, rounds: int) -> list[PaperClaim]:
    """Return all claims of the paper Arena beside our runs; the main runs last `rounds` scheduling rounds."""
    return [
        *(*_simulator(found), *_week(found, rounds), *place_claims(found, ("arena", *BASELINES), PLACES)),
        *(*_testbeds(found), *deadline_claims(found, "arena")),
        *(*_ablations(found, rounds), *_sensitivity(found, rounds), *c.not_simulated("arena")),
    ]


def _simulator(found: Found) -> Iterator[PaperClaim]:
    """Yield the claims on each policy against the artifact's own simulator."""
    source = "the artifact's simulator"
    for (trace, rounds), policies in parts.REFERENCE.items():
        for policy in sorted(policies, key=lambda name: name != "arena"):
            ours, why = RunComparison(found, make_run_factory(trace, rounds), [policy]), ""
            if policy == "arena":
                why = "see Departures from the paper's text, each switched alone"
            for metric, what, unit in (
                ("jobs_finished", "jobs finished", "jobs"),
                ("jct_mean", "JCT of finished jobs", "s"),
                ("throughput_mean", "mean throughput", "samples/s"),
            ):
                figure = getattr(policies[policy], metric)
                if figure is not None:
                    claim = f"{policy}'s {what}, {rounds:,} rounds of Philly"
                    shown = c.ClaimUnit(unit, None, 0)
                    yield make_measured_claim(
                        claim, source, float(figure), ours.measure_metric(policy, metric), shown, why
                    )
    late, many = parts.JITTER_RUNS, len(parts.JITTER_RUNS)
    claim = f"arena's JCT of finished jobs, mean of {many} draws of submissions up to a round late"
    jct = only_published(lambda: sum(float(found[spec]["jct_mean"]) for spec in late) / many)
    yield make_measured_claim(claim, source, 20322.0, jct, c.ClaimUnit("s", None, 0))


def gain_claims(runs: RunComparison, metric: str, where: str, source: str) -> Iterator[PaperClaim]:
    """Yield claims, without figures, that the paper's policy gains over each baseline, beside our gains.

    `where` names the runs in the claim's text, and `source` is the section or figure of the paper.
    """
    unit = choose_unit(metric)
    for other in runs.names[1:]:
        claim, direction = f"{METRICS[metric]} against {other}, {where}", -1 if unit == c.PERCENT else 1
        yield make_measured_claim(
            claim, source, None, runs.measure_gain(metric, other), unit, direction=direction
        )


def _week(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield the claims of section 5.3 (Figs 11 and 12)."""
    runs = RunComparison(found, make_run_factory("philly", rounds), ("arena", *BASELINES))
    where, source = f"{rounds:,} rounds of Philly", "section 5.3, Fig. 12"
    for policy, percent in BASELINES.items():
        claim = f"mean JCT against {policy}, padded as in the paper, {where}"
        jct, first = runs.measure_padded_change("arena", policy), PREPRINT if policy == "fcfs" else ""
        yield make_measured_claim(claim, source, -percent, jct, first_stated_by=first)
    source = "section 5.3, Figs 11 and 12"
    for metric, figure in (("jobs_finished", 1.45), ("throughput_mean", 1.55), ("throughput_peak", 1.58)):
        claim = f"{METRICS[metric]} over a baseline, the greatest gain, {where}"
        yield make_measured_claim(claim, source, figure, runs.best(metric), c.TIMES)
        yield from gain_claims(runs, metric, where, source)
    claim, restarts = f"reschedulings a job of arena, {where}", runs.measure_metric("arena", "restarts_mean")
    yield make_measured_claim(claim, "section 5.3", 2.29, restarts, c.COUNT, first_stated_by=PREPRINT)
    for metric, of, direction in (
        ("jct_mean", runs.measure_padded_change("gavel", "elasticflow-ls"), -1),
        ("throughput_mean", runs.change("throughput_mean", "gavel", "elasticflow-ls"), 1),
    ):
        padded = ", padded" if metric == "jct_mean" else ""
        claim = f"{METRICS[metric]} of gavel against elasticflow-ls{padded}, {where}"
        yield make_measured_claim(claim, source, None, of, direction=direction)


class PlaceClaims(NamedTuple):
    """The gains that one passage of a paper claims on one cluster.

    `greatest` has the paper's greatest gain over a baseline by metric, None where no text has it; `metrics`
    are those in which it says that it gains on all. `figures_of` names the section of the preprint whose
    figures they are.
    """

    place: str
    title: str
    source: str
    greatest: Mapping[str, float | None]
    why: str = ""
    figures_of: str = ""


FIG_10, FIG_13 = "section 5.2, Fig. 10", "section 5.3, Fig. 13"
TESTBED = {"jct_mean": -48.9, "queue_mean": -71.0, "throughput_mean": 1.49, "throughput_peak": 1.36}
VENUS_DAY = {"jct_mean": -64.7, "throughput_mean": 1.48, "throughput_peak": 1.92}
PAI_DAY = {"jct_mean": -66.3, "throughput_mean": 1.29, "throughput_peak": 2.63}
OWN_DAY = "its own day is not published: ours is generated"
UNKNOWN = dict.fromkeys(("jct_mean", "queue_mean", "throughput_mean"))
PLACES: Sequence[PlaceClaims] = (
    PlaceClaims("testbed-a", "testbed A", FIG_10, TESTBED, figures_of="section 8.3, Fig. 14"),
    PlaceClaims("testbed-b", "testbed B", FIG_10, UNKNOWN, f"{LOST}; ours by our oracle"),
    PlaceClaims("venus-day", "Helios Venus day", FIG_13, VENUS_DAY, figures_of="section 8.4, Fig. 18"),
    PlaceClaims("pai-day", "PAI day, low load", FIG_13, PAI_DAY, OWN_DAY, "section 8.4, Fig. 18"),
)


def place_claims(found: Found, names: Sequence[str], rows: Iterable[PlaceClaims]) -> Iterator[PaperClaim]:
    """Yield each passage's claims of a policy's greatest gain, and of its gain over each other policy."""
    for place, title, source, greatest, why, figures_of in rows:
        runs, where = RunComparison(found, make_run_factory(place), names), title
        shown, first = cite_preprint(source, figures_of), PREPRINT if figures_of else ""
        for metric, figure in greatest.items():
            if figure is not None:
                claim = f"{METRICS[metric]} over a baseline, the greatest gain, {where}"
                unit, of = choose_unit(metric), runs.best(metric)
                yield make_measured_claim(claim, shown, figure, of, unit, why, first_stated_by=first)
            yield from gain_claims(runs, metric, where, source)


CRIUS_DEADLINES = "section 8.5, Fig. 19"


def cite_preprint(source: str, figures_of: str) -> str:
    """Return a claim's source as text; append `figures_of`, a section of the preprint Crius, if not empty."""
    return f"{source}; figure of Crius, {figures_of}" if figures_of else source


def _testbeds(found: Found) -> Iterator[PaperClaim]:
    """Yield the claims of section 5.7 on one GPU type, and of section 5.2 on fidelity."""
    runs = RunComparison(found, make_run_factory("h100"), ("arena", *BASELINES))
    yield from gain_claims(runs, "throughput_mean", "128 H100", "section 5.7, homogeneous study")

    def error() -> float:
        stored = {policy: jct_s for policy, (_, jct_s) in parts.STORED.items()}
        ratios = [found[parts.TESTBED[policy]]["jct_mean"] / jct_s for policy, jct_s in stored.items()]
        return float(100 * sum(abs(ratio - 1) for ratio in ratios) / len(ratios))

    source = cite_preprint("section 5.2, simulation fidelity", "section 8.3")
    claim, why = "error of simulated JCT against the testbed", "the artifact's logs of two policies"
    why = f"against {why}, whose length is not known"
    yield make_measured_claim(
        claim, source, 7.31, only_published(error), c.SHARE, why, first_stated_by=PREPRINT
    )
    claim, why = "error of simulated throughput against the testbed", "the stored logs have no throughput"
    yield c.quantity(claim, source, 3.16, why=why, first_stated_by=PREPRINT)


def deadline_claims(found: Found, preset: str) -> Iterator[PaperClaim]:
    """Yield claims of `preset` (`arena`, `crius`) against ElasticFlow with deadlines, beside our results."""
    source = CRIUS_DEADLINES if preset == "crius" else cite_preprint("section 5.6", CRIUS_DEADLINES)
    first = "" if preset == "crius" else PREPRINT
    runs = compare_labelled_runs(found, parts.deadlines(preset), preset, "elasticflow")
    why = f"budgets x{BUDGET_FACTOR:g} as in the artifact's simulator; {parts.ROUNDS} rounds"
    figures = {"deadline_satisfaction": 1.69, "throughput_mean": 1.72, "throughput_peak": 1.96}
    for metric, figure in figures.items():
        claim = f"{METRICS[metric]} against elasticflow"
        yield make_measured_claim(
            claim, source, figure, runs.best(metric), c.TIMES, why, first_stated_by=first
        )
    claim, jct = "mean JCT against elasticflow, padded", runs.measure_padded_change(preset, "elasticflow")
    yield make_measured_claim(claim, source, -33.1, jct, why=why, first_stated_by=first)


def _ablations(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield the claims of section 5.7 (Figs 17, 18 and 19)."""
    source, runs = "section 5.7, Fig. 17", compare_labelled_runs(found, parts.ablations(rounds))
    for label, what in (
        ("without profiler: profiling of whole plans", "without profiler"),
        ("without planner: data-parallel profiles", "without planner"),
        ("no heterogeneous scaling", "without heterogeneity-aware scheduling"),
        ("no elastic scaling", "without elastic scheduling"),
        ("without pruning: full search", "without pruning"),
    ):
        jct = runs.measure_padded_ratio(label, "arena")
        yield make_measured_claim(f"mean JCT {what}, padded", source, None, jct, c.TIMES, LOST, direction=1)
        throughput = runs.change("throughput_mean", label, "arena")
        yield make_measured_claim(f"mean throughput {what}", source, None, throughput, why=LOST, direction=-1)
    claim = "leaving out heterogeneity hurts the JCT more than leaving out elasticity"
    jct = runs.measure_padded_ratio("no heterogeneous scaling", "no elastic scaling")
    why = f"the preprint's: {3.53 / 2.54:.2f}x, from its two"
    yield make_measured_claim(claim, source, None, jct, c.TIMES, why, direction=1)
    for name, what, direction in (
        ("sia", "of sia a sample", 1),
        ("without pruning", "a sample without pruning", 0),
    ):
        spent = only_published(lambda name=name: parts.gpu_time(found, name)["all"])  # type: ignore[misc]
        claim, source = f"GPU time {what}, over arena's", "section 5.7, Fig. 18"
        yield make_measured_claim(claim, source, None, spent, c.TIMES, LOST, direction=direction)
    yield from _lifespans(found)


def _lifespans(found: Found) -> Iterator[PaperClaim]:
    """Yield the claims of Fig. 19: the gain over each baseline, which grows with the lifespan."""
    source, baselines = "section 5.7, Fig. 19", parts.LIFESPAN_BASELINES
    few, *_, many = parts.FACTORS

    def gain(factor: float, other: int) -> float:
        ours, *others = (float(found[spec]["throughput_mean"]) for spec in parts.lifespan_runs(factor))
        return ours / others[other]

    for at, other in enumerate(baselines):
        for factor in parts.FACTORS:
            of = only_published(lambda factor=factor, at=at: gain(factor, at))  # type: ignore[misc]
            claim = f"mean throughput of scheduling alone against {other}, iterations x{factor:g}"
            # The text calls the benefit of sparse jobs limited, and states no sign for them.
            direction = 0 if factor == few else 1
            yield make_measured_claim(claim, source, None, of, c.TIMES, LOST, direction=direction)
        growth = only_published(lambda at=at: gain(many, at) / gain(few, at))  # type: ignore[misc]
        claim = f"the gain over {other} grows with the lifespan: iterations x{many:g} over x{few:g}"
        yield make_measured_claim(claim, source, None, growth, c.TIMES, LOST, direction=1)


def _sensitivity(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield the claims of sections 2.3 and 5.8."""
    source, why = "section 5.8", f"{LOST}; the preprint's are of denser submission: see its page"
    runs = compare_labelled_runs(found, parts.depths(rounds))
    claim = "mean JCT of finished jobs, search depth 3 against 1"
    yield make_measured_claim(claim, source, None, runs.change("jct_mean", "3", "1"), why=why, direction=-1)
    claim, throughput = "mean throughput, search depth 3 against 1", runs.change("throughput_mean", "3", "1")
    yield make_measured_claim(claim, source, None, throughput, c.ClaimUnit(decimals=2), why, direction=1)

    def urgent() -> float:
        jobs = found[parts.QUEUES.specs[-1]]["by_priority"]
        return difference(*(jobs[end(jobs, key=int)]["jct_mean_so_far"] for end in (max, min)))

    queues = _last_against_first(found, parts.QUEUES, "jct_mean_censored")
    precise = _last_against_first(found, parts.PRECISE, "throughput_mean")
    for claim, section, of, direction in (
        ("censored JCT with 5 queues against 1, submissions x4", source, queues, 0),
        ("JCT of the highest of 5 priorities against the lowest", source, urgent, 0),
        ("throughput of sia with precise data against its linear estimate", "section 2.3", precise, 1),
    ):
        yield make_measured_claim(claim, section, None, only_published(of), why=LOST, direction=direction)


def _last_against_first(found: Found, section: Section, metric: str) -> Callable[[], float]:
    first, *_, last = section.specs
    return lambda: difference(float(found[last][metric]), float(found[first][metric]))
