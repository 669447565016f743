"""Measured throughput: rows that can and cannot be expressed, fits, errors, and commands."""

import csv
import json
from itertools import product
from pathlib import Path

import pytest
from error_lines import error_line
from published_data import DATA, needs

from clustergym.commands.oracle import main
from clustergym.common.errors import InputError
from clustergym.common.text_files import read_csv
from clustergym.oracle.calibration.measured_steps import CURVES
from clustergym.oracle.calibration.placements import STACK, read_placements
from clustergym.oracle.calibration.step_fit import (
    FREE,
    MATMUL,
    fit_stack,
    leave_out_groups,
    tokens_per_s_per_gpu,
    usable_rows,
)
from clustergym.oracle.calibration.throughput_validation import (
    figures,
    leave_out_sources,
    predict_rows,
    read_published,
)
from clustergym.oracle.models.shape_files import load_accelerator
from clustergym.oracle.stacks.catalog import load_stack
from clustergym.oracle.stacks.step_time import kernel_share
from clustergym.oracle.stacks.throughput import newest, read_throughput

needs_data = needs("modern/throughput.csv")

ROW = {
    "id": "a", "source": "megatron-bridge", "date_or_release": "26.04", "kind": "pretrain", "model":
    "LLAMA3_8B",
    "gpu_type": "H100-80", "gpus": "8", "precision": "fp8", "sequence_length": "8192",
    "global_batch_sequences": "128",
    "micro_batch": "1", "dp": "8", "tp": "1", "pp": "1", "cp": "1", "ep": "", "vpp": "", "sharding": "fsdp-8",
    "activation_checkpointing": "", "tokens_per_s_per_gpu": "13000", "note": "",
}  # fmt: skip


def table(path: Path, *changes: dict[str, str]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ROW)
        writer.writeheader()
        for number, changed in enumerate(changes):
            writer.writerow(ROW | {"id": f"r{number}"} | changed)
    return path


def test_a_row_is_a_model_a_machine_and_a_plan(tmp_path):
    change = {"tp": "2", "pp": "4", "dp": "", "vpp": "5", "sharding": "none (ddp)", "precision": "mxfp8"}
    row = read_throughput(table(tmp_path / "t.csv", change))[0]
    plan = row.setting.plan
    assert (plan.data, plan.tensor, plan.pipeline, plan.virtual_stages) == (1, 2, 4, 5)
    assert (plan.sharding, plan.precision, plan.recompute) == ("optimizer", "mxfp8", None)
    assert (row.stack, row.measured, row.reason) == ("megatron-2026", 13000, "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "Mystery-9B"}, "unknown model 'Mystery-9B'"),
        ({"model": ""}, "unknown model ''"),
        ({"gpu_type": "TPU"}, "unknown accelerator 'TPU'"),
        ({"gpus": ""}, "gpus: is not given"),
        ({"gpus": "many"}, "gpus: 'many' is not a whole number above 0"),
        ({"gpus": "2.5"}, "gpus: '2.5' is not a whole number above 0"),
        ({"gpus": "-8"}, "gpus: '-8' is not a whole number above 0"),
        ({"gpus": "0"}, "gpus: is not given"),
        ({"gpus": "1000000000"}, "gpus: '1000000000' is not a whole number above 0"),
        ({"gpus": "999999999", "tp": "2"}, "gpus: 999999999 GPUs do not divide"),
        ({"tp": "3"}, "gpus: 8 GPUs do not divide by TP x PP x CP of 3"),
        ({"global_batch_sequences": ""}, "global_batch_sequences: is not given"),
        ({"precision": "int3"}, "precision: unknown precision 'int3'"),
        ({"gpu_type": "A100-80"}, "precision: A100-80 has no fp8 arithmetic"),
    ],
)
def test_a_row_that_cannot_be_expressed_has_a_reason(tmp_path, change, reason):
    rows = read_throughput(table(tmp_path / "t.csv", change))
    found = predict_rows(rows)[0]
    assert found["predicted"] is found["predicted_search"] is found["fits"] is None
    assert reason in found["reason"]
    assert figures(rows, [found])["expressed"] == 0


