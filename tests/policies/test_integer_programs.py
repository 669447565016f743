"""At most one configuration a job within capacity: against brute force, by both solvers."""

import dataclasses
import itertools
from typing import get_args

import numpy as np
import pytest
from clustergym.policies.shared import integer_programs
from clustergym.policies.shared.integer_programs import (
    FAILED,
    OPTIMAL,
    Choices,
    Solver,
    SolverError,
    improve_choice,
    solve,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.common.errors import InputError

HIGHS_AND_SCIP = [
    name for name in get_args(Solver) if name != "scip" or integer_programs.find_spec("pyscipopt")
]
NONE = np.array([-1, -1, -1])


def brute_force(problem: Choices) -> float:
    best = 0.0
    for choice in itertools.product(range(-1, problem.value.shape[1]), repeat=len(problem.value)):
        taken = np.array(choice)
        if (problem.count_used(taken) <= problem.capacity).all():
            best = max(best, problem.total(taken))
    return best


@st.composite
def problems(draw):
    kind = np.array([0, 0, 0, 1, 1])
    gpus = np.array([1, 2, 4, 1, 2])
    rows = draw(st.lists(st.lists(st.integers(-2, 9), min_size=5, max_size=5), min_size=1, max_size=5))
    value = np.array(rows, dtype=np.float64) / 3.0
    value[value < -0.5] = -np.inf
    capacity = np.array([draw(st.integers(0, 7)), draw(st.integers(0, 4))])
    start = np.array([draw(st.integers(-1, 4)) for _ in rows])
    return Choices(value, kind, gpus, capacity), start


@pytest.mark.parametrize("solver", HIGHS_AND_SCIP)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=problems())
def test_it_finds_the_optimum_and_bounds_it(solver, case):
    problem, start = case
    solution = solve(problem, start, solver, gap=0.0)
    best = brute_force(problem)
    assert solution.status == OPTIMAL
    assert (problem.count_used(solution.choice) <= problem.capacity).all()
    assert problem.total(solution.choice) == pytest.approx(solution.value)
    assert solution.value == pytest.approx(best)
    assert solution.bound >= best - 1e-9
    assert solution.gap == pytest.approx(0.0, abs=1e-6)


@settings(max_examples=150, deadline=None)
@given(case=problems(), more=st.integers(0, 12))
def test_what_each_likes_best_is_what_the_program_finds_where_all_of_it_fits(case, more):
    problem, start = case
    problem = dataclasses.replace(problem, capacity=problem.capacity + more)
    found = solve(problem, start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integer_programs, "_best_of_each", lambda problem: None)
        by_program = solve(problem, start)
    assert found.choice.tolist() == by_program.choice.tolist()
    assert (found.status, found.value) == (by_program.status, by_program.value)
    assert found.bound == pytest.approx(by_program.bound)


def test_jobs_that_like_two_types_alike_are_left_to_the_program():
    # Both like X and Y equally: which one has X is the solver's affair.
    problem = Choices(np.ones((2, 2)), np.array([0, 1]), np.array([1, 1]), np.array([2, 2]))
    assert integer_programs._best_of_each(problem) is None
    clear = Choices(np.array([[2.0, 1.0], [3.0, 1.0]]), problem.gpu_type, problem.gpus, problem.capacity)
    assert integer_programs._best_of_each(clear).tolist() == [0, 0]
    short = dataclasses.replace(clear, capacity=np.array([1, 2]))
    assert integer_programs._best_of_each(short) is None


def test_the_lp_bound_of_a_case_by_hand(monkeypatch):
    # Two jobs want 3 of 4 GPUs for 3 each, or 2 for 1.5 each: the integer optimum is 3 (3 GPUs for
    # one; or 2 + 2 for 3), the LP takes 4/3 of the job on three GPUs: 4. The search closes the gap.
    problem = Choices(np.array([[1.5, 3.0]] * 2), np.array([0, 0]), np.array([2, 3]), np.array([4]))
    assert solve(problem, NONE[:2]).value == 3.0
    assert solve(problem, NONE[:2]).bound == 3.0

    def out_of_nodes(*_: object) -> None:
        raise SolverError("no solution")

    monkeypatch.setattr(integer_programs, "_scip", out_of_nodes)
    stopped = solve(problem, NONE[:2])
    assert (stopped.status, stopped.value, stopped.bound) == (FAILED, 3.0, pytest.approx(4.0))
    assert stopped.gap == pytest.approx(0.25)


def test_when_the_lp_fails_the_start_stays_and_is_filled_up(monkeypatch):
    def fails(*_: object) -> None:
        raise SolverError("numerical trouble")

    monkeypatch.setattr(integer_programs, "_solve_relaxation", fails)
    # Job 0 keeps its 2 GPUs; of the others job 2 gains most per GPU on the 2 that are free.
    problem = Choices(
        np.array([[1.0, 1.1], [1.0, 1.0], [2.0, 2.1]]), np.array([0, 0]), np.array([1, 2]), np.array([4])
    )
    solution = solve(problem, np.array([1, -1, -1]))
    assert solution.status == FAILED
    assert solution.choice.tolist() == [1, 0, 0]
    assert solution.bound >= solution.value


