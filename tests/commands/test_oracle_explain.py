"""`clustergym oracle explain` for a transformer of today: every line and figure, of steps given by hand."""

import argparse
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from refusals import Said, refused

from clustergym.commands.oracle import explain
from clustergym.oracle.models.shape import Machine, ParallelPlan, TransformerShape
from clustergym.oracle.stacks.search import PlannedStep
from clustergym.oracle.stacks.step_time import StepParts

TINY = TransformerShape("tiny", hidden=8, layers=2, heads=2, vocabulary=10, feed_forward=32, gated=False)
# A layer multiplies a token by 4 x 8 x 8 + 2 x 8 x 32 = 768 parameters, the output by 80: 6 x 1,616 FLOPs.
# Causal attention of 4 tokens is 3 x 4 x 8 x (4 / 2) FLOPs a layer.
FLOPS_PER_TOKEN = 6 * 1616 + 2 * 192
MACHINE = Machine("toy", 1e-6, 2.0, 1.0, 1.0, nic_gbps=8.0, power_w=1.0, fp8_tflops=2e-6)
"""A million FLOP/s in bf16, twice that in fp8."""
NOTHING = StepParts(**{one.name: 0.0 for one in fields(StepParts)})


def step(seconds: float, gigabytes: float, fits: bool = True, **plan: Any) -> PlannedStep:
    """Return a step of which three quarters are linear layers, a quarter fixed."""
    parts = replace(NOTHING, linear_s=0.75 * seconds, fixed_s=0.25 * seconds)
    room = 1.9e9 if gigabytes < 1.9 or not fits else 9e9
    return PlannedStep(ParallelPlan(**plan), 0.5, gigabytes * 1e9, room, parts)


FITTING = [step(0.1 * at, 1.0, data=2, micro_batch=at) for at in range(1, 8)]
TOO_LARGE = [step(0.1, 9.0 - at, fits=False, tensor=2, micro_batch=at) for at in range(1, 7)]


def options(**changes: Any) -> argparse.Namespace:
    given = {
        "json": None, "model": "tiny", "shapes": None,
        "gpus": "2xtoy", "accelerators": None, "batch": 3, "sequence_length": 4, "precision": "bf16",
        "stack": "fsdp-2025",
    }  # fmt: skip
    return argparse.Namespace(**given | changes)


@pytest.fixture(autouse=True)
def searched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give the command steps to explain; return what it asked for."""
    asked: dict[str, Any] = {"plans": FITTING + TOO_LARGE}

    def search(shape: Any, machine: Any, constants: Any, **rest: Any) -> list[PlannedStep]:
        asked["by"] = rest
        return list(asked["plans"])

    monkeypatch.setattr(explain, "search_plans", search)
    monkeypatch.setattr(explain, "load_transformer", lambda name, path: TINY)
    monkeypatch.setattr(explain, "load_accelerator", lambda name, path: MACHINE)
    return asked


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that are no rules of tables, their cells apart by |."""
    shown = capsys.readouterr().out.replace("┃", "|").replace("│", "|")
    lines = [" ".join(line.strip(" |").split()) for line in shown.splitlines()]
    return [line for line in lines if line and line[0] not in "┏┡└╇╰"]


