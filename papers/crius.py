"""Crius's page: Arena's preprint on Arena's published traces, with its ablations and Arena beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import arena_claims as arena
from . import arena_sections as parts
from . import claims as c
from . import page
from .arena_claims import (
    METRICS,
    PlaceClaims,
    RunComparison,
    compare_labelled_runs,
    gain_claims,
)
from .arena_scenarios import (
    build_run_scenario,
    check_data,
    make_run,
    make_run_factory,
    plain,
    variant,
)
from .arena_sections import DEPTHS, ROUNDS, SETTINGS, describe_length
from .claims import (
    PUBLISHED,
    PaperClaim,
    make_measured_claim,
    not_simulated,
    quantity,
)
from .oracle_claims import oracle_claims
from .page import Panel, panel_plot
from .reproduction import Found, Options, change, choose, column, number, run_all

JCT_LOWER = {"fcfs": 81.3, "elasticflow-ls": 75.8, "gandiva": 80.1, "gavel": 66.4}
"""The baselines, and by how many percent the preprint's mean JCT is below theirs (section 8.4)."""


class Ablation(NamedTuple):
    """A part of Crius that is switched off, with the preprint's JCT, jobs and throughput without it."""

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


def make_claims(found: Found, lengths: Sequence[int]) -> list[PaperClaim]:
    """Return all claims of the preprint Crius beside our results, for runs of each number of rounds."""
    return [
        *(claim for rounds in lengths for claim in _claim_gains(found, rounds)),
        *(
            *_cluster(found, lengths[-1]),
            *arena.place_claims(found, ("crius", *JCT_LOWER), PLACES),
            *not_simulated("crius"),
        ),
        *arena.deadline_claims(found, "crius"),
        *(*_ablations(found, lengths[-1]), *_depths(found)),
    ]


