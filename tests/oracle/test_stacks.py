"""Step times of today's transformers: parameters, FLOPs, memory, parts by hand, and properties."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.common.errors import InputError
from clustergym.oracle.models.shape import Machine, ParallelPlan, TransformerShape
from clustergym.oracle.models.shape_files import load_accelerator, load_transformer
from clustergym.oracle.stacks.catalog import current_stacks, load_stack
from clustergym.oracle.stacks.collectives import ring_s
from clustergym.oracle.stacks.memory import activation_bytes, choose_recompute, loss_bytes, state_bytes
from clustergym.oracle.stacks.search import assess_plan, search_plans
from clustergym.oracle.stacks.step_time import StackConstants, step_parts

OF_STEPS = [stack.name for stack in current_stacks() if stack.of_steps]
LLAMA = load_transformer("llama3-8B")
H100 = load_accelerator("H100")
MEGATRON = load_stack("megatron-2026").constants

TINY = TransformerShape("tiny", hidden=8, layers=2, heads=2, vocabulary=10, feed_forward=32, gated=False)
TOY = Machine("toy", 1.0, 1.0, 1.0, 1.0, nic_gbps=8.0, power_w=1 / 0.78, domain=2)
"""A machine of 1 TFLOP/s, 1 GB/s of memory, 1 GB/s of link and of network, with an A100's load of power."""
PLAIN = StackConstants(linear_rate=0.5, attention_rate=0.25, traffic=10.0, layer_us=100.0)


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [("deepseek-v3", 682.6, 38.2), ("mixtral-8x7B", 46.7, 12.7), ("gpt-oss-120B", 116.8, 5.1),
     ("kimi-k2", 1026, 31.7), ("qwen3-235B-A22B", 235, 21.6), ("nemotron-3-nano", 31.6, 3.2),
     ("mpt-7B", 6.65, 6.65)],
)  # fmt: skip
def test_parameters_of_model_cards(name, billions, active):
    """DeepSeek-V3 is counted with its layer of multi-token prediction: 671 + 11.6 G."""
    shape = load_transformer(name)
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=2e-3)
    assert shape.active_parameters / 1e9 == pytest.approx(active, rel=2e-2)


def test_a_window_shortens_the_context_of_its_layers():
    shape = replace(TINY, window=128, window_every=2)
    assert shape.context(8192) == (4096 + 128) / 2
    assert shape.context(100) == 50


def test_state_of_a_small_case():
    # 2 layers of 4 x 64 + 2 x 256 parameters, and twice 80 of the vocabulary: 1,696.
    assert TINY.parameters == 2 * (256 + 512) + 160
    assert state_bytes(TINY, ParallelPlan()) == 16 * 1696
    assert state_bytes(TINY, ParallelPlan(data=4)) == 4 * 1696 + 12 * 1696 / 4
    # Fully sharded, with two layers of two gathered: 8 bytes a parameter of a layer.
    assert state_bytes(TINY, ParallelPlan(data=4, sharding="full")) == 4 * 1696 + 8 * 1696 / 2
    # Two groups of two hold a copy each (hybrid sharding).
    hybrid = ParallelPlan(data=4, sharding="full", shard_group=2)
    assert state_bytes(TINY, hybrid) == 8 * 1696 + 8 * 1696 / 2
    assert state_bytes(TINY, ParallelPlan(adapters=True)) == 2 * 1696
    # Frozen weights are divided and gathered, too, and have no gradients.
    assert (
        state_bytes(TINY, ParallelPlan(data=4, sharding="full", adapters=True)) == 2 * 1696 / 4 + 4 * 1696 / 2
    )
    assert state_bytes(TINY, ParallelPlan(data=4, sharding="gradients", offload=True)) == 2 * 1696


def test_activations_of_a_small_case():
    # A frozen board's fit: 34 bytes of a token, layer and hidden number where the network is 4 times as wide
    # (Korthikanti et al.).
    tokens = 2 * 16
    assert activation_bytes(TINY, ParallelPlan(micro_batch=2), 0.0, 0.0, 2, 16) == 34 * tokens * 8 * 2
    # Recomputed: 2 bytes of each of 2 layers, and the one that is computed again.
    assert activation_bytes(TINY, ParallelPlan(micro_batch=2), 0.0, 1.0, 2, 16) == tokens * 8 * (2 * 2 + 34)
    # The first of two stages holds two micro-batches of one layer.
    assert activation_bytes(TINY, ParallelPlan(pipeline=2), 0.0, 0.0, 8, 16) == 34 * 16 * 8 * 2