@pytest.mark.parametrize("amounts", [[1, 1], [-1, 1], [3, 0], [-1, 2], [0, 2]])
def test_a_solution_that_breaks_a_constraint_is_refused(monkeypatch, amounts):
    # Two equal jobs with 2 or 3 of 4 GPUs: 5 are too many, as are 6; less than none is none; three jobs are
    # not there.
    problem = Choices(np.array([[1.5, 3.0]] * 2), np.array([0, 0]), np.array([2, 3]), np.array([4]))
    wrong = lambda *given: (np.array(amounts, dtype=float), 9.0, OPTIMAL)  # noqa: E731
    monkeypatch.setattr(integer_programs, "_scip", wrong)
    solution = solve(problem, NONE[:2])
    assert solution.status == FAILED
    assert (problem.count_used(solution.choice) <= 4).all()


def test_what_costs_no_less_and_brings_no_more_is_left_out():
    # Of type 0, on 1, 2 and 4 GPUs: 2 bring as much as 1. Of type 1 there are 4 and 2 GPUs, in this order.
    kind, gpus = np.array([0, 0, 0, 1, 1]), np.array([1, 2, 4, 4, 2])
    value = np.array([[1.0, 1.0, 2.0, 3.0, 3.0], [1.0, 2.0, 2.0, 3.0, 2.0]])
    kept = integer_programs._drop_dominated(Choices(value, kind, gpus, np.array([4, 4])))
    none = -np.inf
    assert kept.tolist() == [[1.0, none, 2.0, none, 3.0], [1.0, 2.0, none, 3.0, 2.0]]


def test_a_start_that_no_longer_fits_is_cut_from_the_last_job_on():
    problem = Choices(np.ones((3, 1)), np.array([0]), np.array([2]), np.array([4]))
    assert solve(problem, np.array([0, 0, 0])).choice.tolist() == [0, 0, -1]


def test_a_start_is_counted_by_rows_of_equal_jobs():
    # Jobs 0 and 2 are alike; job 1 has nothing, job 3 what its row may not have.
    value = np.array([[1.0, 2.0], [1.0, -np.inf]])
    counted = integer_programs._merge_rows(np.array([1, -1, 1, 1]), np.array([0, 0, 0, 1]), value)
    assert counted.tolist() == [[0, 2], [0, 0]]


def test_equal_jobs_keep_what_they_have():
    # Three equal jobs, GPUs for one: whoever runs goes on.
    problem = Choices(np.ones((3, 1)), np.array([0]), np.array([2]), np.array([2]))
    assert solve(problem, np.array([-1, -1, 0])).choice.tolist() == [-1, -1, 0]


def test_improvement_is_by_gain_per_added_gpu():
    # 3 GPUs free. Job 0: 1 GPU is worth 1; job 1: 3 GPUs are worth 2.7, less per GPU. After job 0 has
    # its GPU only 2 are free: job 1 gets nothing.
    problem = Choices(
        np.array([[1.0, 0.0], [-np.inf, 2.7]]), np.array([0, 0]), np.array([1, 3]), np.array([3])
    )
    assert improve_choice(problem, NONE[:2]).tolist() == [0, -1]
    # The integer program takes the three.
    assert solve(problem, NONE[:2]).choice.tolist() == [-1, 1]


@pytest.mark.parametrize(("none", "chosen"), [(0.0, [1, -1]), (-5.0, [0, 0])])
def test_improvement_counts_what_jobs_have_and_lack(none, chosen):
    # One of 2 GPUs is free. Job 0 has the other, worth 1, and gains 1 by a second; so does job 1, which has
    # none, by its first: of equal ones job 0. Where to have none is worth -5, job 1 gains 6.
    problem = Choices(np.array([[1.0, 2.0], [1.0, 1.0]]), np.array([0, 0]), np.array([1, 2]), np.array([2]))
    assert improve_choice(problem, np.array([0, -1]), none).tolist() == chosen


def test_where_the_lp_is_integral_there_is_nothing_to_search(monkeypatch):
    # One GPU of either type. Greedily job 0 takes X, for 5, and leaves job 1 nothing; the LP has 4 + 5.
    monkeypatch.setattr(integer_programs, "_integral", None)
    problem = Choices(
        np.array([[5.0, 4.0], [5.0, 0.0]]), np.array([0, 1]), np.array([1, 1]), np.array([1, 1])
    )
    assert improve_choice(problem, NONE[:2]).tolist() == [0, -1]
    solution = solve(problem, NONE[:2])
    assert (solution.choice.tolist(), solution.status) == ([1, 0], OPTIMAL)
    assert (solution.value, solution.bound) == (9.0, pytest.approx(9.0))


def test_nothing_to_choose():
    none = Choices(np.full((2, 1), -np.inf), np.array([0]), np.array([1]), np.array([4]))
    assert solve(none, NONE[:2]).choice.tolist() == [-1, -1]
    assert solve(none, NONE[:2]).gap == 0.0


def test_unknown_solver():
    problem = Choices(np.ones((1, 1)), np.array([0]), np.array([1]), np.array([1]))
    with pytest.raises(InputError, match=r"unknown value 'skip' \(did you mean scip\?\)"):
        solve(problem, NONE[:1], "skip")


def test_scip_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(integer_programs, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"SCIP is not installed \(pip install pyscipopt, or choose highs\)"):
        integer_programs.check_solver("scip")
