"""Fits the constants of a software stack to measured throughput."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, nearest
from clustergym.oracle.models.shape_files import load_accelerator
from clustergym.oracle.stacks.catalog import DENSE, EXPERTS, FRAMEWORKS, Stack
from clustergym.oracle.stacks.step_time import ASSUMED, RATES, StackConstants, kernel_share, step_parts
from clustergym.oracle.stacks.throughput import Setting, ThroughputRow, newest

ERROR_SCALE = 0.05
"""Relative error from which a row counts linearly, not squared: tables hold rows that no model explains."""
RELEASE_WIDTH, EXPERTS_RELEASE_WIDTH = 0.15, 0.4
"""Widths of the priors of one release about all releases: dense models change by 2 %, experts by 7 % or
more."""
FRAMEWORK_WIDTH = 0.3
"""The same of one framework about all of its time: their matrix products and attention are of the same
libraries."""


@dataclass(frozen=True)
class Prior:
    """The prior distribution of a fitted constant: a log-normal with a centre, a width and bounds."""

    centre: float
    low: float
    high: float
    width: float = 0.7


PRIORS = {
    "linear_rate": Prior(0.8, 0.3, 1.0, 0.3),
    "fp8_rate": Prior(0.8, 0.2, 1.2, 0.3),
    "mxfp8_rate": Prior(0.8, 0.2, 1.2, 0.3),
    "fp4_rate": Prior(0.8, 0.15, 1.4, 0.3),
    "attention_rate": Prior(0.5, 0.05, 0.9, 0.4),
    "attention_decline": Prior(0.2, 0.01, 1.0, 1.0),
    "traffic": Prior(10.0, 2.0, 40.0),
    "layer_us": Prior(300.0, 10.0, 5000.0, 1.0),
    "straggling": Prior(0.005, 0.0005, 0.03, 1.0),
    "tensor_exposed": Prior(0.5, 0.05, 1.5),
    "uncompiled_traffic": Prior(1.5, 1.0, 3.0),
    "expert_rate": Prior(0.6, 0.1, 1.0, 0.5),
    "expert_half_tokens": Prior(200.0, 10.0, 5000.0, 1.0),
    "expert_layer_us": Prior(500.0, 10.0, 10000.0, 1.0),
    "expert_traffic": Prior(2.0, 0.2, 15.0),
    "exchange_exposed": Prior(0.3, 0.02, 1.0),
    "overlap": Prior(0.5, 0.01, 0.99),
    "optimizer_bytes": Prior(30.0, 20.0, 500.0, 1.0),
    "network_rate": Prior(0.5, 0.02, 1.2, 1.0),
    "offload_ns": Prior(0.3, 0.001, 10.0, 1.0),
    "offload_shard_ns": Prior(0.5, 0.001, 10.0, 1.0),
    "sharded_exchange": Prior(1.0, 0.05, 3.0, 0.5),
}
KERNEL_WIDTH = 0.05
"""Relative error of a kernel's measured share of peak."""
MATMUL = {"linear_rate": 0.73}
"""Share of an H100's bf16 peak of the fastest of 31 matrix products (benchmarks/measured/h100-curves.csv). Of
dense models on Megatron, bf16 was measured on few GPUs, and its rate would be the prior's."""
SDPA = {"attention_rate": 0.35}
"""The same of flash attention 2 (Shah et al., NeurIPS '24), which is PyTorch's: at 8,192 tokens attention is
too little of a step to tell its rate, which decides longer ones."""
OLDER_PRIORS = {
    "linear_rate": Prior(0.3, 0.05, 1.0),
    "attention_rate": Prior(0.1, 0.005, 0.9, 1.0),
    "traffic": Prior(20.0, 2.0, 200.0),
    "layer_us": Prior(1000.0, 10.0, 20000.0, 1.0),
    "tensor_exposed": Prior(1.0, 0.05, 5.0),
}
"""The same where operators are not fused and attention stores its scores."""
OF_DENSE = ("linear_rate", "attention_rate", "traffic", "layer_us", "straggling")
OF_EXPERTS = ("expert_rate", "expert_traffic", "expert_half_tokens", "expert_layer_us", "exchange_exposed")
MEGATRON = ((*OF_DENSE, "fp8_rate", "mxfp8_rate", "fp4_rate", "tensor_exposed"), OF_EXPERTS)
FREE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "deepspeed-2024": (
        (
            *("linear_rate", "attention_rate", "traffic", "layer_us", "tensor_exposed", "overlap"),
            *("optimizer_bytes", "network_rate", "offload_ns", "offload_shard_ns", "sharded_exchange"),
        ),
        (),
    ),
    "dgxc-2025": MEGATRON,
    "fsdp-2023": ((*OF_DENSE, "attention_decline", "sharded_exchange"), ()),
    "fsdp-2025": ((*OF_DENSE, "fp8_rate", "tensor_exposed", "uncompiled_traffic", "sharded_exchange"), ()),
    "megatron-2025": MEGATRON,
    "megatron-2026": MEGATRON,
}
"""Constants of each stack that are fitted, first to dense models, then to mixtures of experts; others keep
their defaults."""
KERNELS = {"deepspeed-2024": {}, "fsdp-2023": {}, "fsdp-2025": MATMUL | SDPA}
"""Shares of kernels that fits of single stacks keep to, `MATMUL` where it says nothing."""
RELATED = {
    "dgxc-2025": (("dgxc-2025", "megatron-2025"), FRAMEWORK_WIDTH, EXPERTS_RELEASE_WIDTH),
    "fsdp-2025": (("megatron-2025", "megatron-2026", "fsdp-2025"), FRAMEWORK_WIDTH, FRAMEWORK_WIDTH),
    "megatron-2025": (("megatron-2025", "megatron-2026"), RELEASE_WIDTH, EXPERTS_RELEASE_WIDTH),
    "megatron-2026": (("megatron-2025", "megatron-2026"), RELEASE_WIDTH, EXPERTS_RELEASE_WIDTH),
}
"""Stacks whose rows together say where the fit of a stack starts, and the widths of the priors about that, of
dense models and of mixtures of experts."""


