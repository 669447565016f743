"""Job records and timeline of an event log, in one call each."""

import numpy as np

from clustergym.results.metrics.intervals import read_intervals
from clustergym.results.metrics.jobs import make_records
from clustergym.results.metrics.timeline import compute_timeline


def job_records(events, trace, end_s):
    """Return the record of each job."""
    return make_records(read_intervals(events, trace, end_s))


def timeline(events, trace, end_s, gpu_types, reference_iteration_time_s=None):
    """Return the timeline; without reference times no job counts in the normalized throughput."""
    missing = np.full(len(trace), np.nan)
    reference_s = missing if reference_iteration_time_s is None else reference_iteration_time_s
    return compute_timeline(read_intervals(events, trace, end_s), gpu_types, reference_s)
