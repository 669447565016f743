"""Fair shares by quota, priority, weight and history: the vectors of KAI-Scheduler's tests and plots."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustergym.scenario.tenants.fair_share import History, shares_of_wanted


class Claim(NamedTuple):
    """What a queue wants of its parent's GPUs, and by which rules it has them."""

    request: float
    quota: float = 0.0
    limit: float = math.inf
    weight: float = 1.0
    priority: int = 100
    usage: float = 0.0

    @property
    def wanted(self):
        return min(self.request, self.limit)


def fair_shares(total, claims, history_weight=1.0):
    names = ("wanted", "quota", "weight", "priority", "usage")
    columns = ([getattr(one, name) for one in claims] for name in names)
    return shares_of_wanted(total, *columns, history_weight)


def claims(requests, weights=(1, 1, 1), priorities=(1, 1, 1), quotas=(2, 2, 2), limits=(math.inf,) * 3):
    rows = zip(requests, quotas, limits, weights, priorities, strict=False)
    return [Claim(float(r), float(d), float(most), float(w), p) for r, d, most, w, p in rows]


@pytest.mark.parametrize(
    ("total", "given", "shares"),
    [
        (15, claims([6, 6]), [6, 6]),
        (8, claims([6, 6], weights=(1, 3)), [3, 5]),
        (12, claims([6, 6], limits=(5, math.inf)), [5, 6]),
        (11, claims([10, 10], weights=(1, 4)), [3, 8]),
        (11, claims([6, 6]), [6, 5]),
        (4, claims([6, 6], priorities=(1, 2)), [2, 2]),
        (6, claims([6, 6], weights=(100, 1), priorities=(1, 2)), [2, 4]),
        (5, claims([5, 5, 0], weights=(2, 2, 2), priorities=(2, 2, 1), quotas=(2, 2, 1)), [3, 2, 0]),
        # The documented picture: quotas of 3, 3 and 1, and three GPUs at 2:1 for the higher priority.
        (10, claims([9, 9, 9], weights=(2, 1, 5), priorities=(2, 2, 1), quotas=(3, 3, 1)), [5, 4, 1]),
        # Quotas may exceed what is there: then nobody has a surplus.
        (3, claims([6, 6]), [2, 2]),
        # Half a GPU is asked for: of two GPUs each is offered one, and what the first leaves is the second's.
        (6, claims([2.5, 6]), [2.5, 3.5]),
    ],
)
def test_vectors(total, given, shares):
    assert fair_shares(total, given) == shares


@pytest.mark.parametrize(
    ("usage", "history_weight", "first"),
    [
        (0.6, 0.5, 45), (0.6, 1, 40), (0.6, 2, 30),
        (0.75, 0.5, 38), (0.75, 1, 25), (0.75, 2, 0),
        (0.9, 0.5, 30), (0.9, 1, 10),
        (0.9, 0, 50), (0.9, -1, 50),
    ],
)  # fmt: skip
def test_what_a_queue_has_had_counts_against_it(usage, history_weight, first):
    rows = [Claim(1000, usage=usage), Claim(1000, usage=1 - usage)]
    # At 0.75 and k = 0.5 the offers are 37.5 and 62.5: the GPU that rounding leaves goes to the older queue.
    assert fair_shares(100, rows, history_weight) == [first, 100 - first]


def test_a_queue_without_weight_has_its_quota_only():
    assert fair_shares(10, [Claim(8, 2, weight=0), Claim(3, 1)]) == [2, 3]


def test_nobody_has_a_surplus_by_weight_who_has_had_too_much_but_rounding_is_dealt_out():
    # k = 1: a part is 0 where use is twice the weight: here all, as nobody else wants any.
    assert fair_shares(1, [Claim(5, usage=1.0), Claim(0)], history_weight=0.5) == [1, 0]


CLAIMS = st.lists(
    st.builds(
        Claim,
        request=st.integers(0, 40).map(float),
        quota=st.integers(0, 10).map(float),
        limit=st.sampled_from([3.0, 12.0, math.inf]),
        weight=st.sampled_from([0.0, 1.0, 2.5]),
        priority=st.integers(1, 3),
        usage=st.sampled_from([0.0, 0.3, 0.7]),
    ),
    min_size=1,
    max_size=6,
)


