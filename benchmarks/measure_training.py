"""Step times and peak memory of training decoders on one GPU, and where its memory ends.

    python benchmarks/measure_training.py --output rows.jsonl [--budget-s 300] [--passes first border ...]

One process, plain PyTorch, no other package but PyYAML. Models have the shapes of
conf/transformer/shapes.yaml, random weights and random tokens; norms have no biases. The step is that of a
usual mixed-precision stack: 16 bytes a parameter, namely weight and gradient in bf16 (2 + 2) and, for AdamW
(fused), an fp32 copy and two moments (4 + 4 + 4). Gradients stay allocated from step to step, as where
micro-batches are accumulated; the optimizer goes over the parameters part by part, so that fp32 gradients
exist of one part at a time. Attention is `scaled_dot_product_attention` by its flash kernel, the loss
`cross_entropy` of fp32 logits. Nothing is compiled unless a case says so. Recomputation, where it is on, is
of every layer. The allocator has PyTorch's defaults.

A case that runs out of memory is a row, too. Each line is flushed, and a case that stands in the file is not
measured again, so that a run which ended can go on. `training_table.py` makes tables of the lines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.nn import functional
from training_steps import Case, Gpu, Row, Training

MODELS = (
    "mpt-125M", "mpt-350M", "qwen3-0.6B", "mpt-760M", "llama3.2-1B", "mpt-1B",
    "mpt-3B", "llama3.2-3B", "qwen3-4B",
)  # fmt: skip
FIRST_LENGTH, LENGTHS = 2048, (1024, 4096, 8192)
MOST_TOKENS = 16384
"""Of a timed case."""
WARM_UP, TIMED, TIMED_BELOW_S = 2, 7, 0.7
"""Steps before timing and timed; at the border, only steps shorter than the last are timed."""


class Measurements:
    """Lines of a file, one for each case; what stands there is not measured again."""

    def __init__(
        self, path: Path, gpu: Gpu, shapes: dict[str, Row], until: float, lengths: list[int]
    ) -> None:
        self.path, self.gpu, self.shapes, self.until = path, gpu, shapes, until
        self.first, self.longest, self.segments = lengths[0], max(lengths), False
        # Before there is a model, so that a case has the same micro-batch in every pass.
        self.free = gpu.free()
        self.rows: dict[Case, Row] = {}
        self.borders: list[Row] = []
        self.training: tuple[tuple[str, bool], Training] | None = None
        for line in path.read_text().splitlines() if path.exists() else []:
            row = json.loads(line)
            if "case" in row:
                self.rows[Case(**row["case"])] = row
            elif "border" in row:
                self.borders.append(row)

    def write(self, row: Row) -> None:
        """Append a line to the file."""
        with self.path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
            stream.flush()

    def late(self) -> bool:
        """Whether the budget of time is spent."""
        return time.monotonic() > self.until

    def train(self, case: Case) -> Training:
        """Return the case's model with its state: the last one, or a new one."""
        key = (case.model, case.compiled)
        if self.training is None or self.training[0] != key:
            self.training = None
            self.gpu.empty()
            self.training = (key, Training(self.shapes[case.model], self.gpu, case.compiled, self.longest))
        return self.training[1]

    def measure(self, case: Case, purpose: str, timed_below_s: float = 1e9) -> Row:
        """Return the row of a case: measured, or as it stands in the file."""
        if case in self.rows:
            return self.rows[case]
        row: Row = {"case": asdict(case), "purpose": purpose, "fits": None, "error": "the process ended"}
        # If the process dies, the line says so, and the next run leaves the case out.
        self.write(row)
        started = time.monotonic()
        del row["error"]
        if case.segments != self.segments:
            self.gpu.use_segments(case.segments)
            self.segments = case.segments
        # What an exception holds is freed where it ends, behind the `except`.
        try:
            self._run(case, row, timed_below_s)
            row["fits"] = True
        except torch.OutOfMemoryError as error:
            row |= {
                "fits": False,
                "peak_allocated": self.gpu.peaks()[0],
                "peak_reserved": self.gpu.peaks()[1],
            }
            row["error"] = str(error)[:300]
        except RuntimeError as error:
            row["error"] = f"{type(error).__name__}: {error}"[:300]
            if isinstance(error, torch.AcceleratorError):
                raise
        self.gpu.empty()
        row["wall_s"] = round(time.monotonic() - started, 3)
        self.write(row)
        self.rows[case] = row
        return row

    def _run(self, case: Case, row: Row, timed_below_s: float) -> None:
        gpu, training = self.gpu, self.train(case)
        training.clear(case.gradients_kept)
        gpu.empty()
        shape = (case.micro_batch, case.sequence_length + 1)
        tokens = torch.randint(training.vocabulary, shape, device=gpu.device)
        row["state"], row["phases"] = gpu.allocated(), {}
        gpu.reset()
        for _ in range(WARM_UP - 1):
            training.step(case, tokens)
        # `phases` resets the peaks; that of reserved bytes is taken before, and after the timed steps.
        row["peak_allocated"], row["peak_reserved"] = gpu.peaks()
        gpu.reset()
        started = gpu.now()
        loss = training.step(case, tokens, row["phases"])
        seconds = gpu.now() - started
        row["loss"] = float(loss)
        times = []
        for _ in range(TIMED if seconds < timed_below_s else 0):
            started = gpu.now()
            training.step(case, tokens)
            times.append(gpu.now() - started)
        allocated, reserved = gpu.peaks()
        row["peak_allocated"] = max(row["peak_allocated"], allocated, *row["phases"].values())
        row["peak_reserved"] = max(row["peak_reserved"], reserved)
        row |= {"warm_s": seconds, "steps": len(times)}
        if times:
            row |= {"step_s": statistics.median(times), "least_s": min(times), "most_s": max(times)}


