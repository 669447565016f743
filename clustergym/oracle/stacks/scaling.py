"""Speed of a job of fixed batch on more and more GPUs, as the search plans it: no measurement holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clustergym.oracle.stacks.catalog import default_stack, load_accelerator, load_stack, load_transformer
from clustergym.oracle.stacks.search import PlannedStep, best_steps

MODELS = ("mpt-7B", "llama3-8B", "llama3-70B", "mixtral-8x7B", "gpt-oss-120B")
MACHINES = ("A100-80", "H100-80", "B200", "GB300")
COUNTS = (8, 16, 32, 64, 128, 256, 512)
BATCH, LENGTH = 256, 8192
COMMUNICATION = (
    "tensor_exposed_s",
    "context_exposed_s",
    "expert_exchange_s",
    "data_exposed_s",
    "straggling_s",
)


def strong_scaling(
    models: Sequence[str] = MODELS, machines: Sequence[str] = MACHINES, counts: Sequence[int] = COUNTS
) -> list[dict[str, Any]]:
    """Return a curve of each model on each machine, at `BATCH` sequences of `LENGTH` tokens in bf16.

    Returns
    -------
    list of dict
        `model`, `machine`, `stack`, and `curve`: for each number of GPUs `gpus`, `plan`,
        `tokens_per_s_per_gpu`, `relative` (to the first number that the model fits on), and the shares of the
        step `compute`, `communication` (exposed, with straggling) and `bubble`. Numbers without a plan are
        left out.
    """
    found = []
    for model in models:
        for name in machines:
            machine = load_accelerator(name)
            stack = default_stack(machine)
            steps = best_steps(
                load_transformer(model),
                machine,
                load_stack(stack).constants,
                counts=counts,
                global_batch=BATCH,
                sequence_length=LENGTH,
            )
            curve = [_point(gpus, step) for gpus, step in steps.items() if step is not None]
            for point in curve:
                point["relative"] = point["tokens_per_s_per_gpu"] / curve[0]["tokens_per_s_per_gpu"]
            found.append({"model": model, "machine": machine.name, "stack": stack, "curve": curve})
    return found


def _point(gpus: int, step: PlannedStep) -> dict[str, Any]:
    communication = sum(getattr(step.parts, name) for name in COMMUNICATION) / step.seconds
    bubble = step.parts.bubble_s / step.seconds
    return {
        "gpus": gpus,
        "plan": str(step.plan),
        "tokens_per_s_per_gpu": BATCH * LENGTH / step.seconds / gpus,
        "compute": 1 - communication - bubble,
        "communication": communication,
        "bubble": bubble,
    }
