"""Allocations as the grid oracle's planner, profiler and search take them."""

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.oracle.grid.constants import Constants
from clustergym.oracle.grid.grid_oracle import build_graph
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass


def allocation(
    *models: ModelClass, gpus: int = 8, nodes: int = 1, gpu: str = "A40"
) -> tuple[GraphAllocations, Machine]:
    """Return a row for each model on equal GPUs, with network ports of 12.5 GB/s, default constants."""
    catalog, count = load_catalog(), len(models)
    rows = GraphAllocations.from_graphs(
        [build_graph(catalog.get(model)) for model in models],
        [model.global_batch for model in models],
        [load_gpu_types()[gpu]] * count,
        [gpus] * count,
        [nodes] * count,
        [12.5] * count,
    )
    return rows, Machine.from_rows(rows, Constants())
