"""Look-ahead: play-outs as worked out by hand, without a peek at the trace, and the same again."""

from dataclasses import replace
from types import SimpleNamespace

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


def futures_of(restart_s, arrival_s=((),), remaining=()) -> lookahead.Futures:
    """Return futures, each with the same jobs to come."""
    to_come = bids(list(remaining) * len(arrival_s))
    restarts_s = np.full(len(to_come.remaining), 3.0)
    return lookahead.Futures(np.array(restart_s), np.array(arrival_s, dtype=np.float64), to_come, restarts_s)


@pytest.mark.parametrize(("restart_s", "best"), [(42.0, 0), (43.0, 0), (44.0, 1)])
def test_the_decision_whose_jobs_take_least_time_is_taken(restart_s, best):
    # To give way takes 7 s for both jobs, then a restart and 50 s; to wait takes 50 s for both, then 7 s.
    jobs = bids([50.0, 4.0], held=[0, -1])
    gpu_type, level, taken = lookahead.decide(start(), ONE, ONE, jobs, futures_of([restart_s, 3.0]))
    assert (gpu_type.tolist(), level.tolist(), taken) == ([[-1, 0], [0, -1]][best],) * 2 + (best,)
    assert jobs.remaining.tolist() == [50.0, 4.0]


def test_every_future_counts():
    # Without arrivals to wait is better by 1 s; the same jobs wait longer where others come.
    jobs = bids([50.0, 4.0], held=[0, -1])
    later = [300.0], [400.0]
    assert lookahead.decide(start(), ONE, ONE, jobs, futures_of([44.0, 3.0], later, [1.0]))[2] == 1
    soon = [40.0], [400.0]
    assert lookahead.decide(start(), ONE, ONE, jobs, futures_of([44.0, 3.0], soon, [1.0]))[2] == 0


def view_of(submit_s, first=0):
    """Return jobs with five iterations to do and 100 s to a deadline."""
    submit_s, n = np.array(submit_s, dtype=np.float64), len(submit_s)
    return SimpleNamespace(
        job=np.arange(first, first + n), submit_s=submit_s, deadline_s=submit_s + 100.0,
        iterations=np.full(n, 5.0),
    )  # fmt: skip


def test_futures_are_drawn_from_what_was_seen(monkeypatch):
    shown = []
    monkeypatch.setattr(lookahead, "decide", lambda *given: shown.append(given) or (given[1], given[2], 0))
    ahead = lookahead.LookAhead(2, np.random.default_rng(0))
    weights, counts, jobs = start(), np.array([1, 2]), bids([5.0] * 3, held=[-1, 0, -1])
    jobs.cost_s[:, 0, 0] = [2.0, 0.0, 4.0]
    assert ahead.decide(weights, view_of([0.0, 10.0, 20.0]), ONE, counts, jobs) == (ONE, counts)
    assert all(told is given for told, given in zip(shown[0], (weights, ONE, counts, jobs), strict=False))
    # Of the job that runs nothing is known yet: the mean of the others. Three jobs are too few to draw from.
    assert shown[0][4].restart_s.tolist() == [2.0, 3.0, 4.0]
    assert shown[0][4].arrival_s.shape == (2, 0)
    assert shown[0][4].bids.time_s.shape == (0, 1, 1)
    # Later it has stopped, and 8 jobs more have come: 10 gaps of 10 s. What was seen at first is kept.
    jobs = bids([5.0] * 9)
    ahead.decide(weights, view_of(range(20, 110, 10), first=2), ONE, counts, jobs)
    futures = shown[1][4]
    assert futures.arrival_s.tolist() == [list(np.arange(10.0, 170.0, 10.0))] * 2
    assert {*futures.restarts_s.tolist()} == {2.0, 3.0}
    to_come = futures.bids
    assert {*to_come.remaining.tolist()} == {5.0}
    assert {*to_come.slack_s.tolist()} == {100.0}
    assert {*to_come.held_type.tolist(), *to_come.held_level.tolist()} == {-1}
    assert {*to_come.standstill_s.tolist(), *to_come.age_s.tolist(), *to_come.attained_gpu_s.tolist()} == {
        0.0
    }
    assert to_come.remaining.shape == futures.restarts_s.shape == (32,)
    assert {*to_come.cost_s.ravel().tolist()} == {0.0, 2.0, 3.0, 4.0}


def test_arrivals_follow_the_latest_hundred_gaps(monkeypatch):
    shown = []
    monkeypatch.setattr(lookahead, "decide", lambda *given: shown.append(given) or (given[1], given[2], 0))
    submit_s = np.cumsum([0.0, 1000.0, *[10.0] * 100])
    jobs = bids([5.0] * len(submit_s), held=[0] * len(submit_s))
    lookahead.LookAhead(3, np.random.default_rng(1)).decide(start(), view_of(submit_s), ONE, ONE, jobs)
    assert shown[0][4].arrival_s.tolist() == [list(np.arange(10.0, 170.0, 10.0))] * 3
    # No launch was seen.
    assert {*shown[0][4].restart_s.tolist(), *shown[0][4].restarts_s.tolist()} == {0.0}


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