def test_what_is_printed(searched: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.run(options()) == 0
    assert searched["by"] == {"gpus": 2, "global_batch": 3, "sequence_length": 4, "precision": "bf16"}
    # 3 x 4 tokens in 0.1 s on 2 GPUs: 60 tokens/s/GPU, times 10,080 FLOPs of a million: 60.5 %.
    assert FLOPS_PER_TOKEN == 10_080
    assert printed(capsys) == [
        "tiny, 0.000 G parameters (0.000 G active), 3 sequences of 4 tokens a step, on 2 toy, "
        "stack fsdp-2025",
        "plan: DP 2, micro-batch 1, bf16, sharded: optimizer, recompute 50 %",
        "step 0.1 s, 60 tokens/s/GPU, MFU 60.5 %, 1 of 2 GB",
        "time by part",
        "s | share",
        "linear | 0.075 | 75.0 %",
        "fixed | 0.025 | 25.0 %",
        "next best plans",
        "step s | tokens/s/GPU",
        "DP 2, micro-batch 2, bf16, sharded: optimizer, recompute 50 % | 0.2 | 30",
        "DP 2, micro-batch 3, bf16, sharded: optimizer, recompute 50 % | 0.3 | 20",
        "DP 2, micro-batch 4, bf16, sharded: optimizer, recompute 50 % | 0.4 | 15",
        "DP 2, micro-batch 5, bf16, sharded: optimizer, recompute 50 % | 0.5 | 12",
        "DP 2, micro-batch 6, bf16, sharded: optimizer, recompute 50 % | 0.6 | 10",
        "6 plans do not fit",
        "needs GB | may fill GB",
        # The one that needs least is the first, then the first of the others.
        "TP 2, micro-batch 6, bf16, sharded: optimizer, recompute 50 % | 3 | 2",
        "TP 2, micro-batch 1, bf16, sharded: optimizer, recompute 50 % | 8 | 2",
        "TP 2, micro-batch 2, bf16, sharded: optimizer, recompute 50 % | 7 | 2",
        "TP 2, micro-batch 3, bf16, sharded: optimizer, recompute 50 % | 6 | 2",
        "TP 2, micro-batch 4, bf16, sharded: optimizer, recompute 50 % | 5 | 2",
    ]


def test_what_json_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "explained.json"
    assert explain.run(options(json=file, precision="fp8", stack=None)) == 0
    assert capsys.readouterr().out.endswith(f"wrote {file}\n")
    found = json.loads(file.read_text())
    assert {key: found[key] for key in ("stack", "model", "accelerator", "gpus", "flops_per_token")} == {
        "stack": "megatron-2026", "model": "tiny", "accelerator": "toy", "gpus": 2,
        "flops_per_token": FLOPS_PER_TOKEN,
    }  # fmt: skip
    assert found["parameters"] == TINY.parameters
    best = found["plan"]
    assert best["parts_s"]["linear_s"] == pytest.approx(0.075)
    assert {key: best[key] for key in ("data", "micro_batch", "recompute", "memory_gb")} == {
        "data": 2, "micro_batch": 1, "recompute": 0.5, "memory_gb": 1.0,
    }  # fmt: skip
    assert best["step_s"] == pytest.approx(0.1)
    assert best["tokens_per_s_per_gpu"] == pytest.approx(60.0)
    assert best["mfu"] == pytest.approx(0.3024)  # Of two million FLOP/s.
    assert [one["micro_batch"] for one in found["next_best"]] == [2, 3, 4, 5, 6]
    assert [one["micro_batch"] for one in found["too_large"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("plans", "line"),
    [
        (TOO_LARGE[:1], "no plan fits, even if every layer is computed again"),
        ([], "no plan uses 2 GPUs for 3 sequences: one is divided among tensor, context and pipeline ranks"
             " that are powers of two"),
    ],
)  # fmt: skip
def test_why_there_is_no_plan(
    searched: dict[str, Any],
    plans: list[PlannedStep],
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    searched["plans"], file = plans, tmp_path / "none.json"
    assert explain.run(options(json=file)) == 0
    assert printed(capsys)[1] == line
    assert (json.loads(file.read_text())["plan"], json.loads(file.read_text())["next_best"]) == (None, [])


@refused("oracle-explain")
def test_what_cannot_be_explained(given: dict[str, Any], said: Said) -> None:
    with said.of_error():
        explain.run(options(**given))


def test_the_largest_that_can_be_asked_for(searched: dict[str, Any]) -> None:
    most = {"gpus": " 131072Xtoy ", "batch": 10_000_000, "sequence_length": 16_777_216, "precision": "mxfp8"}
    assert explain.run(options(**most)) == 0
    assert (searched["by"]["gpus"], searched["by"]["precision"]) == (131_072, "mxfp8")
