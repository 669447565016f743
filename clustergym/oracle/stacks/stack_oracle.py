"""The oracle by software stack: iteration times of today's machines and models, and the segments of jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality, NodeGroup
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.paths import conf_dir
from clustergym.oracle.base import Oracle, OracleTables, check_choice, check_counts, six_digits
from clustergym.oracle.grid.constants import Constants
from clustergym.oracle.grid.grid_oracle import GridOracle
from clustergym.oracle.models.catalog import Catalog, load_catalog
from clustergym.oracle.models.model_spec import FFN_FACTOR, ModelClass, ModelSpec
from clustergym.oracle.models.shape import Machine, ParallelPlan, Precision, TransformerShape
from clustergym.oracle.models.shape_files import find_accelerator, load_transformer
from clustergym.oracle.stacks.catalog import (
    DENSE,
    EXPERTS,
    FRAMEWORKS,
    OPERATORS_STACK,
    ChosenStack,
    Stack,
    choose_stack,
    current_stacks,
    describe_extension,
    load_stack,
    of_framework,
    stack_names,
)
from clustergym.oracle.stacks.proxies import estimate_step, list_grids
from clustergym.oracle.stacks.search import PlannedStep, assess_plan, search_plans
from clustergym.oracle.stacks.step_time import StackConstants

VERSION = 3
"""Raised whenever the tables of equal input change."""
AUTO = "auto"
TRIED = 64
"""Plans, the fastest ones of the most compact placement, among which a wider placement has its own."""
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp8", "mxfp8", "fp4")


@dataclass(frozen=True)
class StackCell:
    """A model and a GPU type of a cluster, for which plans on any number of GPUs are searched."""

    shape: TransformerShape
    sequence_length: int
    global_batch: int
    machines: tuple[Machine, ...]
    constants: StackConstants
    precision: Precision
    domain_gpus: int

    def find_plans(self, gpus: int, tier: Locality) -> list[PlannedStep]:
        """Return the plans that fit on GPUs connected by a network tier, the fastest first."""
        found = search_plans(
            self.shape,
            self.machines[tier],
            self.constants,
            gpus=gpus,
            global_batch=self.global_batch,
            sequence_length=self.sequence_length,
            precision=self.precision,
        )
        return [step for step in found if step.fits]

    def segment(self, plan: ParallelPlan) -> int:
        """Return the number of GPUs of a plan that must lie together in one NVLink domain.

        Experts are divided among ranks of the tensor, context and data groups: the larger of both groups, but
        no more than NVLink joins.
        """
        return min(max(plan.tensor * plan.context, plan.expert), self.domain_gpus)

    def assess_tier(self, plan: ParallelPlan, tier: Locality) -> PlannedStep:
        """Compute a plan's step time on GPUs that a network tier connects.

        What would fit in one NVLink domain lies in two there, of which each has whole segments.
        """
        machine, gpus = self.machines[tier], plan.gpus
        if tier > Locality.DOMAIN and gpus <= machine.domain:
            machine = replace(machine, domain=max(self.segment(plan), gpus // 2))
        given = {"global_batch": self.global_batch, "sequence_length": self.sequence_length}
        return assess_plan(self.shape, machine, plan, self.constants, **given)


class StackOracle(Oracle):
    """An oracle that predicts iteration times by the fitted constants of software stacks.

    Stacks of transformers (`step_time.StackConstants`): `execution` is the fastest plan of data, tensor,
    pipeline, context and expert parallelism that fits. The most compact placement sets the segments, which a
    job that is placed wider keeps: it runs the fastest of the plans with no larger ones. `profiled` is the
    estimate of the best grid's proxy plan (`proxies`), from operators and collectives one by one.
    `data_parallel` is the fastest plan of data parallelism alone, its optimizer or all of its state sharded.

    The papers' models on their GPUs, and all models that are no transformers: `GridOracle` (`oracle=grid`)
    with the stack alpa-2022.

    Parameters
    ----------
    catalog : Catalog, optional
        `conf/model` by default.
    stack : str
        A stack of conf/stack, a YAML file, `auto` (see `choose_stack`), or a framework (`FRAMEWORKS`), among
        whose stacks a transformer's is chosen.
    year : int or None
        Of the software, by which `auto` chooses; None: the newest.
    precision : str
        Of linear layers: `bf16`, `fp8`, `mxfp8` or `fp4`; a GPU type that has no such arithmetic uses bf16.
    sequence_length : int or None
        Tokens of a sample; None: as the model family's file says.
    segment : int or None
        Most GPUs of a segment. A job whose fastest plan has larger ones, and that does not lie in one NVLink
        domain, runs the fastest plan that has none, if any fits. None: those of the fastest plan.
    **operators
        Keys of `GridOracle`: `strategy`, `overlap`. Stacks of transformers have
        the first, too (`list_grids`).

    Raises
    ------
    InputError
        For an unknown stack, precision or strategy, or fewer tokens or GPUs than one.
    """

    name = "stack"
    sees_fabric = True
    worth_caching = True
    knows_segments = True

    def __init__(
        self,
        catalog: Catalog | None = None,
        stack: str = AUTO,
        precision: Precision = "bf16",
        sequence_length: int | None = None,
        segment: int | None = None,
        year: int | None = None,
        **operators: Any,
    ) -> None:
        check_choice(precision, PRECISIONS, "oracle.precision")
        if segment is not None and segment < 1:
            message = f"{segment} GPUs are no segment"
            raise InputError(message, field="oracle.segment", remedy="give at least 1")
        if sequence_length is not None and sequence_length < 1:
            message, remedy = f"{sequence_length} tokens are no sequence", "give at least 1"
            raise InputError(message, field="oracle.sequence_length", remedy=remedy)
        self.catalog = catalog or load_catalog()
        self.stack, self.precision, self.sequence_length = stack, precision, sequence_length
        self.segment, self.year = segment, year
        given = None if stack in (AUTO, *FRAMEWORKS) else load_stack(stack)
        # With a stack of transformers there are no operators' times, but their keys are checked all the same.
        other = load_stack(OPERATORS_STACK) if given is None or given.of_steps else given
        self.given, self.operators = given, make_operators_oracle(self.catalog, other, **operators)

    def choose(self, model: ModelClass, group: NodeGroup) -> ChosenStack:
        """Choose the stack for a model on the GPUs of a node group, with what it is extrapolated to.

        Where the oracle's stack has formulas of transformers only, other models have those of alpa-2022.
        """
        spec, gpu_type = self.catalog.get(model), group.gpu_type.name
        architecture = classify_transformer(spec)
        if self.given is None or (self.given.of_steps and not architecture):
            fp8 = _has_fp8(group)
            stacks = of_framework(current_stacks(), self.stack if architecture else "")
            return choose_stack(spec.family, architecture, gpu_type, fp8=fp8, year=self.year, stacks=stacks)
        return ChosenStack(self.given, describe_extension(self.given, spec.family, architecture, gpu_type))

    def notes(self, classes: Sequence[ModelClass], cluster: ClusterSpec) -> list[str]:
        """Return texts on models and GPU types to which stacks are extrapolated without measurements."""
        found = (self.choose(model, group).extended for model in classes for group in cluster.groups)
        return list(dict.fromkeys(text for text in found if text))

    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Predict the iteration times of the classes; raise an `InputError` for an unknown class."""
        check_counts(counts)
        shape = len(classes), len(cluster.groups), len(counts), len(Locality)
        values, segments = np.full((3, *shape), np.inf), np.ones(shape[:3], dtype=np.int64)
        by_operators: dict[tuple[int, ...], list[int]] = {}
        for row, model in enumerate(classes):
            stacks = [self.choose(model, group).stack for group in cluster.groups]
            columns = tuple(column for column, stack in enumerate(stacks) if not stack.of_steps)
            by_operators.setdefault(columns, []).append(row)
            for column, (stack, group) in enumerate(zip(stacks, cluster.groups, strict=True)):
                if not stack.of_steps:
                    continue
                cell = self.cell(stack, model, cluster, column)
                for level, gpus in enumerate(counts):
                    if gpus <= group.nodes * group.gpus_per_node:
                        best = cluster.compact_locality(column, gpus)
                        values[:, row, column, level], segments[row, column, level] = _entries(
                            cell, gpus, best, self.segment, self.operators.strategy
                        )
        for columns, rows in by_operators.items():
            if columns:
                found = self.operators.fill([classes[row] for row in rows], cluster, counts, columns)
                here = np.ix_(range(3), rows, columns)
                values[here] = found[:, :, list(columns)]
        axis = np.array(counts, dtype=np.int64)
        execution, profiled, data_parallel = map(six_digits, values)
        times = execution, profiled, data_parallel
        return OracleTables(tuple(classes), cluster.gpu_types, axis, *times, segments=segments)

    def cell(self, stack: Stack, model: ModelClass, cluster: ClusterSpec, column: int) -> StackCell:
        """Return a transformer and GPU type `column` of a cluster as the input to a search of plans."""
        shape, length = transformer_of(self.catalog.get(model))
        machine = make_machine(cluster.groups[column])
        machines = tuple(_at_tier(machine, cluster, column, tier) for tier in Locality)
        precision = self.precision if machine.peak_tflops(self.precision) else PRECISIONS[0]
        room, constants = cluster.groups[column].domain_gpus, stack.step_constants
        length = self.sequence_length or length
        return StackCell(shape, length, model.global_batch, machines, constants, precision, room)

    def fingerprint(self) -> dict[str, object]:
        """Return all that predictions depend on: version, parameters, constants, shapes, files' digests."""
        stacks = map(load_stack, stack_names()) if self.given is None else [self.given]
        machines = (conf_dir() / "hardware" / "accelerators.yaml").read_bytes()
        return {
            "name": self.name,
            "version": VERSION,
            "precision": self.precision,
            "sequence_length": self.sequence_length,
            **{key: value for key in ("segment", "year") if (value := getattr(self, key)) is not None},
            **({"framework": self.stack} if self.stack in FRAMEWORKS else {}),
            "stacks": {stack.name: asdict(stack) for stack in stacks},
            "operators": self.operators.fingerprint(),
            "machines": hashlib.sha256(machines).hexdigest(),
        }