@given(st.integers(0, 60), CLAIMS, st.sampled_from([0.0, 1.0, 3.0]))
def test_shares_are_whole_and_none_is_above_what_is_wanted_or_there(total, rows, history_weight):
    shares = fair_shares(total, rows, history_weight)
    assert all(share == int(share) for share in shares)
    assert all(share <= claim.wanted for share, claim in zip(shares, rows, strict=True))
    assert all(share >= min(row.quota, row.wanted) for share, row in zip(shares, rows, strict=True))
    wanted = [row.wanted if row.weight else min(row.quota, row.wanted) for row in rows]
    quotas = sum(min(row.quota, row.wanted) for row in rows)
    # What is there is dealt out as long as somebody with a weight wants it.
    assert sum(shares) == max(quotas, min(total, sum(wanted)))


def test_use_ten_gpus_for_ten_hours_and_24_gpu_hours_of_it_used_is_024():
    history = History(1, window_s=36_000.0)
    history.add(0.0, 7200.0, [2.0], 10.0)  # 4 GPU-hours
    history.add(7200.0, 32_400.0, [20 / 7], 10.0)  # 20 GPU-hours in 7 hours
    history.add(32_400.0, 36_000.0, [0.0], 10.0)
    assert history.usage(36_000.0) == pytest.approx([0.24], abs=1e-12)


def test_use_of_a_half_life_ago_counts_half():
    history = History(2, window_s=1e9, half_life_s=100.0)
    history.add(0.0, 1.0, [1.0, 0.0], 1.0)
    history.add(100.0, 101.0, [0.0, 1.0], 1.0)
    assert history.usage(101.0) == pytest.approx([1 / 3, 2 / 3], abs=1e-12)


@given(st.lists(st.tuples(st.floats(0.1, 50), st.integers(0, 8)), min_size=1, max_size=30),
       st.sampled_from([None, 5.0, 40.0]))  # fmt: skip
def test_a_history_is_the_integral_over_its_window(steps, half_life_s):
    history, at, spans = History(1, 60.0, half_life_s), 0.0, []
    for length_s, gpus in steps:
        history.add(at, at + length_s, [float(gpus)], 8.0)
        spans.append((at, at + length_s, gpus))
        at += length_s
    rate = 0.0 if half_life_s is None else math.log(2) / half_life_s

    def weight(start_s, end_s):
        start_s = max(start_s, at - 60.0)
        if start_s >= end_s:
            return 0.0
        return (
            end_s - start_s if not rate else math.exp(-rate * (at - end_s)) - math.exp(-rate * (at - start_s))
        )

    could = sum(8.0 * weight(start_s, end_s) for start_s, end_s, _ in spans)
    used = sum(gpus * weight(start_s, end_s) for start_s, end_s, gpus in spans)
    assert history.usage(at)[0] == pytest.approx(used / could, abs=1e-7)


def switches(gpus, delay, half_life_s, window_s=256.0, cycles=1024, history_weight=1.0):
    """Return the cycles at which the other of two queues runs, each of endless jobs of all GPUs.

    A queue takes all GPUs from the other once they are its fair share, and has them `delay` cycles later.
    """
    history, running, due, found = History(2, window_s, half_life_s), 0, None, []
    for cycle in range(cycles):
        if due == cycle:
            running, due = 1 - running, None
            found.append(cycle)
        usage = history.usage(float(cycle))
        shares = fair_shares(gpus, [Claim(100.0 * gpus, usage=usage[at]) for at in (0, 1)], history_weight)
        if due is None and shares[1 - running] == gpus:
            due = cycle + delay
            if not delay:
                running, due = 1 - running, None
                found.append(cycle)
        history.add(float(cycle), cycle + 1.0, [float(gpus) * (at == running) for at in (0, 1)], gpus)
    return found


def test_two_queues_take_turns_as_in_the_published_plot():
    assert np.abs(np.subtract(switches(16, 2, 128.0), [2, 80, 322, 564, 806])).max() <= 3
    assert switches(16, 0, 128.0) == [1, 30, 270, 510, 750, 990]


@pytest.mark.parametrize(
    ("gpus", "half_life_s", "history_weight", "gap"),
    [(16, 64.0, 1, 223), (8, 128.0, 1, 227), (16, 128.0, 2, 150)],
)
def test_the_turns_are_shorter_with(gpus, half_life_s, history_weight, gap):
    found = switches(gpus, 2, half_life_s, history_weight=history_weight)
    assert abs(found[-1] - found[-2] - gap) <= 1
