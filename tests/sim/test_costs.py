"""What a launch and a profile cost, and what configurations of costs are refused, by the line."""

import numpy as np
from scenarios import price

from clustergym.scenario.costs import Costs


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


def test_nothing_is_a_duration_and_a_single_gpu_a_count():
    Costs(search_s_max={"full": 0.0}, measured_s={"gpt": 0.0}, profile=price("bootstrap", 1e-3, gpus=1))