def test_parts_of_a_step_by_hand():
    parts = step_parts(TINY, TOY, ParallelPlan(micro_batch=2), PLAIN, global_batch=4, sequence_length=16)
    rounds, tokens = 2, 32
    assert parts.linear_s == pytest.approx(rounds * 6 * tokens * 1536 / 0.5e12)
    # A token attends to 8 others: 4 x 8 x 8 FLOPs a layer forward, 2.5 times that backward.
    assert parts.attention_s == pytest.approx(rounds * tokens * 2 * 4 * 8 * 8 * 3.5 / 0.25e12)
    assert parts.output_s == pytest.approx(rounds * 6 * tokens * 80 / 0.5e12)
    width = 2 * (4 * 8 + 2 * 8) + 2 * (2 * 8 + 2 * 32) + 10
    assert parts.elementwise_s == pytest.approx(rounds * tokens * width * 10 / 1e9)
    assert parts.fixed_s == pytest.approx(rounds * 2 * 100e-6)
    assert parts.optimizer_s == pytest.approx(30 * 1696 / 1e9)
    others = (parts.tensor_exposed_s, parts.context_exposed_s, parts.expert_exchange_s, parts.data_exposed_s)
    assert others == (0, 0, 0, 0)
    assert parts.bubble_s == parts.straggling_s == 0


def test_the_bubble_of_a_pipeline():
    """(p - 1) / v of a micro-batch's time on a stage: 3 of 8 rounds, and half of that with two virtual
    stages."""
    shape = replace(TINY, layers=8)
    one, two = (
        step_parts(
            shape, TOY, ParallelPlan(pipeline=4, virtual_stages=v), PLAIN, global_batch=8, sequence_length=16
        )
        for v in (1, 2)
    )
    steady = one.linear_s + one.attention_s + one.output_s + one.elementwise_s + one.fixed_s
    assert one.bubble_s == pytest.approx(3 / 8 * steady)
    assert two.bubble_s == pytest.approx(one.bubble_s / 2)
    # One micro-batch passes one stage after the other, however many parts they have.
    plan = ParallelPlan(pipeline=4, virtual_stages=2)
    alone = step_parts(shape, TOY, plan, PLAIN, global_batch=1, sequence_length=16)
    assert alone.bubble_s == pytest.approx(3 / 8 * steady)


def test_the_exchange_of_experts():
    """Two ranks and two experts a token: it goes to 1.5 ranks in the mean, half of which is its own."""
    shape = replace(TINY, gated=False, experts=4, experts_per_token=2, expert_feed_forward=16, feed_forward=0)
    constants = replace(PLAIN, exchange_exposed=1.0)
    near = ParallelPlan(data=2, expert=2)
    parts = step_parts(shape, TOY, near, constants, global_batch=2, sequence_length=16)
    # Four exchanges a layer of 16 tokens of 8 numbers in 16 bit, at 0.83 of the link and 0.72 of the port.
    sent = 4 * 2 * 16 * 8 * 2
    assert parts.expert_exchange_s == pytest.approx(sent * 1.5 / 2 / 0.83e9)
    far = step_parts(
        shape, replace(TOY, domain=1), near, constants, global_batch=2, sequence_length=16
    ).expert_exchange_s
    assert far == pytest.approx(sent * 1.5 / 2 / 0.72e9)


def test_a_gpu_of_less_power_is_slower_at_the_same_peak():
    constants = replace(PLAIN, power_decline=0.5)
    full, half = (
        step_parts(
            TINY, replace(TOY, power_w=power), ParallelPlan(), constants, global_batch=1, sequence_length=16
        ).linear_s
        for power in (4.0, 1.0)
    )
    assert half == pytest.approx(2 * full)


def test_sharding_communicates_and_saves_memory():
    plan = ParallelPlan(data=8, sharding="full", micro_batch=2)
    assert fits(plan)
    assert not fits(replace(plan, sharding="optimizer", data=1))
    slow = replace(H100, link_gbs=1.0)
    near, far = (
        step_parts(LLAMA, machine, plan, MEGATRON, global_batch=16, sequence_length=8192).data_exposed_s
        for machine in (H100, slow)
    )
    assert near == 0 < far


