"""The profiler: pipeline latency, what it does not see, strategies and rules."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from clustergym.papers.pruned_search import measuring_cost, profiling_cost
from grid_rows import allocation

from clustergym.common.errors import InputError
from clustergym.oracle.grid.constants import Constants
from clustergym.oracle.grid.grid_oracle import build_graph
from clustergym.oracle.grid.layer_costs import Split, operator_costs
from clustergym.oracle.grid.pipelines import Layouts, pipeline_s, price
from clustergym.oracle.grid.profiler import estimate
from clustergym.oracle.grid.stages import stage_table
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.stacks.stack_oracle import make_operators_oracle

CATALOG = load_catalog()


GPT = ModelClass("gpt3", "760M", 128)


def test_pipeline_latency_by_hand() -> None:
    # Stages of 2, 3 and 1 s, 4 micro-batches: the first takes 6 s, the slowest stage adds 3 x 3 s.
    assert pipeline_s(np.array([2.0, 3.0, 1.0]), 4) == 15.0
    assert pipeline_s(np.array([2.0]), 4) == 8.0
    assert pipeline_s(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([1.0, 3.0])).tolist() == [2.0, 4.0]
    # With 0, 2 and 0 s of them hidden once the pipeline is full, the first is the slowest: 6 + 3 x 2 s.
    assert pipeline_s(np.array([2.0, 3.0, 1.0]), 4, np.array([0.0, 2.0, 0.0])) == 12.0


def test_a_layer_on_one_gpu_by_hand() -> None:
    rows, machine = allocation(GPT, gpus=1)
    costs = operator_costs(rows, machine, np.full((1, 1, 1), 8.0), Split(np.ones(1), np.ones(1)))
    c = Constants()
    layers, hidden, tokens = 3, 1536, 1024
    weights = layers * 12 * hidden**2
    products = 2 * weights * (8 * tokens + c.half_tokens) / (149.7e12 * c.matmul)
    attention = 8 * layers * 4 * tokens**2 * hidden / (149.7e12 * c.attention)
    held = 11 * tokens * hidden + 5 * 16 * tokens**2 + tokens * (4 * 4 * hidden + 7 * hidden)
    moved = 8 * layers * 2 * held * c.traffic / 696e9
    assert costs.pass_s[0, 0, 0] == pytest.approx(products + attention + moved)
    assert costs.weights_s[0, 0, 0] == pytest.approx(6 * 2 * weights / 696e9)
    assert costs.exchange_s[0, 0, 0] == 0
    # 18 bytes a parameter, moved twice by the optimizer
    assert costs.synchronise_s[0, 0, 0] == pytest.approx(2 * 18 * weights / 696e9)
    assert costs.state_bytes[0, 0, 0] == 18 * weights


def test_a_split_layer_exchanges_activations() -> None:
    rows, machine = allocation(GPT, gpus=2)
    costs = operator_costs(rows, machine, np.full((1, 1, 1), 8.0), Split(np.full(1, 2.0), np.full(1, 2.0)))
    # Three layers of four all-reduces of the hidden states, in fp16, over two GPUs: each moves the buffer
    # once over the link, in two steps of 10 us.
    buffer = 2 * 8 * 1024 * 1536
    link = machine.layout.link_gbs[0] * 1e9
    assert costs.exchange_s[0, 0, 0] == pytest.approx(3 * 4 * (buffer / link + 2 * 10e-6))
    assert costs.synchronise_s[0, 0, 0] == pytest.approx(costs.state_bytes[0, 0, 0] * 2 / 696e9)


def test_the_estimate_leaves_out_what_a_single_operator_does_not_show() -> None:
    rows, machine = allocation(GPT, gpus=1)
    found = estimate(rows, machine).best
    layouts = Layouts(rows, found.plans)
    executed = price(rows, machine, layouts, found.micro_batches)
    estimated = price(rows, machine.as_profiled(), layouts, found.micro_batches)
    weights = build_graph(CATALOG.get(GPT))["shared_parameters"].sum()
    missing = 16 * 6 * 2 * weights / 696e9 + 2 * 18 * weights / 696e9
    assert executed.iteration_s[0] - estimated.iteration_s[0] == pytest.approx(missing)


def test_a_first_stage_of_two_holds_two_micro_batches() -> None:
    # 16 micro-batches of 8 samples, and one alone. Half the operators have two in flight under 1F1B;
    # a single stage has one.
    k, memory = len(build_graph(CATALOG.get(GPT))), []
    # Stages that begin at the first operator are the first of the table; of one GPU, and of two.
    half, whole = (0, k // 2 - 1, 0), (0, k - 1, 1)
    for batch, count in ((128, 16.0), (8, 1.0)):
        rows, machine = allocation(GPT._replace(global_batch=batch), gpus=2)
        table = stage_table(rows, machine, np.full(1, count), 2).memory_bytes
        memory.append([float(table[stage]) for stage in (half, whole)])
    kept = operator_costs(rows, machine, np.full((1, 1, 1), 8.0), Split(np.ones(1), np.ones(1))).kept_bytes
    (two, single), (one, same) = memory
    assert two - one == pytest.approx(kept[0, 0, : k // 2].sum())
    assert single == same


def test_the_best_grid_has_the_least_estimate() -> None:
    rows, machine = allocation(ModelClass("wide_resnet", "1B", 256), gpus=8, nodes=4)
    found = estimate(rows, machine)
    assert found.stages == (1, 2, 4, 8)
    assert found.best.iteration_s[0] == min(grid.iteration_s[0] for grid in found.grids)
    for stages, grid in zip(found.stages, found.grids, strict=True):
        assert grid.plans.count[0] in (0, stages)


def test_assembly_mixes_pure_stages() -> None:
    rows, machine = allocation(ModelClass("gpt3", "2.6B", 256), gpus=8, nodes=1, gpu="H100")
    found = estimate(rows, machine, strategy="assembly")
    for grid in found.grids:
        stages = int(grid.plans.count[0])
        gpus, tensor = grid.plans.gpus[0, :stages], grid.plans.tensor[0, :stages]
        assert ((tensor == 1) | (tensor == gpus)).all()
    # With all mixes to choose from, it is at least as good as all stages data-parallel or all split.
    one = found.grids[0]
    assert one.iteration_s[0] <= estimate(rows, machine, strategy="frontier").grids[0].iteration_s[0] * 1.001


def test_assembly_takes_the_best_mix_of_all() -> None:
    rows, machine = allocation(ModelClass("wide_resnet", "1B", 256), gpus=4, nodes=2)
    grid = estimate(rows, machine, strategy="assembly").grids[1]
    assert grid.plans.gpus[0, :2].tolist() == [2, 2]
    view, times = machine.as_profiled(), []
    for ranks in product([1, 2], repeat=2):
        plans = replace(grid.plans, tensor=np.array([[*ranks, *[1] * 6]]))
        times.append(price(rows, view, Layouts(rows, plans), grid.micro_batches).iteration_s[0])
    assert grid.iteration_s[0] == pytest.approx(min(times))


def test_overlap_hides_transfers_from_the_estimate_alone() -> None:
    rows, machine = allocation(ModelClass("wide_resnet", "1B", 256), gpus=4, nodes=2)
    plain, hiding = make_operators_oracle(), make_operators_oracle(overlap=True)
    grid = estimate(rows, machine).grids[1]
    layouts = Layouts(rows, grid.plans)
    seconds = [
        price(rows, view, layouts, grid.micro_batches).iteration_s[0]
        for oracle in (plain, hiding)
        for view in (oracle.machine(rows), oracle.machine(rows).as_profiled())
    ]
    assert seconds[0] == seconds[2]
    prices = price(rows, plain.machine(rows).as_profiled(), layouts, grid.micro_batches)
    assert (prices.inter_stage_s[0, :2] > 0).all()
    rest = prices.stage_s - prices.inter_stage_s
    hidden = 15 * (prices.stage_s.max() - rest.max())
    assert seconds[1] - seconds[3] == pytest.approx(hidden)
    assert plain.fingerprint() != hiding.fingerprint()


def test_a_model_that_fits_nowhere_has_no_estimate() -> None:
    rows, machine = allocation(ModelClass("gpt3", "39B", 128), gpus=2)
    assert np.isinf(estimate(rows, machine).best.iteration_s).all()


def test_profiling_costs_one_gpu() -> None:
    rows, machine = allocation(GPT, gpus=4)
    cost = profiling_cost(rows, machine, estimate(rows, machine).grids)[0]
    assert cost.seconds == cost.gpu_seconds
    # Grids of 1, 2 and 4 stages, with 4, 2 and 1 GPUs a stage. Of 8 operators 6 are three layers each and
    # are profiled once; one has four layers, and the last the head.
    assert cost.trials == 3 * 3
    assert cost.seconds > 3 * 3 * 3.0
    # Of a plan that is asked for twice nothing is profiled again.
    best = estimate(rows, machine).best
    assert profiling_cost(rows, machine, [best, best]) == profiling_cost(rows, machine, [best])


def test_measuring_a_plan_occupies_all_of_its_gpus() -> None:
    rows, machine = allocation(GPT, gpus=4)
    best = estimate(rows, machine).grids[1]
    executed = price(rows, machine, Layouts(rows, best.plans), best.micro_batches).iteration_s[0]
    cost = measuring_cost(rows, machine, best)[0]
    longest = (best.plans.last - best.plans.first + 1)[0, :2].max()
    assert cost.seconds == pytest.approx(3.0 * longest + 5 * executed)
    assert (cost.gpu_seconds, cost.trials) == (pytest.approx(4 * cost.seconds), 2)


def test_an_unknown_strategy_is_one_clear_line() -> None:
    rows, machine = allocation(GPT, gpus=2)
    with pytest.raises(InputError, match="did you mean frontier"):
        estimate(rows, machine, strategy="frontiers")