def test_a_plan_that_does_not_fit_is_refused_with_its_bytes(tmp_path):
    change = {"model": "LLAMA3_70B", "sharding": "none (ddp)"}
    found = predict_rows(read_throughput(table(tmp_path / "t.csv", change)))[0]
    assert found["predicted"] is None
    assert found["fits"] is False
    assert "GB a GPU of 80 GB" in found["reason"]
    # 70.6 G parameters of 18 bytes do not fit on 8 GPUs of 80 GB, whatever the plan.
    assert found["predicted_search"] is None


def test_what_is_assumed_is_told(tmp_path):
    change = {"sequence_length": "", "micro_batch": "", "ep": "64", "tokens_per_s_per_gpu": ""}
    row = read_throughput(table(tmp_path / "t.csv", change))[0]
    found = predict_rows([row])[0]
    assert found["predicted"] > 0
    assert found["measured"] is None
    for part in ("sequence length taken as 8192", "micro-batch taken as 1", "EP 64 is more"):
        assert part in found["reason"]


def test_stacks_by_source_and_date(tmp_path):
    changes = [
        {"source": "llm-foundry", "date_or_release": "README at 2025-07-21"},
        {"source": "torchtitan", "date_or_release": "2025-06"},
        {"date_or_release": "25.11"},
        {"date_or_release": "26.04.01"},
        {"source": "dgxc-benchmarking", "date_or_release": "v25.04.02"},
        # Of a source that none is fitted to: the nearest year, of those measured on the GPU type.
        {"source": "mine", "date_or_release": "24.01", "gpu_type": "H100", "sharding": ""},
        {"source": "mine", "date_or_release": "23.11", "gpu_type": "H100", "precision": "bf16"},
        {"source": "mine", "date_or_release": "", "gpu_type": "H100", "sharding": ""},
        # Sharded weights are FSDP's.
        {"source": "mine", "date_or_release": "26.01", "gpu_type": "H100"},
        {"source": "mine", "date_or_release": "25.01", "gpu_type": "A100", "precision": "bf16"},
    ]
    stacks = [row.stack for row in read_throughput(table(tmp_path / "t.csv", *changes))]
    assert stacks[:5] == ["fsdp-2023", "fsdp-2025", "megatron-2025", "megatron-2026", "dgxc-2025"]
    # 2024 is as near to 2023 as to 2025: the newer one.
    assert stacks[5:] == ["megatron-2025", "fsdp-2023", "megatron-2026", "fsdp-2023", "fsdp-2023"]
    releases = ({"date_or_release": "26.02"}, {"date_or_release": "26.04.01"})
    assert [row.id for row in newest(read_throughput(table(tmp_path / "t.csv", *releases)))] == ["r1"]


def test_selective_recomputation_of_torchtitan_is_half_of_the_forward_pass(tmp_path):
    selective = {"activation_checkpointing": "selective per-op", "precision": "bf16"}
    changes = [selective | {"source": source} for source in ("torchtitan", "megatron-bridge")]
    rows = read_throughput(table(tmp_path / "t.csv", *changes))
    # Of another source nothing is known: memory decides.
    assert [row.setting.plan.recompute for row in rows] == [0.5, None]


def test_rows_of_a_known_defect_are_predicted_but_not_fitted_to(tmp_path):
    defect = {"note": "async TP; known defect of rowwise vanilla TP (#1207)", "tokens_per_s_per_gpu": "1"}
    rows = read_throughput(table(tmp_path / "t.csv", {}, defect))
    assert [row.id for row in usable_rows(rows, "megatron-2026")] == ["r0"]
    assert predict_rows(rows)[1]["predicted"] > 0


def test_a_group_that_is_left_out_is_left_out_of_related_stacks(tmp_path):
    """A fit of torchtitan's rows may see Megatron's of another group, but none of the same."""
    release = {"source": "torchtitan", "date_or_release": "2025-06"}
    kept = [release | {"model": "LLAMA3_70B", "gpus": "64", "sharding": "fsdp-64"}]
    same = [release, {"date_or_release": "26.04", "tokens_per_s_per_gpu": "1300"}]
    other = [{"model": "LLAMA3_70B", "gpus": "64", "sharding": "fsdp-64", "tokens_per_s_per_gpu": "150"}]

    def left_out(*changes):
        rows = read_throughput(table(tmp_path / "t.csv", *changes))
        return leave_out_groups(rows, "fsdp-2025")["r0"]

    assert left_out(same[0], *kept) == pytest.approx(left_out(same[0], *kept, same[1]))
    assert left_out(same[0], *kept) != pytest.approx(left_out(same[0], *kept, *other), rel=0.01)


