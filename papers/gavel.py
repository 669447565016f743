"""Gavel's page (OSDI '20): its 96 published jobs on 48 GPUs of three types, against its own simulator."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.columns import integers, numbers
from clustergym.common.tables import table
from clustergym.scenario.scenario import Scenario, list_allowed_counts
from clustergym.trace.readers.gavel import read_table
from clustergym.trace.trace import Trace

from .claim_files import judge_claims, published
from .claims import FAIR, PUBLISHED
from .gavel_packing import (
    OBJECTIVES,
    PACKING,
    build_scenario,
    packing_figures,
    packing_scenario,
    packing_section,
    read_rates,
)
from .page import Report, Section, list_specs, make_report, passage, words
from .reproduction import (
    Found,
    Options,
    Parameters,
    RunSpec,
    check_published,
    choose,
    number,
    run_all,
)

TRACE, RATES = Path("traces_physical") / "max_min_fairness.trace", Path("simulation_throughputs.json")


def build_run_scenario(data: Path, spec: RunSpec) -> Scenario:
    """Build the scenario of a run: a stream of jobs, or the paper's trace of 96 jobs."""
    return packing_scenario(data, spec) if spec.setting == PACKING else _scenario(data)


@cache
def _scenario(data: Path) -> Scenario:
    """Return the 96 jobs on 8 V100, 16 P100 and 24 K80."""
    from clustergym.cluster.cluster_files import load_cluster

    cluster, rates = load_cluster("gavel-48"), read_rates(data / "gavel" / RATES)
    counts = list_allowed_counts(cluster, "power_of_two")
    return build_scenario(cluster, _trace(data / "gavel" / TRACE), rates, counts)


def _trace(path: Path) -> Trace:
    table = read_table(path)
    submit_s, gpus = numbers(table, "arrival_time", low=0), integers(table, "scale_factor", low=1)
    asked = zip(table.columns["job_type"], gpus.tolist(), strict=True)
    family = tuple(f"{job_type} x {workers}" for job_type, workers in asked)
    steps = integers(table, "total_steps", low=1)
    return Trace.from_columns(
        path.stem, submit_s, steps, gpus, model_family=family, line=np.array(table.line)
    )


SUMMARY = "its 96 published jobs on 48 GPUs of three types, and jobs packed two to a GPU (OSDI '20)"
POLICIES = ("fcfs", "gavel")
FIFO_SEEDS = 8
HOURS = published("gavel")["hours"]
"""What its simulator gave on the same trace, by row: a mean JCT or a makespan."""


class GavelRow(NamedTuple):
    """A row of the page's table: a policy and its parameters."""

    label: str
    policy: str
    parameters: Parameters
    seeds: int = 1

    def specs(self) -> list[RunSpec]:
        """Describe the row's runs, one for each seed."""
        spec = ("max_min_fairness", None, "free restarts", self.policy, self.parameters)
        return [RunSpec(*spec, seed) for seed in range(self.seeds)]

    def hours(self, found: Found, metric: str) -> list[float]:
        """Return a metric (a time) of the row's run for each seed, in hours."""
        return [found[spec][metric] / 3600 for spec in self.specs()]

    def published(self, metric: str) -> float | None:
        """Return what the paper states of the row, hours; None where it does not state this metric."""
        hours: float | None = HOURS.get(self.label, {}).get(metric)
        return hours


ROUND = ("round_s", 360.0)
_DRAWN: Parameters = (("queue", "cluster"), ("any_type", "random"), ROUND)
RANDOM = GavelRow("FIFO, a random type with room", "fcfs", _DRAWN, FIFO_SEEDS)
LAST = GavelRow("FIFO, the last type", "fcfs", (("queue", "gpu_type"), ("any_type", "last"), ROUND))
SOLVED = [GavelRow(label, "gavel", (("objective", name),)) for name, label in OBJECTIVES.items()]
ROWS = (RANDOM, LAST, *SOLVED)


def reproduce(options: Options) -> Report:
    """Simulate the runs that reproduce the paper Gavel, and return its page with the results."""
    check_published(options.data / "gavel" / name for name in (TRACE, RATES))
    chosen, note = choose(POLICIES, options.policies)
    rows = [row for row in ROWS if row.policy in chosen]
    sections = [words(passage("gavel", "fifo", seeds=FIFO_SEEDS)), _comparison(rows)]
    if not options.quick and "gavel" in chosen:
        sections.append(packing_section())
    found = run_all(list_specs(sections), build_run_scenario, options)
    introduction = passage("gavel", "introduction") + note
    claims = judge_claims("gavel", gavel_figures(rows, found))
    return make_report(introduction, claims, sections, found)


def gavel_figures(rows: list[GavelRow], found: Found) -> dict[str, Any]:
    """Return the figures that the file of Gavel's claims names: hours, and changes in percent."""
    means = {
        row.label: {metric: float(np.mean(row.hours(found, metric))) for metric in ("jct_mean", "makespan")}
        for row in rows
    }
    fifo, last = (means.get(row.label, {}).get("jct_mean") for row in (RANDOM, LAST))
    ours, theirs = packing_figures(found)
    as_published = {**means, "fifo": last, "packing": ours}
    return {FAIR: {"fifo": fifo}, PUBLISHED: as_published, "packing": theirs, "seeds": FIFO_SEEDS}


def _format_hours(hours: list[float]) -> str:
    mean = number(float(np.mean(hours)), 2)
    return mean if len(hours) == 1 else f"{mean} ({min(hours):.2f} to {max(hours):.2f})"


def _comparison(rows: list[GavelRow]) -> Section:
    headers = ["policy", "mean JCT, h", "published", "makespan, h", "published", "finished", "restarts a job"]

    def cells(row: GavelRow, found: Found) -> list[str]:
        runs = [found[spec] for spec in row.specs()]
        return [
            row.label,
            _format_hours(row.hours(found, "jct_mean")),
            number(row.published("jct_mean"), 2),
            _format_hours(row.hours(found, "makespan")),
            number(row.published("makespan"), 2),
            number(min(run["jobs_finished"] for run in runs)),
            number(float(np.mean([run["restarts_mean"] for run in runs])), 1),
        ]

    specs = [spec for row in rows for spec in row.specs()]
    return Section(specs, lambda found: table(headers, (cells(row, found) for row in rows)))
