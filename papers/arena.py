"""Arena's page (EuroSys '26, section 5): 1,280 GPUs of four types, its published traces and measurements."""

from collections.abc import Mapping, Sequence

from . import arena_scenarios as scenarios
from . import arena_sections as parts
from . import page
from .arena_figures import arena_figures
from .arena_scenarios import ROUND_S, make_run
from .arena_sections import REFERENCE, SETTINGS, describe_length
from .claim_files import judge_claims, published
from .claims import FAIR
from .estimates import judge_estimates
from .reproduction import Figures, Found, Options, choose, column, run_all

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
        sections += [parts.ablations(lengths[-1]), parts.depths(lengths[-1])]
        sections.append(parts.deadlines())
        sections += [parts.FIDELITY, parts.CLASSES] if "sia" in chosen else []
        sections += [parts.LIFESPANS] if whole else []
        sections += [parts.PRECISE] if whole and "sia" in chosen else []
    sections += [
        parts.place(name, chosen) for name in (scenarios.OTHER_PLACES if whole else scenarios.TESTBEDS)
    ]
    late = parts.JITTER_RUNS if whole and "arena" in chosen else []
    found = run_all([*page.list_specs(sections), *late], scenarios.build_run_scenario, options)
    introduction = page.passage("arena", "introduction", round_s=ROUND_S)
    claims = judge_claims("arena", arena_figures(found, lengths[-1]))
    claims += judge_estimates(options.data, "arena")
    return page.make_report(introduction + note, claims, sections, found)


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
        opening = f"## {describe_length(trace, rounds)}\n\n{submitted:,} jobs submitted{known}."
        return f"{opening}\n\n{shown}"

    return page.Section(list(runs.values()), text)
