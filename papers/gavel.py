"""Gavel's page (OSDI '20): its 96 published jobs on 48 GPUs of three types, against its own simulator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.columns import integers, numbers
from clustergym.common.tables import table
from clustergym.oracle.base import OracleTables
from clustergym.scenario.costs import Costs
from clustergym.scenario.scenario import Scenario, list_allowed_counts, model_classes
from clustergym.trace.readers.gavel import read_table
from clustergym.trace.trace import Trace

from .claims import PaperClaim, quantity
from .gavel_packing import (
    PACKING,
    PAIRS_OF_96,
    packing_claims,
    packing_plots,
    packing_scenario,
    packing_sections,
    read_rates,
    with_pairs,
)
from .page import Report, Section, list_specs, make_report, passage, words
from .reproduction import (
    Figures,
    Found,
    Options,
    Parameters,
    RunSpec,
    check_published,
    choose,
    column,
    number,
    run_all,
)

TRACE, RATES = Path("traces_physical") / "max_min_fairness.trace", Path("simulation_throughputs.json")


def build_run_scenario(data: Path, spec: RunSpec) -> Scenario:
    """Build the scenario of a run: a stream of jobs, or the paper's trace of 96 jobs."""
    if spec.setting == PACKING:
        return packing_scenario(data, spec)
    return with_pairs(data, _scenario(data)) if spec.setting == PAIRS_OF_96 else _scenario(data)


@cache
def _scenario(data: Path) -> Scenario:
    """Return the 96 jobs on 8 V100, 16 P100 and 24 K80, with preemption that costs nothing.

    A step counts as an iteration. A job type on a number of workers is a model class of its own:
    the table has no rates of a job on other counts than it asks for.
    """
    from clustergym.cluster.cluster_files import load_cluster

    cluster, rates = load_cluster("gavel-48"), read_rates(data / "gavel" / RATES)
    trace = _trace(data / "gavel" / TRACE)
    classes, counts = model_classes(trace), list_allowed_counts(cluster, "power_of_two")
    times = np.full((len(classes), len(cluster.gpu_types), len(counts), 4), np.inf)
    for row, model in enumerate(classes):
        name, _, workers = model.family.rpartition(" x ")
        for gpu_type, gpu in enumerate(cluster.gpu_types):
            rate = rates[gpu].get((name, int(workers)), 0.0)
            if rate > 0:
                times[row, gpu_type, counts.index(int(workers))] = 1.0 / rate
    return Scenario(
        name="gavel-96",
        version=1,
        cluster=cluster,
        trace=trace,
        tables=OracleTables(classes, cluster.gpu_types, np.array(counts), times, times, times),
        checkpoint_s=np.zeros(len(classes)),
        costs=Costs(search="proxy", profile={}),
    )


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
ARTIFACT = "its simulator, max_min_fairness.trace"


class GavelRow(NamedTuple):
    """A row of the page's table: a policy, its parameters, and the paper's figures in hours."""

    label: str
    policy: str
    parameters: Parameters
    jct_h: float | None = None
    makespan_h: float | None = None
    why: str = ""
    seeds: int = 1

    def specs(self, more: Parameters = ()) -> list[RunSpec]:
        """Describe the row's runs, one for each seed, with further parameters of the policy."""
        parameters = (*self.parameters, *more)
        spec = ("max_min_fairness", None, "free restarts", self.policy, parameters)
        return [RunSpec(*spec, seed) for seed in range(self.seeds)]

    def hours(self, found: Found, metric: str, more: Parameters = ()) -> list[float]:
        """Return a metric (a time) of the row's run for each seed, in hours."""
        return [found[spec][metric] / 3600 for spec in self.specs(more)]

    @property
    def compared(self) -> tuple[str, str, float | None]:
        """The metric that the paper states: its name, its name in words, and the paper's value in hours."""
        if self.makespan_h is not None:
            return "makespan", "makespan", self.makespan_h
        return "jct_mean", "mean JCT", self.jct_h


def _make_solved_row(label: str, objective: str, **published: Any) -> GavelRow:
    return GavelRow(label, "gavel", (("objective", objective),), **published)


