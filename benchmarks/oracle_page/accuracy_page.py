"""Writes the accuracy page of the docs: measured figures beside the papers' and beside their targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.oracle_page.measured_page import steps_section
from benchmarks.oracle_page.placements_page import placements_section
from benchmarks.oracle_page.stack_page import MISSED_POINTS, PICTURE_NOTE, find_missed_curves, stack_section
from clustergym.commands.oracle.common import percent
from clustergym.common.tables import table

Figures = Mapping[str, Any]

HEAD = """\
# How accurate the performance oracle is

Written by `python -m benchmarks.oracle_page.report`, which measures every figure again. Errors are absolute
percentage errors. A plan's share of the optimum is the best plan's iteration time divided by its own.
"""

ACCURACY_NOTE = """\
The table compares predictions with the iteration times measured in Arena's artifact
(`arena_profile.csv`, its `optimal` rows). In the first two columns, models are predicted by constants
that were not fitted to them: each model by a fit to all others, or half of the models of each family by
a fit to the other half. `fitted` has the committed constants, which are fitted to the same rows.
`roofline` is a simpler oracle, whose constants were chosen on the same rows.
"""

STRUCTURE_NOTE = """\
The stack `alpa-2022` has 14 fitted numbers, none of which belongs to a GPU type or a model. Constants are
fitted to other models than the one predicted, but choices such as the number of micro-batches were made with
all rows in view. So expect somewhat larger errors on new rows. The largest are those of A40 on several nodes.
"""

PLANNING_NOTE = """\
`oracle=grid` estimates how fast a job trains with adaptive parallelism, as Arena (EuroSys '26) and its
preprint Crius do: a *grid* is a GPU type, a number of GPUs and a number of stages. Of each grid one plan, the
*proxy plan*, is timed operator by operator. Jobs run at the time of the best plan of the full search.

The table has all 54 model classes of Arena's evaluation on every GPU type and power-of-two number of GPUs of
Arena's three clusters, where the class fits. The papers' figures were measured by their authors, on 1 to 16
GPUs. The cost of a search or a profile is computed from assumptions: 3 s to compile a stage or an operator,
and five runs of it. A *pruned* search compiles only some of the plans: by the rules of Arena or of Crius.
Estimates are off most on more than 16 GPUs.
"""

SOURCES_NOTE = """\
## Sources

The published data is not part of this project. The first digits of each file's SHA-256:
"""


def factor(value: float | None) -> str:
    """Format a factor as text, such as `1.3x`; a dash for None."""
    return "-" if value is None else f"{value:.1f}x"


Path = tuple[str, ...]

ACCURACY: tuple[tuple[str, Path, str], ...] = (
    ("Mean error", ("mape",), "11 %"),
    ("Median error", ("median_ape",), "7.2 %"),
    ("90th percentile", ("p90",), "24 %"),
    ("GPT-3/BERT, mean", ("by_family", "gpt3", "mape"), "7 %"),
    ("GShard-MoE, mean", ("by_family", "gshard_moe", "mape"), "9.5 %"),
    ("Wide-ResNet, mean", ("by_family", "wide_resnet", "mape"), "18 %"),
    ("Single node, mean", ("by_nodes", "single", "mape"), "8 %"),
    ("Throughput lost by the placement chosen, all GPU types", ("regret",), "0.5 %"),
    ("Throughput lost by the placement chosen, within a type", ("regret_within_type",), "2 %"),
    ("Failures recalled", ("failure_recall",), ""),
)
"""Shares: what, where it stands in a validation, and what it is held to at most."""

COLUMNS = ("leave_one_model_out", "half", "fitted", "roofline")


def get_figure(figures: Figures, path: Path) -> Any:
    """Return the value at a path of keys in nested mappings; None if a key is missing."""
    found: Any = figures
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def accuracy_section(accuracy: Figures) -> str:
    """Return the accuracy page's section on errors of predicted iteration times, in Markdown."""
    columns = [accuracy[name] for name in COLUMNS]
    rows = [
        (what, *(percent(get_figure(column, path)) for column in columns), target)
        for what, path, target in ACCURACY
    ]
    rows.append(("Spearman, mean per class", *(_plain(c.get("spearman")) for c in columns), "at least 0.930"))
    infeasible = (_plain(column.get("infeasible_measured")) for column in columns)
    rows.append(("Measured rows called infeasible", *infeasible, "0"))
    rows.append(("Rows", *(_plain(column["rows"]) for column in columns), ""))
    names = [name.replace("_", " ") for name in COLUMNS]
    return _paragraphs(
        "## Measured iteration times", ACCURACY_NOTE, table(("", *names, "target"), rows), STRUCTURE_NOTE
    )


def _paragraphs(*parts: str) -> str:
    """Return parts of the page with a blank line after each."""
    return "".join(part.rstrip("\n") + "\n\n" for part in parts)


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else f"{value:,}"


PLANNING = (
    (
        "Estimate of a plan against that plan executed, mean error",
        "estimate_error_mean",
        percent,
        "3.1-8.3 %",
    ),
    ("Best proxy plan: share of the optimum, mean", "proxy_share_of_optimum_mean", percent, "93.4 %"),
    ("Pruned search (Arena): GPU time saved, mean", "three_rules_times_cheaper_mean", factor, "5.48x"),
    ("Pruned search (Arena): GPU time saved, most", "three_rules_times_cheaper_most", factor, "10.88x"),
    (
        "Pruned search (Crius): share of the optimum, mean",
        "half_space_share_of_optimum_mean",
        percent,
        "96.2 %",
    ),
    ("Pruned search (Crius): GPU time saved, mean", "half_space_times_cheaper_mean", factor, "5.48x"),
    ("Pruned search (Crius): GPU time saved, most", "half_space_times_cheaper_most", factor, "10.88x"),
    (
        "Profiling a plan on one GPU against running it: GPU time saved, mean",
        "measuring_over_profiling_gpu_time_mean",
        factor,
        "18.1x",
    ),
    (
        "Profiling a plan on one GPU against running it: GPU time saved, least",
        "measuring_over_profiling_gpu_time_least",
        factor,
        "2.55x",
    ),
)


def planning_section(planning: Figures) -> str:
    """Return the accuracy page's section on estimates, proxy plans and pruned searches, in Markdown."""
    measured, every = planning["as_measured"], planning["all"]
    rows = [(what, show(measured[name]), show(every[name]), papers) for what, name, show, papers in PLANNING]
    rows.append(("Allocations", f"{measured['allocations']:,}", f"{every['allocations']:,}", "-"))
    return _paragraphs(
        "## The grid-based estimates of adaptive parallelism",
        PLANNING_NOTE,
        table(("", "ours, 1-16 GPUs", "ours, 1-64 GPUs", "papers"), rows),
    )


def memory_section(memory: Figures) -> str:
    """Return the accuracy page's section on errors of predicted memory, in Markdown."""
    rows = [
        (name, f"{row['rows']:,}", percent(row["median_ape"]), percent(row["mape"]))
        for name, row in {"all": memory, **memory["by_family"]}.items()
    ]
    return _paragraphs(
        "## Memory of pure data parallelism",
        "Errors against `arena_dp_memory.csv`; the target is a median of 15 %.",
        table(("", "rows", "median error", "mean error"), rows),
    )


def misses_section(figures: Figures) -> str:
    """Return the accuracy page's list of what is known to be wrong or cannot be checked, in Markdown."""
    fitted, left_out = figures["accuracy"]["fitted"], figures["accuracy"]["leave_one_model_out"]
    recalled = round(fitted["failures"] * (fitted["failure_recall"] or 0))
    lost = percent(left_out["regret_within_type"])
    lines = [
        f"Out of memory: the oracle says that {recalled} of {fitted['failures']} plans that failed in Arena's"
        " table do not fit.",
        "Which placement of a model is faster (Arena's table): the Spearman correlation is"
        f" {left_out['spearman']:.3f}, and its target at least 0.930. The placement chosen within a GPU type"
        f" loses {lost} of the throughput; the target is at most 2 %.",
    ]
    if figures.get("steps"):
        found, refused = figures["steps"]["borders"], figures["steps"]["refused"]
        lines.append(
            f"Out of memory, measured on one H100: the oracle says that {percent(found['recall'], 0)} of"
            f" {found['pairs']} micro-batches just too large do not fit, and neither do {refused} of"
            f" {figures['steps']['ran']} steps that ran. The target is at least 80 %, and none."
        )
    if "stacks" in figures:
        curves, most = figures["stacks"]["per_gpu_curves"], figures["stacks"]["most_gpus"]
        missed = find_missed_curves(curves)
        if missed:
            curve, point, points = missed[0]
            lines.append(
                f"Speed per GPU by number of GPUs: {len(missed)} of {len(curves)} measured curves are off by"
                f" more than {MISSED_POINTS} percentage points, most {curve['model']} on {curve['gpu_type']}"
                f" from {curve['fewest']} to {point['gpus']} GPUs ({points:+.0f}). The cause is not known."
            )
        few = f"No measured row has more than {most} GPUs, too few to check 512. " if most < 512 else ""
        lines.append(f"{few}No measurement checks the oracle at a fixed batch.")
    return "## Known misses\n\n" + "".join(f"- {line}\n" for line in lines)


def page(figures: Figures) -> str:
    """Return the accuracy page of the documentation as Markdown, filled with measured figures."""
    sources = [(f"`{name}`", f"`{digest}`") for name, digest in figures["sources"].items()]
    stacks = (stack_section(figures["stacks"]),) if "stacks" in figures else ()
    picture = (PICTURE_NOTE,) if stacks else ()
    steps = (steps_section(figures["steps"]),) if figures.get("steps") else ()
    placements = (placements_section(figures["placements"]),) if figures.get("placements") else ()
    sections = (
        HEAD,
        *picture,
        misses_section(figures),
        *stacks,
        accuracy_section(figures["accuracy"]),
        planning_section(figures["planning"]),
        memory_section(figures["memory"]),
        *steps,
        *placements,
        SOURCES_NOTE,
        table(("file", "sha256"), sources),
    )
    return _paragraphs(*sections).removesuffix("\n")
