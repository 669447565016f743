"""What a launch and a profile cost, and what configurations of costs are refused, by the line."""

from __future__ import annotations

import numpy as np
import pytest
from scenarios import price

from clustergym.common.errors import InputError
from clustergym.scenario.costs import Costs, ProfilePrice


def test_what_a_search_takes_grows_with_the_gpus_up_to_a_limit():
    costs = Costs(search="full", search_s_per_gpu={"full": 10.0}, search_s_max={"full": 35.0})
    assert costs.search_s(np.array([1, 2, 3, 4, 8])).tolist() == [10.0, 20.0, 30.0, 35.0, 35.0]
    unlimited = Costs(search="full", search_s_per_gpu={"full": 10.0}, search_s_max={})
    assert unlimited.search_s(np.array([1, 8])).tolist() == [10.0, 80.0]
    assert Costs(search="proxy", search_s_per_gpu={}).search_s(np.array([1, 8])).tolist() == [0.0, 0.0]


def test_a_checkpoint_is_saved_and_loaded_unless_it_was_measured():
    # 1e9 parameters at 14 bytes in fp16, 12 in fp32, twice at 2 GB/s.
    costs = Costs(storage_gbs=2.0, measured=False, measured_s={"bert-large": 5.0, "gpt": 7.0})
    assert costs.checkpoint_s("moe-1b", "moe", 1e9, "fp16", 9.0) == 14.0
    assert costs.checkpoint_s("moe-1b", "moe", 1e9, "fp32", 9.0) == 12.0
    assert costs.checkpoint_s("bert-large", "bert", 1e9, "fp16", 9.0) == 5.0
    assert costs.checkpoint_s("gpt-1b", "gpt", 1e9, "fp16", 9.0) == 7.0
    measured = Costs(storage_gbs=2.0, measured=True, measured_s={"gpt": 7.0})
    assert measured.checkpoint_s("moe-1b", "moe", 1e9, "fp16", 9.0) == 9.0
    assert measured.checkpoint_s("moe-1b", "moe", 1e9, "fp16", None) == 14.0
    assert measured.checkpoint_s("gpt-1b", "gpt", 1e9, "fp16", 9.0) == 7.0


LINES = {
    "costs.search: unknown value 'prune' (did you mean pruned?)": {"search": "prune"},
    "costs.profile_reuse: unknown value 'jobs' (did you mean job?)": {"profile_reuse": "jobs"},
    "costs.storage_gbs: 0.0 is not valid (give GB/s above 0)": {"storage_gbs": 0.0},
    "costs.search_s_max.full: -1.0 is not valid (give seconds from 0)": {"search_s_max": {"full": -1.0}},
    "costs.search_s_per_gpu.full: inf is not valid (give seconds from 0)": {
        "search_s_per_gpu": {"full": float("inf")}
    },
    "costs.measured_s.gpt: nan is not valid (give seconds from 0)": {"measured_s": {"gpt": float("nan")}},
    "costs.profile.none: none has no price: a policy that knows nothing profiles nothing (leave it out, as "
    "~costs.profile.none does)": {"profile": price("none", 1.0)},
    "costs.profile.bootstrop: unknown information class 'bootstrop' (did you mean bootstrap?)": {
        "profile": price("bootstrop", 1.0)
    },
    "costs.profile.bootstrap.seconds: 0.0 is not valid (give seconds above 0; ~costs.profile.CLASS "
    "lets the class know for nothing)": {"profile": price("bootstrap", 0.0)},
    "costs.profile.bootstrap.gpus: 0 is not valid (give a whole number from 1)": {
        "profile": price("bootstrap", 1.0, gpus=0)
    },
    "costs.profile.bootstrap.types: unknown value 'every' (valid: each, requested)": {
        "profile": price("bootstrap", 1.0, types="every")
    },
    "costs.profile.bootstrap.per: unknown value 'jobs' (did you mean job?)": {
        "profile": {"bootstrap": ProfilePrice(1.0, 1, "each", "jobs")}
    },
}


@pytest.mark.parametrize("line", LINES)
def test_a_bad_cost_is_one_line(line):
    with pytest.raises(InputError) as error:
        Costs(**LINES[line])
    assert str(error.value) == line


def test_nothing_is_a_duration_and_a_single_gpu_a_count():
    Costs(search_s_max={"full": 0.0}, measured_s={"gpt": 0.0}, profile=price("bootstrap", 1e-3, gpus=1))
