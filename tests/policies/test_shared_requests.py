"""What a job asks for, by hand."""

import numpy as np
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.requests import find_requested_level, get_requested_time_s, request_options
from round_scenarios import without_profiles
from scenarios import Job, small_scenario

from clustergym.scenario.policy import InformationClass
from clustergym.sim.engine import Simulation


def test_the_time_at_a_request_is_of_its_type_and_of_the_fastest_where_it_names_none():
    # n is known on X only, by its data-parallel profile; o on no type at 2 GPUs, m on both.
    times = {"X": {1: 9.0, 2: 2.0, 4: 1.0}, "Y": {1: 9.0, 2: 5.0}}
    jobs = [
        Job("any", 0, 10, gpus=2),
        Job("y", 0, 10, gpus=2, gpu_type="Y"),
        Job("unknown-y", 0, 10, gpus=2, gpu_type="Y", family="n"),
        Job("four", 0, 10, gpus=4),
    ]
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (1, 2)}, {"m": times, "n": times})
    scenario = without_profiles(scenario, "n", ("Y",))
    view = Simulation(scenario, Buddy(), InformationClass.DATA_PARALLEL).advance()
    assert find_requested_level(view).tolist() == [1, 1, 1, 2]
    assert get_requested_time_s(view).tolist() == [2.0, 5.0, 2.0, 1.0]
    assert request_options(view).tolist() == [[True, True], [False, True], [False, True], [True, False]]


def test_where_the_request_is_not_known_the_fastest_allotment_counts():
    # The profile tells only of 4 GPUs, 1.5 s; the request is for 2.
    times = {"m": {"X": {1: 9.0, 2: 2.0, 4: 1.5}}}
    scenario = small_scenario([Job("a", 0, 10, gpus=2)], {"X": (1, 4)}, times)
    scenario.tables.data_parallel[:, :, :2] = np.inf
    view = Simulation(scenario, Buddy(), InformationClass.DATA_PARALLEL).advance()
    assert get_requested_time_s(view).tolist() == [1.5]