def compute_rate(setting: Setting, seconds: float) -> float:
    """Return tokens per second per GPU, given a setting and the seconds of a step."""
    return setting.global_batch * setting.sequence_length / seconds / setting.plan.gpus


def tokens_per_s_per_gpu(setting: Setting, constants: StackConstants) -> float:
    """Predict the tokens per second per GPU of a setting under the given constants."""
    parts = step_parts(
        setting.shape,
        setting.machine,
        setting.plan,
        constants,
        global_batch=setting.global_batch,
        sequence_length=setting.sequence_length,
    )
    return compute_rate(setting, parts.total_s)


def usable_rows(rows: Iterable[ThroughputRow], stack: str) -> list[ThroughputRow]:
    """Return a stack's rows to fit: pre-training, in the software's newest release, no defective rows.

    Rows that dropped tokens are not comparable with those that did not, nor are those of a known defect of
    the software.
    """
    of_stack = [
        row
        for row in rows
        if row.stack == stack and row.setting and row.setting.planned and row.measured and not row.defective
    ]
    return [row for row in newest(of_stack) if row.job == "pretrain"]


def fitted_stack(rows: Sequence[ThroughputRow], name: str, constants: StackConstants) -> Stack:
    """Return a software stack with fitted constants, and the GPU types and architectures of its rows."""
    used = usable_rows(rows, name)
    releases = sorted({row.release for row in used})
    sources = ", ".join(sorted({row.source for row in used}))
    settings = [row.setting for row in used if row.setting]
    return Stack(
        name,
        constants,
        f"{len(used)} rows of {sources}, {releases[0]} to {releases[-1]}",
        tuple(sorted({one.machine.name for one in settings})),
        tuple(sorted({EXPERTS if one.shape.experts else DENSE for one in settings})),
    )


def list_priors(stack: str) -> dict[str, Prior]:
    """Return the priors of the constants of a stack that are fitted."""
    known = PRIORS | (OLDER_PRIORS if stack == "deepspeed-2024" else {})
    return {name: known[name] for names in FREE[stack] for name in names}


