"""The round mechanism: rounds worked out by hand, and shares that are met over time."""

from dataclasses import replace

import numpy as np
from clustergym.policies.gavel import Gavel
from clustergym.policies.shared.rounds import RoundMechanism
from round_scenarios import first_view
from scenarios import Job, small_scenario

from clustergym.scenario.policy import Decision, View

ROUND_S = 360.0
NOBODY = np.zeros(2, dtype=np.bool_)
ONES = {"m": {"X": {1: 1.0, 2: 1.0, 4: 1.0}, "Y": {1: 1.0, 2: 1.0, 4: 1.0}}}


def view_of(gpus, groups, times=ONES):
    jobs = [Job(f"j{row}", 0, 10**6, gpus=count) for row, count in enumerate(gpus)]
    return first_view(small_scenario(jobs, groups, times, rounds=ROUND_S), Gavel())


def next_view(view: View, decision: Decision, restart_s: float = 0.0) -> View:
    """Return the View a round later, with what was decided held."""
    kind, gpus = np.full(len(view), -1), np.zeros(len(view), dtype=np.int64)
    kind[decision.job], gpus[decision.job] = decision.gpu_type, decision.gpus
    cost = np.full((len(view), len(view.available), len(view.setting.counts)), restart_s)
    held = np.flatnonzero(gpus)
    cost[held, kind[held], np.searchsorted(view.setting.counts, gpus[held])] = 0.0
    return replace(view, now_s=view.now_s + ROUND_S, gpu_type=kind, gpus=gpus, costs=lambda: cost)


def rounds_of(view, share, count, restart_s=0.0, **parameters):
    """Return who runs on which type in each round: a list of {job: type}."""
    mechanism, out = RoundMechanism(ROUND_S, **{"hold_ties": True, **parameters}), []
    for _ in range(count):
        mechanism.account(view)
        decision = mechanism.decide(
            view, np.array(share), finish_s(view), np.zeros(len(view), dtype=np.bool_)
        )
        out.append(dict(zip(decision.job.tolist(), decision.gpu_type.tolist(), strict=True)))
        view = next_view(view, decision, restart_s)
    return out


def finish_s(view):
    return view.iteration_time_s()[..., 0]


def test_priority_is_share_over_time_received():
    # One GPU, shares 2/3 and 1/3, in rounds: owed by the end of the round over received and a half.
    # round 1: 0.667/0.5 against 0.333/0.5: a.   2: 1.333/1.5 = 0.89, 0.667/0.5 = 1.33: b.
    # 3: 2/1.5 = 1.33, 1/1.5 = 0.67: a.          4: 2.667/2.5 = 1.07, 1.333/1.5 = 0.89: a.
    # 5: 3.333/3.5 = 0.95, 1.667/1.5 = 1.11: b.  6: 4/3.5 = 1.14, 2/2.5 = 0.8: a.
    ran = rounds_of(view_of([1, 1], {"X": (1, 1)}), [[2 / 3], [1 / 3]], 6)
    assert [next(iter(r)) for r in ran] == [0, 1, 0, 0, 1, 0]


def test_a_gang_that_did_not_fit_is_made_good():
    # 4 GPUs: shares 1/2 for the gang of 4, and for four single jobs: they take turns, and where they
    # are even who holds the GPUs stays.
    ran = rounds_of(view_of([4, 1, 1, 1, 1], {"X": (1, 4)}), [[0.5]] * 5, 4)
    assert [sorted(r) for r in ran] == [[0], [1, 2, 3, 4], [1, 2, 3, 4], [0]]


def test_a_job_runs_in_one_place_at_a_time_and_on_each_type_as_long_as_it_should():
    view = view_of([1, 1, 1], {"X": (1, 1), "Y": (1, 1)})
    share = [[5 / 9, 0], [4 / 9, 4 / 9], [0, 5 / 9]]
    ran = rounds_of(view, share, 180)
    had = np.array([[sum(r.get(job) == kind for r in ran) for kind in (0, 1)] for job in range(3)])
    # Two GPUs' time, of which b's remaining 1/9 goes to whoever would leave them idle.
    assert (np.abs(had / 180 - np.array(share)) <= 0.12).all()
    assert all(len(r) == 2 for r in ran)


