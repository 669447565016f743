"""What an allotment is worth under each objective, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.objectives import (
    OBJECTIVES,
    behind,
    check_deadlines,
    compute_normalised_throughput,
    meets_deadline,
    raw_throughput,
)
from round_scenarios import without_profiles
from scenarios import Job, small_scenario, small_trace

from clustergym.common.errors import InputError
from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.engine import Simulation

TIMES = {"X": {1: 8.0, 2: 4.0, 4: 1.0}, "Y": {1: 16.0, 2: 10.0}}
GROUPS = {"X": (1, 4), "Y": (1, 2)}


def view_at_20(jobs):
    """Return the View at 20 s, when the last job comes, of a cluster on which the first has run on 2 X."""
    scenario = small_scenario(jobs, GROUPS, {"m": TIMES, "n": TIMES})
    simulation = Simulation(without_profiles(scenario, "n"), Buddy(), InformationClass.DATA_PARALLEL)
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 2)]))
    return simulation.advance()


def test_throughput_by_hand():
    # b asks for 2 Y; nothing is known of c, which asks for 2 of any type, nor of d, which asks for 1 Y.
    jobs = [
        Job("a", 0, 25, gpus=2),
        Job("b", 20, 10, gpus=2, gpu_type="Y"),
        Job("c", 20, 10, gpus=2, family="n"),
        Job("d", 20, 10, gpus=1, gpu_type="Y", family="n"),
    ]
    view = view_at_20(jobs)
    assert view.setting.counts.tolist() == [1, 2, 4]
    # 32 samples an iteration.
    raw = raw_throughput(view)
    assert raw[:2].tolist() == [[[4.0, 8.0, 32.0], [2.0, 3.2, 0.0]]] * 2
    relative = compute_normalised_throughput(view)
    assert relative[0].tolist() == [[0.5, 1.0, 4.0], [0.25, 0.4, 0.0]]
    assert relative[1].tolist() == [[1.25, 2.5, 10.0], [0.625, 1.0, 0.0]]
    for value in (raw, relative):
        assert value[2].tolist() == [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
        assert value[3].tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


def test_a_deadline_is_met_by_who_ends_at_it():
    # At 20 s a has 20 of 25 iterations left: until 180, 100, 40 on X and 340, 220 on Y. b's deadline passes.
    jobs = [Job("a", 0, 25, gpus=2, deadline_s=100.0), Job("b", 20, 1, gpus=2, deadline_s=22.0)]
    view = view_at_20([*jobs, Job("c", 20, 10**6)])
    assert view.remaining_iterations[0] == 20
    met = meets_deadline(view)
    assert met[0].tolist() == [[False, True, True], [False, False, False]]
    assert met[1].tolist() == [[False, False, True], [False, False, False]]
    assert met[2].all()
    worth = OBJECTIVES["deadline"](view, np.full(met.shape, 3.0))
    assert (worth == np.where(met, 3.0, 0.0)).all()


def test_how_far_behind_a_job_is_by_hand():
    # a: (20 + 20 x 4) / (25 x 4) = 1. b came at 10: (10 + 10 x 4) / (10 x 4) = 1.25. c: no time is known.
    jobs = [Job("a", 0, 25, gpus=2), Job("b", 10, 10, gpus=2), Job("c", 20, 10, gpus=2, family="n")]
    scenario = small_scenario(jobs, GROUPS, {"m": TIMES, "n": TIMES})
    simulation = Simulation(without_profiles(scenario, "n"), Buddy(), InformationClass.DATA_PARALLEL)
    for _ in range(2):
        simulation.advance()
        simulation.apply(Decision.of([(0, 0, 2)]))
    view = simulation.advance()
    assert behind(view).tolist() == [1.0, 1.25, 1.0]
    fair = OBJECTIVES["finish_time_fairness"](view, np.full((3, 2, 3), 2.0))
    assert fair[:, 0, 0].tolist() == [2.0, 2.5, 2.0]


def test_a_trace_without_deadlines_is_one_line():
    trace = small_trace([Job("a", 0, 10)])
    check_deadlines(small_trace([Job("a", 0, 10), Job("b", 0, 10, deadline_s=9.0)]), "arena", "x", "y")
    with pytest.raises(InputError) as error:
        check_deadlines(trace, "arena", "objective=deadline", "choose another")
    line = "deadline_s: policy arena with objective=deadline needs deadlines, trace small has none"
    assert str(error.value) == f"{line} (choose another)"
    with pytest.raises(InputError, match=r"^jobs\.csv: deadline_s: policy arena"):
        check_deadlines(replace(trace, path="jobs.csv"), "arena", "objective=deadline", "choose another")
