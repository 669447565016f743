"""Tables of docs/metrics.md that follow from the code: metrics, columns of files, kinds of events."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from clustergym.common.tables import table
from clustergym.results.metrics.catalogue import (
    METRICS,
    OF_CAPACITY,
    OF_ONE_QUEUE,
    OF_OUTCOMES,
    OF_PARTS,
    OF_TENANTS,
    Metric,
)
from clustergym.results.metrics.jobs import JobRecords
from clustergym.results.metrics.timeline import Timeline
from clustergym.sim.log import EventType

ATTRIBUTE = re.compile(r"^(\S.*?) : [^\n]+\n((?: {4}.*\n?)+)", re.MULTILINE)
SPECIAL = {
    "Jobs whose outcome the trace keeps": OF_OUTCOMES,
    "Clusters with divisible nodes": OF_PARTS,
    "Runs with nodes to rent": OF_CAPACITY,
    "Runs with queues of tenants": OF_TENANTS,
}
"""Metrics that only some runs have, by heading."""


def metrics() -> str:
    """Return all metrics: those of every run, those of some runs, and those of one queue."""
    special = {metric.name for some in SPECIAL.values() for metric in some}
    parts = [_metrics(metric for name, metric in METRICS.items() if name not in special)]
    parts += [f"### {title}\n\n{_metrics(some)}" for title, some in SPECIAL.items()]
    where = (
        "They are stored under `tenants.queues` in `result.json`. Elsewhere they are named `KEY of QUEUE`."
    )
    parts.append(f"### One queue of tenants\n\n{where}\n\n{_metrics(OF_ONE_QUEUE.values())}")
    return "\n\n".join(parts)


def job_columns() -> str:
    """Return the columns of jobs.csv that are fields of `JobRecords`."""
    return _rows(
        "column", {names: text for names, text in described(JobRecords).items() if names != "outcome"}
    )


def timeline_columns() -> str:
    """Return the columns of timeline.csv that every run has."""
    found = described(Timeline)
    for field in ("gpu_types", "left_out", "further"):  # these are no columns
        del found[field]
    return _rows("column", {f"{k}_TYPE" if k == "held_gpus" else k: text for k, text in found.items()})


def event_kinds() -> str:
    """Return what each kind of event of a job means."""
    (tree,) = ast.parse(inspect.getsource(EventType)).body
    assert isinstance(tree, ast.ClassDef)
    found = {
        str(ast.literal_eval(at.value)): " ".join(ast.literal_eval(below.value).split())
        for at, below in pairwise(tree.body)
        if isinstance(at, ast.Assign) and isinstance(below, ast.Expr)
    }
    if missing := set(EventType) - set(found):
        raise RuntimeError(f"no docstring stands below {sorted(missing)}")
    return _rows("kind", found)


def described(cls: type) -> dict[str, str]:
    """Return what a class's docstring says of its attributes, by their names as they stand there."""
    attributes = inspect.cleandoc(cls.__doc__ or "").split("Attributes\n----------\n")[1]
    return {names: " ".join(text.split()) for names, text in ATTRIBUTE.findall(f"{attributes}\n")}


def _metrics(some: Iterable[Metric]) -> str:
    rows = [(f"`{one.name}`", one.unit, one.better, one.definition) for one in some]
    return table(("metric", "unit", "better", "definition"), rows, words=range(4))


def _rows(heading: str, texts: Mapping[str, str]) -> str:
    rows = [(", ".join(f"`{name}`" for name in names.split(", ")), text) for names, text in texts.items()]
    return table((heading, "meaning"), rows, words=range(2))
