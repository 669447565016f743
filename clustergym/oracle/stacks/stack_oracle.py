"""The oracle by software stack: iteration times of today's machines and models, and the segments of jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality, NodeGroup
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.paths import conf_dir
from clustergym.oracle.base import Oracle, OracleTables, check_choice, check_counts, six_digits
from clustergym.oracle.models.catalog import Catalog, load_catalog
from clustergym.oracle.models.model_spec import FFN_FACTOR, ModelClass, ModelSpec
from clustergym.oracle.models.shape import Machine, ParallelPlan, Precision, TransformerShape
from clustergym.oracle.models.shape_files import find_accelerator, load_transformer
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
from clustergym.oracle.stacks.catalog import DEFAULT_STACKS, default_stack, load_stack
from clustergym.oracle.stacks.search import PlannedStep, assess_plan, search_plans
from clustergym.oracle.stacks.step_time import StackConstants

VERSION = 1
"""Raised whenever the tables of equal input change."""
AUTO = "auto"
TRIED = 64
"""Plans, the fastest ones of the most compact placement, among which a wider placement has its own."""
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp8", "mxfp8", "fp4")


@dataclass(frozen=True)
class StackCell:
    """A model on a GPU type of a cluster: what a search of plans needs besides the number of GPUs."""

    shape: TransformerShape
    sequence_length: int
    global_batch: int
    machines: tuple[Machine, ...]
    constants: StackConstants
    precision: Precision
    domain_gpus: int

    def find_plans(self, gpus: int, tier: Locality) -> list[PlannedStep]:
        """Return the plans that fit on GPUs of a tier, fastest first."""
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
        """Return the GPUs of each block of a plan that exchange activations all the time.

        Experts are divided among ranks of the tensor, context and data groups: the larger of both groups, but
        no more than NVLink joins.
        """
        return min(max(plan.tensor * plan.context, plan.expert), self.domain_gpus)

    def assess_tier(self, plan: ParallelPlan, tier: Locality) -> PlannedStep:
        """Return a plan's step on GPUs that a tier joins.

        What would fit in one NVLink domain lies in two there, of which each has whole segments.
        """
        machine, gpus = self.machines[tier], plan.gpus
        if tier > Locality.DOMAIN and gpus <= machine.domain:
            machine = replace(machine, domain=max(self.segment(plan), gpus // 2))
        given = {"global_batch": self.global_batch, "sequence_length": self.sequence_length}
        return assess_plan(self.shape, machine, plan, self.constants, **given)


class StackOracle(Oracle):
    """Iteration times of transformers by the constants of a software stack (`step_time.StackConstants`).

    `execution` is the fastest plan of data, tensor, pipeline, context and expert parallelism that fits. The
    most compact placement sets the segments, which a job that is placed wider keeps: it runs the fastest of
    the plans with no larger ones.
    `profiled` is that plan as a profile within one NVLink domain shows it: without what is exposed of the
    exchange between data-parallel ranks, and without straggling. `data_parallel` is the fastest plan of data
    parallelism alone, its optimizer or all of its state sharded. Models that are not transformers have the
    times of `RooflineOracle`.

    Parameters
    ----------
    catalog : Catalog, optional
        `conf/model` by default.
    stack : str
        A stack of conf/stack, a YAML file, or `auto`: of each GPU type the one of its newest measurements.
    precision : str
        Of linear layers: `bf16`, `fp8`, `mxfp8` or `fp4`; a GPU type that has no such arithmetic uses bf16.
    sequence_length : int or None
        Tokens of a sample; None: as the model family's file says.
    segment : int or None
        Most GPUs of a segment. A job whose fastest plan has larger ones, and that does not lie in one NVLink
        domain, runs the fastest plan that has none, if any fits. None: those of the fastest plan.

    Raises
    ------
    InputError
        For an unknown stack or precision, or fewer tokens or GPUs than one.
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
        self.segment = segment
        if stack != AUTO:
            load_stack(stack)

    @cached_property
    def _others(self) -> RooflineOracle:
        return RooflineOracle(self.catalog)

    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Return the dense tables; raise an `InputError` for an unknown class or a count below 1."""
        check_counts(counts)
        shape = len(classes), len(cluster.groups), len(counts), len(Locality)
        values, segments = np.full((3, *shape), np.inf), np.ones(shape[:3], dtype=np.int64)
        for row, model in enumerate(classes):
            spec = self.catalog.get(model)
            known = find_transformer(spec)
            if known is None:
                other = self._others.tables([model], cluster, counts)
                values[:, row] = [other.execution[0], other.profiled[0], other.data_parallel[0]]
                continue
            for column, group in enumerate(cluster.groups):
                cell = self._cell(known[0], self.sequence_length or known[1], model, cluster, column)
                for level, gpus in enumerate(counts):
                    if gpus <= group.nodes * group.gpus_per_node:
                        best = cluster.compact_locality(column, gpus)
                        values[:, row, column, level], segments[row, column, level] = _entries(
                            cell, gpus, best, self.segment
                        )
        axis = np.array(counts, dtype=np.int64)
        execution, profiled, data_parallel = map(six_digits, values)
        times = execution, profiled, data_parallel
        return OracleTables(tuple(classes), cluster.gpu_types, axis, *times, segments=segments)

    def _cell(
        self, shape: TransformerShape, length: int, model: ModelClass, cluster: ClusterSpec, column: int
    ) -> StackCell:
        machine = make_machine(cluster.groups[column])
        machines = tuple(_at_tier(machine, cluster, column, tier) for tier in Locality)
        name = default_stack(machine) if self.stack == AUTO else self.stack
        precision = self.precision if machine.peak_tflops(self.precision) else PRECISIONS[0]
        constants, room = load_stack(name).constants, cluster.groups[column].domain_gpus
        return StackCell(shape, length, model.global_batch, machines, constants, precision, room)

    def fingerprint(self) -> dict[str, object]:
        """Return version, parameters, constants, shapes and the digests of the catalogue's files."""
        names = sorted(set(DEFAULT_STACKS.values())) if self.stack == AUTO else [self.stack]
        machines = (conf_dir() / "hardware" / "accelerators.yaml").read_bytes()
        return {
            "name": self.name,
            "version": VERSION,
            "precision": self.precision,
            "sequence_length": self.sequence_length,
            **({} if self.segment is None else {"segment": self.segment}),
            "constants": {name: asdict(load_stack(name).constants) for name in names},
            "machines": hashlib.sha256(machines).hexdigest(),
            "catalog": self.catalog.fingerprint(),
        }