def fit_stack(rows: Sequence[ThroughputRow], stack: str) -> StackConstants:
    """Return a stack's constants, fitted to its measured rows.

    Raises
    ------
    InputError
        If the stack is unknown, or no row is of it.
    """
    if stack not in FREE:
        raise InputError(f"unknown stack {stack!r}", field="--stack", remedy=nearest(stack, FREE))
    if not usable_rows(rows, stack):
        raise InputError(f"no row is of stack {stack}", field="--data", remedy="give rows of its source")
    dense, experts = FREE[stack]
    priors = list_priors(stack)
    constants = StackConstants(**{name: prior.centre for name, prior in priors.items()}, **ASSUMED)
    if stack.startswith(FRAMEWORKS["fsdp"]):
        # A share of its exchanges is exposed, whatever there is to hide them: groups of llm-foundry that are
        # left out have a mean error of 4.1 instead of 5.2 %.
        constants = replace(constants, overlap=0.0)
    # Releases of one framework, and frameworks of one time, differ little: what all have in common is where
    # each starts.
    shared = usable_rows(rows, stack)
    if stack in RELATED:
        related, dense_width, experts_width = RELATED[stack]
        shared = [row for name in related for row in usable_rows(rows, name)]
        constants = _fit_both(shared, constants, stack, priors, MATMUL)
        widths = dict.fromkeys(dense, dense_width) | dict.fromkeys(experts, experts_width)
        # What rows of the stack alone can tell keeps its prior.
        widths |= {"uncompiled_traffic": PRIORS["uncompiled_traffic"].width}
        priors = {
            name: replace(prior, centre=getattr(constants, name), width=widths[name])
            for name, prior in priors.items()
        }
    found = _fit_both(usable_rows(rows, stack), constants, stack, priors, KERNELS.get(stack, MATMUL))
    # Of a precision that none of these rows has, the next wider one tells more than a prior does.
    told = {row.setting.plan.precision for row in shared if row.setting and not row.setting.shape.experts}
    for narrow, wide in (("fp8", "bf16"), ("mxfp8", "fp8"), ("fp4", "mxfp8")):
        if narrow not in told or RATES[narrow] not in dense:
            found = replace(found, **{RATES[narrow]: getattr(found, RATES[wide])})
    return found


def _fit_both(
    rows: Sequence[ThroughputRow],
    start: StackConstants,
    stack: str,
    priors: Mapping[str, Prior],
    kernels: Mapping[str, float],
) -> StackConstants:
    """Fit first to dense models, then what only experts have to mixtures."""
    # Dense rows alone decide the constants that all models have, so that what experts add cannot hide in
    # them.
    for free, mixtures in zip(FREE[stack], (False, True), strict=True):
        chosen = [row for row in rows if row.setting and bool(row.setting.shape.experts) == mixtures]
        if chosen and free:
            start = _fit(chosen, start, {name: priors[name] for name in free}, kernels)
    return start


def _fit(
    rows: Sequence[ThroughputRow],
    start: StackConstants,
    priors: Mapping[str, Prior],
    kernels: Mapping[str, float],
) -> StackConstants:
    from scipy.optimize import least_squares

    settings = [row.setting for row in rows if row.setting]
    measured = np.log([row.measured for row in rows if row.measured])
    low, high = (np.log([getattr(one, end) for one in priors.values()]) for end in ("low", "high"))
    # A start on a bound has no way to move; that of a release is where all releases together ended.
    centres = np.clip(np.log([one.centre for one in priors.values()]), low + 1e-6, high - 1e-6)
    widths = np.array([one.width for one in priors.values()])
    h100 = load_accelerator("H100")

    def constants(logs: Floats) -> StackConstants:
        return replace(start, **dict(zip(priors, map(float, np.exp(logs)), strict=True)))

    def residuals(logs: Floats) -> Floats:
        known = constants(logs)
        # Logarithms: a prediction of half counts as much as one of twice.
        errors = np.log([tokens_per_s_per_gpu(one, known) for one in settings]) - measured
        shares = [kernel_share(h100, known, name) / share for name, share in kernels.items()]
        return np.concatenate(
            [errors / ERROR_SCALE, (logs - centres) / widths, np.log(shares) / KERNEL_WIDTH]
        )

    found = least_squares(residuals, centres, bounds=(low, high), loss="soft_l1")
    return constants(found.x)


def leave_out_groups(rows: Sequence[ThroughputRow], stack: str) -> dict[str, float]:
    """Predict rows by fits to the rows of other groups (`row.group`); return tokens/s per GPU by row id."""
    of_stack = [
        row for row in rows if row.stack == stack and row.setting and row.setting.planned and row.measured
    ]
    predictions = {}
    for group in sorted({row.group for row in of_stack}):
        constants = fit_stack([row for row in rows if row.group != group], stack)
        for row in of_stack:
            if row.group == group and row.setting:
                predictions[row.id] = tokens_per_s_per_gpu(row.setting, constants)
    return predictions
