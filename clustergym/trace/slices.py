"""A part of a trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clustergym.common.errors import InputError
from clustergym.trace.trace import Trace


def sliced(
    trace: Trace,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    skip: int = 0,
    first: int | None = None,
    rebase: bool = False,
) -> Trace:
    """Return a part of a trace: submissions in [start_s, end_s), of those `first` jobs after `skip`.

    Parameters
    ----------
    trace : Trace
    start_s, end_s : float, optional
    skip : int
    first : int, optional
    rebase : bool
        Whether to start the clock at the first submission kept; deadlines move with it.

    Raises
    ------
    InputError
        If nothing is left, or a bound is not a number or negative.
    """
    for name, value in {"--start-s": start_s, "--end-s": end_s, "--skip": skip, "--first": first}.items():
        if value is not None and not value >= 0:
            raise InputError(f"{value} is negative or no number", field=name, remedy="give 0 or more")
    low = -np.inf if start_s is None else start_s
    high = np.inf if end_s is None else end_s
    rows = np.flatnonzero((trace.submit_s >= low) & (trace.submit_s < high))[skip:][:first]
    if not len(rows):
        raise InputError(
            "no job lies in that part",
            file=trace.path or None,
            remedy=f"it has {len(trace)} jobs in {trace.span_s:g} s",
        )
    part = trace.take(rows)
    origin = float(part.submit_s[0]) if rebase else 0.0
    chosen = {"start_s": start_s, "end_s": end_s, "skip": skip, "first": first, "rebased_by_s": origin}
    return replace(
        part,
        submit_s=np.round(part.submit_s - origin, 6) if rebase else part.submit_s,
        deadline_s=np.round(part.deadline_s - origin, 6) if rebase else part.deadline_s,
        provenance={
            **trace.provenance,
            "slices": [*trace.provenance.get("slices", []), {"of": trace.sha256, **chosen}],
        },
    )