def make_operators_oracle(
    catalog: Catalog | None = None, stack: Stack | str = OPERATORS_STACK, **parameters: Any
) -> GridOracle:
    """Build the oracle that adds up single operators' times (`oracle=grid`), with a stack that has these.

    Raises
    ------
    InputError
        If the stack has formulas of a transformer's step only, or a parameter is not valid.
    """
    chosen = load_stack(stack) if isinstance(stack, str) else stack
    if not isinstance(chosen.constants, Constants):
        remedy = f"name {OPERATORS_STACK}, or a file like it"
        raise InputError(f"{chosen.name} has no times of operators", field="oracle.stack", remedy=remedy)
    return GridOracle(catalog or load_catalog(), chosen.constants, **parameters)


def _entries(
    cell: StackCell, gpus: int, best: Locality, most: int | None, strategy: str
) -> tuple[Floats, int]:
    """Return seconds of execution, profile and data parallelism by tier, shape (3, 4), and the segment."""
    times = np.full((3, len(Locality)), np.inf)
    steps = cell.find_plans(gpus, best)
    plans = [step.plan for step in steps]
    if not plans:
        return times, 1
    segment = cell.segment(plans[0])
    if most is not None:
        segment = next((found for plan in plans if (found := cell.segment(plan)) <= most), segment)
    # A wider placement keeps segments of this size together, and no larger ones.
    allowed = [plan for plan in plans if cell.segment(plan) <= segment][:TRIED]
    kept = [step for step in steps if cell.segment(step.plan) <= segment]
    proxies = [grid.proxy.step.plan for grid in list_grids(cell.shape, kept, strategy)]
    parallel = next((p for p in plans if p.tensor == p.pipeline == p.context == p.expert == 1), None)
    for tier in Locality:
        if tier >= best:
            tried = plans[:1] if tier == Locality.DOMAIN else allowed[:1] if tier == best else allowed
            times[0, tier] = min(cell.assess_tier(plan, tier).seconds for plan in tried)
            times[1, tier] = min(estimate_step(cell.assess_tier(plan, tier)) for plan in proxies)
            if parallel is not None:
                times[2, tier] = cell.assess_tier(parallel, tier).seconds
    # Data parallelism is one of the plans, whether or not it is among those tried.
    times[0] = np.minimum(times[0], times[2])
    return times, segment


