"""Placing of jobs on a divisible cluster, where a placer answers for a job, not for a number of GPUs."""

from __future__ import annotations

from clustergym.cluster.divisible import DivisibleCluster
from clustergym.cluster.part_allocations import PartAllocations
from clustergym.cluster.spec import Nodes
from clustergym.common.errors import InputError
from clustergym.scenario.policy import Infeasible, Placer
from clustergym.scenario.scenario import Scenario


def part_allocations(scenario: Scenario, placer: Placer) -> PartAllocations | None:
    """Return the account of a divisible cluster's parts; None for another cluster.

    Raises
    ------
    InputError
        If the cluster is divisible and the placer cannot place parts.
    """
    if scenario.parts is None or not isinstance(scenario.cluster, DivisibleCluster):
        return None
    if not placer.places_parts:
        message = (
            f"{placer.name} gives whole GPUs, and those of cluster {scenario.cluster.name} can be divided"
        )
        names = "fgd, best-fit, gpu-packing, gpu-clustering, dot-product, random-fit"
        remedy = f"choose placer={names}, or learned with placer.checkpoint=sharing"
        raise InputError(message, field="placer", remedy=remedy)
    return PartAllocations(scenario.cluster, scenario.parts)


def place_part(allocations: PartAllocations, placer: Placer, row: int) -> Nodes | Infeasible:
    """Ask a placer where a job goes; an answer that names a failed node counts as `Infeasible`."""
    place = placer.place_part(allocations, row)
    if isinstance(place, Infeasible):
        return place
    if int(place.node) in allocations.down:
        return Infeasible(f"node {place.node} has failed", nodes_short=1)
    return allocations.intend(row, place)
