"""Shapes of public models by their config.json: right by the published parameters, or refused by key."""

import json
from pathlib import Path

import pytest
from refusals import refused

from clustergym.common.errors import InputError
from clustergym.common.left_out import recording
from clustergym.oracle.models.shape import TransformerShape
from clustergym.oracle.models.shape_files import load_transformer

COMMON = {"torch_dtype": "bfloat16", "rms_norm_eps": 1e-6, "rope_theta": 1e6, "use_cache": True}


def config(text: str, **more: object) -> dict[str, object]:
    """Return a config from `hidden layers heads key-value-heads inner vocabulary`; 0: not in it."""
    names = (
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
        *("intermediate_size", "vocab_size"),
    )
    given = dict(zip(names, map(int, text.split()), strict=True))
    return {key: value for key, value in given.items() if value} | more | COMMON


def experts(many: int, used: int, **more: object) -> dict[str, object]:
    return {"num_experts": many, "num_experts_per_tok": used, **more}


RIGHT: list[tuple[dict[str, object], float]] = [
    # Families that tie the embedding unless the file says otherwise.
    (config("2304 26 8 4 9216 256000", model_type="gemma2", head_dim=256, hidden_act="gelu"), 2.61),
    (
        {"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "ffn_dim": 16384, "vocab_size": 50272, "word_embed_proj_dim": 4096, "activation_function": "relu",
         "do_layer_norm_before": True, "max_position_embeddings": 2048, "layerdrop": 0.0, "dropout": 0.1},
        6.66,
    ),
    (
        {"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32,
         "vocab_size": 250880,
         "n_inner": None, "attention_softmax_in_fp32": True, "skip_bias_add": True},
        7.07,
    ),
    (
        {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
         "num_kv_heads": 71, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True,
         "vocab_size": 65024, "alibi": False, "bias": False},
        6.92,
    ),
    (
        {"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128,
         "num_kv_heads": 8, "multi_query": True, "new_decoder_architecture": True, "vocab_size": 65024},
        41.3,
    ),
    (
        {"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576,
         "multi_query": True, "vocab_size": 49152, "activation_function": "gelu", "n_positions": 8192},
        15.5,
    ),
    (
        {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4,
         "vocab_size": 50432, "attn_config": {"attn_type": "multihead_attention", "alibi": True,
         "attn_impl": "torch"},
         "init_config": {"name": "kaiming_normal_"}, "no_bias": True},
        6.65,
    ),
    (
        {"model_type": "gpt_neo", "hidden_size": 2560, "num_layers": 32, "num_heads": 20, "vocab_size": 50257,
         "intermediate_size": None, "attention_types": [[["global", "local"], 16]], "window_size": 256},
        2.65,
    ),
    # ... and those that do not.
    (config("6144 44 64 0 24576 50432", model_type="gpt_neox", hidden_act="gelu_fast", rotary_pct=0.25),
     20.6),
    ({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400,
     "rotary_dim": 64,
      "tie_word_embeddings": False, "activation_function": "gelu_new", "n_inner": None}, 6.05),
    (config("2560 32 32 0 10240 51200", model_type="phi", hidden_act="gelu_new", qk_layernorm=False), 2.78),
    (config("4096 32 32 8 14336 128256", model_type="llama", hidden_act="silu", mlp_bias=False), 8.03),
    (config("4096 32 32 0 22016 151936", model_type="qwen", kv_channels=128, hidden_act="silu"), 7.72),
    (
        {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32,
         "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128,
         "ffn_hidden_size": 13696, "padded_vocab_size": 65024, "tie_word_embeddings": False,
         "add_qkv_bias": True, "apply_query_key_layer_scaling": True},
        6.24,
    ),
    # Experts: on all layers, on some, shared ones, and keys of several families.
    (config("2048 16 16 16 1024 50304", model_type="olmoe", **experts(64, 8),
     tie_word_embeddings=False), 6.92),
    (
        config("3584 28 28 4 18944 151936", model_type="qwen2_moe", tie_word_embeddings=False,
        mlp_only_layers=[],
               decoder_sparse_step=1, moe_intermediate_size=2560, shared_expert_intermediate_size=20480,
               use_sliding_window=False, sliding_window=65536, max_window_layers=28, **experts(64, 8)),
        57.4,
    ),
    (
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
         "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "model_type": "", "rope_theta": 500000},
         "ffn_config": {"ffn_hidden_size": 10752, "moe_jitter_eps": 0.01, "moe_loss_weight": 0.05,
                        "moe_num_experts": 16, "moe_top_k": 4, "model_type": ""},
         "tie_word_embeddings": False, "resid_pdrop": 0.0},
        131.6,
    ),
    (config("4096 32 32 8 6400 32064", model_type="phimoe", num_local_experts=16, num_experts_per_tok=2,
            tie_word_embeddings=False, hidden_act="silu"), 41.9),
    (
        config("2560 28 20 4 12288 103424", model_type="ernie4_5_moe", moe_num_experts=64, moe_k=6,
               moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1,
               moe_layer_interval=1,
               moe_intermediate_size=1536, moe_capacity=[64, 64, 64], moe_gate="topk",
               tie_word_embeddings=True),
        21.8,
    ),
    (
        config("4096 32 32 8 3072 128167", model_type="hunyuan_v1_moe", head_dim=128, num_experts=64,
               moe_topk=[8] * 32, num_shared_expert=[1] * 32, moe_intermediate_size=[3072] * 32,
               use_mixed_mlp_moe=True, use_cla=False, cla_share_factor=2, moe_layer_num_skipped=0,
               tie_word_embeddings=True, hidden_act="silu"),
        80.4,
    ),
    (
        {"model_type": "llama4", "text_config": config(
            "5120 48 40 8 8192 202048", model_type="llama4_text", intermediate_size_mlp=16384, head_dim=128,
            num_local_experts=16, num_experts_per_tok=1, interleave_moe_layer_step=1,
            tie_word_embeddings=False,
            attention_chunk_size=8192, no_rope_layers=[1, 1, 1, 0] * 12),
         "vision_config": {"hidden_size": 1408}},
        107.8,
    ),
    (config("5120 60 128 128 12288 102400", model_type="deepseek_v2", n_routed_experts=160,
     n_shared_experts=2,
            num_experts_per_tok=6, moe_intermediate_size=1536, first_k_dense_replace=1, moe_layer_freq=1,
            q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
            topk_method="group_limited_greedy", tie_word_embeddings=False), 235.7),
    (
        {"model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52, "num_attention_heads": 32,
         "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 1856, "vocab_size": 131072,
         "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
         "n_routed_experts": 128,
         "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "n_shared_experts": 1,
         "moe_shared_expert_intermediate_size": 3712, "mlp_hidden_act": "relu2", "tie_word_embeddings": False,
         "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
        31.6,
    ),
]  # fmt: skip