def classify_transformer(spec: ModelSpec) -> str:
    """Return `DENSE` or `EXPERTS`; empty for a model that is no transformer or has only total costs."""
    if not spec.shape and "hidden" not in dict(spec.dimensions):
        return ""
    return EXPERTS if transformer_of(spec)[0].experts else DENSE


def transformer_of(spec: ModelSpec) -> tuple[TransformerShape, int]:
    """Return a model's shape as a transformer, and the number of tokens of a sample."""
    given = dict(spec.dimensions)
    if spec.shape:
        return load_transformer(spec.shape), given["sequence_length"]
    inner = FFN_FACTOR["moe" if "experts" in given else "transformer"] * given["hidden"]
    shape = TransformerShape(
        spec.family, given["hidden"], given["layers"], given["heads"], given["vocabulary"], inner,
        gated=False, tied=True,
    )  # fmt: skip
    if "experts" in given:
        # GShard: every second layer has experts, two of which see each token.
        shape = replace(
            shape, experts=given["experts"], experts_per_token=2, expert_feed_forward=inner,
            dense_layers=given["layers"] // 2,
        )  # fmt: skip
    return shape, given["sequence_length"]


def _has_fp8(group: NodeGroup) -> bool:
    known = find_accelerator(group.gpu_type.name)
    return bool(group.gpu_type.fp8_tflops or (known and known.fp8_tflops))