def count_parameters(shape: Row) -> int:
    """Return the parameters of the matrices."""
    width = shape.get("head_dim") or shape["hidden"] // shape["heads"]
    attention = (
        2 * shape["hidden"] * width * (shape["heads"] + (shape.get("key_value_heads") or shape["heads"]))
    )
    network = (3 if shape.get("gated", True) else 2) * shape["hidden"] * shape["feed_forward"]
    embeddings = shape["hidden"] * shape["vocabulary"] * (1 if shape.get("tied", False) else 2)
    return shape["layers"] * (attention + network) + embeddings


def guess_bytes(shape: Row, tokens: int, recompute: bool) -> float:
    """Return about how many bytes a step needs, to choose a first micro-batch."""
    layer = 18 * shape["hidden"] + (8 if shape.get("gated", True) else 4) * shape["feed_forward"]
    kept = 2 * shape["hidden"] * shape["layers"] + layer if recompute else layer * shape["layers"]
    return 16 * count_parameters(shape) + tokens * (kept + 14 * shape["vocabulary"])


def first_micro_batch(shape: Row, length: int, recompute: bool, free: float) -> int:
    """Return the largest power of two of at most `MOST_TOKENS` tokens that fits by `guess_bytes`, or 1."""
    micro = 1
    while (
        2 * micro * length <= MOST_TOKENS and guess_bytes(shape, 2 * micro * length, recompute) < 0.9 * free
    ):
        micro *= 2
    return micro


def find_border(fits: Callable[[int], bool | None], guess: int) -> tuple[int, int | None]:
    """Return the largest micro-batch that fits, 0 if none does, and the smallest that was seen not to.

    Searches from a guess in growing strides, then between. An attempt that tells nothing (None) ends the
    search.
    """
    low, high, stride, at = 0, None, 1, max(1, guess)
    while high is None or high - low > 1:
        found = fits(at)
        if found is None:
            break
        if found:
            low = at
        else:
            high = at
        if high is None:
            at, stride = low + stride, 2 * stride
        elif low == 0:
            at, stride = max(1, high - stride), 2 * stride
        else:
            at = (low + high) // 2
    return low, high


