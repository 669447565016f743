"""What placers of shares allocate on streams that the learned one was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from clustergym.papers.filling import fill
from clustergym.papers.openb import read_source

from clustergym.cluster.parts import WHOLE
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.tables import table
from clustergym.envs.sharing.episode import CLASSES, USED, play, start_episode
from clustergym.envs.sharing.streams import Stream, draw_stream, generate_source
from clustergym.results.metrics.statistics import estimate
from clustergym.sim.parts.placers import PLACERS
from clustergym.training.placer_checkpoints import SHARES
from clustergym.training.sharing_evolution import list_seeds

SCHEMA = "clustergym.bench.sharing/1"
REFERENCE, LEARNED = "fgd", "learned"
LOAD = 1.3
"""GPUs that a stream asks for, over those installed: FGD's."""
COLUMNS = ("allocated_pct", "rejected_pct", "fragments_pct")


@dataclass(frozen=True)
class SharingOptions:
    """What is compared.

    Attributes
    ----------
    nodes, streams : int
        Of generated streams: nodes of the cluster, and the number of test seeds.
    data : Path or None
        A folder laid out as openb: its published orders, instead.
    workloads : sequence of str
        Lists of requests there.
    checkpoint : str
    """

    nodes: int
    streams: int
    data: Path | None
    workloads: Sequence[str]
    checkpoint: str


class Outcome(NamedTuple):
    """What is left when a stream has come, in % of the installed GPUs, and of the requests.

    `arrived` and `rejected` are numbers of requests by class, shape (CLASSES,).
    """

    allocated_pct: float
    rejected_pct: float
    fragments_pct: float
    arrived: Ints
    rejected: Ints


def comparison(options: SharingOptions, say: Callable[[str], None]) -> dict[str, Any]:
    """Return all figures as plain values; `say` is told each group of streams when it is done."""
    checkpoint = SHARES.load(options.checkpoint)
    groups = []
    for name, seeds, streams in _groups(options):
        found: dict[str, list[Outcome]] = {placer: [] for placer in (*PLACERS, LEARNED)}
        for seed, stream in zip(seeds, streams, strict=True):
            for placer in PLACERS:
                found[placer].append(_filled(stream, placer, seed))
            found[LEARNED].append(_learned(stream, checkpoint.weights))
        groups.append(_group(name, list(seeds), found))
        say(name)
    head = {"schema": SCHEMA, "checkpoint": options.checkpoint, "sha256": checkpoint.sha256}
    return head | {"reference": REFERENCE, "groups": groups}


def _groups(options: SharingOptions) -> Iterator[tuple[str, Sequence[int], Iterator[Stream]]]:
    """Yield the name, the seeds and the streams of each group."""
    if options.data is None:
        source, seeds = generate_source(options.nodes), list_seeds("test", 0, options.streams)
        streams = (
            draw_stream(source, LOAD, random_streams.SHARING_REQUESTS.generator(seed)) for seed in seeds
        )
        yield f"{options.nodes:,} nodes", seeds, streams
        return
    for workload in options.workloads:
        source, orders = read_source(options.data, workload)
        if not orders:
            path = options.data / "orders" / f"{workload}.npz"
            raise InputError("is missing", file=path, remedy="give --workloads that have an order file")
        streams = (
            Stream(
                source.nodes.with_ranks(order.node_rank),
                source.requests,
                source.request[order.arrivals],
                source.usual,
            )
            for order in orders.values()
        )
        yield workload, list(orders), streams


def _filled(stream: Stream, placer: str, seed: int) -> Outcome:
    filling = fill(stream.nodes.copy(), stream.requests, stream.arrivals, stream.usual, placer, seed)
    return _outcome(stream, int(filling.used_milli[-1]), filling.node, float(filling.fragments_milli[-1]))


def _learned(stream: Stream, weights: Floats) -> Outcome:
    episode = start_episode(stream)
    play(episode, weights)
    return _outcome(stream, int(episode.counts[USED]), episode.node, float(episode.fragments.sum()))


def _outcome(stream: Stream, used: int, node: Ints, fragments: float) -> Outcome:
    requests, installed = stream.requests, stream.nodes.installed_milli
    one = np.where(requests.gpu_milli < WHOLE, 1, 2)
    of_class = np.where(requests.gpus == 0, 0, np.where(requests.gpus == 1, one, 3))[stream.arrivals]
    arrived, rejected = (
        np.bincount(of_class[rows], minlength=len(CLASSES)) for rows in (slice(None), node < 0)
    )
    share = 100 * int(rejected.sum()) / len(node)
    return Outcome(100 * used / installed, share, 100 * fragments / installed, arrived, rejected)


def _group(name: str, seeds: list[int], found: dict[str, list[Outcome]]) -> dict[str, Any]:
    against = np.array([outcome.allocated_pct for outcome in found[REFERENCE]])
    rows = []
    for placer, outcomes in found.items():
        columns = np.array([outcome[:3] for outcome in outcomes])
        arrived = np.sum([outcome.arrived for outcome in outcomes], axis=0).tolist()
        rejected = np.sum([outcome.rejected for outcome in outcomes], axis=0).tolist()
        of_class = dict(zip(CLASSES, zip(rejected, arrived, strict=True), strict=True))
        paired = estimate((columns[:, 0] - against).tolist())
        rows.append(
            {"placer": placer}
            | dict(zip(COLUMNS, columns.mean(axis=0).tolist(), strict=True))
            | {"difference": list(paired[:3]), "allocated_by_seed": columns[:, 0].tolist()}
            | {"rejected_by_class_pct": {name: 100 * r / n for name, (r, n) in of_class.items() if n}}
        )
    return {"name": name, "seeds": seeds, "rows": rows}


def report(figures: dict[str, Any]) -> str:
    """Return the table of each group in Markdown."""
    heads = ("placer", "allocated", f"more than {REFERENCE}", "95 % interval", "rejected", "fragments")
    parts = []
    for group in figures["groups"]:
        rows = []
        for row in group["rows"]:
            mean, low, high = row["difference"]
            cells = [f"{row[column]:.2f} %" for column in COLUMNS]
            own = ("", "") if row["placer"] == REFERENCE else (f"{mean:+.2f}", f"{low:+.2f} to {high:+.2f}")
            rows.append((row["placer"], cells[0], *own, *cells[1:]))
        parts.append(f"{group['name']}, {len(group['seeds'])} streams\n\n{table(heads, rows)}\n")
    return "\n".join(parts)
