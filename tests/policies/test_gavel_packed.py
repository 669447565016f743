"""Gavel where jobs may share GPUs: programs, rounds and FIFO worked out by hand, and runs to the end."""

import numpy as np
import pytest
import scenarios
from clustergym.policies.gavel import FIFO, OBJECTIVES, Gavel
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared import packed_programs
from clustergym.policies.shared.integer_programs import SolverError
from clustergym.policies.shared.linear_programs import Finishes
from clustergym.policies.shared.packed_programs import PackedProblem
from pairs import with_pairs
from scenarios import Job, small_scenario

from clustergym.policies import gavel
from clustergym.results.measured_run import make_result
from clustergym.results.metrics.intervals import Outcome
from clustergym.sim.drive import simulate

TIMES = {"a": {"X": {1: 1.0}}, "b": {"X": {1: 2.0}}}


def packed(rate, kept, members=None, capacity=(1,)):
    rate = np.array(rate, dtype=np.float64)
    ones = np.ones(len(rate), dtype=np.int64)
    members = ones if members is None else np.array(members)
    kept = np.array(kept, dtype=np.float64)[..., None]
    return PackedProblem.from_groups(rate, kept, ones, members, np.array(capacity))


def test_two_like_jobs_run_beside_each_other_all_the_time():
    # Together each makes 0.8, 1.6 times its need of half its speed.
    problem = packed([[1.0]], [[0.8]], members=[2])
    found = packed_programs.highest_level(problem, np.array([0.5]))
    assert found.level == pytest.approx(1.6, abs=1e-9)
    assert problem.progress(found.places) == pytest.approx([0.8], abs=1e-9)


def test_unlike_jobs_share_part_of_the_time():
    # a keeps 0.9 and b half of its speed 2. The pair makes (0.9, 1); b alone for x of the time lets a / 0.5 =
    # 1.8 (1 - x) and b / 1 = 1 + x be equal at x = 2/7: the level is 9/7.
    problem = packed([[1.0], [2.0]], [[0.0, 0.9], [0.5, 0.0]])
    found = packed_programs.highest_level(problem, np.array([0.5, 1.0]))
    assert found.level == pytest.approx(9 / 7, abs=1e-7)


def test_a_pair_that_loses_to_taking_turns_is_left_out():
    assert len(packed([[1.0], [1.0]], [[0.0, 0.4], [0.6, 0.0]]).first) == 2
    assert len(packed([[1.0], [1.0]], [[0.0, 0.5], [0.6, 0.0]]).first) == 3


def test_water_filling_raises_the_job_that_is_no_bottleneck():
    # c has the second type for itself; a and b share the first at 0.6 of their speeds each.
    kept = [[0.0, 0.6, 0.0], [0.6, 0.0, 0.0], [0.0, 0.0, 0.0]]
    problem = packed([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], kept, capacity=(1, 1))
    found = packed_programs.water_filled(problem, np.full(3, 0.5))
    assert problem.progress(found.places) == pytest.approx([0.6, 0.6, 1.0], abs=1e-5)


def test_the_least_finish_ratio_and_the_greatest_total():
    # Both finish 100 iterations at 0.8: 125 s, of 200 s on half a GPU.
    jobs = Finishes(np.zeros(1), np.full(1, 100.0), np.full(1, 200.0), np.array([True]))
    problem = packed([[1.0]], [[0.8]], members=[2])
    found = packed_programs.least_finish_ratio(problem, jobs)
    assert jobs.ratio(problem.progress(found.places)) == pytest.approx(0.625, abs=1e-6)
    total = packed_programs.greatest_total(problem, np.ones(1))
    assert problem.progress(total.places) == pytest.approx([0.8], abs=1e-9)


def ends(scenario, policy):
    return scenarios.ends(simulate(scenario, policy, Buddy()))


def two_like_jobs(kept, rounds="policy"):
    jobs = [Job("p", 0, 720, family="a"), Job("q", 0, 720, family="a")]
    return with_pairs(small_scenario(jobs, {"X": (1, 1)}, TIMES, rounds=rounds), {("a", "a"): (kept, kept)})


def test_packed_rounds_beside_rounds_in_turn():
    # Alone: a round each, so they end at 1,080 and 1,440 s. Together at 0.8: 720 / 0.8 = 900 s.
    scenario = two_like_jobs(0.8)
    assert ends(scenario, Gavel()) == {"p": 1080.0, "q": 1440.0}
    assert ends(scenario, Gavel(packed=True)) == pytest.approx({"p": 900.0, "q": 900.0}, abs=1e-9)
    assert ends(two_like_jobs(0.4), Gavel(packed=True)) == {"p": 1080.0, "q": 1440.0}


def test_where_no_program_is_solved_jobs_take_turns(monkeypatch):
    def fail(*_):
        raise SolverError("no solution")

    monkeypatch.setattr(gavel, "compute_packed_shares", fail)
    # 1/2 of the GPU each, as if they could not share: a round each.
    policy = Gavel(packed=True)
    assert ends(two_like_jobs(0.8), policy) == {"p": 1080.0, "q": 1440.0}


def test_fifo_shares_only_where_the_pair_gains_enough():
    # At 0.8 each 1.6 > 1.5; at 0.75 it is not more, and q waits for p.
    policy = {"objective": FIFO, "packed": True}
    assert ends(two_like_jobs(0.8), Gavel(**policy)) == pytest.approx({"p": 900.0, "q": 900.0}, abs=1e-9)
    assert ends(two_like_jobs(0.75), Gavel(**policy)) == {"p": 720.0, "q": 1440.0}
    assert ends(two_like_jobs(0.8), Gavel(objective=FIFO)) == {"p": 720.0, "q": 1440.0}


@pytest.mark.parametrize("objective", [*OBJECTIVES, FIFO])
def test_all_objectives_decide_legally_and_all_jobs_end(objective):
    times = {"a": {"X": {1: 1.0, 2: 0.6}, "Y": {1: 2.0}}, "b": {"X": {1: 3.0}, "Y": {1: 2.5}}}
    rng = np.random.default_rng(4)
    jobs = [
        Job(f"j{at}", 100.0 * at, int(rng.integers(100, 4000)), 1 + (at % 5 == 0), family="ab"[at % 5 > 2])
        for at in range(14)
    ]
    plain = small_scenario(jobs, {"X": (1, 2), "Y": (1, 2)}, times, rounds="policy", oversize="drop")
    scenario = with_pairs(plain, {("a", "a"): (0.8, 0.8), ("a", "b"): (0.9, 0.4), ("b", "b"): (0.4, 0.4)})
    result = make_result(simulate(scenario, Gavel(objective=objective, packed=True), Buddy()))
    assert (result.jobs.outcome == Outcome.FINISHED).all()
    # FIFO finds no pair here that gains enough with the first job in its queue.
    assert (result.run.simulation.sharing.launches["table"] > 0) == (objective != FIFO)