def test_adapters_cost_no_gradients_of_weights(tmp_path):
    rows = read_throughput(table(tmp_path / "t.csv", {}, {"kind": "lora"}))
    constants = load_stack("megatron-2026").constants
    whole, adapters = (tokens_per_s_per_gpu(row.setting, constants) for row in rows)
    # Two passes instead of three of all but attention and the output layer.
    assert 1.2 < adapters / whole < 1.5


def test_a_fit_finds_the_constants_that_made_the_rows(tmp_path):
    """Rows made with constants of ours: the fit predicts them, though priors pull at what rows do not
    tell."""
    same = {"source": "llm-foundry", "precision": "bf16", "activation_checkpointing": "none"}
    names = ("model", "gpu_type", "sequence_length", "micro_batch")
    models, gpu_types = ("mpt-125M", "mpt-1B", "mpt-7B"), ("A100-80", "H100-80")
    axes = product(models, gpu_types, ("512", "4096", "16384"), ("1", "4"))
    changes = [same | dict(zip(names, values, strict=True)) for values in axes]
    path = tmp_path / "t.csv"
    truth = load_stack("fsdp-2023").constants
    for row, change in zip(read_throughput(table(path, *changes)), changes, strict=True):
        change["tokens_per_s_per_gpu"] = str(tokens_per_s_per_gpu(row.setting, truth))
    rows = read_throughput(table(path, *changes))
    found = fit_stack(rows, "fsdp-2023")
    for row in rows:
        assert tokens_per_s_per_gpu(row.setting, found) == pytest.approx(row.measured, rel=0.03)
    assert fit_stack(rows, "fsdp-2023") == found
    with pytest.raises(InputError, match="no row is of stack fsdp-2025"):
        fit_stack(rows, "fsdp-2025")


def test_validate_writes_rows(tmp_path, capsys):
    path, target = table(tmp_path / "t.csv", {}, {"model": "Mystery"}), tmp_path / "out.json"
    assert main(["validate", "--data", str(path), "--json", str(target)]) == 0
    rows = json.loads(target.read_text())["rows"]
    assert [list(row) for row in rows] == [
        ["id", "measured", "predicted", "predicted_search", "fits", "reason"]
    ] * 2
    assert rows[0]["predicted"] <= rows[0]["predicted_search"]
    printed = capsys.readouterr().out
    assert "1 rows have no prediction: r1 unknown model 'Mystery'" in printed


def test_rows_of_any_columns_without_a_plan(tmp_path):
    # Further columns are left alone; of optional ones only the batch is needed. The plan is the search's.
    path, target = tmp_path / "t.csv", tmp_path / "out.json"
    columns = "id,colour,model,gpu_type,gpus,tokens_per_s_per_gpu,global_batch_sequences,sequence_length"
    rows = (
        "a,red,llama3-8B,H100,8,12000,128,8192",
        "b,,llama3-405B,H100,8,,8,8192",
        ",,mpt-7B,A100,8,x,7,2048",
    )
    path.write_text("\n".join((columns, *rows)) + "\n")
    assert main(["validate", "--data", str(path), "--json", str(target)]) == 0
    fits, large, odd = json.loads(target.read_text())["rows"]
    assert (fits["id"], fits["measured"], fits["fits"]) == ("a", 12000, True)
    assert fits["predicted"] == fits["predicted_search"] > 5000
    assert fits["reason"] == "no plan is given: that of the search"
    assert (large["measured"], large["predicted"], large["fits"]) == (None, None, False)
    assert large["reason"].endswith("none fits")
    assert (odd["id"], odd["measured"]) == ("", None)
    assert odd["predicted"] > 1000


def test_fit_stack_writes_a_stack_that_validate_takes(tmp_path, capsys):
    path, target = table(tmp_path / "t.csv", {"date_or_release": "26.04"}), tmp_path / "own.yaml"
    assert main(["fit", "--data", str(path), "--stack", "megatron-2026", "-o", str(target)]) == 0
    assert load_stack(str(target)).fitted_to == "1 rows of megatron-bridge, 26.04 to 26.04"
    names = [one for group in FREE["megatron-2026"] for one in group]
    head = target.read_text().splitlines()
    at = head.index(f"# Fitted: {', '.join(names[:6])},")
    assert head[at + 1] == f"# {', '.join(names[6:])}; the others are not."
    assert main(["validate", "--data", str(path), "--stack", str(target)]) == 0
    assert "megatron-2026, fitted to" in capsys.readouterr().out