def _claim_gains(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield the claims of Fig. 17a on gains in JCT."""
    runs = RunComparison(found, make_run_factory("philly", rounds), ("crius", *JCT_LOWER))
    for policy, percent in JCT_LOWER.items():
        claim = f"mean JCT against {policy}, padded as in the preprint, {rounds:,} rounds"
        yield make_measured_claim(
            claim, "section 8.4, Fig. 17a", -percent, runs.measure_padded_change("crius", policy)
        )


def _cluster(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield the claims of Figs 16, 17b and 17c."""
    runs, lasts = (
        RunComparison(found, make_run_factory("philly", rounds), ("crius", *JCT_LOWER)),
        f"{rounds:,} rounds",
    )
    for source, metric, figure in (
        ("section 8.4, Fig. 17b", "jobs_finished", 1.29),
        ("section 8.4, Figs 16 and 17c", "throughput_mean", 1.54),
        ("section 8.4, Figs 16 and 17c", "throughput_peak", 1.57),
    ):
        claim = f"{METRICS[metric]} over a baseline, the greatest gain, {lasts}"
        yield make_measured_claim(claim, source, figure, runs.best(metric), c.TIMES)
        yield from gain_claims(runs, metric, lasts, source)
    peak = runs.change("throughput_peak", "elasticflow-ls", "crius")
    claim = f"peak throughput of elasticflow-ls against crius, {lasts}"
    yield make_measured_claim(claim, "section 8.4, Fig. 17c", -10.7, peak)
    restarts = runs.measure_metric("crius", "restarts_mean")
    yield make_measured_claim(f"restarts a job of crius, {lasts}", "section 8.4", 2.29, restarts, c.COUNT)
    why = "an input: the sizes are those of the trace"
    yield PaperClaim("distribution of model sizes", "section 8.4, Fig. 15", None, why=why)


FIG_14, FIG_18 = "section 8.3, Fig. 14", "section 8.4, Fig. 18"
OWN_DAY = "its own day is not in the artifact: ours is generated"
PLACES: Sequence[PlaceClaims] = (
    PlaceClaims("testbed-a", "testbed", FIG_14, arena.TESTBED),
    PlaceClaims("venus-day", "Helios Venus day", FIG_18, arena.VENUS_DAY),
    PlaceClaims("pai-day", "PAI day, low load", FIG_18, arena.PAI_DAY, OWN_DAY),
)


def _ablations(found: Found, rounds: int) -> Iterator[PaperClaim]:
    """Yield the claims of Fig. 20."""
    source, runs = "section 8.6, Fig. 20", compare_labelled_runs(found, _ablations_table(rounds))
    metrics = ("jobs_finished", "throughput_mean", "throughput_peak")
    for label, (_, jct, *figures) in ABLATIONS.items():
        if jct is None:
            continue
        times = runs.measure_padded_ratio(label, "crius")
        yield make_measured_claim(
            f"mean JCT with {label}, padded, {rounds:,} rounds", source, jct, times, c.TIMES
        )
        for metric, figure in zip(metrics, figures, strict=True):
            claim, change = f"{METRICS[metric]} with {label}", runs.change(metric, label, "crius")
            yield make_measured_claim(f"{claim}, {rounds:,} rounds", source, figure, change)


def _depths(found: Found) -> Iterator[PaperClaim]:
    """Yield the claims of Fig. 21."""
    low, *_, high = map(str, DEPTHS)
    runs, crowded = _depths_table().runs, f"{DENSITIES[-1]:g}"
    compared = RunComparison(found, lambda _, depth: runs[depth, crowded], (high, *map(str, DEPTHS)))
    jct = c.only_published(lambda: compared.measure_padded_change(high, low)(PUBLISHED))
    throughput = c.only_published(lambda: compared.change("throughput_mean", high, low)(PUBLISHED))
    where, source = f"search depth {high} against {low}, submissions x{crowded}", "section 8.7, Fig. 21"
    yield make_measured_claim(f"mean JCT, padded, {where}", f"{source}b", -14.6, jct)
    yield make_measured_claim(
        f"mean throughput, {where}", f"{source}c", 1.03, throughput, c.ClaimUnit(decimals=2)
    )
    claim, why = "decision time a job at the greatest depth", "the speed of a program, not of a cluster"
    yield quantity(claim, f"{source}a", 5.98, unit="s", decimals=2, why=why)


SUMMARY = "Arena's preprint on 1,280 GPUs: against its baselines, Arena itself, and its ablations"
POLICIES = ("crius", "arena", "fcfs", "elasticflow-ls", "gandiva", "gavel")
COLUMNS = (parts.FINISHED, parts.THROUGHPUT, parts.PEAK, parts.JCT, parts.CENSORED, page.RESTARTS)


def reproduce(options: Options) -> page.Report:
    """Simulate the runs that reproduce the preprint Crius, and return its page with the results."""
    check_data(options.data)
    chosen, note = choose(POLICIES, options.policies)
    lengths = [664] if options.quick else [664, 2000]
    plot = "crius.svg"
    sections = [page.words(f"![Censored JCT]({plot})")]
    for rounds in [*lengths, *([] if options.quick else [None])]:
        sections.append(_comparison(chosen, rounds))
        sections += [_ablations_table(rounds)] if "crius" in chosen else []
    sections += [_depths_table(), parts.deadlines("crius")] if "crius" in chosen else []
    places = ["testbed-a"] if options.quick else ["testbed-a", "venus-day", "pai-day"]
    sections += [parts.place(name, chosen, "crius") for name in places]
    found = run_all(page.list_specs(sections), build_run_scenario, options)
    claims = [*make_claims(found, lengths), *oracle_claims(options.data, "crius")]
    introduction = page.passage("crius", "introduction") + note
    bars = {plot: panel_plot([_bars(chosen, lengths[0], setting, found) for setting in SETTINGS])}
    return page.make_report(introduction, claims, sections, found, bars, plain)


def _bars(policies: Sequence[str], rounds: int, setting: str, found: Found) -> Panel:
    runs = {policy: found[make_run("philly", rounds, setting, policy)] for policy in policies}
    hours = {policy: [run["jct_mean_censored"] / 3600] for policy, run in runs.items()}
    return Panel(f"{describe_length('philly', rounds)}, {setting}", "", "censored mean JCT, h", (), hours)


def _comparison(policies: Sequence[str], rounds: int | None) -> page.Section:
    runs = {(policy, s): make_run("philly", rounds, s, policy) for policy in policies for s in SETTINGS}

    def make_columns(found: Found, runs: page.Labelled) -> dict[str, list[str]]:
        means = {setting: _compute_padded_jct(runs, found, setting) for setting in SETTINGS}
        gains = [
            change(means[s]["crius"], means[s][policy]) if means[s] and policy != "crius" else "-"
            for policy, s in runs
        ]
        claimed = [f"{-JCT_LOWER[policy]:.1f} %" if policy in JCT_LOWER else "-" for policy, _ in runs]
        padded = column([means[s].get(policy) for policy, s in runs])
        return {"JCT padded, s": padded, "Crius's JCT, padded": gains, "preprint": claimed}

    return page.runs_table(
        f"## {describe_length('philly', rounds)}", ["policy", "setting"], runs, COLUMNS, make_columns
    )


def _compute_padded_jct(runs: page.Labelled, found: Found, setting: str) -> dict[str, float]:
    """Return the padded mean JCT of each policy of the preprint, seconds; empty without a run of Crius.

    Arena is not in the preprint, so it does not set how far lists are padded.
    """
    own = {labels: spec for labels, spec in runs.items() if labels[0] != "arena"}
    both = {labels: spec for labels, spec in runs.items() if labels[0] in ("crius", "arena")}
    return {
        **page.compute_padded_by_label(found, both, "crius", setting),
        **page.compute_padded_by_label(found, own, "crius", setting),
    }


def _ablations_table(rounds: int | None) -> page.Section:
    published = {
        label: (number(left.jct, 2), "-" if left.throughput is None else f"{left.throughput:+.1f} %")
        for label, left in ABLATIONS.items()
    }
    runs = {
        (label, setting): make_run("philly", rounds, setting, "crius", **ablation.parameters)
        for setting in SETTINGS
        for label, ablation in ABLATIONS.items()
    }
    text = f"### Ablations, {describe_length('philly', rounds)}"
    return parts.ablations_table(text, runs, "crius", published)


def _depths_table() -> page.Section:
    """Return the table by search depth and by how many times as dense submissions are."""
    settings = {f"{density:g}": variant(PUBLISHED, "density-x", density) for density in DENSITIES}
    runs = {
        (str(depth), density): make_run("philly", ROUNDS, setting, "crius", search_depth=depth)
        for density, setting in settings.items()
        for depth in DEPTHS
    }
    text = page.passage("crius", "depths", rounds=ROUNDS)

    def make_columns(found: Found, runs: page.Labelled) -> dict[str, list[str]]:
        means = [
            page.compute_padded_by_label(found, runs, str(DEPTHS[-1]), at).get(depth) for depth, at in runs
        ]
        return {"JCT padded, s": column(means)}

    return page.runs_table(text, ["search depth", "submissions, times"], runs, parts.COLUMNS, make_columns)