def test_the_loss_stands_on_the_last_stage():
    # 10 words of 4 bytes, and 4 x 8 of what the output layer and the last norm take in.
    tokens, loss = 2 * 16, 4 * 10 + 4 * 8
    plan = ParallelPlan(micro_batch=2)
    assert activation_bytes(TINY, plan, 4.0, 0.0, 2, 16) == tokens * (32 * 8 * 2 + loss)
    # Beside a layer that is computed again, the larger of the two counts.
    assert activation_bytes(TINY, plan, 4.0, 1.0, 2, 16) == tokens * 8 * (2 * 2 + 32)
    assert activation_bytes(TINY, plan, 100.0, 1.0, 2, 16) == tokens * (2 * 2 * 8 + 100 * 10 + 32)
    # The first of two stages holds two micro-batches and no loss, the last holds one.
    staged = ParallelPlan(pipeline=2)
    assert activation_bytes(TINY, staged, 4.0, 0.0, 8, 16) == 32 * 16 * 8 * 2
    assert activation_bytes(TINY, staged, 100.0, 0.0, 8, 16) == 16 * (32 * 8 + 100 * 10 + 32)
    # A rank of two has half of the vocabulary.
    assert activation_bytes(TINY, replace(plan, tensor=2), 4.0, 0.0, 2, 16) == tokens / 2 * (
        32 * 8 * 2 + loss
    )
    assert loss_bytes(replace(plan, compiled=False), PLAIN) == 12.0
    assert loss_bytes(plan, replace(PLAIN, loss_bytes=4.0)) == 4.0


def test_hybrid_sharding_exchanges_shards_among_nodes():
    """Four ranks in two domains: gathers stay in a domain, and each GPU's shard is exchanged once a step."""
    constants = replace(PLAIN, overlap=0.0)
    given = {"global_batch": 4, "sequence_length": 16}
    whole = step_parts(TINY, TOY, ParallelPlan(data=4, sharding="full"), constants, **given)
    hybrid = ParallelPlan(data=4, sharding="full", shard_group=2)
    parts = step_parts(TINY, TOY, hybrid, constants, **given)
    inside = 3 * ring_s(TOY, 2 * 1696, 2, 2, 2)
    assert parts.data_exposed_s == pytest.approx(inside + 2 * ring_s(TOY, 2 * 1696 / 2, 2, 1, 2))
    assert parts.optimizer_s == pytest.approx(2 * whole.optimizer_s)


def fits(plan: ParallelPlan) -> bool:
    return assess_plan(LLAMA, H100, plan, MEGATRON, global_batch=16, sequence_length=8192).fits


def test_recomputation_is_the_least_that_fits():
    plan = ParallelPlan(data=8, sharding="full", micro_batch=2)
    share = choose_recompute(LLAMA, H100, plan, MEGATRON, 16, 8192)
    assert 0 < share < 1
    assert fits(replace(plan, recompute=share))
    assert not fits(replace(plan, recompute=share - 1 / 8))


def powers(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most).map(lambda exponent: 2**exponent)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(("gpt-oss-20B", "kimi-k2", "llama3-8B", "mixtral-8x7B", "mpt-1B", "qwen3-30B-A3B")),
    data=powers(5), tensor=powers(3), pipeline=powers(3), expert=powers(3), micro=powers(3),
    length=powers(13),
    sharding=st.sampled_from(["optimizer", "gradients", "full"]), stack=st.sampled_from(OF_STEPS),
)  # fmt: skip
def test_parts_are_never_negative_and_grow_with_the_batch(
    name, data, tensor, pipeline, expert, micro, length, sharding, stack
):
    shape, constants = load_transformer(name), load_stack(stack).constants
    plan = ParallelPlan(data, tensor, pipeline, 1, min(expert, data * tensor), 1, micro, sharding)
    small, large = (
        step_parts(shape, H100, plan, constants, global_batch=batch, sequence_length=length)
        for batch in (data * micro, 2 * data * micro)
    )
    assert all(value >= 0 and math.isfinite(value) for value in vars(small).values())
    assert large.total_s > small.total_s
    assert large.total_s < 2 * small.total_s * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(
    data=powers(5),
    micro=powers(4),
    rate=st.sampled_from(["bf16_tflops", "memory_gbs", "link_gbs", "nic_gbps", "power_w"]),
)
def test_a_better_machine_is_no_slower(data, micro, rate):
    plan = ParallelPlan(data, 4, 1, 1, 1, 1, micro, "full")
    better = replace(H100, **{rate: 1.5 * getattr(H100, rate)})
    slow, fast = (
        step_parts(LLAMA, machine, plan, MEGATRON, global_batch=data * micro, sequence_length=4096).total_s
        for machine in (H100, better)
    )
    assert fast <= slow * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(["llama3-8B", "llama3-70B", "qwen3-30B-A3B"]),
    gpus=powers(7),
    batch=st.integers(1, 300),
)
def test_no_plan_named_is_faster_than_the_searchs_own(name, gpus, batch):
    shape = load_transformer(name)
    published = ParallelPlan(data=gpus, sharding="full", recompute=0.3, micro_batch=1)
    given = {"global_batch": batch, "sequence_length": 4096}
    own = search_plans(shape, H100, MEGATRON, gpus=gpus, also=[published], **given)
    named = assess_plan(shape, H100, published, MEGATRON, **given)
    assert not named.fits or own[0].seconds <= named.seconds
    assert all(plan.plan.gpus == gpus for plan in own)
    assert own == search_plans(shape, H100, MEGATRON, gpus=gpus, also=[published], **given)
    fitting = [plan.seconds for plan in own if plan.fits]
    assert fitting == sorted(fitting)


