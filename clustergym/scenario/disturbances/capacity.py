"""Capacity that is rented: nodes that come when they are ordered and go at their term, at prices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.errors import InputError, nearest, require, require_known
from clustergym.common.parameter_types import Delay, Duration, NonNegativeFloat, PositiveInt, Seed
from clustergym.common.parameters import Parameters, build
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbance import ActiveDisturbance, Disturbance, DisturbedRun
from clustergym.scenario.market import HOUR, PriceProcess, Steps, draw_prices, find_value
from clustergym.scenario.policy import CapacityView
from clustergym.trace.trace import Trace

ORDER, BEGIN, NOTICE, END = "capacity_order", "capacity_begin", "capacity_notice", "capacity_end"
"""Events: the node in `nodes` is ordered; comes; is about to be taken away; is not, or no longer, there."""
COLUMNS = ("time_s", "product", "usd_per_gpu_hour", "nodes")
"""Columns of a file of offers: from a time on, what a product costs and how many of its nodes there are."""
DRAWN_HOURS = 24 * 90
"""Hours for which prices are drawn; the last one holds from then on."""


@dataclass(frozen=True)
class ProductChoice(Parameters):
    """The keys of a product, under `scenario.capacity.products.NAME`.

    Attributes
    ----------
    nodes : int
        Nodes of the cluster that are not there unless this product is rented: the last ones of the type.
    gpu_type : str or None
        Null: the cluster's first.
    price : float
        USD per GPU-hour, unless a file or a process says otherwise.
    lead_s : float
        Seconds from an order until a node comes; 0: at once.
    term_s : float or None
        Seconds after which it goes, all of which are paid for at the price of the order. Null: it stays until
        it is given back or taken away, and each moment costs what is asked for then.
    notice_s : float
        Seconds before a node is taken away in which nothing is launched on it.
    process : PriceProcess or None
        Null: the price is not drawn.
    """

    config_key = "scenario.capacity.products"

    nodes: PositiveInt
    gpu_type: str | None = None
    price: NonNegativeFloat = 0.0
    lead_s: Delay = 0.0
    term_s: Duration | None = None
    notice_s: Delay = 0.0
    process: PriceProcess | None = None


class Product(NamedTuple):
    """A product that a run can rent; times are ticks.

    Attributes
    ----------
    nodes : tuple of int
        Ascending; while `supply` is k, the first k of them can be had.
    term : int
        0: none.
    prices, supply : Steps
        USD per GPU-hour; number of nodes.
    """

    name: str
    nodes: tuple[int, ...]
    lead: int
    term: int
    notice: int
    prices: Steps
    supply: Steps


@dataclass(frozen=True)
class CapacityChoice(Parameters):
    """The keys of `scenario.capacity`.

    Attributes
    ----------
    products : mapping
        Keys of each product (`ProductChoice`), by its name; empty: all nodes are one's own.
    path : str or None
        A CSV file with the columns `COLUMNS`.
    billed_s : float
        What has no term is paid for in whole units of so many seconds, from when it comes; 0: to the tick.
    seed : int or None
        Seed of drawn prices; null: the run's seed.
    """

    config_key = "scenario.capacity"

    products: Mapping[str, Any] = field(default_factory=dict)
    path: str | None = None
    billed_s: Delay = 0.0
    seed: Seed | None = None


@dataclass(frozen=True)
class Capacity(Disturbance):
    """The nodes of a cluster that are rented; policies order them with `Decision.capacity`.

    Attributes
    ----------
    products : tuple of Product
    billed : int
        Ticks.
    """

    key = "capacity"
    outages = ((END, BEGIN),)

    products: tuple[Product, ...]
    billed: int = 0

    @classmethod
    def from_config(
        cls, given: Mapping[str, Any], cluster: ClusterSpec, trace: Trace, seed: int
    ) -> Capacity | None:
        """Build the products from their configuration keys; also raises the errors of `read_offers`."""
        choice: CapacityChoice = build(CapacityChoice, given, "scenario.capacity")
        asked: dict[str, ProductChoice] = {
            name: build(ProductChoice, keys, f"scenario.capacity.products.{name}")
            for name, keys in choice.products.items()
        }
        if not asked:
            require(choice.path is None, "scenario.capacity.path", choice.path, "give products as well")
            return None
        most = {name: product.nodes for name, product in asked.items()}
        offers = {} if choice.path is None else read_offers(choice.path, most)
        left = {
            name: np.flatnonzero(cluster.node_type == at).tolist()
            for at, name in enumerate(cluster.gpu_types)
        }
        made = []
        for at, (name, product) in enumerate(asked.items()):
            where = f"scenario.capacity.products.{name}"
            gpu_type = product.gpu_type or cluster.gpu_types[0]
            require_known(gpu_type, list(left), "GPU type", f"{where}.gpu_type")
            own = left[gpu_type]
            remedy = f"cluster {cluster.name} has {len(own)} nodes of {gpu_type} left"
            require(product.nodes <= len(own), f"{where}.nodes", product.nodes, remedy)
            nodes, own[-product.nodes :] = tuple(own[-product.nodes :]), []
            rng = random_streams.CAPACITY_PRICES.generator(seed if choice.seed is None else choice.seed, at)
            prices, supply = offers.get(name) or (_draw(product, rng), ((0, product.nodes),))
            times = (ticks(product.lead_s), ticks(product.term_s or 0.0), ticks(product.notice_s))
            made.append(Product(name, nodes, *times, prices, supply))
        return cls(tuple(made), ticks(choice.billed_s))

    def start(self, run: DisturbedRun) -> ActiveCapacity:
        """Take the nodes that are rented out of use, until they are ordered."""
        return ActiveCapacity(self, run)


def _draw(product: ProductChoice, rng: np.random.Generator) -> Steps:
    process = product.process
    if process is None:
        return ((0, product.price),)
    hourly = np.empty(DRAWN_HOURS)
    keys = (process.wave, process.peak_h, process.keep, process.noise)
    draw_prices(rng, hourly, product.price, *keys, process.spell, process.begin, process.end)
    return tuple((hour * HOUR, price) for hour, price in enumerate(hourly.tolist()))


def read_offers(path: str | Path, most: Mapping[str, int]) -> dict[str, tuple[Steps, Steps]]:
    """Read the prices and numbers of nodes of products from a CSV file with the columns `COLUMNS`.

    Parameters
    ----------
    path : str or Path
        Rows in any order; each product that it has begins at time 0.
    most : mapping of str to int
        Nodes of each product.
    """
    from clustergym.common.columns import integers, numbers
    from clustergym.common.text_files import read_csv

    table = read_csv(Path(path), COLUMNS)
    rows = zip(
        numbers(table, "time_s", low=0.0).tolist(),
        table.columns["product"],
        numbers(table, "usd_per_gpu_hour", low=0.0).tolist(),
        integers(table, "nodes", low=0).tolist(),
        table.line,
        strict=True,
    )
    found: dict[str, dict[int, tuple[float, int]]] = {}
    for time_s, name, price, nodes, line in rows:
        if name not in most:
            remedy = nearest(name, list(most))
            raise InputError(f"no product {name!r}", file=path, line=line, field="product", remedy=remedy)
        if nodes > most[name]:
            message = f"{name} has {most[name]} nodes, not {nodes}"
            remedy = f"give at most {most[name]}, or more scenario.capacity.products.{name}.nodes"
            raise InputError(message, file=path, line=line, field="nodes", remedy=remedy)
        steps = found.setdefault(name, {})
        if steps.setdefault(ticks(time_s), (price, nodes)) != (price, nodes):
            message = f"{name} at {time_s:g} s stands twice with other figures"
            raise InputError(message, file=path, line=line, field="time_s", remedy="keep one row of it")
    for name, steps in found.items():
        if 0 not in steps:
            message = f"{name} has no row at time 0"
            raise InputError(message, file=path, field="time_s", remedy="say what it costs from the start")
    return {
        name: (
            tuple((tick, steps[tick][0]) for tick in sorted(steps)),
            tuple((tick, steps[tick][1]) for tick in sorted(steps)),
        )
        for name, steps in found.items()
    }


class CapacityPlan(NamedTuple):
    """What the targets of a decision come to.

    Attributes
    ----------
    targets : tuple of int
        Nodes of each product.
    order : tuple of int
        Nodes that are ordered; those of products without lead come at once.
    give_back : tuple of (int, int)
        (product, number of nodes) to be given back.
    """

    targets: tuple[int, ...]
    order: tuple[int, ...]
    give_back: tuple[tuple[int, int], ...]


class ActiveCapacity(ActiveDisturbance):
    """The rented nodes of one run: which are ordered, held, and about to go.

    All that is due at an instant happens after its other events (`serve`), product by product, node by
    node, so that both engines have one order of events.

    Attributes
    ----------
    product_of : dict of int to int
        Product of each node that is rented.
    """

    def __init__(self, plan: Capacity, run: DisturbedRun) -> None:
        self._plan, self._run = plan, run
        self.product_of = {node: at for at, one in enumerate(plan.products) for node in one.nodes}
        self._comes: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._going: dict[int, str] = {}
        for node in sorted(self.product_of):
            run.lose(node, END, "not rented")
        turns = {tick for one in plan.products for tick, _ in one.supply}
        turns |= {max(tick - one.notice, 0) for one in plan.products for tick, _ in one.supply}
        run.follow(iter(sorted(turns)))

    def withheld(self, until: float) -> Mapping[int, str]:
        """Return the nodes that are about to go, on which nothing may be launched."""
        return self._going

    def list_unrented(self) -> set[int]:
        """Return the nodes that come only if a policy orders them."""
        return self.product_of.keys() - self._ends.keys() - self._comes.keys()

    # What a policy sees and decides

    def view(self) -> CapacityView:
        """Return the products' state now, as policies see it."""
        now, products = self._run.now, self._plan.products
        return CapacityView(
            tuple(one.name for one in products),
            np.array([self._count(at, self._ends) for at in range(len(products))], dtype=np.int64),
            np.array([self._count(at, self._comes) for at in range(len(products))], dtype=np.int64),
            np.array([len(self._list_offered(at)) for at in range(len(products))], dtype=np.int64),
            np.array([find_value(one.prices, now) for one in products]),
            np.array([not one.lead for one in products]),
            np.array([not one.term for one in products]),
        )

    def _count(self, product: int, nodes: Collection[int]) -> int:
        return sum(self.product_of[node] == product and node not in self._going for node in nodes)

    def _list_offered(self, at: int) -> list[int]:
        """Return the nodes of a product that could be ordered now, ascending."""
        product, now = self._plan.products[at], self._run.now
        there = int(find_value(product.supply, now))
        # What is to be taken away within the notice is not offered any more.
        there = min([there, *(int(k) for tick, k in product.supply if now < tick <= now + product.notice)])
        taken = self._ends.keys() | self._comes.keys()
        return [node for node in product.nodes[:there] if node not in taken]

    def plan(self, targets: tuple[int, ...]) -> CapacityPlan:
        """Return what nodes to order and give back so that as many as the targets say are held or ordered.

        What has a term is never given back early; of what is offered no more than there is can be ordered.
        """
        order, back = list[int](), list[tuple[int, int]]()
        for at, target in enumerate(targets):
            more = target - self._count(at, self._ends) - self._count(at, self._comes)
            if more > 0:
                order += self._list_offered(at)[:more]
            elif more < 0 and not self._plan.products[at].term:
                back.append((at, min(-more, self._count(at, self._ends))))
        return CapacityPlan(targets, tuple(order), tuple(back))

    def list_gained(self, plan: CapacityPlan) -> list[int]:
        """Return the ordered nodes of a plan that come at once."""
        return [node for node in plan.order if not self._plan.products[self.product_of[node]].lead]

    def order(self, plan: CapacityPlan, kept_gpus: Mapping[int, int]) -> list[int]:
        """Order the nodes of a plan, and return those that are to go (`list_going`)."""
        now = self._run.now
        for node in plan.order:
            product = self._plan.products[self.product_of[node]]
            self._run.note(ORDER, node)
            self._comes[node] = now + product.lead
            if product.lead:
                self._run.follow(iter((now + product.lead,)))
            else:
                self._begin(node)
        going = self.list_going(plan, kept_gpus)
        self._going |= dict.fromkeys(going, "giving back")
        return going

    def list_going(self, plan: CapacityPlan, kept_gpus: Mapping[int, int]) -> list[int]:
        """Return the nodes to give back: those with the fewest GPUs that jobs keep, the last ones first."""
        found = list[int]()
        for at, number in plan.give_back:
            held = [n for n in self._ends if self.product_of[n] == at and n not in self._going]
            found += sorted(held, key=lambda node: (kept_gpus.get(node, 0), -node))[:number]
        return sorted(found)

    def release(self) -> None:
        """Give back the nodes chosen by `order`, on which no job is left."""
        for node in sorted(node for node, why in self._going.items() if why == "giving back"):
            self._end(node, "given back")

    # What happens by itself

    def serve(self) -> None:
        """Let the nodes go and come that are due, and give notice of those that are taken away soon."""
        now = self._run.now
        for node in sorted(node for node, end in self._ends.items() if end == now):
            # The term was known from the start: jobs save as for maintenance.
            self._run.clear((node,))
            self._end(node, "end of term")
        for at, product in enumerate(self._plan.products):
            if len(product.supply) > 1:
                self._take_away(at, product)
        for node in sorted(node for node, tick in self._comes.items() if tick == now):
            self._begin(node)

    def _take_away(self, at: int, product: Product) -> None:
        now, there = self._run.now, int(find_value(product.supply, self._run.now))
        soon = min([there, *(int(k) for tick, k in product.supply if now < tick <= now + product.notice)])
        for node in [n for n in product.nodes[soon:] if n in self._ends]:
            if node in product.nodes[:there]:
                if node not in self._going:
                    self._going[node] = "notice"
                    self._run.note(NOTICE, node)
                    self._run.decide_again()
                continue
            for row in self._run.list_jobs(node):
                if product.notice >= max(ticks(self._run.find_save_s(row)), 1):
                    self._run.save(row)
            self._end(node, f"node {node} taken away")

    def _begin(self, node: int) -> None:
        product = self._plan.products[self.product_of[node]]
        del self._comes[node]
        self._ends[node] = self._run.now + product.term if product.term else -1
        if product.term:
            self._run.follow(iter((self._ends[node],)))
        self._run.give_back(node, BEGIN)

    def _end(self, node: int, reason: str) -> None:
        del self._ends[node]
        self._going.pop(node, None)
        self._run.lose(node, END, reason)
