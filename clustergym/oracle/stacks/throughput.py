"""Reads tables of measured throughput."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustergym.common.errors import InputError
from clustergym.common.left_out import leave_out
from clustergym.common.text_files import TextTable, read_csv
from clustergym.oracle.models.shape import Machine, ParallelPlan, Precision, Sharding, TransformerShape
from clustergym.oracle.models.shape_files import load_accelerator, load_transformer
from clustergym.oracle.stacks.catalog import choose_for_shape, current_stacks, of_framework

REQUIRED = ("id", "model", "gpu_type", "gpus", "tokens_per_s_per_gpu")
OPTIONAL = (
    "source", "date_or_release", "kind", "precision", "sequence_length", "global_batch_sequences",
    "micro_batch",
    "dp", "tp", "pp", "cp", "ep", "vpp", "sharding", "activation_checkpointing", "note",
)  # fmt: skip
BESIDE = (
    *("source_commit", "params_b", "moe", "system", "gpus_per_node", "nvlink_domain", "mfu_percent"),
    *("mfu_or_tflops_per_gpu", "step_s", "scaling"),
)
"""Columns that published tables have beside, and no prediction depends on."""
PLAN = ("micro_batch", "dp", "tp", "pp", "cp", "ep", "vpp", "sharding")
"""Columns of the plan."""
USUAL_SEQUENCE_LENGTH = 8192
"""Of torchtitan's recipes where its tables do not say."""
TITAN_SELECTIVE = 0.5
"""Share of the forward pass that torchtitan's selective recomputation is taken to compute again: every second
matrix product, or every second layer. An assumption that no row measures by itself: without it, rows left out
have a median error of 11.5 instead of 5.1 %."""
SOURCES = {
    "foundry": "fsdp-2023",
    "torchtitan": "fsdp-2025",
    "dgxc": "dgxc-2025",
    "morphling": "deepspeed-2024",
}
"""Stacks by what the name of a source contains; those of Megatron-Bridge are by year, too."""
_RELEASE = re.compile(r"\d{2,4}[.-]\d{2}([.-]\d{2})?")


class _UnusableRowError(ValueError):
    """Raised if a row lacks what a prediction needs."""


@dataclass(frozen=True)
class Setting:
    """What a throughput was measured on: the transformer, machine, parallel plan and batch."""

    shape: TransformerShape
    machine: Machine
    plan: ParallelPlan
    global_batch: int
    sequence_length: int
    planned: bool = True


@dataclass(frozen=True)
class ThroughputRow:
    """A row of a table of measured training throughputs, with its setting.

    `reason` may also say what was assumed. `defective`: the table's note tells of a defect of the software.
    """

    id: str
    source: str
    release: str
    job: str
    model: str
    gpu_type: str
    precision: str
    gpus: int | None
    measured: float | None
    setting: Setting | None
    reason: str = ""
    defective: bool = False

    @property
    def configuration(self) -> tuple[object, ...]:
        """A key that rows share if they measure one setting with different releases of a stack."""
        length = self.setting.sequence_length if self.setting else None
        return (self.source, self.job, self.model, self.gpu_type, self.gpus, self.precision, length)

    @property
    def group(self) -> tuple[str, str, str]:
        """Model, GPU type and precision; cross-validation leaves out rows of equal values together."""
        return (self.setting.shape.name if self.setting else self.model, self.gpu_type, self.precision)

    @property
    def stack(self) -> str:
        """Name of the software stack with which the row was measured.

        Rows of a source that no stack is fitted to have the stack of a world with their model, GPU, year and
        framework.
        """
        if "megatron" in self.source:
            return "megatron-2025" if self.year in (2024, 2025) else "megatron-2026"
        own = next((stack for name, stack in SOURCES.items() if name in self.source), "")
        if own or self.setting is None:
            return own
        # Sharded weights are those of FSDP; other plans leave the framework open.
        name = "fsdp" if self.setting.plan.sharding != "optimizer" else ""
        stacks = of_framework(current_stacks(), name)
        return choose_for_shape(self.setting.shape, self.setting.machine, self.year, stacks).stack.name

    @property
    def year(self) -> int | None:
        """Year of the software's release, as in 25.09 or 2025-06."""
        found = _RELEASE.fullmatch(self.release)
        return 2000 + int(re.split("[.-]", self.release)[0]) % 100 if found else None


def read_throughput(
    path: Path, shapes: Path | None = None, accelerators: Path | None = None
) -> list[ThroughputRow]:
    """Read a table of measured training throughputs.

    Parameters
    ----------
    shapes, accelerators : Path, optional
        YAML files with further models and GPUs.

    Raises
    ------
    InputError
        If the file cannot be read or lacks a column of `REQUIRED`. A cell that cannot be understood makes
        that
        row inexpressible, with the reason.
    """
    rows = make_rows(read_csv(path, REQUIRED, optional=(*OPTIONAL, *BESIDE)), shapes, accelerators)
    for row in rows:
        if row.setting is None:
            leave_out("row", row.reason)
    return rows


def make_rows(table: TextTable, shapes: Path | None, accelerators: Path | None) -> list[ThroughputRow]:
    """Return the rows of a table of measured training throughputs, as `read_throughput` does of a file."""
    columns, rows = table.columns, []
    for position in range(len(table)):
        cells = {name: columns[name][position] if name in columns else "" for name in (*REQUIRED, *OPTIONAL)}
        rows.append(_row(cells, shapes, accelerators))
    if not rows:
        raise InputError("has no rows", file=table.path, remedy="give measured rows")
    return rows


