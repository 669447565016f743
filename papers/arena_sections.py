"""Sections of Arena's page, some of which Crius's page shares: EuroSys '26, sections 2.3 and 5.2 to 5.8."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clustergym.common.tables import table

from . import page
from .arena_scenarios import BUDGET_FACTOR, PROFILING_RATIO, is_measured, make_run, variant
from .claim_files import published
from .claims import FAIR, PUBLISHED
from .page import Labelled, RunColumn, Section, compute_padded_by_label, passage
from .reproduction import Figures, Found, RunSpec, change, column, number

SETTINGS = (FAIR, PUBLISHED)
ROUNDS = 664

FINISHED, DROPPED = RunColumn("finished", "jobs_finished"), RunColumn("dropped", "jobs_dropped")
THROUGHPUT = RunColumn("samples/s", "throughput_mean")
PEAK = RunColumn("peak samples/s", "throughput_peak")
JCT = RunColumn("JCT finished, s", "jct_mean")
CENSORED = RunColumn("JCT censored, s", "jct_mean_censored")
COLUMNS = (FINISHED, THROUGHPUT, JCT, CENSORED, page.RESTARTS)


REFERENCE: Mapping[int, Mapping[str, Figures]] = published("arena")["simulator"]
"""What the artifact's own simulator gave on its Philly trace, by rounds and policy: jobs, samples/s, s."""
STORED: Mapping[str, Figures] = published("arena")["testbed"]
"""Jobs finished and their mean JCT, seconds, in the logs of the testbed that the artifact keeps."""


def arena(setting: str, rounds: int | None = ROUNDS, **parameters: Any) -> RunSpec:
    """Describe a run of the policy Arena on the Philly trace, in a setting and with some parameters."""
    return make_run("philly", rounds, setting, "arena", **parameters)


def describe_length(trace: str, rounds: int | None) -> str:
    """Return a trace's name and how long the run on it lasts, as text."""
    lasts = "to completion" if rounds is None else f"{rounds:,} rounds ({rounds / 12:.1f} h)"
    return f"{trace}, {lasts}"


JITTER_RUNS = [arena(variant(PUBLISHED, "jitter", seed)) for seed in range(8)]
"""Runs in which each job arrives up to a round later."""


# Ablations (section 5.7, Fig. 17) and search depth (section 5.8)

ABLATIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "arena": ("", {}),
    "no elastic scaling": ("", {"elastic": False}),
    "no heterogeneous scaling": ("", {"hetero": False}),
    "neither": ("", {"elastic": False, "hetero": False}),
    "without planner: data-parallel profiles": ("", {"planner": "dp"}),
    "without pruning: full search": ("; full-search", {}),
    "without profiler: profiling of whole plans": ("; full-profiling", {}),
    "objective finish-time fairness": ("", {"objective": "finish_time_fairness"}),
}
"""Each label has a change of the setting, and parameters of the policy."""
DEPTHS = (1, 3, 5)


def ablations(rounds: int) -> Section:
    """Return the page's section on runs of Arena, `rounds` rounds long, without parts of the policy."""
    runs = {
        (label, setting): arena(f"{setting}{to}", rounds, **parameters)
        for setting in SETTINGS
        for label, (to, parameters) in ABLATIONS.items()
    }
    text = passage("arena", "ablations", rounds=rounds, ratio=PROFILING_RATIO)
    return ablations_table(text, runs, "arena")


def ablations_table(
    text: str, runs: Labelled, whole: str, told: Mapping[str, Sequence[str]] | None = None
) -> Section:
    """Return a section with a table of the policy `whole` and of its variants that lack one part each.

    `told` has, by label, the paper's JCT and throughput in words.
    """

    def make_columns(found: Found, runs: Labelled) -> dict[str, list[str]]:
        means = {setting: compute_padded_by_label(found, runs, whole, setting) for setting in SETTINGS}
        times = [means[s][label] / means[s][whole] if means[s] else None for label, s in runs]
        more = {"JCT padded, times": column(times, 2)}
        if told is not None:
            more["preprint"] = [told.get(label, ("-", "-"))[0] for label, _ in runs]
        more["samples/s, relative"] = page.changes(found, runs, "throughput_mean")
        if told is not None:
            more["preprint "] = [told.get(label, ("-", "-"))[1] for label, _ in runs]
        return more

    return page.runs_table(text, ["variant", "setting"], runs, COLUMNS, make_columns)


def depths(rounds: int) -> Section:
    """Return the section of Arena's page that compares the policy's search depths in each setting."""
    runs = {(str(depth), s): arena(s, rounds, search_depth=depth) for s in SETTINGS for depth in DEPTHS}
    text = f"## Search depth (section 5.8): {rounds:,} rounds"
    return page.runs_table(text, ["search depth", "setting"], runs, COLUMNS)


# Deadlines (section 5.6)


