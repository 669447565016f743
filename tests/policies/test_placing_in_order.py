"""Placing jobs in an order, in blocks, against the same job by job; and Ares's memory of jobs."""

import numpy as np
import pytest
from clustergym.policies.ares import FairQueue
from clustergym.policies.shared import marginal
from clustergym.policies.shared.marginal import Target
from hypothesis import given, settings
from hypothesis import strategies as st
from random_views import random_views

from clustergym.results.metrics.fairness import FluidSharing


def place_one_by_one(target, order, allowed):
    """Give each job in order the fastest allowed allotment with room, or what it holds."""
    view = target.view
    for at in order.tolist():
        options = [
            (target.time_s[at, kind, level], kind, level)
            for kind, level in np.argwhere(allowed[at]).tolist()
            if target.time_s[at, kind, level] < np.inf and target.counts[level] <= target.free[kind]
        ]
        if not options or target.gpu_type[at] >= 0:
            continue
        _, kind, level = min(options)
        held = int(view.gpu_type[at]), int(target.held_level[at])
        if held in [option[1:] for option in options] and not target.repays(at, kind, level):
            kind, level = held
        target.give(at, kind, level)


@settings(max_examples=400)
@given(
    random_views(most_jobs=30),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 7, 256]),
    st.booleans(),
    st.booleans(),
)
def test_blocks_place_as_jobs_one_by_one(view, seed, block, guard, by_rows):
    rng = np.random.default_rng(seed)
    fast, plain = (Target(view, view.iteration_time_s(), guard) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginal, "BLOCK", block)
        for _ in range(2):
            order, allowed = rng.permutation(len(view)), rng.random(view.feasible.shape) < 0.6
            fast.place(order, allowed.__getitem__ if by_rows else allowed)
            place_one_by_one(plain, order, allowed)
            assert fast.gpu_type.tolist() == plain.gpu_type.tolist()
            assert fast.level.tolist() == plain.level.tolist()
            assert fast.free.tolist() == plain.free.tolist()


@settings(max_examples=50)
@given(st.lists(random_views(), min_size=1, max_size=3))
def test_the_fair_queue_fixes_each_finish_once(views):
    queue, sharing, expected = FairQueue(8.0), FluidSharing(8.0), {}
    for view in views:
        work = view.iterations * view.requested_gpus
        found = queue.finishes(view, work)
        for at, job in enumerate(view.job.tolist()):
            if job not in expected:
                sharing.advance(max(float(view.submit_s[at]), sharing.now_s))
                expected[job] = sharing.arrive(job, float(work[at]))
        assert found.tolist() == [expected[job] for job in view.job.tolist()]
