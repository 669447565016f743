"""Job records and timeline of an event log, in one call each."""

from __future__ import annotations

import numpy as np

from clustergym.results.metrics.intervals import read_intervals
from clustergym.results.metrics.jobs import records_of
from clustergym.results.metrics.timeline import timeline_of


def job_records(events, trace, end_s):
    """Return the record of each job."""
    return records_of(read_intervals(events, trace, end_s))


def timeline(events, trace, end_s, gpu_types, reference_iteration_time_s=None):
    """Return the timeline; without reference times no job counts in the normalized throughput."""
    missing = np.full(len(trace), np.nan)
    reference_s = missing if reference_iteration_time_s is None else reference_iteration_time_s
    return timeline_of(read_intervals(events, trace, end_s), gpu_types, reference_s)
