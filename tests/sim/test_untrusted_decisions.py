"""What a policy may do to its View, and whatever it may return in place of a Decision."""

import dataclasses

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from refusals import refused
from scenarios import Job, small_scenario

from clustergym.scenario.policy import Decision, InformationClass, Policy, Setting, View
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventType

TIMES = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}}


def scenario_of():
    return small_scenario([Job("a", 0, 100, 2), Job("b", 10, 10, 1)], {"X": (1, 4)}, TIMES)


def first_point():
    simulation = Simulation(scenario_of(), Buddy(), InformationClass.NONE)
    return simulation, simulation.advance()


def test_every_array_of_a_view_and_its_setting_is_read_only():
    _, view = first_point()
    # By the names of fields: columns of a View are made when they are read.
    fields = [
        (field.name, getattr(shown, field.name))
        for shown, of in ((view, View), (view.setting, Setting))
        for field in dataclasses.fields(of)
    ]
    arrays = [(name, value) for name, value in fields if isinstance(value, np.ndarray)]
    assert len(arrays) > 20
    for name, value in arrays:
        with pytest.raises(ValueError, match="read-only"):
            value[...] = 0
        assert not value.flags.writeable, name


class Tampering(Policy):
    """Runs a on 2 GPUs, then writes 4 into the View in spite of all and says: keep it."""

    name = "tampering"
    information_class = InformationClass.NONE

    def schedule(self, view):
        if not view.gpus.any():
            return Decision.of([(int(view.job[0]), 0, 2)])
        for shown in (view.gpus, view.available, view.free, view.feasible, view.setting.capacity):
            shown.setflags(write=True)
        view.gpus[0], view.available[0], view.setting.capacity[0] = 4, 99, 99
        return Decision.keep(view)


def test_what_a_policy_writes_into_its_view_changes_nothing_but_its_decision():
    # At 10, when b comes, the decision names 4 GPUs for a: the engine, which knows of 2, rescales a.
    run = simulate(scenario_of(), Tampering(), Buddy())
    launched = [(e.time_s, e.event_type, e.gpus) for e in run.simulation.log.events if e.job == 0 and e.gpus]
    assert launched[:2] == [(0.0, EventType.START, 2), (10.0, EventType.RESCALE, 4)]


def test_the_views_gpus_are_not_the_engines_limit():
    simulation, view = first_point()
    view.available.setflags(write=True)
    view.available[:] = 99
    view.feasible.setflags(write=True)
    view.feasible[:] = True
    with pytest.raises(DecisionError, match="job a: has 8 GPUs, which is not an allowed count"):
        simulation.apply(Decision.of([(0, 0, 8)]))


def columns(**changed):
    given = {"job": [0], "gpu_type": [0], "gpus": [1], "drop": []} | changed
    return Decision(**given)


BAD = {
    "None": (None, "is a NoneType, not a Decision"),
    "list": ([(0, 0, 1)], "is a list, not a Decision"),
    "dict": ({"job": [0]}, "is a dict, not a Decision"),
    "half GPUs": (columns(gpus=np.array([2.5])), "column gpus holds float64 such as"),
    "whole floats": (columns(gpus=np.array([2.0])), "column gpus holds float64"),
    "NaN": (columns(job=np.array([np.nan])), "column job holds float64"),
    "bools": (columns(gpu_type=np.array([True])), "column gpu_type holds bool"),
    "texts": (columns(job=np.array(["a"])), "column job holds <U1"),
    "objects": (columns(gpus=np.array([None], dtype=object)), "column gpus holds object"),
    "no column": (columns(gpus=None), "column gpus has 0 dimensions"),
    "a number": (columns(gpus=1), "column gpus has 0 dimensions"),
    "two dimensions": (columns(job=np.array([[0]])), "column job has 2 dimensions"),
    "ragged": (columns(job=[[0], [1, 2]]), "column job is not an array"),
    "too large": (
        columns(gpus=np.array([2**64 - 1], dtype=np.uint64)),
        "column gpus holds 18446744073709551615",
    ),
    "columns of two lengths": (columns(gpus=np.array([1, 1])), "its columns differ in length"),
    "a batch of floats": (columns(batch=np.array([32.0])), "column batch holds float64"),
    "a batch too many": (columns(batch=np.array([32, 32])), "its columns differ in length"),
    "negative job": (columns(job=np.array([-1])), "job #-1: is not in the system now"),
    "negative GPUs": (columns(gpus=np.array([-4])), "has -4 GPUs, which is not an allowed count"),
    "a drop of floats": (columns(drop=np.array([0.0])), "column drop holds float64"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_decision_is_one_clear_error_and_changes_nothing(name):
    decision, message = BAD[name]
    simulation, _ = first_point()
    before = simulation.log.digest
    with pytest.raises(DecisionError) as error:
        simulation.apply(decision)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    if "column " in message:
        assert str(error.value).endswith("(give a one-dimensional array of whole numbers)")
    assert error.value.remedy
    assert simulation.log.digest == before
    simulation.apply(Decision.of([(0, 0, 1)]))


@refused("allotments")
def test_the_job_at_fault_and_the_remedy_are_named(given, said):
    # Jobs a and b, of which b is at fault, on 4 X and 2 Y; b does not fit on Y.
    times = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}, "Y": {1: 1.0}}, "n": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}}
    jobs = [Job("a", 0, 100), Job("b", 0, 10, family="n")]
    simulation = Simulation(
        small_scenario(jobs, {"X": (1, 4), "Y": (1, 2)}, times), Buddy(), InformationClass.NONE
    )
    simulation.advance()
    with said.of_error():
        simulation.apply(Decision.of([tuple(one) for one in given]))


def test_a_batch_where_there_is_no_choice_of_batches_is_refused_unless_it_is_the_requested_one():
    simulation, _ = first_point()
    with pytest.raises(
        DecisionError, match="job a: trains at global batch 64, which is not one of its choices"
    ):
        simulation.apply(columns(batch=np.array([64])))
    simulation.apply(columns(batch=np.array([32])))
    assert simulation.jobs.gpus.tolist() == [1, 0]


def test_a_job_both_launched_and_dropped_is_named_twice():
    simulation, _ = first_point()
    with pytest.raises(DecisionError, match="job a: is named twice"):
        simulation.apply(Decision.of([(0, 0, 1)], [0]))


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint8, np.uint64, "list", "tuple"])
def test_whole_numbers_of_any_kind_are_taken(kind):
    def of(values):
        return (
            {"list": list, "tuple": tuple}[kind](values) if isinstance(kind, str) else np.array(values, kind)
        )

    simulation, _ = first_point()
    simulation.apply(Decision(of([0]), of([0]), of([2]), of([])))
    assert simulation.jobs.gpus.tolist() == [2, 0]


def test_a_field_that_is_replaced_is_locked_too():
    _, view = first_point()
    assert not dataclasses.replace(view, free=np.array([3])).free.flags.writeable
