"""Explains how the grid oracle plans one model on one allocation."""

from __future__ import annotations

import numpy as np

from clustergym.cluster.spec import GpuType, Locality
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.oracle.grid.grid_oracle import GridOracle, build_graph, spread
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.grid.pipelines import Layouts, Prices, price
from clustergym.oracle.grid.planner import NormalisedPartitions, Planner, frontier, proxies
from clustergym.oracle.grid.plans import Explanation, Frontier, Grid, OutOfMemory, Plan, ProxyPlan, Stage
from clustergym.oracle.grid.profiler import Estimates, check_rule, estimate
from clustergym.oracle.grid.pruning import profiling_cost, search_cost, search_pruned
from clustergym.oracle.grid.search import BestPlans, data_parallel_search, full_search, micro_batch_counts
from clustergym.oracle.grid.stages import stage_bytes, stage_table
from clustergym.oracle.models.model_spec import ModelClass


def explain(
    oracle: GridOracle,
    model: ModelClass,
    gpu_type: GpuType,
    gpus: int,
    *,
    per_node: int,
    locality: Locality | None = None,
) -> Explanation:
    """Predict a model's iteration time on an allocation; return it with all plans and costs compared.

    Parameters
    ----------
    oracle : GridOracle
    model : ModelClass
    gpu_type : GpuType
    gpus : int
        A power of two.
    per_node : int
        GPUs of a node of the cluster.
    locality : Locality, optional
        By default the best that `gpus` can have on such nodes: NODE, else LEAF.
    """
    tier = _check_allocation(gpus, per_node, locality)
    check_rule(oracle.micro_batches, [model.global_batch])
    nodes = spread(gpus, per_node, tier)
    graph = build_graph(oracle.catalog.get(model))
    # With a port for each GPU, a node's line rate grows with the GPUs that the job has on it.
    ports = -(-gpus // nodes) if gpu_type.nic_per_gpu else 1
    rate = gpu_type.nic_gbps / 8 * ports
    rows = GraphAllocations.from_graphs([graph], [model.global_batch], [gpu_type], [gpus], [nodes], [rate])
    return _Explainer(oracle, rows, oracle.machine(rows)).explanation(model, tier)


def _check_allocation(gpus: int, per_node: int, locality: Locality | None) -> Locality:
    if gpus < 1 or gpus & (gpus - 1):
        message = f"{gpus} GPUs are not a power of two"
        raise InputError(message, field="gpus", remedy="plans use 1, 2, 4, 8 … GPUs")
    if per_node < 1:
        raise InputError(f"{per_node} GPUs a node", field="per_node", remedy="give at least 1")
    tier = (Locality.NODE if gpus <= per_node else Locality.LEAF) if locality is None else locality
    if tier == Locality.NODE and gpus > per_node:
        message = f"{gpus} GPUs are not on one node of {per_node}"
        raise InputError(message, field="locality", remedy="give leaf, minipod or cross")
    if tier != Locality.NODE and gpus < 2:
        raise InputError("1 GPU is on one node", field="locality", remedy="give node")
    return tier


class _Explainer:
    """One allocation, and methods that plan, estimate and search it."""

    def __init__(self, oracle: GridOracle, rows: GraphAllocations, machine: Machine) -> None:
        self.oracle, self.rows, self.machine = oracle, rows, machine
        self.gpu_type, self.gpus = rows.gpu_types[0].name, int(rows.layout.gpus[0])
        self.planned = bool(machine.planned.any())

    def explanation(self, model: ModelClass, tier: Locality) -> Explanation:
        parallel = data_parallel_search(self.rows, self.machine)
        found = full_search(self.rows, self.machine) if self.planned else parallel
        # Jobs run the faster of the searched plan and pure data parallelism, which is priced separately.
        chosen = parallel if parallel.iteration_s[0] < found.iteration_s[0] else found
        strategy, rule = self.oracle.strategy, self.oracle.micro_batches
        estimates = estimate(self.rows, self.machine, strategy, rule)
        pruned, allowed = search_pruned(self.rows, self.machine, estimates)
        frontiers, failures = self.grids(estimates)
        best = int(estimates.best.plans.count[0])
        proxy = next((entry.proxy for entry in frontiers if entry.grid.stages == best), None)
        counts = found.micro_batches
        executed = self.plan(chosen, self.machine)
        return Explanation(
            model=model,
            gpu_type=self.gpu_type,
            gpus=self.gpus,
            nodes=int(self.rows.layout.nodes[0]),
            locality=tier,
            memory_limit_bytes=float(self.machine.memory_bytes[0, 0, 0]),
            operators=self.rows.graphs[0].names,
            frontiers=tuple(frontiers),
            infeasible=failures,
            proxy=proxy,
            chosen=executed,
            pruned=self.plan(pruned, self.machine),
            data_parallel=self.plan(parallel, self.machine),
            profiling=profiling_cost(self.rows, self.machine, estimates.grids)[0],
            search=search_cost(self.rows, self.machine, counts)[0],
            pruned_search=search_cost(self.rows, self.machine, pruned.micro_batches, allowed)[0],
            reason=None if executed is not None else self.shortage(),
        )

    def grids(self, estimates: Estimates) -> tuple[list[Frontier], dict[int, OutOfMemory]]:
        """Return the Pareto frontiers of the stage counts that fit in memory, and why others do not fit."""
        found: list[Frontier] = []
        failures: dict[int, OutOfMemory] = {}
        view = self.machine.as_profiled()
        for stages, grid in zip(estimates.stages, estimates.grids, strict=True):
            # A grid without a plan has no micro-batches: explain why with those that need the least memory.
            counts = grid.micro_batches
            if not grid.plans.count[0]:
                counts = self.leanest_counts()
            planner = Planner(self.rows, view, counts, estimates.literal)
            candidates = planner.candidates(stages)
            if not grid.plans.count[0]:
                failures[stages] = self.failure(candidates)
                continue
            kept = frontier(candidates, self.gpus, 0)
            chosen, _ = proxies(candidates, self.gpus)
            points = [self.point(candidates, int(index), counts) for index in kept]
            proxy = self.point(candidates, int(chosen[0]), counts)
            if self.oracle.strategy == "assembly":
                plan = self.plan(grid, view)
                proxy = ProxyPlan(plan or proxy.plan, proxy.bias, proxy.communication_load)
            considered = int(np.isfinite(candidates.communication_s[0]).sum())
            found.append(Frontier(self.grid(stages), tuple(points), considered, proxy))
        return found, failures

    def grid(self, stages: int) -> Grid:
        return Grid(self.gpu_type, self.gpus, stages)

    def point(self, candidates: NormalisedPartitions, index: int, counts: np.ndarray) -> ProxyPlan:
        """Return one partition of the operators as a plan with its estimated times."""
        plans = candidates.pipelines(np.array([index]))
        found = BestPlans(plans, counts, np.zeros(1))
        plan = self.plan(found, self.machine.as_profiled())
        if plan is None:
            raise AssertionError("a partition has at least one stage")
        return ProxyPlan(plan, float(candidates.bias[0, index]), float(candidates.communication_s[0, index]))

    def plan(self, found: BestPlans, machine: Machine) -> Plan | None:
        """Return a found plan with its times on a machine; None if no plan was found."""
        if not found.plans.count[0]:
            return None
        prices = price(self.rows, machine, Layouts(self.rows, found.plans), found.micro_batches)
        stages = self.stages(found, prices)
        # With overlap, transfers between stages run during computation and do not make a stage the slowest.
        hidden = prices.inter_stage_s[0] if prices.overlaps else 0.0
        slow = int(np.argmax(prices.stage_s[0] - hidden))
        count = float(found.micro_batches[0])
        parts = [
            count * float(prices.compute_s[0, slow]),
            count * float(prices.intra_stage_s[0, slow]) + float(prices.synchronise_s[0, slow]),
            (1.0 if prices.overlaps else count) * float(prices.inter_stage_s[0, slow]),
        ]
        total = float(prices.iteration_s[0])
        return Plan(
            grid=self.grid(len(stages)),
            stages=stages,
            micro_batches=int(count),
            micro_batch=int(np.ceil(self.rows.batch[0] / count)),
            iteration_s=total,
            compute_s=parts[0],
            intra_stage_s=parts[1],
            inter_stage_s=parts[2],
            bubble_s=max(total - sum(parts), 0.0),
        )

    def stages(self, found: BestPlans, prices: Prices) -> tuple[Stage, ...]:
        plans, count = found.plans, int(found.plans.count[0])
        columns = (plans.first, plans.last, plans.gpus, plans.tensor, plans.cut)
        bounds = list(zip(*(column[0, :count].tolist() for column in columns), strict=True))
        held = stage_bytes(self.rows, self.machine, found.micro_batches, bounds)
        return tuple(
            Stage(
                first=first,
                last=last,
                gpus=gpus,
                data=gpus // tensor,
                tensor=tensor,
                memory_bytes=memory,
                compute_s=float(prices.compute_s[0, index]),
                intra_stage_s=float(prices.intra_stage_s[0, index]),
                inter_stage_s=float(prices.inter_stage_s[0, index]),
                synchronise_s=float(prices.synchronise_s[0, index]),
            )
            for index, ((first, last, gpus, tensor, _), memory) in enumerate(zip(bounds, held, strict=True))
        )

    def failure(self, candidates: NormalisedPartitions) -> OutOfMemory:
        """Return the largest stage of the partition that exceeds the memory least."""
        limit = float(self.machine.memory_bytes[0, 0, 0])
        worst = candidates.memory_bytes[0].max(axis=1)
        best = int(np.argmin(worst))
        stage = int(np.argmax(candidates.memory_bytes[0, best]))
        partition = best // (candidates.bias.shape[1] // len(candidates.first))
        return OutOfMemory(
            first=int(candidates.first[partition, stage]),
            last=int(candidates.last[partition, stage]),
            gpus=int(candidates.gpus[0, best, stage]),
            excess_bytes=float(worst[best]) - limit,
        )

    def leanest_counts(self) -> Floats:
        """Return the largest number of micro-batches to try, which needs the least memory."""
        tried = [counts for rows, counts in micro_batch_counts(self.rows, self.machine) if len(rows)]
        return tried[-1]

    def shortage(self) -> OutOfMemory:
        """Return by how much memory falls short at best if the whole model is one stage."""
        table = stage_table(self.rows, self.machine, self.leanest_counts(), self.gpus)
        needed = table.memory_bytes[0, self.rows.operators - 1]
        size = int(np.argmin(needed))
        excess = float(needed[size]) - float(self.machine.memory_bytes[0, 0, 0])
        return OutOfMemory(0, self.rows.operators - 1, int(table.sizes[size]), excess)
