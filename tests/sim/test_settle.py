"""Settling one job, which is written for a single row, against what holds for many."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scenarios import Job, small_scenario

from clustergym.sim.state import JobStates, Phase

TICKS = st.integers(0, 10**13)


@given(
    remaining=st.floats(0, 1e9),
    iteration_s=st.floats(1e-4, 1e6),
    ticks=st.tuples(TICKS, TICKS, TICKS),
    now=st.integers(0, 2 * 10**13),
    gpus=st.integers(0, 8192),
    attained=st.floats(0, 1e12),
    phase=st.sampled_from([Phase.QUEUED, Phase.RUNNING]),
)
def test_one_job_is_settled_as_many_are_read(remaining, iteration_s, ticks, now, gpus, attained, phase):
    scenario = small_scenario([Job("a", 0, 10), Job("b", 0, 10)], {"X": (1, 4)}, {"m": {"X": {1: 1.0}}})
    jobs, row = JobStates(scenario), 1
    jobs.remaining[row], jobs.iteration_s[row], jobs.phase[row] = remaining, iteration_s, phase
    jobs.worked_until[row], jobs.ready[row], jobs.held_since[row] = ticks
    jobs.gpus[row], jobs.attained_gpu_s[row] = gpus, attained
    expected = jobs.compute_remaining(np.array([row]), now)[0], jobs.compute_attained(np.array([row]), now)[0]
    jobs.settle(row, now)
    assert (jobs.remaining[row], jobs.attained_gpu_s[row]) == expected
    assert jobs.worked_until[row] == jobs.held_since[row] == now
