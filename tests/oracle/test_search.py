"""Partitioning by dynamic programming, the full and the pruned search."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from clustergym.papers.pruned_search import _three_rules, search_cost, select_splits
from grid_rows import allocation
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.common.errors import InputError
from clustergym.oracle.grid.grid_oracle import build_graph
from clustergym.oracle.grid.layer_costs import GraphAllocations
from clustergym.oracle.grid.pipelines import Layouts, price
from clustergym.oracle.grid.planner import Planner, frontiers
from clustergym.oracle.grid.profiler import estimate
from clustergym.oracle.grid.search import (
    best_pipelines,
    data_parallel_search,
    divide_batches,
    full_search,
    micro_batch_counts,
)
from clustergym.oracle.grid.stages import (
    StageTable,
    _Sums,
    every_split,
    intervals,
    run_index,
    splits,
    stage_table,
)
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass

CATALOG = load_catalog()


GPT = ModelClass("gpt3", "1.3B", 128)
WIDE = ModelClass("wide_resnet", "1B", 256)
MOE = ModelClass("gshard_moe", "2.4B", 256)


def every_pipeline(operators: int, gpus: int) -> list[list[tuple[int, int, int]]]:
    """Return all (first, last, GPUs) pipelines."""
    found = []
    for stages in range(1, operators + 1):
        for cut in combinations(range(1, operators), stages - 1):
            bounds = [0, *cut, operators]
            for sizes in product([1, 2, 4], repeat=stages):
                if sum(sizes) == gpus:
                    found.append([(bounds[n], bounds[n + 1] - 1, sizes[n]) for n in range(stages)])
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([2.0, 16.0]), st.sampled_from([1, 2, 4]))
def test_partitioning_finds_the_best_of_all_pipelines(seed: int, count: float, nodes: int) -> None:
    draw, per_node = np.random.default_rng(seed), 4 // nodes
    # Four operators on four GPUs: a language model clustered into four stands for the shape.
    graph = build_graph(CATALOG.get(GPT))
    from clustergym.oracle.grid.operators import operator_graph

    graph = operator_graph(graph.spec, clusters=4)
    rows = GraphAllocations.from_graphs([graph], [128], [load_gpu_types()["A40"]], [4], [nodes], [12.5])
    first, _ = intervals(4)
    seconds = draw.uniform(1, 10, (1, len(first), 3)) / np.array([1, 2, 4])
    ones = np.ones(seconds.shape, dtype=np.int64)
    table = StageTable(np.array([1, 2, 4]), seconds, ones, 0 * ones, seconds)
    transfer = draw.uniform(0, 1, (1, 5, 2, 3))
    transfer[:, [0, 4]] = 0

    def total(pipeline: list[tuple[int, int, int]]) -> float:
        times, used = [], 0
        for a, b, gpus in pipeline:
            index = int(np.log2(gpus))
            run = int(run_index(4, np.array(a), np.array(b)))
            receives, sends = (nodes > 1 and at % per_node == 0 for at in (used, used + gpus))
            moved = transfer[0, a, int(receives), index] + transfer[0, b + 1, int(sends), index]
            # A stage amid a node that goes on in the next one has no place.
            misplaced = used % per_node > 0 and used % per_node + gpus > per_node
            times.append(math.inf if misplaced else seconds[0, run, index] + moved)
            used += gpus
        return sum(times) + (count - 1) * max(times)

    best = min(map(total, every_pipeline(4, 4)))
    plans = best_pipelines(rows, table, transfer, np.array([count]))
    stages = int(plans.count[0])
    chosen = [(int(plans.first[0, s]), int(plans.last[0, s]), int(plans.gpus[0, s])) for s in range(stages)]
    # Limits on the slowest stage are tried in steps: the result may miss the optimum by part of a step.
    assert best <= total(chosen) * (1 + 1e-9) <= best * 1.03


@pytest.mark.parametrize("model", [GPT, WIDE, MOE], ids=lambda model: model.family)
@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (4, 1), (8, 4), (16, 4)])
def test_plans_are_whole(model: ModelClass, gpus: int, nodes: int) -> None:
    rows, machine = allocation(model, gpus=gpus, nodes=nodes, gpu="A40")
    found = full_search(rows, machine)
    stages = int(found.plans.count[0])
    if stages == 0:
        pytest.skip("does not fit")
    first, last = found.plans.first[0, :stages], found.plans.last[0, :stages]
    assert first[0] == 0
    assert last[-1] == 7
    assert (first[1:] == last[:-1] + 1).all()
    assert found.plans.gpus[0, :stages].sum() == gpus
    assert (found.plans.gpus[0, :stages] % found.plans.tensor[0, :stages] == 0).all()


def test_plans_of_one_gpu_are_data_parallel() -> None:
    rows, machine = allocation(ModelClass("gpt3", "760M", 128), gpus=1, gpu="A100")
    found, parallel = full_search(rows, machine), data_parallel_search(rows, machine)
    np.testing.assert_allclose(found.iteration_s, parallel.iteration_s, rtol=1e-9)


def test_the_search_is_no_worse_than_data_parallelism_or_than_any_estimate() -> None:
    rows, machine = allocation(GPT, MOE, gpus=8, nodes=2, gpu="A100")
    found, parallel = full_search(rows, machine), data_parallel_search(rows, machine)
    assert (found.iteration_s <= parallel.iteration_s * (1 + 1e-9)).all()
    for grid in estimate(rows, machine).grids:
        layouts = Layouts(rows, grid.plans)
        executed = price(rows, machine, layouts, grid.micro_batches).iteration_s
        assert (found.iteration_s <= executed * 1.02).all()


def test_more_memory_is_never_worse() -> None:
    rows, machine = allocation(WIDE, gpus=2, gpu="A100")
    from dataclasses import replace

    roomy = full_search(rows, replace(machine, memory_bytes=machine.memory_bytes * 4)).iteration_s
    assert roomy <= full_search(rows, machine).iteration_s * (1 + 1e-9)


def test_a_mixed_stage_is_cut_where_that_is_fastest() -> None:
    rows, machine = allocation(WIDE, gpus=4, nodes=2, gpu="A100")
    gpus, tensor, counts = np.array([1, 2, 2, 4]), np.array([1, 1, 2, 2]), np.array([16.0])
    whole, _, _ = every_split(rows, machine, counts, "seconds", gpus, tensor, mixed=False)
    seconds, cut, memory = every_split(rows, machine, counts, "seconds", gpus, tensor)
    sums, mixed = _Sums(rows, machine, counts, "seconds", gpus, tensor), 0
    first, last = intervals(rows.operators)
    for variant, run in product(range(4), range(len(first))):
        # Cut at its first operator all of a run is split; a stage that is not split has no other cut.
        best = whole[0, variant, run], first[run]
        for position in range(first[run] + 1, last[run] + 1) if tensor[variant] > 1 else ():
            one, _ = sums.stages(np.array([run]), np.array([position]), np.array([variant]))
            best = min(best, (one[0, 0, 0], position))
        assert (seconds[0, variant, run], cut[0, variant, run]) == best
        mixed += cut[0, variant, run] > first[run]
    assert mixed > 0
    assert (memory[np.isfinite(seconds)] <= machine.memory_bytes.item()).all()


def test_stages_fit_in_memory() -> None:
    rows, machine = allocation(GPT, WIDE, gpus=4, gpu="A100")
    table = stage_table(rows, machine, np.array([16.0, 16.0]), 4)
    fits = np.isfinite(table.seconds)
    # 0.8 of 40 GB.
    assert (table.memory_bytes[fits] <= 32e9).all()
    # Splits that are ruled out for another reason have no bytes to compare.
    out = ~fits & np.isfinite(table.memory_bytes)
    assert (table.memory_bytes[out] > 32e9).all()


def test_micro_batches_are_16_or_32_or_as_many_as_there_are_samples() -> None:
    rows, machine = allocation(
        GPT, ModelClass("gpt3", "1.3B", 24), ModelClass("gpt3", "1.3B", 3), gpus=8, gpu="A100"
    )
    tried = [counts for _, counts in micro_batch_counts(rows, machine)]
    # 24 samples in 16 would be 1.5 each: 12 micro-batches of 2. 8 GPUs outnumber 3 samples.
    assert [counts.tolist() for counts in tried] == [[16, 12, 3], [32, 24, 3], [16, 3, 1]]
    assert divide_batches(rows, 5.0).tolist() == [5, 5, 3]


def test_a_batch_smaller_than_the_gpus_idles_some_but_runs() -> None:
    rows, machine = allocation(ModelClass("gpt3", "760M", 1), gpus=4, gpu="A100")
    found = full_search(rows, machine)
    assert np.isfinite(found.iteration_s).all()
    assert (found.micro_batches == 1).all()


@pytest.mark.parametrize("rules", ["arena", "half_space"])
def test_pruned_search_is_cheaper_and_nearly_as_good(rules: str) -> None:
    models = [
        ModelClass(f, s, 512) for f, s in (("gpt3", "1.3B"), ("gshard_moe", "2.4B"), ("wide_resnet", "1B"))
    ]
    rows, machine = allocation(*models, gpus=8, nodes=2, gpu="A100")
    full = full_search(rows, machine)
    estimates = estimate(rows, machine)
    allowed = select_splits(rows, machine, estimates, rules)
    pruned = full_search(rows, machine, allowed, estimates.best.micro_batches)
    assert (full.iteration_s <= pruned.iteration_s * 1.01).all()
    assert (full.iteration_s / pruned.iteration_s).mean() > 0.9
    for whole, part in zip(
        search_cost(rows, machine, full.micro_batches),
        search_cost(rows, machine, pruned.micro_batches, allowed),
        strict=True,
    ):
        assert part.trials < whole.trials
        assert part.gpu_seconds < whole.gpu_seconds / 2
        assert whole.gpu_seconds == pytest.approx(whole.seconds * 8)


def test_arenas_three_rules_by_hand() -> None:
    rows, machine = allocation(WIDE, gpus=8, nodes=2, gpu="A100")
    planner = Planner(rows, machine.as_profiled(), np.array([16.0]))
    found = planner.candidates(2)
    kept = np.flatnonzero(frontiers(found, 8)[0])
    allowed = _three_rules(planner, found)[0]
    gpus, tensor = splits(8)
    first, last = intervals(rows.operators)
    repeats = found.bias.shape[1] // len(found.first)
    # What a stage of a plan on the frontier has: GPUs and ranks of these very operators.
    fixed: dict[tuple[int, int], set[tuple[int, int]]] = {}
    sizes: dict[tuple[int, int], set[int]] = {}
    most = found.bias[0, kept].max()
    for point in np.flatnonzero(np.isfinite(found.communication_s[0]) & (found.bias[0] <= most)):
        for stage in range(2):
            run = (int(found.first[point // repeats, stage]), int(found.last[point // repeats, stage]))
            size, ranks = int(found.gpus[0, point, stage]), int(found.tensor[0, point, stage])
            sizes.setdefault(run, set()).add(size)
            if point in kept:
                fixed.setdefault(run, set()).add((size, ranks))
    assert set(sizes) - set(fixed)
    for index, run in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        here = {
            (int(m), int(t)) for m, t in zip(gpus[allowed[:, index]], tensor[allowed[:, index]], strict=True)
        }
        free = {(m, t) for m, t in splits_of(8) if m in sizes.get(run, set())}
        assert here == fixed.get(run, free)


def splits_of(most: int) -> list[tuple[int, int]]:
    return list(zip(*(part.tolist() for part in splits(most)), strict=True))


def test_unknown_rules_are_one_clear_line() -> None:
    rows, machine = allocation(GPT, gpus=2, gpu="A100")
    with pytest.raises(InputError, match="half_space"):
        select_splits(rows, machine, estimate(rows, machine), "halfspace")


def test_splits_are_powers_of_two() -> None:
    gpus, tensor = splits(8)
    assert sorted(zip(gpus.tolist(), tensor.tolist(), strict=True)) == [
        (1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 1), (8, 2), (8, 4), (8, 8),
    ]  # fmt: skip