ROUND = ("round_s", 360.0)
_DRAWN: Parameters = (("queue", "cluster"), ("any_type", "random"), ROUND)
RANDOM = GavelRow("FIFO, a random type with room", "fcfs", _DRAWN, seeds=FIFO_SEEDS)
LAST = GavelRow("FIFO, the last type", "fcfs", (("queue", "gpu_type"), ("any_type", "last"), ROUND))
UNEXPLAINED = "not known: no rule of the table below explains the rest"
ROWS = (
    *(RANDOM, LAST),
    _make_solved_row("max-min fairness", "max_min_fairness", jct_h=4.06),
    _make_solved_row("max-min fairness, water filling", "max_min_water_filling", jct_h=3.99),
    _make_solved_row("finish-time fairness", "finish_time_fairness", jct_h=4.17),
    _make_solved_row("minimum makespan", "min_makespan", makespan_h=17.09),
    _make_solved_row("maximum total throughput", "max_total_throughput", jct_h=4.74, why=UNEXPLAINED),
)
RULES: dict[str, Parameters] = {
    "as published": (),
    "a solution whenever jobs change": (("solve_interval_s", 0.0),),
    "a second program spends what is idle": (("second_stage", True),),
    "ties go to who holds the GPUs": (("hold_ties", True),),
    "all three": (("solve_interval_s", 0.0), ("second_stage", True), ("hold_ties", True)),
}
"""Our rules, each in place of a rule of Gavel's own."""


def reproduce(options: Options) -> Report:
    """Simulate the runs that reproduce the paper Gavel, and return its page with the results."""
    check_published(options.data / "gavel" / name for name in (TRACE, RATES))
    chosen, note = choose(POLICIES, options.policies)
    rows = [row for row in ROWS if row.policy in chosen]
    sections = [words(passage("gavel", "fifo", seeds=FIFO_SEEDS)), _comparison(rows)]
    if not options.quick and "gavel" in chosen:
        sections.append(_ablation([row for row in rows if row.policy == "gavel"]))
        sections += packing_sections()
    found = run_all(list_specs(sections), build_run_scenario, options)
    introduction = passage("gavel", "introduction") + note
    claims = [*_claims(rows, found), *packing_claims(found)]
    return make_report(introduction, claims, sections, found, packing_plots(found), plain=_plain)


def _plain(spec: RunSpec, figures: Figures) -> dict[str, Any]:
    if spec.setting in (PACKING, PAIRS_OF_96):
        return {"label": spec.label, **spec.plain(figures)}
    row = next(row for row in ROWS if set(row.parameters) <= set(spec.parameters))
    jct_s, makespan_s = (hours and hours * 3600 for hours in (row.jct_h, row.makespan_h))
    published = {"published_jct_s": jct_s, "published_makespan_s": makespan_s}
    return {"label": row.label, **published, **spec.plain(figures)}


def _claims(rows: list[GavelRow], found: Found) -> Iterator[PaperClaim]:
    for row in rows:
        metric, what, paper = row.compared
        if paper is not None:
            ours = float(np.mean(row.hours(found, metric)))
            yield quantity(f"{what}, {row.label}", ARTIFACT, paper, None, ours, "h", 2, row.why)
    if RANDOM in rows:
        fair, last = (float(np.mean(row.hours(found, "jct_mean"))) for row in (RANDOM, LAST))
        why = "the drawn type is never assigned: with that line, the next row; one reading of several"
        yield quantity("mean JCT, FIFO", ARTIFACT, 9.97, fair, last, "h", 2, why)
        claim = "mean JCT, FIFO that assigns the type it draws"
        why = f"mean of {FIFO_SEEDS} seeds each; its seeds give 6.62 to 8.40 h"
        yield quantity(claim, ARTIFACT, 7.56, fair, None, "h", 2, why)


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
            number(row.jct_h, 2),
            _format_hours(row.hours(found, "makespan")),
            number(row.makespan_h, 2),
            number(min(run["jobs_finished"] for run in runs)),
            number(float(np.mean([run["restarts_mean"] for run in runs])), 1),
        ]

    specs = [spec for row in rows for spec in row.specs()]
    return Section(specs, lambda found: table(headers, (cells(row, found) for row in rows)))


def _ablation(rows: list[GavelRow]) -> Section:
    def text(found: Found) -> str:
        lines = [["published", *column([row.compared[2] for row in rows], 2)]]
        for name, rule in RULES.items():
            hours = [float(row.hours(found, row.compared[0], rule)[0]) for row in rows]
            lines.append([name, *column(hours, 2)])
        return f"{passage('gavel', 'rules')}\n\n{table(['rule', *(row.label for row in rows)], lines)}"

    return Section([spec for row in rows for rule in RULES.values() for spec in row.specs(rule)], text)