def test_explain_shows_plan_parts_and_what_does_not_fit(tmp_path, capsys):
    target = tmp_path / "plan.json"
    words = f"explain --model llama3-70B --gpus 64xH100 --batch 1024 --json {target}"
    assert main(words.split()) == 0
    printed, shown = capsys.readouterr().out, json.loads(target.read_text())
    for part in ("time by part", "next best plans", "plans do not fit", "MFU", "tokens/s/GPU"):
        assert part in printed
    plan = shown["plan"]
    assert sum(plan["parts_s"].values()) == pytest.approx(plan["step_s"])
    assert plan["tokens_per_s_per_gpu"] * 64 * plan["step_s"] == pytest.approx(1024 * 8192)
    assert plan["mfu"] == pytest.approx(plan["tokens_per_s_per_gpu"] * shown["flops_per_token"] / 989.4e12)
    assert shown["next_best"][0]["step_s"] >= plan["step_s"]
    assert all(other["memory_gb"] > 0.95 * 80 for other in shown["too_large"])


@needs_data
def test_a_stack_without_formulas_of_steps_is_refused(capsys):
    assert main(["validate", "--data", "modern", "--stack", "alpa-2022"]) == 2
    assert "has no formulas of a transformer's step" in error_line(capsys)


@pytest.mark.slow
@needs_data
def test_public_measurements():
    rows = read_published(DATA)
    shown = figures(rows, predict_rows(rows))
    assert shown["slower_than_published"] == 0
    # The one refused is printed without sharding: 70 G parameters with Adam, whole on each GPU.
    assert shown["refused"] <= 1
    assert shown["errors"]["dense"]["median_ape"] < 0.04
    assert shown["errors"]["dense"]["p90"] < 0.13
    assert shown["errors"]["experts, newest release"]["median_ape"] < 0.12


@needs_data
@pytest.mark.parametrize("name", FREE)
def test_committed_constants_are_those_of_the_command(name):
    if name == STACK and not (DATA / "morphling").is_dir():
        pytest.skip("Morphling's published step times are missing")
    rows = read_placements(DATA / "morphling") if name == STACK else read_published(DATA)
    found = fit_stack(rows, name)
    committed = load_stack(name).constants
    for one in (constant for names in FREE[name] for constant in names):
        assert getattr(found, one) == pytest.approx(getattr(committed, one), rel=0.02)


@needs_data
@pytest.mark.slow
def test_sources_left_out_whole():
    found = leave_out_sources(read_published(DATA), lambda text: None)
    chosen = {
        "dgxc-benchmarking": (32, "megatron-2025"), "llm-foundry": (147, "fsdp-2025"),
        "megatron-bridge": (21, "dgxc-2025"), "torchtitan": (12, "fsdp-2023"),
    }  # fmt: skip
    for source, (rows, stack) in chosen.items():
        dense = found[f"{source}, dense"]
        assert (dense["rows"], dense["stacks"]) == (rows, [stack])
        assert dense["median_ape"] < 0.082
    # A user who does not say that torchtitan is FSDP has a stack of Megatron.
    assert found["torchtitan, dense"]["any_median_ape"] > 0.2
    # No row of Megatron in bf16 on H100 is left: the measured matrix products tell its rate.
    assert 0.93 < found["dgxc-benchmarking, dense, H100-80, bf16"]["median_ratio"] < 1.07


def test_fits_keep_to_measured_matrix_products():
    curves = read_csv(Path(__file__).parents[2] / CURVES, ("curve", "tflops"))
    shares = [
        float(tflops) / load_accelerator("H100").bf16_tflops
        for curve, tflops in zip(curves.columns["curve"], curves.columns["tflops"], strict=True)
        if curve == "matmul"
    ]
    assert MATMUL["linear_rate"] == pytest.approx(max(shares), abs=0.005)
    for name in ("megatron-2025", "megatron-2026", "fsdp-2025"):
        share = kernel_share(load_accelerator("H100"), load_stack(name).constants, "linear_rate")
        assert share == pytest.approx(MATMUL["linear_rate"], rel=0.06)
