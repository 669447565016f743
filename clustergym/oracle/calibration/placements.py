"""Holds plans and placements to the step times that Morphling's authors measured on 64 A800 (MLSys '25).

Their tables have, for each of five models, seconds of a step by plan and by the GPUs that each node has
(AlibabaPAI/reconfigurable-dl-scheduler, simulator/traces, Apache-2.0). Models' dimensions follow from the
parameters, layers and tokens of artifact/71_performance_model/model/profile; batches from its scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.columns import numbers
from clustergym.common.errors import InputError
from clustergym.common.text_files import read_csv
from clustergym.oracle.calibration.step_fit import leave_out_groups, tokens_per_s_per_gpu
from clustergym.oracle.calibration.validation import summarise_groups, summary
from clustergym.oracle.models.shape import Machine, ParallelPlan, TransformerShape
from clustergym.oracle.models.shape_files import load_accelerator
from clustergym.oracle.stacks.catalog import load_stack
from clustergym.oracle.stacks.throughput import Setting, ThroughputRow

MORPHLING = "morphling"
"""What `--data` calls a folder of the public data with tables `placements_MODEL.csv`."""
GPU, STACK = "A800-80", "deepspeed-2024"
RELEASE = "2025-03"
COMPARED = ("8", "44")
"""Placements of eight GPUs whose ratio of step times is compared: one node, and two with four each."""


class Trained(NamedTuple):
    """A model of the tables, with the tokens of a sample and the samples of a step."""

    shape: TransformerShape
    tokens: int
    batch: int


def _shape(name: str, hidden: int, layers: int, heads: int, vocabulary: int, inner: int) -> TransformerShape:
    return TransformerShape(name, hidden, layers, heads, vocabulary, inner, gated=False, tied=True)


MODELS = {
    "bert": Trained(_shape("bert", 1024, 24, 16, 30522, 4096), 512, 32),
    "roberta": Trained(_shape("roberta", 1024, 24, 16, 50265, 4096), 512, 64),
    "gpt2": Trained(_shape("gpt2", 1600, 48, 25, 50257, 6400), 1024, 16),
    # 14 x 14 patches of an image of 224 x 224 pixels, and one for the class.
    "vit": Trained(_shape("vit", 768, 12, 12, 1000, 3072), 197, 64),
    # Encoder and decoder of 16 layers each, and 512 tokens of each, which pass half of the layers. A layer of
    # the decoder attends twice, which makes 48. The inner width follows from the number of parameters.
    "t5": Trained(replace(_shape("t5", 1024, 32, 16, 32128, 15360), attention_layers=48), 512, 16),
}
"""By the name in the file's. No table states the batch of a step of t5_3B: it is not read."""
PLANS: Mapping[str, dict[str, Any]] = {
    "ga": {"shard_group": 1},
    "gc": {"shard_group": 1, "recompute": 1.0},
    "zero-dp": {"sharding": "gradients"},
    "zero-offload": {"sharding": "gradients", "offload": True},
}
"""Plans of data parallelism: with the whole state on each GPU, the same computing layers again, ZeRO-2 and
ZeRO-Offload. Others are the digits of pipeline, tensor and data parallelism."""


def read_placements(folder: Path) -> list[ThroughputRow]:
    """Read the step times of the models of `MODELS`; a row's `id` is model, plan and placement.

    Raises
    ------
    InputError
        Names file, line and column of what is missing, malformed or unknown.
    """
    paths = [folder / f"placements_{name}.csv" for name in MODELS]
    found = [path for path in paths if path.is_file()]
    if not found:
        remedy = f"give the folder of files such as {paths[0].name}"
        raise InputError("has no table of placements", file=folder, field="--data", remedy=remedy)
    return [row for path in found for row in _read_model(path)]


def _read_model(path: Path) -> list[ThroughputRow]:
    name = path.stem.removeprefix("placements_")
    shape, tokens, batch = MODELS[name]
    table, machine = read_csv(path, ("exec_plan", "placement", "iter_time")), load_accelerator(GPU)
    seconds, rows = numbers(table, "iter_time", low=1e-6), []
    for at, (plan, placement) in enumerate(
        zip(table.columns["exec_plan"], table.columns["placement"], strict=True)
    ):
        where: dict[str, Any] = {"file": path, "line": table.line[at]}
        if not (placement.isdecimal() and "0" not in placement):
            remedy = "give the GPUs of each node, a digit each"
            raise InputError(f"{placement!r} is no placement", **where, field="placement", remedy=remedy)
        gpus = sum(map(int, placement))
        made = _make_plan(plan, gpus, batch)
        if made is None or made.gpus != gpus:
            message, remedy = f"{plan!r} is no plan of {gpus} GPUs", f"{', '.join(PLANS)}, or three degrees"
            raise InputError(message, **where, field="exec_plan", remedy=remedy)
        setting = Setting(shape, place(machine, placement), made, batch, tokens)
        rate = batch * tokens / float(seconds[at]) / gpus
        rows.append(
            ThroughputRow(
                f"{name} {plan} {placement}",
                "morphling",
                RELEASE,
                "pretrain",
                name,
                GPU,
                "bf16",
                gpus,
                rate,
                setting,
                defective=_is_odd(name, plan, placement),
            )
        )
    return rows


