"""What the error says of a policy that starts nothing though jobs wait, or starts them for ever."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, Script, small_scenario

from clustergym.scenario.disturbances.checkpoints import Checkpoints
from clustergym.scenario.policy import Decision, InformationClass, Policy
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


class Turns(Policy):
    """Gives the one GPU to each waiting job in turn."""

    name = "turns"
    information_class = InformationClass.NONE
    round_s = 10.0

    def schedule(self, view):
        waits = int(np.argmax(view.gpus == 0))
        return Decision.of([(int(view.job[waits]), 0, 1)])


@pytest.mark.parametrize("engine", ["simpy", pytest.param("compiled", marks=pytest.mark.compiled)])
def test_rounds_that_are_shorter_than_a_restart_end_with_the_names_of_the_jobs(engine):
    # A first launch costs nothing: each job does 2 of its 9 iterations of 4 s. From then on each round of
    # 10 s is spent on restarts of 20 s. Looks for progress come after 100 x 2 + 1,000 launches: the first
    # one finds less work than at the start, the second the same.
    jobs = [Job("a", 0, 9), Job("b", 0, 9)]
    scenario = small_scenario(
        jobs, {"X": (1, 1)}, {"m": {"X": {1: 4.0}}}, checkpoint_s={"m": 20.0}, rounds="policy"
    )
    with pytest.raises(StalledError) as raised:
        simulate(scenario, Turns(), Buddy(), engine=engine)
    assert str(raised.value).startswith(
        "without end at 24010 s: jobs a, b are launched again and again, and none comes nearer to its end"
    )


def test_stops_that_undo_each_round_end_with_the_names_of_the_jobs():
    # Checkpoints lie 10 s of work apart, and a restart leaves 9 s of a round, whose work is undone. A long
    # third job runs beside, and comes nearer to its end at each look until it is done: so long the run goes
    # on.
    jobs = [Job("a", 0, 9), Job("b", 0, 9), Job("c", 0, 20_000, 1, "Y")]
    times = {"m": {"X": {1: 4.0}, "Y": {1: 1.0}}}
    gpus, costs = {"X": (1, 1), "Y": (1, 1)}, {"m": 2.0}
    scenario = small_scenario(jobs, gpus, times, checkpoint_s=costs, rounds="policy")
    scenario = replace(scenario, disturbances=(Checkpoints(every_s=10.0),))

    class Beside(Turns):
        def schedule(self, view):
            held = [(int(row), 1, 1) for row in view.job if row == 2]
            waits = int(np.argmax((view.gpus == 0) & (view.job != 2)))
            return Decision.of([(int(view.job[waits]), 0, 1), *held])

    with pytest.raises(StalledError, match="jobs a, b are launched") as raised:
        simulate(scenario, Beside(), Buddy())
    assert float(str(raised.value).split()[3]) > 20_000


def test_a_run_that_gains_a_little_in_each_round_goes_on():
    # A restart takes 8 of 10 s, so that each round does half an iteration: 2,000 launches and more.
    jobs = [Job("a", 0, 500), Job("b", 0, 500)]
    times, costs = {"m": {"X": {1: 4.0}}}, {"m": 8.0}
    scenario = small_scenario(jobs, {"X": (1, 1)}, times, checkpoint_s=costs, rounds="policy")
    assert simulate(scenario, Turns(), Buddy()).simulation.jobs_left == 2
