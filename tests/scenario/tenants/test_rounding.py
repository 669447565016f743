"""For how long shares stay as they are while past use goes on: by hand, and on drawn trees and uses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.scenario.tenants.division import Division
from clustergym.scenario.tenants.fair_share import History
from clustergym.scenario.tenants.queue_tree import Queue, QueueTree, Settings, UsageWindow
from clustergym.scenario.tenants.rounding import Bounds


def divided(tree, total, asked, usage):
    division, bounds = Division(tree, "fair_share", "X"), []
    shares = division.divide(total, division.claims(asked), usage, bounds)
    return shares, Bounds.together([Bounds.none(), *bounds])


def test_a_share_lasts_until_the_offer_rounds_otherwise():
    # Even parts 0.5. a has had 30 of the 100 GPU s that the cluster gave, b 45: parts 0.7 and 0.55, so of
    # 10 GPUs they are offered 5.6 and 4.4. One that is left goes to a, which lost more: 6 and 4. From now on
    # a holds all 10 of 10 GPUs: after s seconds its part is 1 - (30 + 10 s) / (100 + 10 s), b's
    # 1 - 45 / (100 + 10 s); a is offered 10 (70) / (125 + 10 s). Both lose half at 5.5 GPUs: s = 0.2273.
    tree = QueueTree({"a": Queue(), "b": Queue()}, Settings())
    gpu_s, growth = np.array([30.0, 45.0, 100.0]), np.array([10.0, 0.0, 10.0])
    shares, bounds = divided(tree, 10.0, {"a": 10.0, "b": 10.0}, [0.3, 0.45])
    assert shares == [6, 4]
    assert bounds.reach(gpu_s, growth) == pytest.approx(700 / 5.5 / 10 - 12.5, abs=1e-5)
    later = gpu_s + 0.2275 * growth
    assert divided(tree, 10.0, {"a": 10.0, "b": 10.0}, (later[:-1] / later[-1]).tolist())[0] == [5, 5]
    assert not bounds.hold(later)


def test_shares_that_are_not_by_past_use_last_for_ever():
    tree = QueueTree({"a": Queue(), "b": Queue(quota=4.0)}, Settings())
    for total, asked in ((10.0, {"a": 4.0, "b": 6.0}), (4.0, {"a": 4.0, "b": 6.0}), (10.0, {"a": 20.0})):
        assert divided(tree, total, asked, [0.4, 0.1])[1].reach(np.ones(3), np.ones(3)) == np.inf


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_shares_are_the_same_until_then(seed):
    rng = np.random.default_rng(seed)
    window = UsageWindow(
        float(rng.choice([0.5, 1, 3])), float(rng.choice([60, 1e6])), rng.choice([None, 40.0])
    )
    parents = rng.choice([None, "p"], 6)
    queues = {"p": Queue()} | {
        f"q{at}": Queue(
            parent=parents[at], weight=float(rng.integers(1, 4)), priority=int(rng.choice([1, 2]))
        )
        for at in range(6)
    }
    tree = QueueTree(queues, Settings(history=window))
    asked = {leaf: float(rng.integers(0, 30)) for leaf in tree.leaves}
    history, now_s = History(len(tree.queues), window.window_s, window.half_life_s), 0.0
    for _ in range(4):
        held = rng.dirichlet(np.ones(len(tree.queues))) * 16
        history.add(now_s, now_s + 20.0, held, 16.0)
        now_s += 20.0
    shares, bounds = divided(tree, 37.0, asked, history.usage(now_s).tolist())
    until_s = history.until_s(bounds.reach(*history.growth(held, 16.0)))
    step_s = min(until_s - now_s, 200.0) / 8
    for _ in range(7 if step_s > 0 else 0):
        history.add(now_s, now_s + step_s, held, 16.0)
        now_s += step_s
        assert divided(tree, 37.0, asked, history.usage(now_s).tolist())[0] == shares
        assert bounds.hold(history.gpu_s)