def test_shares_are_met_for_random_shares_on_one_type():
    rng = np.random.default_rng(5)
    share = rng.dirichlet(np.ones(6))[:, None] * 2
    share = np.minimum(share, 1.0)
    ran = rounds_of(view_of([1] * 6, {"X": (1, 2)}), share, 400)
    had = np.array([sum(job in r for r in ran) for job in range(6)]) / 400
    assert (had >= share[:, 0] - 0.01).all()


def test_of_equal_priorities_the_first_type_comes_first_unless_ties_are_held():
    # Twins with half of each type: at first both pairs are even, and X is taken first, by the first.
    # Then each is owed more where it was not, and they change places. Then all are even again, so that
    # it begins anew; held, they stay where they are.
    view = view_of([1, 1], {"X": (1, 1), "Y": (1, 1)})
    first, second = {0: 0, 1: 1}, {0: 1, 1: 0}
    assert rounds_of(view, [[0.5, 0.5]] * 2, 4, hold_ties=False) == [first, second, first, second]
    assert rounds_of(view, [[0.5, 0.5]] * 2, 4) == [first, second, second, first]


def test_idle_gpus_go_to_jobs_without_a_share_but_not_for_a_restart_longer_than_a_round():
    view = view_of([1, 1], {"X": (1, 2)})
    assert rounds_of(view, [[1.0], [0.0]], 1) == [{0: 0, 1: 0}]
    dear = replace(view, costs=lambda: np.full((2, 1, 2), ROUND_S))
    decision = RoundMechanism(ROUND_S).decide(dear, np.array([[1.0], [0.0]]), finish_s(view), NOBODY)
    assert decision.job.tolist() == [0]


def test_of_equal_priorities_the_job_comes_first_that_is_nearer_to_its_best_speed():
    # Y is not to be had. a would be twice as fast there; b, ten times as slow as a on X, is best there.
    view = replace(view_of([1, 1], {"X": (1, 1), "Y": (1, 1)}), available=np.array([1, 0]))
    time_s = np.array([[2.0, 1.0], [20.0, np.inf]])
    decision = RoundMechanism(ROUND_S).decide(view, np.array([[0.5, 0.5], [0.5, 0.0]]), time_s, NOBODY)
    assert decision.job.tolist() == [1]


def test_what_a_job_is_owed_is_kept_when_shares_change():
    # For two rounds b cannot run though it should have half. Then 540/900 against 540/180, 720/900
    # against 720/540: b; 900/900 both: b, as it holds the GPU; 1080/900 against 1080/1260: a.
    view = view_of([1, 1], {"X": (1, 1)})
    mechanism = RoundMechanism(ROUND_S, hold_ties=True)
    only_a = view.iteration_time_s()[..., 0] * np.array([[1.0], [np.inf]])
    ran = []
    for step in range(6):
        mechanism.account(view)
        time_s = only_a if step < 2 else finish_s(view)
        decision = mechanism.decide(view, np.array([[0.5], [0.5]]), time_s, NOBODY)
        ran.append(int(decision.job[0]))
        view = next_view(view, decision)
    assert ran == [0, 0, 1, 1, 1, 0]


def test_the_guard_comes_before_what_jobs_are_owed():
    # In the second round b is owed 360/180 and a 360/540; a, which holds the GPU, keeps it by the guard.
    view = view_of([1, 1], {"X": (1, 1)})
    mechanism, share = RoundMechanism(ROUND_S), np.array([[0.5], [0.5]])
    mechanism.account(view)
    decision = mechanism.decide(view, share, finish_s(view), NOBODY)
    assert decision.job.tolist() == [0]
    view = next_view(view, decision)
    mechanism.account(view)
    for guarded, runs in ((NOBODY, 1), (np.array([True, False]), 0)):
        assert mechanism.decide(view, share, finish_s(view), guarded).job.tolist() == [runs]