def test_more_gpus_than_sequences_divide_them():
    few, many = (
        search_plans(LLAMA, H100, MEGATRON, gpus=gpus, global_batch=4, sequence_length=8192)[0]
        for gpus in (8, 64)
    )
    assert many.plan.data <= 4
    # 64 GPUs are faster than 8, by far less than 8 times.
    assert 1 < few.seconds / many.seconds < 8


def test_a_model_that_fits_nowhere():
    given = {"gpus": 8, "global_batch": 64, "sequence_length": 4096}
    assert not any(step.fits for step in search_plans(load_transformer("kimi-k2"), H100, MEGATRON, **given))


def test_each_stack_has_at_most_fifteen_fitted_constants():
    from clustergym.oracle.calibration.step_fit import FREE, list_priors

    assert list(FREE) == OF_STEPS
    for name, (dense, experts) in FREE.items():
        free = [*dense, *experts]
        assert len(free) == len(set(free)) <= 15
        for one in free:
            value = getattr(load_stack(name).constants, one)
            prior = list_priors(name)[one]
            assert prior.low * 0.999 <= value <= prior.high * 1.001


def test_accelerators_of_a_users_file(tmp_path):
    path = tmp_path / "own.yaml"
    keys = "bf16_tflops: 500, memory_gb: 96, memory_gbs: 4000, link_gbs: 200, nic_gbps: 100, power_w: 600"
    path.write_text(f"accelerators:\n  mine: {{{keys}, aliases: [ours]}}\n")
    assert load_accelerator("OURS", path).memory_gb == 96
    assert load_accelerator("h100", path) == H100
    path.write_text(f"accelerators:\n  mine: {{{keys}, watts: 3}}\n")
    with pytest.raises(InputError, match=r"own.yaml:2: accelerators.mine.watts: unknown key"):
        load_accelerator("mine", path)
    path.write_text("accelerators:\n  mine: {bf16_tflops: 500}\n")
    with pytest.raises(InputError, match=r"own.yaml:2: accelerators.mine.memory_gb: is missing"):
        load_accelerator("mine", path)
    path.write_text(f"accelerators:\n  mine: {{{keys.replace('600', '0')}}}\n")
    with pytest.raises(InputError, match=r"own.yaml:2: mine.power_w: must be above 0"):
        load_accelerator("mine", path)


LLAMA_CONFIG = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_CONFIG = {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "vocab_size": 129280, "hidden_act": "silu", "tie_word_embeddings": False,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip


@pytest.mark.parametrize(("name", "config"), [("llama3-8B", LLAMA_CONFIG), ("deepseek-v3", DEEPSEEK_CONFIG)])
def test_a_hugging_face_config(tmp_path, name, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    read, known = load_transformer(str(path)), load_transformer(name)
    assert (read.parameters, read.flops_per_token(4096)) == (known.parameters, known.flops_per_token(4096))


def test_unknown_names_are_told_with_the_nearest():
    with pytest.raises(InputError, match=r"unknown model 'lama3-8B' .*llama3-8B"):
        load_transformer("lama3-8B")
