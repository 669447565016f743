"""Tables of metrics for people, in readable units, with ratios to a reference policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from clustergym.common.tables import text_table
from clustergym.results.metrics.catalogue import METRICS, Metric
from clustergym.results.metrics.statistics import Estimate
from clustergym.scenario.policy import KNOWS

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Value = float | int | Estimate | None


class Unit(NamedTuple):
    """A readable unit: a metric's values are multiplied by `factor` and shown with `name`."""

    factor: float
    name: str


_SECONDS = ((120.0, Unit(1.0, "s")), (7200.0, Unit(1 / 60, "min")), (float("inf"), Unit(1 / 3600, "h")))
_ARROWS = {"lower": " ↓", "higher": " ↑", "": ""}
"""Which way a metric is better."""
_UNITS = {
    "share": Unit(100.0, "%"),
    "GPU h": Unit(1.0, "GPU h"),
    "samples/s": Unit(1.0, "samples/s"),
}


def human_unit(metric: Metric, greatest: float) -> Unit:
    """Choose a readable unit for a metric (such as hours for seconds) by its greatest value."""
    if metric.unit == "s":
        return next(unit for limit, unit in _SECONDS if abs(greatest) < limit)
    return _UNITS.get(metric.unit, Unit(1.0, ""))


def human_number(value: float | int) -> str:
    """Return a number as text, with thousands separated and as many decimals (0 to 4) as its size needs."""
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    decimals = next((d for limit, d in ((1000, 0), (100, 1), (10, 2), (1, 3)) if abs(value) >= limit), 4)
    return f"{value:,.{decimals}f}"


def human_value(value: Value, unit: Unit) -> str:
    """Return a value in a unit as text, an `Estimate` with its interval; `-` for None."""
    if value is None:
        return "-"
    ends = f" {unit.name}" if unit.name else ""
    if not isinstance(value, Estimate):
        scaled = value if unit.factor == 1 else value * unit.factor
        return human_number(scaled) + ends
    mean, low, high = (figure * unit.factor for figure in value[:3])
    interval = "" if low == high else f" [{human_number(low)}, {human_number(high)}]"
    return human_number(mean) + interval + ends


def _mean(value: Value) -> float | None:
    return None if value is None else float(value.mean if isinstance(value, Estimate) else value)


def ratio(value: Value, reference: Value) -> float | None:
    """Return value / reference (of estimates, their means); None if one is missing or the reference is 0."""
    mine, base = _mean(value), _mean(reference)
    return mine / base if mine is not None and base else None


def _label(row: Mapping[str, Any]) -> str:
    policy = row["policy"]
    return str(policy["name"] if isinstance(policy, Mapping) else policy)


def comparison_table(
    rows: Sequence[Mapping[str, Any]],
    metrics: Iterable[str] | None = None,
    reference: int | None = -1,
    title: str = "",
) -> Table:
    """Return a Rich table: a row per metric, a column per policy, ratios to the policy `rows[reference]`.

    Parameters
    ----------
    rows : sequence of mapping
        One per policy, in order of the columns: `policy` (a label, or a mapping with `name`),
        `metrics` (name to number, `Estimate` or None), and optionally `information_class`,
        shown in words under the label, and `ratios` (name to `Aggregate`), shown with their intervals.
        The content of a result.json is such a row.
    metrics : iterable of str, optional
        Lines, in order; by default all of `METRICS` that some row has a value of other than 0.
    reference : int or None
        Position of the row that ratios are to; None: no ratios.
    title : str
    """
    base = None if reference is None else rows[reference]
    caution = warn_of_unequal_jobs(rows)
    labels = [
        "\n".join([_label(row), *filter(None, [KNOWS.get(row.get("information_class", ""))])]) for row in rows
    ]
    shown = metrics or [name for name in METRICS if any(_mean(row["metrics"].get(name)) for row in rows)]
    arrows = {name: _ARROWS[METRICS[name].better] if name in METRICS else "" for name in shown}
    cells: list[list[str | Text]] = [
        [name + arrow, *_cells(name, rows, base)] for name, arrow in arrows.items()
    ]
    return text_table(title, ("metric", *labels), cells, caution)