def newest(rows: Sequence[ThroughputRow]) -> list[ThroughputRow]:
    """Keep, of rows that measure the same setting, only those of the newest release."""
    latest: dict[tuple[object, ...], str] = {}
    for row in rows:
        latest[row.configuration] = max(row.release, latest.get(row.configuration, ""))
    return [row for row in rows if row.release == latest[row.configuration]]


def _row(cells: Mapping[str, str], shapes: Path | None, accelerators: Path | None) -> ThroughputRow:
    setting, reason = None, ""
    # A row that the model cannot express stays in the table with its reason, so that coverage can be
    # reported.
    try:
        setting, reason = _setting(cells, shapes, accelerators)
    except (InputError, _UnusableRowError) as error:
        reason = str(error)
    release = _RELEASE.search(cells["date_or_release"])
    precision = cells["precision"].lower()
    return ThroughputRow(
        id=cells["id"],
        source=cells["source"] or "unknown",
        release=release.group() if release else cells["date_or_release"],
        job=cells["kind"] or "pretrain",
        model=cells["model"],
        gpu_type=cells["gpu_type"],
        precision=precision,
        gpus=_whole(cells, "gpus", lenient=True),
        measured=_positive(cells["tokens_per_s_per_gpu"]),
        setting=setting,
        reason=reason,
        defective=any(word in cells["note"].lower() for word in ("known defect", "known regression")),
    )


def _positive(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 < value < 1e12 else None


def _whole(cells: Mapping[str, str], name: str, *, lenient: bool = False) -> int | None:
    """Return a cell's positive integer; None for a blank one, and of any that is none where `lenient`."""
    value = _positive(cells[name])
    if value is not None and value == int(value) and value < 10**9:
        return int(value)
    if lenient or not cells[name] or cells[name] in ("-", "n/a", "N/A", "0"):
        return None
    raise _UnusableRowError(f"{name}: {cells[name]!r} is not a whole number above 0")


def _read_needed(cells: Mapping[str, str], name: str) -> int:
    value = _whole(cells, name)
    if value is None:
        raise _UnusableRowError(f"{name}: is not given")
    return value


def _setting(cells: Mapping[str, str], shapes: Path | None, accelerators: Path | None) -> tuple[Setting, str]:
    assumed = []
    shape = load_transformer(cells["model"], shapes)
    machine = load_accelerator(cells["gpu_type"], accelerators)
    precision = _precision(cells["precision"])
    if machine.peak_tflops(precision) is None:
        raise _UnusableRowError(f"precision: {machine.name} has no {precision} arithmetic")
    length = _whole(cells, "sequence_length")
    if length is None:
        length = USUAL_SEQUENCE_LENGTH
        assumed.append(f"sequence length taken as {length}")
    batch, gpus = _read_needed(cells, "global_batch_sequences"), _read_needed(cells, "gpus")
    tensor, pipeline, context, expert, virtual = (
        _whole(cells, n) or 1 for n in ("tp", "pp", "cp", "ep", "vpp")
    )
    # Tables state tensor, pipeline and context parallelism; what is left of the GPUs is data parallelism.
    # Experts are spread over ranks of these groups and use no further GPUs.
    data, rest = divmod(gpus, tensor * pipeline * context)
    if rest:
        raise _UnusableRowError(
            f"gpus: {gpus} GPUs do not divide by TP x PP x CP of {tensor * pipeline * context}"
        )
    micro = _whole(cells, "micro_batch")
    planned = any(cells[name] for name in PLAN)
    if not planned:
        assumed.append("no plan is given: that of the search")
    elif micro is None:
        assumed.append("micro-batch taken as 1")
    micro = micro or 1
    if expert > data * context * tensor:
        assumed.append(
            f"EP {expert} is more than there are ranks of a stage: taken as {data * context * tensor}"
        )
        expert = data * context * tensor
    note = cells["note"].lower()
    plan = ParallelPlan(
        data=data, tensor=tensor, pipeline=pipeline, context=context, expert=expert, virtual_stages=virtual,
        micro_batch=micro, sharding=_sharding(cells["sharding"]), recompute=_recompute(cells),
        precision=precision,
        asynchronous_tensor="async" in note, compiled="no torch.compile" not in note,
        adapters=cells["kind"].lower() == "lora",
        shard_group=machine.domain if _is_hybrid(cells["sharding"]) else 0,
    )  # fmt: skip
    return Setting(shape, machine, plan, batch, length, planned), "; ".join(assumed)


def _precision(cell: str) -> Precision:
    name = cell.lower()
    if name.startswith("mx"):
        return "mxfp8"
    if "fp8" in name:
        return "fp8"
    if "fp4" in name:
        return "fp4"
    if name in ("", "bf16", "fp16", "amp_bf16", "bfloat16"):
        return "bf16"
    raise InputError(f"unknown precision {cell!r}", field="precision", remedy="bf16, fp8, mxfp8 or nvfp4")


def _sharding(cell: str) -> Sharding:
    name = cell.lower()
    # Tables name ZeRO by what is sharded: ZeRO-2 gradients, FSDP everything; otherwise optimizer states
    # (ZeRO-1).
    if "grad" in name:
        return "gradients"
    return "full" if "fsdp" in name or _is_hybrid(name) else "optimizer"


def _is_hybrid(cell: str) -> bool:
    """Return whether state is divided inside a node alone, as tables name it: HSDP or hybrid."""
    return any(word in cell.lower() for word in ("hsdp", "hybrid"))


def _recompute(cells: Mapping[str, str]) -> float | None:
    """Return the share of the forward pass recomputed; None where a table does not say."""
    name = cells["activation_checkpointing"].lower()
    # Other tables do not say how much their selective recomputation covers; `choose_recompute` decides.
    if name.startswith("selective") and "titan" in cells["source"]:
        return TITAN_SELECTIVE
    return {"full": 1.0, "none": 0.0}.get(name)
