"""The report of `clustergym bench environments`, in Markdown."""

from __future__ import annotations

from typing import Any

from clustergym.common.markdown import table

HEADERS = (
    *("environment", "number", "steps/s", "with summaries", "copies/s", "kB each"),
    *("simulation", "features", "masks", "Python", "2 threads"),
)


def report(figures: dict[str, Any]) -> str:
    """Return the tables of what was measured."""
    singles = [
        [row["id"], *("" if row[name] is None else _rate(row[name]) for name in ("simpy", "compiled"))]
        for row in figures["single"]
    ]
    singles += [
        [row["id"], "" if row["steps_per_s"] is None else _rate(row["steps_per_s"]), ""]
        for row in figures["others"]
    ]
    missing = [row["id"] for row in figures["others"] if row["steps_per_s"] is None]
    said = "".join(f"\n{name} is not installed.\n" for name in missing)
    vectors = table(HEADERS, [_vector_cells(row) for row in figures["rows"]])
    return f"{vectors}\n\n{table(('one environment', 'steps/s', 'compiled'), singles)}\n{said}"


def _vector_cells(row: dict[str, Any]) -> list[str]:
    cells = [row["id"], str(row["environments"]), _rate(row["steps_per_s"])]
    cells += [_rate(row["steps_per_s_summaries"]), _rate(row["copies_per_s"]), f"{row['bytes'] / 1000:,.0f}"]
    # The parts of an auction's step are not timed.
    shares = [row.get(f"share_{part}") for part in ("core", "features", "masks", "python")]
    cells += ["" if share is None else f"{100 * share:.0f} %" for share in shares]
    return [*cells, f"{row['two_threads']:.2f}" if "two_threads" in row else ""]


def _rate(per_s: float) -> str:
    """Return a rate to three digits."""
    digits = max(len(str(int(per_s))) - 3, 0)
    return f"{round(per_s, -digits):,.0f}"
