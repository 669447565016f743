"""Time limits of jobs: those of the log, none, or drawn from how long jobs run.

Users ask for more time than their jobs take. Drawn limits are the f-model of Mu'alem and Feitelson (TPDS
2001): a limit is drawn evenly between the run time and f + 1 times it. A lower factor below 1 makes limits
that some jobs exceed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.trace.options import LimitChoice
from clustergym.trace.trace import Trace
from clustergym.trace.trace_statistics import offer, tables_for


def with_time_limits(
    trace: Trace, choice: LimitChoice, cluster: ClusterSpec, seed: int, field: str = "trace.time_limits"
) -> Trace:
    """Return a trace with time limits as chosen; `cluster` is where run times are measured.

    A job's run time is that of all the work it asks for, at its request. A job whose run time is not known
    has no limit.

    Raises
    ------
    InputError
        If they are to be kept and the trace has none.
    """
    if choice == "ignore":
        return replace(trace, time_limit_s=None)
    if choice == "keep":
        if trace.time_limit_s is None or np.isnan(trace.time_limit_s).all():
            remedy = f"give the column time_limit_s, or draw limits by {field}=[1,5]"
            raise InputError("says no job's time limit", file=trace.path or None, field=field, remedy=remedy)
        return trace
    low, high = (float(factor) for factor in choice)
    run_s = offer(trace.as_asked(), cluster, tables_for(trace, cluster)).duration_s
    factor = low + (high - low) * random_streams.TIME_LIMITS.generator(seed).random(len(trace))
    drawn = {"time_limits": {"factors": [low, high], "seed": seed}}
    return replace(trace, time_limit_s=run_s * factor, provenance={**trace.provenance, **drawn})
