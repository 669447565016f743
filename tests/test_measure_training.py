"""The script that measures training on a GPU: its searches by hand, and all of it, tiny, on the CPU."""

import csv
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import measure_training as script  # noqa: E402
import training_steps as steps  # noqa: E402
import training_table as tables  # noqa: E402

SHAPES = """
transformers:
  plain: {hidden: 32, layers: 2, heads: 2, feed_forward: 64, vocabulary: 100, gated: false, tied: true}
  gated:
    {hidden: 32, layers: 2, heads: 4, key_value_heads: 2, head_dim: 16, feed_forward: 48, vocabulary: 100}
"""


@pytest.mark.parametrize("largest", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("guess", [1, 5, 64])
def test_the_border_is_found_from_any_guess(largest: int, guess: int) -> None:
    asked = []

    def fits(at: int) -> bool:
        asked.append(at)
        return at <= largest

    assert script.find_border(fits, guess) == (largest, largest + 1)
    assert len(asked) == len(set(asked))


def test_an_attempt_that_tells_nothing_ends_the_search() -> None:
    assert script.find_border(lambda at: None if at > 4 else True, 3) == (4, None)


def test_parameters_by_hand() -> None:
    shape = {"hidden": 8, "layers": 2, "heads": 2, "feed_forward": 16, "vocabulary": 10}
    shape |= {"gated": False, "tied": True}
    # A layer: 4 x 8 x 8 of attention and 2 x 8 x 16; then 8 x 10 of embeddings.
    assert script.count_parameters(shape) == 2 * (256 + 256) + 80
    shape |= {"key_value_heads": 1, "gated": True, "tied": False}
    assert script.count_parameters(shape) == 2 * 576 + 160


def test_the_optimizer_goes_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PART", 10)
    assert list(steps.split_parts([4, 5, 30, 1, 9, 1])) == [[0, 1], [2], [3, 4], [5]]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread: two of them wait for each other where another process has a core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_all_passes_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, output = tmp_path / "shapes.yaml", tmp_path / "rows.jsonl"
    shapes.write_text(SHAPES)
    step = script.Training.step

    def limited(self: script.Training, case: script.Case, tokens: torch.Tensor, phases: dict | None = None):
        # The memory of this device ends at 5 sequences, or 9 where layers are computed again.
        if tokens.shape[0] > (9 if case.recompute else 5):
            raise torch.OutOfMemoryError("no memory is left")
        return step(self, case, tokens, phases)

    monkeypatch.setattr(script.Training, "step", limited)
    monkeypatch.setattr(script, "MOST_TOKENS", 64)
    monkeypatch.setattr(script, "TIMED", 3)
    arguments = ["--output", str(output), "--shapes", str(shapes), "--models", "plain", "gated"]
    arguments += ["--device", "cpu", "--lengths", "16", "32", "--passes"]
    passes = [one for one in script.PASSES if one != "compiled"]
    assert script.main([*arguments, *passes]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    names = "model", "sequence_length", "recompute"
    found = [row for row in rows if "border" in row]
    borders = {tuple(row["border"][name] for name in names): (row["fits"], row["fails"]) for row in found}
    cases = itertools.product(("plain", "gated"), (16, 32), (False, True))
    assert borders == {case: (9, 10) if case[2] else (5, 6) for case in cases}
    timed = [row for row in rows if row.get("fits") and "step_s" in row]
    assert {row["purpose"] for row in timed} == {"time", "border", "repeat", "effect"}
    assert all(row["least_s"] <= row["step_s"] <= row["most_s"] for row in timed)
    # Random tokens of 100 words: the loss is that of guessing, ln 100.
    assert all(row["loss"] == pytest.approx(4.6, abs=0.1) for row in timed if row["case"]["loss"])
    assert {row["curve"] for row in rows if "curve" in row} == {"matmul", "attention", "copy"}
    before = len(rows)
    assert script.main([*arguments, "first", "border"]) == 0
    again = [json.loads(line) for line in output.read_text().splitlines()[before:]]
    assert all("case" not in row for row in again)


def test_recomputation_changes_no_gradient() -> None:
    gpu = script.Gpu("cpu")
    shape = {"hidden": 32, "layers": 2, "heads": 2, "feed_forward": 48, "vocabulary": 100}
    found = []
    for recompute in (False, True):
        training = script.Training(shape, gpu, compiled=False, longest=16)
        torch.manual_seed(1)
        tokens = torch.randint(100, (2, 17))
        training.model.loss(training.model.layers(tokens[:, :-1], recompute), tokens[:, 1:]).backward()
        found.append([parameter.grad.clone() for parameter in training.parameters])
        assert {p.dtype for p in training.parameters} == {torch.bfloat16}
        assert {m.dtype for m in training.masters} == {torch.float32}
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert all(one.abs().max() > 0 for one in found[0])


def test_a_case_in_which_the_process_died_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    case = {"model": "plain", "sequence_length": 16, "micro_batch": 1, "recompute": False}
    path.write_text(json.dumps({"case": case, "fits": None, "error": "the process ended"}) + "\n")
    done = script.Measurements(path, script.Gpu("cpu"), {}, 0.0, [16])
    assert done.measure(script.Case(**case), "time")["error"] == "the process ended"


def test_the_table_has_a_row_for_each_case_as_last_measured(tmp_path: Path) -> None:
    case = {"model": "plain", "sequence_length": 16, "micro_batch": 2, "recompute": True, "repeat": 0}
    case |= {"compiled": False, "gradients_kept": True, "loss": True, "segments": False}
    ran = {"fits": True, "state": 10, "phases": {"kept": 15, "loss": 20, "loss_s": 0.25}, "step_s": 0.5}
    ran |= {"least_s": 0.4, "most_s": 0.6, "peak_allocated": 30, "peak_reserved": 40}
    failed = {"fits": False, "state": 10, "phases": {}, "peak_allocated": 90, "peak_reserved": 95}
    header = {"date": "2026-11-26T17:00:00", "torch": "2.11", "free_bytes": 99, "nvidia_smi": "580.1, 700 W"}
    lines = [
        {"header": header},
        {"case": case, "fits": None, "error": "the process ended"},
        {"case": case, **ran},
        {"case": case | {"micro_batch": 3, "segments": True, "repeat": 1}, **failed},
        {"case": case | {"micro_batch": 4}, "fits": None, "error": "the process ended"},
        {"curve": "copy", "bytes": 8, "gb_s": 3000.04},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tables.main([str(path), "--gpu-type", "H100-80", "--name", "h", "--folder", str(tmp_path)]) == 0
    with (tmp_path / "h-steps.csv").open() as stream:
        one, other = csv.DictReader(stream)
    assert (one["tokens_per_s_per_gpu"], one["kept_bytes"], one["loss_s"]) == ("64.0", "5", "0.25")
    assert (one["driver"], one["free_bytes"], one["activation_checkpointing"]) == ("580.1", "99", "full")
    assert (other["changed"], other["fits"], other["step_s"]) == ("segments repeat 1", "0", "")
    assert (tmp_path / "h-curves.csv").read_text().splitlines()[1].endswith(",3000.0")
