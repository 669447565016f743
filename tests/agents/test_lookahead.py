"""Look-ahead: play-outs as worked out by hand, without a peek at the trace, and the same again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustergym.agents import lookahead
from clustergym.agents.auction import Bids
from clustergym.common.errors import InputError
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate
from clustergym.training.auction_evolution import start
from clustergym.training.distribution import Distribution

ONE = np.array([1])


def bids(remaining, standstill=None, held=None) -> Bids:
    """Return bids on one GPU of one type, a second for each iteration and 3 s for a restart."""
    n = len(remaining)
    level = np.full(n, -1) if held is None else np.array(held)
    cost_s = np.where(level[:, None, None] >= 0, 0.0, 3.0) * np.ones((n, 1, 1))
    zeros = np.zeros(n)
    return Bids(
        np.array(remaining, dtype=np.float64), np.ones((n, 1, 1)), cost_s, level, level,
        zeros if standstill is None else np.array(standstill, dtype=np.float64),
        zeros.copy(), zeros.copy(), np.full(n, np.nan),
    )  # fmt: skip


def played(jobs: Bids, arrival_s, first, limit_s=np.inf) -> float:
    n = len(jobs.remaining)
    kind = np.array(first)
    restart_s = np.full(n, 3.0)
    return lookahead.run_playout(start(), ONE, ONE, jobs, restart_s, np.array(arrival_s), kind, kind, limit_s)


def test_play_outs_add_up_the_time_of_all_jobs():
    # 10 s after a start of 3 s, then 4 s after 3 s: 13 + 20. The other way round 7 + 20.
    assert played(bids([10.0, 4.0]), np.empty(0), [0, -1]) == pytest.approx(33.0)
    assert played(bids([10.0, 4.0]), np.empty(0), [-1, 0]) == pytest.approx(27.0)
    # It runs 2 s more; the job that comes after 5 s finds nobody and takes 3 + 4 s.
    assert played(bids([2.0, 4.0], held=[0, -1]), [5.0], [0]) == pytest.approx(2.0 + 7.0)
    # 1 s of standstill is left, then 2 s of work.
    assert played(bids([2.0], standstill=[1.0], held=[0]), np.empty(0), [0]) == pytest.approx(3.0)


def test_play_outs_end_above_the_limit_or_where_nothing_runs():
    assert played(bids([10.0, 4.0]), np.empty(0), [0, -1], limit_s=32.0) == np.inf
    assert played(bids([10.0, 4.0]), np.empty(0), [0, -1], limit_s=34.0) == pytest.approx(33.0)
    assert played(bids([10.0]), np.empty(0), [-1]) == np.inf


def test_candidates_are_the_auctions_own_and_one_for_each_change():
    # The running job of 50 s is in the way of that of 4 s. Own: give way; or both keep what they have.
    jobs = bids([50.0, 4.0], held=[0, -1])
    made = lookahead.candidates(start(), ONE, ONE, jobs)
    assert made.gpu_type[: made.filled[0]].tolist() == [[-1, 0], [0, -1]]

    # The one job keeps its GPU either way: that is one candidate, not two.
    made = lookahead.candidates(start(), ONE, ONE, bids([4.0], held=[0]))
    assert made.gpu_type[: made.filled[0]].tolist() == [[0]]


@pytest.fixture
def drawn():
    return Distribution(origin="synthetic", jobs=(60, 60), gpus=16, types=(2,), load=(1.2, 1.2)).draw(
        "dev", 0, 0
    )


def decisions(scenario, seed=0, **more):
    policy = make_policy({"name": "learned", **more})
    run = simulate(scenario, policy, make_placer({"name": "buddy"}), seed)
    return [
        (event.time_s, str(event.event_type), event.job, event.gpus) for event in run.simulation.log.events
    ]


def test_the_same_seed_decides_the_same(drawn):
    ahead = decisions(drawn, rollout=2)
    assert ahead == decisions(drawn, rollout=2)
    assert ahead != decisions(drawn)


def test_what_is_not_submitted_yet_changes_nothing(drawn):
    cut_s = float(drawn.trace.submit_s[40])
    changed = replace(
        drawn.trace,
        iterations=np.where(np.arange(60) < 40, drawn.trace.iterations, 7 * drawn.trace.iterations),
        submit_s=np.where(np.arange(60) < 40, drawn.trace.submit_s, drawn.trace.submit_s + 100.0),
    )
    before = [
        [event for event in decisions(one, rollout=2) if event[0] < cut_s]
        for one in (drawn, replace(drawn, trace=changed))
    ]
    assert len(before[0]) > 60
    assert before[0] == before[1]


def test_networks_and_negative_numbers_are_refused():
    with pytest.raises(InputError, match="only auctions are played out"):
        make_policy({"name": "learned", "checkpoint": "elastic-16", "rollout": 1})
    with pytest.raises(InputError, match=r"policy\.rollout"):
        make_policy({"name": "learned", "rollout": -1})