def tenants_table(tenants: Mapping[str, Any]) -> Table:
    """Return a Rich table of tenants' metrics, with a row for each queue."""
    jain = human_value(tenants["jain_index"], Unit(1.0, ""))
    held = human_value(tenants["allocated_share"], Unit(100.0, "%"))
    columns = {
        "jobs": ("jobs", Unit(1.0, "")),
        "quota_gpus": ("quota, GPUs", Unit(1.0, "")),
        "gpu_hours": ("GPU h", Unit(1.0, "")),
        "borrowed_gpu_hours": ("borrowed, GPU h", Unit(1.0, "")),
        "owed_gpu_hours": ("owed, GPU h", Unit(1.0, "")),
        "longest_owed_s": ("longest owed", Unit(1 / 60, "min")),
        "longest_starved_s": ("longest without", Unit(1 / 60, "min")),
        "preemptions": ("preemptions", Unit(1.0, "")),
        "jct_mean_s": ("mean JCT", Unit(1 / 60, "min")),
    }
    rows = [
        [name, *(human_value(row[key], unit) for key, (_, unit) in columns.items())]
        for name, row in tenants["queues"].items()
    ]
    headers = ("queue", *(title for title, _ in columns.values()))
    return text_table("", headers, rows, f"Jain's index {jain}; {held} of GPUs held")


def _cells(name: str, rows: Sequence[Mapping[str, Any]], base: Mapping[str, Any] | None) -> list[Text]:
    from rich.text import Text

    metric = METRICS.get(name, Metric(name, "", "", ""))
    values: list[Value] = [row["metrics"].get(name) for row in rows]
    unit = human_unit(metric, max((abs(m) for m in map(_mean, values) if m is not None), default=0.0))
    cells = []
    for row, value in zip(rows, values, strict=True):
        text = Text(human_value(value, unit))
        share = ratio(value, base["metrics"].get(name)) if base is not None and row is not base else None
        if metric.better and share is not None:
            known = row.get("ratios", {}).get(name)
            low, high = (share, share) if known is None else (known.low, known.high)
            interval = "" if low == high else f" [{_times(low)}, {_times(high)}]"
            text.append(f"  {_times(share)}x{interval}", style=_style(metric, share, low, high))
        cells.append(text)
    return cells


def _times(share: float) -> str:
    """Return a ratio with as many digits as say something: 0.97, 12, 440."""
    return f"{share:.2f}" if share < 9.995 else f"{share:,.0f}"


def _style(metric: Metric, share: float, low: float, high: float) -> str:
    if abs(share - 1) < 0.005 or low < 1 < high:
        return "dim"
    return "green" if (share < 1) == (metric.better == "lower") else "red"


def verdict(rows: Sequence[Mapping[str, Any]], horizon: bool) -> str:
    """Return a sentence: how much less or more mean JCT policy `rows[0]` has than `rows[1]`, at what cost.

    Parameters
    ----------
    rows : sequence of mapping
        As in `comparison_table`.
    horizon : bool
        Whether the run had a horizon; the censored mean, which includes all jobs, is then compared.
    """
    metric = "jct_mean_censored" if horizon else "jct_mean"
    what = "mean JCT with unfinished jobs counted to the horizon" if horizon else "mean JCT"
    (mine, base) = ((row["metrics"].get(metric)) for row in rows[:2])
    if mine is None or not base:
        return ""
    unit = human_unit(METRICS[metric], max(mine, base))
    text = f"{_label(rows[0])}: {what} {human_value(mine, unit)}, "
    change = mine / base - 1
    if abs(change) < 0.005:
        text += f"as {_label(rows[1])}"
    else:
        better = "less than" if change < 0 else "more than"
        text += f"{abs(change):.0%} {better} {_label(rows[1])} ({'better' if change < 0 else 'worse'})"
    restarts, hours = (rows[0]["metrics"].get(name) for name in ("restarts_mean", "overhead_gpu_hours"))
    return (
        f"{text}, with {human_number(restarts)} restarts a job and {human_number(hours)} GPU h of standstill"
    )


def warn_of_unequal_jobs(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a warning if policies finished different numbers of jobs; else an empty text."""
    if len({_mean(row["metrics"].get("jobs_finished")) for row in rows}) < 2:
        return ""
    return (
        "jct_mean, its percentiles and ftf cover finished jobs only, and not the same ones here: "
        "compare jct_mean_censored"
    )
