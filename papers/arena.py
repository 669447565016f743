"""Arena's page (EuroSys '26, section 5): 1,280 GPUs of four types, its published traces and measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import arena_scenarios as scenarios
from . import arena_sections as parts
from . import page
from .arena_figures import arena_figures
from .arena_scenarios import ROUND_S, make_run
from .arena_sections import REFERENCE, SETTINGS, describe_length
from .claim_files import judge_claims, published
from .claims import FAIR, PUBLISHED
from .estimates import judge_estimates
from .reproduction import Figures, Found, Options, RunSpec, change, choose, column, run_all

SUMMARY = "1,280 GPUs of four types, the Philly and Helios Venus traces (EuroSys '26, section 5.3)"
POLICIES = ("fcfs", "elasticflow-ls", "gavel", "sia", "arena")

COLUMNS = (parts.FINISHED, parts.DROPPED, parts.THROUGHPUT, parts.PEAK, parts.JCT, parts.CENSORED)


def reproduce(options: Options) -> page.Report:
    """Simulate the runs that reproduce the paper Arena, and return its page with the results."""
    scenarios.check_data(options.data)
    chosen, note = choose(POLICIES, options.policies)
    whole = not options.quick
    lengths = [664, 2000] if whole else [664]
    sections = [_comparison(chosen, "philly", rounds) for rounds in lengths]
    if "arena" in chosen:
        sections += [parts.DEPARTURES, *([parts.CHANCE] if whole else [])]
        sections += [parts.ablations(lengths[-1]), parts.depths(lengths[-1])]
        sections += [parts.deadlines(), parts.QUEUES]
        sections += [parts.FIDELITY, parts.CLASSES] if "sia" in chosen else []
        sections += [parts.LIFESPANS] if whole else []
        sections += [parts.PRECISE] if whole and "sia" in chosen else []
    sections += [
        parts.place(name, chosen) for name in (scenarios.OTHER_PLACES if whole else scenarios.TESTBEDS)
    ]
    found = run_all(page.list_specs(sections), scenarios.build_run_scenario, options)
    introduction = page.passage("arena", "introduction", round_s=ROUND_S)
    claims = judge_claims("arena", arena_figures(found, lengths[-1]))
    claims += judge_estimates(options.data, "arena")
    return page.make_report(introduction + note, claims, sections, found, plain=_plain)


def _plain(spec: RunSpec, figures: Figures) -> dict[str, Any]:
    with_rounds = scenarios.plain(spec, figures)
    return {**with_rounds, "published": _reference(spec.trace, with_rounds["rounds"]).get(spec.label)}


def _reference(trace: str, rounds: int | None) -> Mapping[str, Figures]:
    """Return what the artifact's own simulator gave, by policy; nothing where it was not run."""
    return REFERENCE.get(rounds or 0, {}) if trace == "philly" else {}


def _comparison(policies: Sequence[str], trace: str, rounds: int | None) -> page.Section:
    """Return the table of policies on a trace, with a text that compares it with the published simulator."""
    reference = _reference(trace, rounds)
    runs = {(policy, s): make_run(trace, rounds, s, policy) for policy in policies for s in SETTINGS}

    def text(found: Found) -> str:
        rows: dict[tuple[str, str], Figures] = {}
        for policy in policies:
            if policy in reference:
                rows[policy, "*published*"] = reference[policy]
            rows |= {(policy, setting): found[runs[policy, setting]] for setting in SETTINGS}
        padded = [
            page.compute_padded_by_label(found, runs, "arena", setting).get(policy)
            for policy, setting in rows
        ]
        restarts = [page.RESTARTS.format_figure(row) for row in rows.values()]
        added = {"JCT padded, s": column(padded), page.RESTARTS.header: restarts}
        submitted = found[runs[policies[0], FAIR]]["jobs_submitted"]
        there = published("arena")["submitted"].get(rounds) if reference else None
        known = f" ({there:,} in the published simulator)" if there else ""
        shown = page.figures_table(["policy", "setting"], rows, COLUMNS, added)
        known_too = [policy for policy in policies if policy in reference]
        gaps = [_gap(policy, reference[policy], found[runs[policy, PUBLISHED]]) for policy in known_too]
        against = "As published against published:\n\n" + "\n".join(gaps) if gaps else ""
        opening = f"## {describe_length(trace, rounds)}\n\n{submitted:,} jobs submitted{known}."
        orders = _orders(policies, reference, runs, found)
        return "\n\n".join(filter(None, [opening, shown, orders, against]))

    return page.Section(list(runs.values()), text)


def _orders(
    policies: Sequence[str], reference: Mapping[str, Figures], runs: page.Labelled, found: Found
) -> str:
    """Return the policies by finished jobs, most first, in each setting and as published."""
    counts = {s: {policy: found[runs[policy, s]]["jobs_finished"] for policy in policies} for s in SETTINGS}
    counts["published"] = {name: reference[name]["jobs_finished"] for name in policies if name in reference}
    shown = (
        f"{setting}: {', '.join(sorted(jobs, key=lambda policy: -jobs[policy]))}"
        for setting, jobs in counts.items()
        if jobs
    )
    return f"By finished jobs, most first; {'; '.join(shown)}."


def _gap(policy: str, known: Figures, figures: Figures) -> str:
    """Return how far ours, as published, is from the published simulator."""
    names = {"jobs_finished": "finished jobs", "throughput_mean": "throughput", "jct_mean": "JCT"}
    gaps = [
        f"{what} {change(figures[metric], known[metric])}"
        for metric, what in names.items()
        if known[metric] is not None
    ]
    dropped = int(figures["jobs_dropped"])
    rule = f"; {dropped:,} jobs fit nowhere under the memory rule and are dropped at once" if dropped else ""
    return f"- {policy}: {', '.join(gaps)}{rule}."
