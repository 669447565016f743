"""Compiled fluid fair sharing gives the numbers of the Python form, bit for bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.results.metrics import fairness
from clustergym.sim.compiled import fluid


def test_two_caps_worked_by_hand():
    # 4 GPUs; a of 8 GPU s may have 1, b of 12 has 3, the rest. At 2 s c comes, of 3 GPU s: b, 6 left, and c
    # have 1.5 each. c ends at 4; b, with 3 left, at 5 on 3 GPUs; a at 8.
    finish_s = fluid.simulate_fluid(
        np.array([0.0, 0.0, 2.0]), np.array([8.0, 12.0, 3.0]), np.array([1, 4, 4]), 4.0
    )
    assert finish_s.tolist() == [8.0, 5.0, 4.0]


@settings(deadline=None, max_examples=200)
@given(
    jobs=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 9).map(float), st.floats(0, 1e4)),
            st.one_of(st.integers(1, 9).map(float), st.floats(1e-3, 1e5)),
            st.sampled_from([1, 2, 4, 8, 16]),
        ),
        max_size=60,
    ),
    gpus=st.sampled_from([1.0, 3.0, 16.0, 64.0]),
)
def test_equal_to_python(jobs, gpus):
    submit_s, work, caps = (
        (np.array(column) for column in zip(*sorted(jobs), strict=True))
        if jobs
        else (np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))
    )
    compiled = fluid.simulate_fluid(submit_s, work, caps, gpus)
    assert compiled.tolist() == fairness.simulate_fluid(submit_s, work, caps, gpus).tolist()
