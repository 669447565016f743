"""Arena's launch search, which remembers what did not change, against the same search written plainly."""

import numpy as np
from clustergym.policies.shared.elastic import Launches, Scaling, VirtualCluster
from clustergym.policies.shared.objectives import raw_throughput
from hypothesis import given, settings
from hypothesis import strategies as st
from random_views import random_views


def plain_release(cluster, kind, level):
    """Return (loss, steps) that free counts[level] GPUs of a type, job by job; None: impossible."""
    view, counts, depth = cluster.view, cluster.counts, cluster.depth
    missing, loss, steps = int(counts[level] - cluster.free[kind]), 0.0, []
    now = {at: int(cluster.level[at]) for at in range(len(view)) if cluster.gpu_type[at] == kind}
    for at, held in list(now.items()):
        left_s = view.remaining_iterations[at] * cluster.time_s[at, kind, held]
        if not left_s > cluster.cost_s[at, kind, max(held - 1, 0)]:
            del now[at]
    while missing > 0:
        if len(steps) == depth:
            return None
        best = None
        for at, held in now.items():
            lower = held - 1
            if lower < max(cluster.requested[at] - 1, 0) or not cluster.value[at, kind, lower] > 0:
                continue
            freed = int(counts[held] - counts[lower])
            if freed < -(-missing // 2 ** (depth - len(steps) - 1)):
                continue
            lost = float(cluster.value[at, kind, held] - cluster.value[at, kind, lower])
            price = lost / min(freed, missing)
            if best is None or price < best[0]:
                best = price, at, freed, lost
        if best is None:
            return None
        _, at, freed, lost = best
        now[at] -= 1
        missing, loss = missing - freed, loss + lost
        steps.append(Scaling(at, kind, now[at]))
    return loss, steps


def plain_first_launch(cluster, waiting):
    """Return the first waiting job that can be launched with a gain, and the scalings, job by job."""
    for place, at in enumerate(waiting):
        best = None
        for kind in range(len(cluster.free)):
            for level in range(cluster.requested[at] - 1, cluster.requested[at] + 2):
                inside = 0 <= level < len(cluster.counts)
                if not inside or not cluster.value[at, kind, level] > 0:
                    continue
                plan = plain_release(cluster, kind, level)
                gain = -np.inf if plan is None else cluster.value[at, kind, level] - plan[0]
                if gain > 0 and (best is None or gain > best[0]):
                    best = gain, [*plan[1], Scaling(int(at), kind, int(level))]
        if best is not None:
            return place, best[1]
    return None


@settings(max_examples=300)
@given(random_views(), st.integers(0, 3), st.booleans())
def test_launches_are_those_of_the_plain_search(view, depth, normalise):
    value = raw_throughput(view)
    if normalise:
        value = np.round(value / np.maximum(value.max(axis=(1, 2), keepdims=True), 1e-9), 1)
    fast, plain = (VirtualCluster(view, value, view.iteration_time_s(), depth) for _ in range(2))
    waiting = np.flatnonzero(view.gpus == 0)
    launches, left = Launches(fast, waiting), waiting.tolist()
    while True:
        expected = plain_first_launch(plain, left)
        found = launches.first()
        if found is None or expected is None:
            assert found == expected
            break
        place, steps = found
        assert (waiting[place], steps) == (left[expected[0]], expected[1])
        fast.enact(steps)
        plain.enact(steps)
        launches.remove(place)
        left.remove(waiting[place])
    assert launches.waiting.tolist() == left
    assert (fast.free == plain.free).all()


@settings(max_examples=300)
@given(random_views(), st.integers(0, 3), st.sampled_from([None, 1, 0]))
def test_all_launches_are_those_of_one_after_another(view, depth, digits):
    value = raw_throughput(view)
    if digits is not None:
        # Rounded, many allotments are worth the same, and some with fewer GPUs are worth more.
        value = np.round(value / np.maximum(value.max(axis=(1, 2), keepdims=True), 1e-9) * 3, digits)
    fast, plain = (VirtualCluster(view, value, view.iteration_time_s(), depth) for _ in range(2))
    left = np.flatnonzero(view.gpus == 0).tolist()
    launches = Launches(fast, np.array(left, dtype=np.int64))
    launches.enact_all()
    while (found := plain_first_launch(plain, left)) is not None:
        plain.enact(found[1])
        left.pop(found[0])
    assert launches.waiting.tolist() == left
    assert (fast.gpu_type == plain.gpu_type).all()
    assert (fast.level == plain.level).all()
    assert (fast.free == plain.free).all()


@settings(max_examples=200)
@given(random_views(), st.integers(0, 4), st.lists(st.integers(0, 2**30), max_size=4))
def test_releases_are_forgotten_where_their_type_changes(view, depth, changes):
    value = raw_throughput(view)
    cluster = VirtualCluster(view, value, view.iteration_time_s(), depth)
    pairs = [(kind, level) for kind in range(len(cluster.free)) for level in range(len(cluster.counts))]
    for change in [None, *changes]:
        if change is not None:
            kind, level = pairs[change % len(pairs)]
            plan = cluster.release(kind, level)
            if plan is None:
                continue
            cluster.enact(plan.steps)
        for kind, level in pairs:
            expected = plain_release(cluster, kind, level)
            assert cluster.release(kind, level) == expected
            at = np.array([kind]), np.array([level])
            assert cluster.losses(*at).tolist() == [np.inf if expected is None else expected[0]]
