"""Queues served in blocks, against the same served job by job."""

import numpy as np
import pytest
from clustergym.policies.shared import queues
from hypothesis import given, settings
from hypothesis import strategies as st
from random_views import random_views

from clustergym.scenario.policy import View


def served_job_by_job(view, order, preference, free, blocks):
    """Serve a queue as `fill` says it is served, without any shortcut."""
    room, closed, chosen = free.tolist(), set(), []
    for at in order.tolist():
        gpus, options = int(view.requested_gpus[at]), np.flatnonzero(preference[at] < np.inf).tolist()
        fits = [kind for kind in options if room[kind] >= gpus and kind not in closed]
        if fits:
            kind = min(fits, key=lambda kind: (preference[at, kind], kind))
            room[kind] -= gpus
            chosen.append((int(view.job[at]), kind, gpus))
        elif blocks == "cluster":
            return chosen
        elif blocks == "types":
            closed |= set(options)
    return chosen


@pytest.mark.parametrize("blocks", ["nothing", "types", "cluster"])
@settings(max_examples=150, deadline=None)
@given(st.data(), random_views(most_jobs=40), st.integers(1, 9), st.sampled_from([1, 4, 99]), st.booleans())
def test_a_queue_in_blocks_is_served_as_one_job_after_another(
    blocks, data, view: View, block, together, lazily
):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    shape = view.feasible.shape[:2]
    preference = np.where(rng.random(shape) < 0.7, rng.integers(0, 3, shape), np.inf).astype(float)
    order = rng.permutation(len(view))[: rng.integers(0, len(view) + 1)]
    room = rng.integers(0, 3 * len(view) + 1, shape[1])
    expected = served_job_by_job(view, order, preference, room, blocks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queues, "BLOCK", block)
        patch.setattr(queues, "TOGETHER", together)
        given_as = (lambda rows: preference[rows]) if lazily else preference
        assert queues.fill(view, order, given_as, room, blocks) == expected