def deadlines(preset: str = "arena") -> Section:
    """Return the section with a table of the deadlines met by ElasticFlow and by the policy `preset`."""
    budgets = {setting: variant(setting, "deadlines-x", BUDGET_FACTOR) for setting in SETTINGS}
    runs = {
        (policy, setting): make_run("philly", ROUNDS, changed, policy, **parameters)
        for setting, changed in budgets.items()
        for policy, parameters in (("elasticflow", {}), (preset, {"objective": "deadline"}))
    }
    text = passage("arena", "deadlines", rounds=ROUNDS, factor=BUDGET_FACTOR)

    def make_columns(found: Found, runs: Labelled) -> dict[str, list[str]]:
        padded = [compute_padded_by_label(found, runs, preset, s).get(name) for name, s in runs]
        return {"JCT padded, s": column(padded)}

    met = RunColumn("deadlines met", "deadline_satisfaction", 1, "%")
    columns = (met, FINISHED, DROPPED, THROUGHPUT, PEAK, JCT)
    return page.runs_table(text, ["policy", "setting"], runs, columns, make_columns)


# Sia with precise data (section 2.3)

_PRECISE = {(str(n),): make_run("philly", ROUNDS, variant(PUBLISHED, "precise", n), "sia") for n in (1, 3, 5)}
PRECISE = page.runs_table(
    passage("arena", "precise", rounds=ROUNDS),
    ["precise counts"],
    _PRECISE,
    COLUMNS,
    lambda found, runs: {"samples/s, relative": page.changes(found, runs, "throughput_mean")},
)

# GPU time by job class (section 5.7, Fig. 18)

CLASS_RUNS = {
    "arena": arena(PUBLISHED),
    "sia": make_run("philly", ROUNDS, PUBLISHED, "sia"),
}
"""The runs whose GPU time by model is compared."""


def gpu_time(found: Found, name: str) -> dict[str, float]:
    """Return, by model family and for `all`, a policy's mean GPU time per sample divided by Arena's."""
    theirs, arenas = (found[CLASS_RUNS[policy]]["gpu_s_per_sample"] for policy in (name, "arena"))
    ratios: dict[str, list[float]] = {}
    for model in sorted(theirs.keys() & arenas.keys()):
        for family in (model.split("-")[0], "all"):
            ratios.setdefault(family, []).append(theirs[model] / arenas[model])
    return {family: float(np.mean(values)) for family, values in sorted(ratios.items())}


def _classes(found: Found) -> str:
    rows = [[family, f"{ratio:.2f}"] for family, ratio in gpu_time(found, "sia").items()]
    shown = table(["family", "sia"], rows)
    return f"{passage('arena', 'job classes', rounds=ROUNDS)}\n\n{shown}"


CLASSES = Section(list(CLASS_RUNS.values()), _classes)

# Lifespan (section 5.7, Fig. 19)

FACTORS = (0.25, 1.0, 4.0)
LIFESPAN_BASELINES = ("fcfs", "elasticflow-ls", "gavel")


def lifespan_runs(factor: float) -> list[RunSpec]:
    """Describe the runs of Arena and of baselines in which all jobs last longer or shorter by a factor."""
    setting = variant(PUBLISHED, "lifespan-x", factor)
    baselines = [make_run("philly", ROUNDS, setting, policy) for policy in LIFESPAN_BASELINES]
    return [arena(setting, planner="dp"), *baselines]


def _lifespans(found: Found) -> str:
    rows = []
    for factor in FACTORS:
        ours, *others = (found[spec]["throughput_mean"] for spec in lifespan_runs(factor))
        gains = (f"{number(other)} ({ours / other:.2f})" for other in others)
        rows.append([f"{factor:g}", number(ours), *gains])
    headers = ["iterations, times", "arena, data-parallel profiles", *LIFESPAN_BASELINES]
    return f"{passage('arena', 'lifespans', rounds=ROUNDS)}\n\n{table(headers, rows)}"


LIFESPANS = Section([spec for factor in FACTORS for spec in lifespan_runs(factor)], _lifespans)

# Simulation fidelity (section 5.2)

TESTBED = {policy: make_run("testbed-a", 72, PUBLISHED, policy) for policy in STORED}
"""Runs of the six hours of testbed A."""


def _fidelity(found: Found) -> str:
    rows = []
    for policy, stored in STORED.items():
        (jobs, ours), (finished, jct_s) = (
            (run["jobs_finished"], run["jct_mean"]) for run in (found[TESTBED[policy]], stored)
        )
        rows.append([policy, *map(number, (jobs, finished, ours, jct_s)), change(ours, jct_s)])
    headers = ["policy", "finished", "stored", "JCT finished, s", "stored", "ours"]
    return f"{passage('arena', 'fidelity')}\n\n{table(headers, rows)}"


FIDELITY = Section(list(TESTBED.values()), _fidelity)

# Other clusters and traces (sections 5.2, 5.3 and 5.7)

PLACE_COLUMNS = (
    *(FINISHED, DROPPED, RunColumn("JCT, s", "jct_mean"), RunColumn("queue, s", "queue_mean")),
    *(THROUGHPUT._replace(decimals=1), PEAK._replace(decimals=1), page.RESTARTS),
)


def place(name: str, policies: Sequence[str]) -> Section:
    """Return the section with a table of one cluster's runs."""
    settings = SETTINGS if is_measured(name) else SETTINGS[:1]
    runs = {(policy, s): make_run(name, None, s, policy) for s in settings for policy in policies}
    return page.runs_table(passage("arena", name), ["policy", "setting"], runs, PLACE_COLUMNS)