def read(folder: Path, content: object) -> TransformerShape:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return load_transformer(str(path))


@pytest.mark.parametrize(("content", "billions"), RIGHT)
def test_parameters_as_published(tmp_path, content, billions):
    assert read(tmp_path, content).parameters / 1e9 == pytest.approx(billions, rel=0.02)


BASE = config("2048 24 16 4 5504 32000", hidden_act="silu")


@refused("hugging-face")
def test_a_shape_that_is_not_known_is_refused_by_its_key(given, said, tmp_path):
    with said.of_error(tmp_path):
        read(tmp_path, {key: value for key, value in (BASE | given).items() if value is not None})


def test_layers_without_experts_are_counted_by_pattern(tmp_path):
    # Of 24 layers those with experts: every second; not 0 and 1; from 3 on; the listed.
    made = BASE | {"model_type": "qwen3_moe", "moe_intermediate_size": 512, **experts(8, 2)}
    for more, dense in (
        ({"decoder_sparse_step": 2}, 12),
        ({"mlp_only_layers": [0, 1]}, 2),
        ({"first_k_dense_replace": 3}, 3),
        ({"moe_layers": [1, 5]}, 22),
        ({"moe_layers_enum": "4,5,6"}, 21),
        ({"moe_layer_freq": [0] + [1] * 23}, 1),
        ({"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 22}, 2),
        ({"moe_layer_start_index": 2, "moe_layer_end_index": 21}, 4),
    ):
        assert read(tmp_path, made | more).dense_layers == dense, more


def test_windows_are_counted_by_layer(tmp_path):
    window = BASE | {"sliding_window": 512}
    for more, context in (
        # 4,096 tokens without a window, so half of 8,192; 512 with one.
        ({"model_type": "mistral"}, 512),
        ({"model_type": "gemma2", "head_dim": 128}, (512 + 4096) / 2),
        ({"model_type": "gemma3_text"}, (20 * 512 + 4 * 4096) / 24),
        ({"model_type": "cohere2", "sliding_window_pattern": 4}, (18 * 512 + 6 * 4096) / 24),
        ({"model_type": "exaone4", "sliding_window_pattern": "LLLG"}, (18 * 512 + 6 * 4096) / 24),
        ({"model_type": "qwen2", "use_sliding_window": False}, 4096),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 12}, (512 + 4096) / 2),
        ({"layer_types": ["full_attention"] * 8 + ["sliding_attention"] * 16}, (16 * 512 + 8 * 4096) / 24),
    ):
        assert read(tmp_path, window | more).context(8192) == pytest.approx(context), more


def test_keys_that_do_not_count_are_named(tmp_path):
    with recording() as notes:
        read(tmp_path, BASE | {"model_type": "own_family", "xq_made_up": 3, "attention_chunk_size": 8192})
    assert notes.lines() == [
        "not modelled: attention_chunk_size",
        "not read: xq_made_up, model_type own_family (its keys alone are read)",
    ]
    with recording() as notes:
        read(tmp_path, BASE | {"model_type": "llama", "attention_dropout": 0.1, "pretraining_tp": 1})
    assert notes.lines() == []


def test_a_list_is_no_config(tmp_path):
    with pytest.raises(InputError, match=r"config\.json: is not an object"):
        read(tmp_path, [])
