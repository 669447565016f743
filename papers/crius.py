"""Crius's page: Arena's preprint on Arena's published traces, with its ablations and Arena beside it."""

from collections.abc import Sequence
from typing import Any

from . import arena_sections as parts
from . import page
from .arena_figures import compare, compare_labelled, compare_policies
from .arena_scenarios import build_run_scenario, check_data, make_run, variant
from .arena_sections import DEPTHS, ROUNDS, SETTINGS, describe_length
from .claim_files import judge_claims, published
from .claims import PUBLISHED
from .estimates import judge_estimates
from .reproduction import Found, Options, change, choose, column, number, run_all

SUMMARY = "Arena's preprint on 1,280 GPUs: against its baselines, Arena itself, and its ablations"
POLICIES = ("crius", "arena", "fcfs", "elasticflow-ls", "gandiva", "gavel")
BASELINES = tuple(published("crius")["jct_lower"])
PLACES = ("testbed-a", "venus-day", "pai-day")
ABLATIONS: dict[str, dict[str, Any]] = {
    "crius": {},
    "no elastic scaling": {"elastic": False},
    "no heterogeneous scaling": {"hetero": False},
    "no opportunistic execution": {"opportunistic": False},
    "any multiple of the request": {"span": None},
}
"""Parameters of the policy that switch a part of it off."""
DENSITIES = (1.0, 2.0, 4.0)
COLUMNS = (parts.FINISHED, parts.THROUGHPUT, parts.PEAK, parts.JCT, parts.CENSORED, page.RESTARTS)


def crius_figures(found: Found, lengths: Sequence[int]) -> dict[str, Any]:
    """Return the figures that the file of the preprint's claims names, for runs of each number of rounds."""
    rounds = lengths[-1]
    figures: dict[str, Any] = {"rounds": rounds, "lengths": {"rounds": lengths}}
    for setting in SETTINGS:
        figures[setting] = compare_policies(found, setting, ("crius", *BASELINES), PLACES) | {
            "deadlines": compare_labelled(found, parts.deadlines("crius"), setting, "crius", "elasticflow"),
            "ablations": compare_labelled(found, _ablations_table(rounds), setting),
        }
    runs, dense = _depths_table().runs, f"{DENSITIES[-1]:g}"
    # The greatest depth says how many jobs count in the padded means.
    depths = {str(depth): runs[str(depth), dense] for depth in reversed(DEPTHS)}
    figures[PUBLISHED]["depths"] = compare(found, depths)
    return figures


def reproduce(options: Options) -> page.Report:
    """Simulate the runs that reproduce the preprint Crius, and return its page with the results."""
    check_data(options.data)
    chosen, note = choose(POLICIES, options.policies)
    lengths = [664] if options.quick else [664, 2000]
    sections: list[page.Section] = []
    for rounds in lengths:
        sections.append(_comparison(chosen, rounds))
        sections += [_ablations_table(rounds)] if "crius" in chosen else []
    sections += [_depths_table(), parts.deadlines("crius")] if "crius" in chosen else []
    sections += [parts.place(name, chosen) for name in (PLACES[:1] if options.quick else PLACES)]
    found = run_all(page.list_specs(sections), build_run_scenario, options)
    claims = judge_claims("crius", crius_figures(found, lengths)) + judge_estimates(options.data, "crius")
    introduction = page.passage("crius", "introduction") + note
    return page.make_report(introduction, claims, sections, found)


def _comparison(policies: Sequence[str], rounds: int) -> page.Section:
    runs = {(policy, s): make_run("philly", rounds, s, policy) for policy in policies for s in SETTINGS}

    def make_columns(found: Found, runs: page.Labelled) -> dict[str, list[str]]:
        means = {setting: _compute_padded_jct(runs, found, setting) for setting in SETTINGS}
        gains = [
            change(means[s]["crius"], means[s][policy]) if means[s] and policy != "crius" else "-"
            for policy, s in runs
        ]
        lower = published("crius")["jct_lower"]
        claimed = [f"{lower[policy]:.1f} %" if policy in lower else "-" for policy, _ in runs]
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


def _ablations_table(rounds: int) -> page.Section:
    told = published("crius")["ablations"]
    shown = {
        label: (number(told[label]["jct_padded"], 2), f"{told[label]['throughput_mean']:+.1f} %")
        for label in told
    }
    runs = {
        (label, setting): make_run("philly", rounds, setting, "crius", **parameters)
        for setting in SETTINGS
        for label, parameters in ABLATIONS.items()
    }
    text = f"### Ablations, {describe_length('philly', rounds)}"
    return parts.ablations_table(text, runs, "crius", shown)


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