def time_case(done: Measurements, case: Case, purpose: str) -> Row:
    """Measure a case; where it does not fit, the same with half of the micro-batch, and so on."""
    row = done.measure(case, purpose)
    while row["fits"] is False and case.micro_batch > 1:
        case = replace(case, micro_batch=case.micro_batch // 2)
        row = done.measure(case, purpose)
    return row


def cases(done: Measurements, models: Iterable[str], lengths: Iterable[int]) -> Iterator[Case]:
    """Yield each model, length, and with or without recomputation, with a first micro-batch."""
    for model in models:
        for length in lengths:
            for recompute in (False, True):
                micro = first_micro_batch(done.shapes[model], length, recompute, done.free)
                yield Case(model, length, micro, recompute)


def measure_times(done: Measurements, models: Iterable[str], lengths: Iterable[int]) -> None:
    for case in list(cases(done, models, lengths)):
        if done.late():
            return
        time_case(done, case, "time")


def measure_borders(done: Measurements, models: Iterable[str], lengths: Iterable[int]) -> None:
    """Find the largest micro-batch that fits, of each model, length and recomputation."""
    for case in list(cases(done, models, lengths)):
        if done.late():
            return
        row = time_case(done, case, "time")
        if not row["fits"]:
            continue
        micro = row["case"]["micro_batch"]
        each = max(1.0, (row["peak_allocated"] - row["state"]) / micro)
        guess = int((done.free - row["state"]) / each) if done.gpu.real else micro + 2

        def fits(at: int, case: Case = case) -> bool | None:
            return done.measure(replace(case, micro_batch=at), "border", TIMED_BELOW_S)["fits"]

        low, high = find_border(lambda at, fits=fits: None if done.late() else fits(at), guess)  # type: ignore[misc]
        border = {"border": asdict(case), "fits": low, "fails": high}
        if high is not None:
            done.write(border)
            done.borders.append(border)


def measure_effects(done: Measurements, models: Iterable[str], changes: Iterable[Row]) -> None:
    """Measure cases again with one thing changed."""
    for change in changes:
        for case in list(cases(done, models, [done.first])):
            if done.late():
                return
            row = time_case(done, case, "time")
            if row["fits"]:
                done.measure(replace(Case(**row["case"]), **change), "effect")


def measure_segments(done: Measurements) -> None:
    """Measure what does not fit, at each border, with expandable segments."""
    for border in list(done.borders):
        if done.late():
            return
        if border["fails"]:
            case = replace(Case(**border["border"]), micro_batch=border["fails"], segments=True)
            done.measure(case, "effect", 0.0)


def measure_repeats(done: Measurements, models: Iterable[str]) -> None:
    """Measure cases two times more."""
    for repeat in (1, 2):
        for case in list(cases(done, models, [done.first]))[::2]:
            if done.late():
                return
            row = time_case(done, case, "time")
            done.measure(replace(Case(**row["case"]), repeat=repeat), "repeat")


def _time_calls(gpu: Gpu, call: Callable[[], Any], repeats: int = 15) -> float:
    """Return the median seconds of a call, after three that do not count."""
    times = []
    for at in range(repeats + 3):
        started = gpu.now()
        call()
        seconds = gpu.now() - started
        if at >= 3:
            times.append(seconds)
    return statistics.median(times)


def measure_curves(done: Measurements, models: Iterable[str], tokens: int = MOST_TOKENS) -> None:
    """Measure matrix products of the models' layers, attention by length, and a copy in memory."""
    gpu = done.gpu
    done.training = None
    gpu.empty()
    made = {"device": gpu.device, "dtype": torch.bfloat16}
    products = set()
    for model in models:
        shape = done.shapes[model]
        hidden, inner = shape["hidden"], shape["feed_forward"]
        products |= {(hidden, hidden), (hidden, inner), (inner, hidden), (hidden, shape["vocabulary"])}
    for inside, outside in sorted(products):
        x, weight = torch.randn(tokens, inside, **made), torch.randn(outside, inside, **made)
        seconds = _time_calls(gpu, lambda x=x, weight=weight: functional.linear(x, weight))  # type: ignore[misc]
        row = {"curve": "matmul", "tokens": tokens, "inside": inside, "outside": outside, "seconds": seconds}
        done.write(row | {"tflops": 2e-12 * tokens * inside * outside / seconds})
    for width, heads in ((64, 16), (128, 16)):
        for length in sorted({min(tokens, one) for one in (1024, 2048, 4096, 8192, 16384)}):
            size = (tokens // length, heads, length, width)
            three = [torch.randn(size, requires_grad=True, **made) for _ in range(3)]
            back = torch.randn(size, **made)

            def both(three: list[torch.Tensor] = three, back: torch.Tensor = back) -> None:
                with gpu.attention():
                    functional.scaled_dot_product_attention(*three, is_causal=True).backward(back)

            seconds = _time_calls(gpu, both)
            flops = 3.5 * 4 * tokens * heads * width * length / 2
            row = {"curve": "attention", "tokens": tokens, "sequence_length": length, "heads": heads}
            done.write(row | {"width": width, "seconds": seconds, "tflops": 1e-12 * flops / seconds})
    source = torch.randn(2**29 if gpu.real else 2**10, **made)
    target = torch.empty_like(source)
    seconds = _time_calls(gpu, lambda: target.copy_(source))
    done.write({"curve": "copy", "bytes": 4 * source.numel(), "gb_s": 4e-9 * source.numel() / seconds})


PASSES = (
    "first", "border", "curves", "lengths", "border_long", "repeat", "effects", "segments", "compiled",
)  # fmt: skip


def run_pass(name: str, done: Measurements, models: list[str], lengths: list[int]) -> None:
    """Make one of `PASSES`."""
    first, *others = lengths
    few = models[::2]
    if name == "first":
        measure_times(done, models, [first])
    elif name == "lengths":
        measure_times(done, models, others)
    elif name == "border":
        measure_borders(done, models, [first])
    elif name == "border_long":
        for length in others[::-1]:
            measure_borders(done, models, [length])
    elif name == "curves":
        measure_curves(done, models, MOST_TOKENS if done.gpu.real else 64)
    elif name == "repeat":
        measure_repeats(done, few)
    elif name == "segments":
        measure_segments(done)
    elif name == "compiled":
        measure_effects(done, few, [{"compiled": True}])
    else:
        measure_effects(done, few, [{"gradients_kept": False}, {"loss": False}])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--output", type=Path, required=True, help="JSON lines; those in the file are not made again"
    )
    parser.add_argument("--budget-s", type=float, default=300.0)
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=list(PASSES))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--lengths", nargs="+", type=int, default=[FIRST_LENGTH, *LENGTHS])
    parser.add_argument("--shapes", type=Path, default=Path("conf/transformer/shapes.yaml"))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(argv)
    until = time.monotonic() + options.budget_s
    shapes = yaml.safe_load(options.shapes.read_text())["transformers"]
    gpu = Gpu(options.device)
    torch._dynamo.config.recompile_limit = 64
    done = Measurements(options.output, gpu, shapes, until, options.lengths)
    done.write({"header": gpu.describe()})
    for name in options.passes:
        started = time.monotonic()
        try:
            run_pass(name, done, options.models, options.lengths)
        except torch.AcceleratorError:
            # The device is of no more use to this process; another one goes on.
            traceback.print_exc()
            return 1
        except Exception:
            traceback.print_exc()
        print(f"{name}: {time.monotonic() - started:.0f} s, {len(done.rows)} cases", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
