"""What the error says of a policy that starts nothing though jobs wait."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, Script, small_scenario

from clustergym.scenario.policy import InformationClass
from clustergym.sim.drive import simulate
from clustergym.sim.engine import StalledError

TIMES = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}, "Y": {2: 3.0}}}
PLAIN = "stalled at 20 s: 3 jobs wait (first: a), nothing runs and the policy starts nothing"


def scenario_without_data_parallel_times():
    """Three jobs; pure data parallelism fits on one X alone, which only a asks for."""
    jobs = [Job("a", 0, 9, 1, "X"), Job("b", 10, 9, 2), Job("c", 20, 9, 2, "Y")]
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (1, 4)}, TIMES)
    known = np.full_like(scenario.tables.data_parallel, np.inf)
    known[:, 0, 0] = scenario.tables.data_parallel[:, 0, 0]
    return replace(scenario, tables=replace(scenario.tables, data_parallel=known))


def error_of(information):
    scenario = scenario_without_data_parallel_times()
    with pytest.raises(StalledError) as raised:
        simulate(scenario, Script(scenario, {}, information), Buddy())
    return str(raised.value)


def test_a_stall_names_the_class_that_knows_no_time_of_what_fits():
    # b fits on two X and on two Y, c on two Y.
    said = (
        "; information class data_parallel knows no finite time of 2 of them where their requests fit "
        "(first: b, 2 X): start such jobs by View.feasible, or declare another class"
    )
    assert error_of(InformationClass.DATA_PARALLEL) == PLAIN + said


@pytest.mark.parametrize("information", [InformationClass.CLAIRVOYANT, InformationClass.NONE])
def test_a_stall_blames_no_class_that_knows_all_or_none(information):
    assert error_of(information) == PLAIN