def _entries(cell: StackCell, gpus: int, best: Locality, most: int | None) -> tuple[Floats, int]:
    """Return seconds of execution, profile and data parallelism by tier, shape (3, 4), and the segment."""
    times = np.full((3, len(Locality)), np.inf)
    plans = [step.plan for step in cell.find_plans(gpus, best)]
    if not plans:
        return times, 1
    segment = cell.segment(plans[0])
    if most is not None:
        segment = next((found for plan in plans if (found := cell.segment(plan)) <= most), segment)
    # A wider placement keeps segments of this size together, and no larger ones.
    allowed = [plan for plan in plans if cell.segment(plan) <= segment][:TRIED]
    parallel = next((plan for plan in plans if _is_data_parallel(plan)), None)
    for tier in Locality:
        if tier >= best:
            tried = plans[:1] if tier == Locality.DOMAIN else allowed[:1] if tier == best else allowed
            step = min((cell.assess_tier(plan, tier) for plan in tried), key=lambda one: one.seconds)
            unseen = step.parts.straggling_s + step.parts.data_exposed_s
            times[:2, tier] = step.seconds, step.seconds - unseen
            if parallel is not None:
                times[2, tier] = cell.assess_tier(parallel, tier).seconds
    # Data parallelism is one of the plans, whether or not it is among those tried.
    times[0] = np.minimum(times[0], times[2])
    return times, segment


def _is_data_parallel(plan: ParallelPlan) -> bool:
    return plan.tensor == plan.pipeline == plan.context == plan.expert == 1


def find_transformer(spec: ModelSpec) -> tuple[TransformerShape, int] | None:
    """Return a model's shape and the tokens of a sample; None for a model that is no transformer."""
    given = dict(spec.dimensions)
    if spec.shape:
        return load_transformer(spec.shape), given["sequence_length"]
    if "hidden" not in given:
        return None
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


def make_machine(group: NodeGroup) -> Machine:
    """Return the machine of a group of nodes: its data sheet, completed from the catalogue of accelerators.

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
    )


def _at_tier(machine: Machine, cluster: ClusterSpec, column: int, tier: Locality) -> Machine:
    """Return a machine whose network is as fast as through a tier's switches."""
    if tier == Locality.NODE:
        return machine
    per_node = cluster.groups[column].gpus_per_node
    return replace(machine, nic_gbps=8 * cluster.bandwidth_gbs(column, tier) / per_node)