def _is_odd(model: str, plan: str, placement: str) -> bool:
    """Return whether a row is unlike its neighbours, for a reason not known, so that nothing is fitted to it.

    ViT is several times slower where a node of several has an odd number of GPUs, which no other model is; T5
    by pipeline parallelism on one GPU at a time is more than twice as slow as on one GPU.
    """
    if model == "vit":
        return len(placement) > 1 and any(int(gpus) % 2 for gpus in placement)
    return model == "t5" and plan not in PLANS


def place(machine: Machine, placement: str) -> Machine:
    """Return a machine for a placement: a ring over nodes is as fast as where it has the fewest GPUs."""
    if len(placement) == 1:
        return machine
    return replace(machine, domain=min(map(int, placement)))


def _make_plan(name: str, gpus: int, batch: int) -> ParallelPlan | None:
    """Return the plan of a name; of data parallelism, each GPU has its part of the batch at once."""
    if name in PLANS:
        return ParallelPlan(
            data=gpus, micro_batch=max(1, batch // gpus), **({"recompute": 0.0} | PLANS[name])
        )
    if len(name) != 3 or not name.isdecimal() or "0" in name:
        return None
    pipeline, tensor, data = map(int, name)
    # One micro-batch: no time falls with the number of stages.
    micro = max(1, batch // data)
    return ParallelPlan(data, tensor, pipeline, micro_batch=micro, recompute=0.0, shard_group=1)


def validate_placements(
    folder: Path, left_out: bool, tell: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Return the figures of the stack `deepspeed-2024`, and of fits that leave a model out (`left_out`).

    Each has those of all rows, and of those that are not unlike their neighbours.
    """
    rows = read_placements(folder)
    constants = load_stack(STACK).step_constants
    found = {STACK: {row.id: tokens_per_s_per_gpu(row.setting, constants) for row in rows if row.setting}}
    if left_out:
        tell("fitting without one model at a time")
        found["left out"] = leave_out_groups(rows, STACK)
    usual = [row for row in rows if not row.defective]
    return {
        f"{name}, {title}": placement_figures(some, predicted)
        for name, predicted in found.items()
        for title, some in (("all rows", rows), ("usual rows", usual))
    }


def placement_figures(rows: Sequence[ThroughputRow], predicted: Mapping[str, float]) -> dict[str, Any]:
    """Return how well predicted speeds tell which plan is best, and what more nodes cost.

    Parameters
    ----------
    predicted : mapping of str to float
        Tokens/s of a GPU by a row's `id`.

    Returns
    -------
    dict
        Errors of `seconds` and `by_model`; `plans`, how much slower than the best plan of a placement the one
        is that is predicted to be the fastest (`lost_median`, `lost_mean`, share `within_5_percent` of the
        `placements`), in all and by model; `ratios`, errors of the ratio of step times on `COMPARED`.
    """
    speeds = np.array([predicted[row.id] for row in rows])
    measured = np.array([row.measured or np.nan for row in rows])
    errors, names = np.abs(measured / speeds - 1), [row.model for row in rows]
    index: dict[tuple[str, ...], int] = {tuple(row.id.split()): at for at, row in enumerate(rows)}
    plans: dict[tuple[str, str], list[int]] = {}
    for (model, _, placement), at in index.items():
        plans.setdefault((model, placement), []).append(at)
    chosen = {
        key: float(measured[at].max() / measured[at][int(np.argmax(speeds[at]))] - 1)
        for key, at in plans.items()
        if len(at) > 1
    }
    one, two = COMPARED
    pairs = [(at, index[model, plan, two]) for (model, plan, place), at in index.items()
             if place == one and (model, plan, two) in index]  # fmt: skip
    ratios = [speeds[a] / speeds[b] / (measured[a] / measured[b]) - 1 for a, b in pairs]
    return {
        "seconds": summary(errors),
        "by_model": summarise_groups(errors, names),
        "plans": {
            title: _lost([value for (model, _), value in chosen.items() if title in ("all", model)])
            for title in ("all", *dict.fromkeys(names))
        },
        "ratios": summary(np.abs(np.array(ratios)))
        | {"most": float(np.abs(ratios).max()) if ratios else None},
    }


def _lost(values: Sequence[float]) -> dict[str, Any]:
    many = np.array(values)
    return {
        "placements": len(many),
        "lost_median": float(np.median(many)),
        "lost_mean": float(many.mean()),
        "lost_most": float(many.max()),
        "within_5_percent": float((many <= 0.05).mean()),
    }
