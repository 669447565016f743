"""What rented nodes cost, from the event log and the prices of the scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbances.capacity import BEGIN, END, ORDER, Capacity, Product
from clustergym.scenario.market import HOUR, accrue, find_value
from clustergym.sim.log import Event


class Lease(NamedTuple):
    """A node from its order to its end; `begin` is None if it has not come. Times are ticks."""

    product: Product
    gpus: int
    ordered: int
    begin: int | None
    end: int


def read_leases(
    capacity: Capacity, cluster: ClusterSpec, events: Sequence[Event], end_s: float
) -> list[Lease]:
    """Return the leases of a run from its event log, in order of their orders; open ones end with the run."""
    product_of = {node: product for product in capacity.products for node in product.nodes}
    found, open_of = list[Lease](), dict[int, int]()
    for event in events:
        if event.event_type not in (ORDER, BEGIN, END):
            continue
        node, tick = event.nodes[0][0], ticks(event.time_s)
        if event.event_type == ORDER:
            open_of[node] = len(found)
            found.append(Lease(product_of[node], int(cluster.node_gpus[node]), tick, None, ticks(end_s)))
        elif event.event_type == BEGIN:
            found[open_of[node]] = found[open_of[node]]._replace(begin=tick)
        elif node in open_of:
            # At the start of a run a node that nobody has ordered is out of use.
            at = open_of.pop(node)
            found[at] = found[at]._replace(end=tick)
    return found


def measure_capacity(
    capacity: Capacity, cluster: ClusterSpec, events: Sequence[Event], end_s: float, time_s: Floats
) -> tuple[dict[str, Any], Mapping[str, Floats | Ints]]:
    """Return the metrics of rented nodes, and the GPUs rented and the cost so far at some times.

    A term is owed whole from its order on, at the price of then; all else at the price of each moment,
    in units of `Capacity.billed`.
    """
    at = np.array([*map(ticks, time_s.tolist()), ticks(end_s)], dtype=np.int64)
    rented, cost, held_h = np.zeros(len(at), dtype=np.int64), np.zeros(len(at)), 0.0
    for product, gpus, ordered, begin, end in read_leases(capacity, cluster, events, end_s):
        if product.term:
            owed = find_value(product.prices, ordered) * gpus * product.term / HOUR
            cost += owed * (at >= ordered)
        if begin is None:
            continue
        held_h += gpus * (end - begin) / HOUR
        rented += gpus * ((at >= begin) & (at < end))
        if not product.term:
            used, unit = np.clip(at, begin, end) - begin, max(capacity.billed, 1)
            until = begin + -(-used // unit) * unit
            cost += gpus * (accrue(product.prices, until) - accrue(product.prices, np.array([begin])))
    columns: dict[str, Floats | Ints] = {"rented_gpus": rented[:-1], "cost": cost[:-1]}
    return {"cost": float(cost[-1]), "rented_gpu_hours": held_h}, columns