def make_machine(group: NodeGroup) -> Machine:
    """Return a node group's GPU with its links and port, missing rates taken from the accelerator catalogue.

    Raises
    ------
    InputError
        If neither the cluster's file nor the catalogue says the limit of the GPU's power.
    """
    gpu = group.gpu_type
    known = find_accelerator(gpu.name)
    power_w, fp8, fp4 = gpu.power_w, gpu.fp8_tflops, gpu.fp4_tflops
    if known is not None:
        power_w, fp8, fp4 = power_w or known.power_w, fp8 or known.fp8_tflops, fp4 or known.fp4_tflops
    if power_w is None:
        message = f"GPU type {gpu.name} has no power_w, the limit of its power, which oracle=stack needs"
        remedy = "describe the type in the cluster file's gpu_types, with power_w"
        raise InputError(message, field="cluster.gpu_types", remedy=remedy)
    return Machine(
        name=gpu.name,
        bf16_tflops=gpu.fp16_tflops,
        memory_gb=gpu.memory_gb,
        memory_gbs=gpu.memory_gbs,
        link_gbs=gpu.link_gbs,
        nic_gbps=gpu.nic_gbps if gpu.nic_per_gpu else gpu.nic_gbps / group.gpus_per_node,
        power_w=power_w,
        fp8_tflops=fp8,
        fp4_tflops=fp4,
        domain=group.domain_gpus,
        adds_in_switch=known is None or known.adds_in_switch,
    )


def _at_tier(machine: Machine, cluster: ClusterSpec, column: int, tier: Locality) -> Machine:
    """Return a machine whose network is as fast as through a tier's switches."""
    if tier == Locality.NODE:
        return machine
    per_node = cluster.groups[column].gpus_per_node
    return replace(machine, nic_gbps=8 * cluster.bandwidth_gbs(column, tier) / per_node)
