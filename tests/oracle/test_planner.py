"""The planner: compositions, partitions, bias, frontier and proxy plan."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from grid_rows import allocation

from clustergym.oracle.grid.planner import (
    EXACT,
    NormalisedPartitions,
    Planner,
    _normalise_partitions,
    compositions,
    fractional_gpus,
    frontiers,
    partitions,
    proxies,
    reduce_bias,
    stage_counts,
)
from clustergym.oracle.models.model_spec import ModelClass

GPT = ModelClass("gpt3", "1.3B", 128)


def test_compositions_are_every_way_to_share_out_gpus() -> None:
    for gpus, stages in ((1, 1), (8, 2), (8, 4), (16, 4), (8, 8)):
        sizes = [1 << n for n in range(5)]
        every = {c for c in product(sizes, repeat=stages) if sum(c) == gpus and max(c) <= 8 * min(c)}
        assert {tuple(row) for row in compositions(gpus, stages).tolist()} == every


def test_partitions_are_contiguous_and_complete() -> None:
    first, last = partitions(8, 3)
    assert len(first) == math.comb(7, 2)
    assert (first[:, 0] == 0).all()
    assert (last[:, -1] == 7).all()
    assert (first[:, 1:] == last[:, :-1] + 1).all()
    assert (last >= first).all()


def test_grids_have_powers_of_two_of_stages() -> None:
    assert stage_counts(8, 64) == [1, 2, 4, 8]
    assert stage_counts(8, 2) == [1, 2]
    assert stage_counts(5, 8) == [1, 2, 4]


def test_fractional_gpus_follow_the_load() -> None:
    rows, machine = allocation(GPT, gpus=8)
    share = fractional_gpus(rows, machine)[0]
    assert share.sum() == pytest.approx(8)
    # Clusters 0 to 5 are three equal layers each.
    np.testing.assert_allclose(share[:6], share[0])
    assert share[6] > share[0]  # four layers


def candidates(bias: list[float], load: list[float]) -> NormalisedPartitions:
    count = len(bias)
    ones = np.ones((1, count, 1), dtype=np.int64)
    zero = np.zeros((count, 1), dtype=np.int64)
    return NormalisedPartitions(
        zero, zero, ones, ones, zero[None], np.array([bias]), np.array([load]), np.ones((1, count, 1))
    )


def test_frontier_by_hand() -> None:
    # 16 GPUs: a step of bias is one GPU. 0.2 and 0.9 are equal to 0.0: the least load, 7, stands for them.
    # 2.5 (load 5) is worse than 2.0 (load 4) in load and equal in bias; 4.0 gains nothing; 6.0 does.
    found = candidates([0.0, 0.2, 0.9, 2.0, 2.5, 4.0, 6.0, 1.0], [9.0, 7.0, 8.0, 4.0, 5.0, 4.5, 1.0, np.inf])
    assert np.flatnonzero(frontiers(found, 16)[0]).tolist() == [1, 3, 6]
    choice, fits = proxies(found, 16)
    assert choice.tolist() == [1]
    assert fits.all()


def test_to_the_letter_only_equal_biases_are_equal() -> None:
    found = replace(candidates([0.2, 0.0, 0.0, 2.0], [1.0, 9.0, 7.0, 0.5]), bias_step=EXACT)
    assert proxies(found, 16)[0].tolist() == [2]
    assert np.flatnonzero(frontiers(found, 16)[0]).tolist() == [0, 2, 3]


def test_nothing_feasible_has_no_proxy() -> None:
    found = candidates([0.0, 1.0], [np.inf, np.inf])
    assert not frontiers(found, 8).any()
    assert not proxies(found, 8)[1].any()
    assert np.isinf(reduce_bias(found, 8)).all()


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_candidates_use_all_gpus_and_are_least_biased(stages: int) -> None:
    rows, machine = allocation(GPT, gpus=8, nodes=4)
    planner = Planner(rows, machine.as_profiled(), np.array([16.0]))
    found = planner.candidates(stages)
    literal = Planner(rows, machine.as_profiled(), np.array([16.0]), literal=True).candidates(stages)
    # To the letter, transfers between stages are no part of the communication load.
    assert (literal.bias == found.bias).all()
    fits = np.isfinite(found.communication_s)
    assert ((literal.communication_s < found.communication_s)[fits] == (stages > 1)).all()
    assert (found.gpus.sum(axis=2) == 8).all()
    assert (np.bitwise_and(found.gpus, found.gpus - 1) == 0).all()
    first, last = partitions(8, stages)
    share = fractional_gpus(rows, machine)[0]
    kept = found.bias.shape[1] // len(first)
    for row in range(len(first)):
        ideal = [share[a : b + 1].sum() for a, b in zip(first[row], last[row], strict=True)]
        nearest = min(math.dist(ideal, sizes) for sizes in compositions(8, stages))
        assert found.bias[0, row * kept] == pytest.approx(nearest, abs=1e-5)


def test_the_frontier_is_not_dominated() -> None:
    rows, machine = allocation(ModelClass("wide_resnet", "1B", 256), gpus=8, nodes=4)
    found = Planner(rows, machine.as_profiled(), np.array([16.0])).candidates(4)
    kept = np.flatnonzero(frontiers(found, 8)[0])
    kept = kept[np.argsort(found.bias[0, kept])]
    load = found.communication_s[0, kept]
    steps = reduce_bias(found, 8)[0]
    assert (np.diff(load) < 0).all()
    assert (np.diff(steps[kept]) > 0).all()
    for point in np.flatnonzero(np.isfinite(steps)):
        no_worse = (steps[kept] <= steps[point]) & (load <= found.communication_s[0, point] * (1 + 1e-9))
        assert no_worse.any()


def test_a_model_that_needs_splitting_gets_tensor_parallel_stages() -> None:
    rows, machine = allocation(ModelClass("gpt3", "6.7B", 128), gpus=8, gpu="A100")
    found = Planner(rows, machine.as_profiled(), np.array([16.0])).candidates(1)
    # 12 to 18 bytes for each of 6.7 billion parameters need at least two GPUs of 40 GB.
    assert np.isfinite(found.communication_s).all()
    assert found.tensor[0, 0, 0] > 1
    assert found.memory_bytes[0, 0, 0] <= 36e9


def test_the_four_nearest_compositions_of_fractional_gpus_are_kept():
    # Distances from (1.5, 2.5): (1, 3), (2, 2) and (1, 2) sqrt(0.5); (3, 1) and (0, 4) sqrt(4.5), of which
    # the first stands; (4, 0) sqrt(12.5).
    every = np.array([[4, 0], [1, 3], [2, 2], [3, 1], [1, 2], [0, 4]])
    kept, distance = _normalise_partitions(np.array([[[1.5, 2.5]]]), every)
    assert kept.tolist() == [[[[1, 3], [2, 2], [1, 2], [3, 1]]]]
    assert distance.ravel() == pytest.approx(np.sqrt([0.5, 0.5, 0.5, 4.5]), abs=1e-6)
