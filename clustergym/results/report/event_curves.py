"""Read from an event log what a report draws: GPUs held, nodes out of use, jobs slowed by others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.cluster.parts import WHOLE
from clustergym.common.errors import InputError
from clustergym.common.reading import read_json_lines
from clustergym.results.columns import check_lines
from clustergym.results.report.series import REMEDY
from clustergym.scenario.disturbances import DISTURBANCES

LARGEST_FILE_BYTES, LONGEST_LINE_BYTES, MOST_EVENTS = 2**30, 4_000_000, 3_000_000
MOST_GPUS, LONGEST_S = 1_000_000, 1e15
LAUNCHES = ("start", "resume", "rescale", "migrate")
SAVES = "save"
LEAVES = ("preempt", "fail", "complete", "drop")
BEGINS = {end: begin for disturbance in DISTURBANCES.values() for begin, end in disturbance.outages}
"""For each event that gives a node back, the event that took it out of use."""
OF_NODES, OF_GPUS, OF_PACE = (*BEGINS, *BEGINS.values()), (*LAUNCHES, *LEAVES), (*LAUNCHES, *LEAVES, "rate")
SLOWED = 1e-6
"""Least relative increase of an iteration's time that counts: times are rounded to six digits."""


class Holding(NamedTuple):
    """GPUs that a job held on some nodes in one interval of time.

    Attributes
    ----------
    job : str
    action : str
        The type of launch that began it, `save` once the job was given notice, or `profile`.
    gpu_type : str
    gpus : int
    start_s, end_s : float
    overhead_s : float
        Seconds without work at its beginning; at most its length.
    nodes : tuple of (int, int)
        (node, GPUs on it).
    beside : str
        The job that shares its GPUs all the while; empty: none.
    goes_on : bool
        Whether it follows on one of the same job on the same GPUs, which ended as the partner changed.
    devices : tuple of int or None
        The devices of its node, on divisible nodes.
    gpu_milli : int
        Thousandths that it has of each device.
    """

    job: str
    action: str
    gpu_type: str
    gpus: int
    start_s: float
    end_s: float
    overhead_s: float
    nodes: tuple[tuple[int, int], ...]
    beside: str = ""
    goes_on: bool = False
    devices: tuple[int, ...] | None = None
    gpu_milli: int = WHOLE

    @property
    def share(self) -> float:
        """The share of each held GPU that the job is charged for: 1, or less if the GPU is shared."""
        return 0.5 if self.beside else self.gpu_milli / WHOLE


class Outage(NamedTuple):
    """An interval in which a node was out of use."""

    node: int
    start_s: float
    end_s: float


class Pace(NamedTuple):
    """From a time on, the number of running jobs, and of those slowed by sharing network links."""

    time_s: float
    running: int
    slowed: int


@dataclass
class RunLog:
    """What a report shows of a run's event log: held GPUs, outages and slowdowns over time.

    Attributes
    ----------
    held : list of Holding
        Sorted by start.
    outages : list of Outage
    paces : list of Pace
        One for each time at which its figures change.
    """

    held: list[Holding] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)


def read_log(path: Path, end_s: float) -> RunLog:
    """Read from an event log the intervals in which GPUs were held, nodes were out and jobs were slowed.

    Parameters
    ----------
    path : Path
        events.jsonl.gz.
    end_s : float
        The time at which open holdings and outages end.
    """
    check_lines(path)
    reader = _Reader(end_s)
    lines = read_json_lines(
        path, largest_bytes=LARGEST_FILE_BYTES, longest_line_bytes=LONGEST_LINE_BYTES, remedy=REMEDY
    )
    for number, event in lines:
        try:
            if number > MOST_EVENTS:
                raise ValueError(f"more than {MOST_EVENTS:,} events")
            reader.follow(event)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            message = f"is not an event of a run: {error!r}"
            raise InputError(message, file=path, line=number, remedy=REMEDY) from None
    return reader.finish_log(end_s)


def collect_log(events: Iterable[dict[str, Any]], end_s: float) -> RunLog:
    """Collect from events the intervals in which GPUs were held, nodes were out and jobs were slowed."""
    reader = _Reader(end_s)
    for event in events:
        reader.follow(event)
    return reader.finish_log(end_s)


class _Reader:
    """A reader that follows the events of a run and collects its log."""

    def __init__(self, end_s: float) -> None:
        self._end_s, self._now_s = end_s, 0.0
        self._log = RunLog()
        self._open: dict[tuple[str, str], Holding] = {}
        self._down: dict[tuple[str, int], float] = {}
        self._alone_s: dict[str, float] = {}
        self._apply_slowdown: set[str] = set()

    def follow(self, event: dict[str, Any]) -> None:
        event_type, time_s = event["kind"], _number(event, "time_s", self._end_s)
        if time_s < self._now_s:
            raise ValueError(f"time_s goes back from {self._now_s} to {time_s}")
        self._now_s = time_s
        if not isinstance(event.get("job_id", ""), str):
            raise TypeError("job_id is not text")
        if event_type in OF_NODES:
            self._node(event_type, [node for node, _ in _nodes(event)], time_s)
        elif event_type in OF_GPUS:
            self._hold((event["job_id"], ""), event, event_type in LAUNCHES)
        elif event_type in ("profile_start", "profile_end"):
            self._hold((event["job_id"], event["gpu_type"]), event, event_type == "profile_start")
        elif event_type == SAVES:
            self._save(event["job_id"], _number(event, "overhead_s", LONGEST_S, 0.0), time_s)
        elif event_type == "rate":
            self._partner(event["job_id"], str(event.get("beside", "")), time_s)
        if event_type in OF_PACE:
            self._pace(event["job_id"], event)

    def _hold(self, key: tuple[str, str], event: dict[str, Any], holds: bool) -> None:
        event_type, time_s = event["kind"], float(event["time_s"])
        if key in self._open:
            self._log.held.append(_cut_holding(self._open.pop(key), time_s))
        if holds:
            self._open[key] = Holding(
                str(key[0]),
                "profile" if event_type == "profile_start" else event_type,
                str(event["gpu_type"]),
                int(_number(event, "gpus", MOST_GPUS)),
                time_s,
                time_s,
                _number(event, "overhead_s", LONGEST_S, 0.0),
                _nodes(event),
                str(event.get("beside", "")),
                devices=_devices(event),
                gpu_milli=int(_number(event, "gpu_milli", WHOLE, WHOLE)),
            )

    def _save(self, job: str, takes_s: float, time_s: float) -> None:
        """Let a job that was given notice hold its GPUs without work from now on."""
        held = self._open.get((job, ""))
        if held is not None:
            self._log.held.append(_cut_holding(held, time_s))
            self._open[job, ""] = held._replace(
                action=SAVES, start_s=time_s, end_s=time_s, overhead_s=takes_s, goes_on=True
            )

    def _partner(self, job: str, beside: str, time_s: float) -> None:
        """Let a job hold its GPUs beside another job from now on, or alone."""
        held = self._open.get((job, ""))
        if held is None or held.beside == beside:
            return
        following = held._replace(beside=beside)
        if time_s > held.start_s:
            ended = _cut_holding(held, time_s)
            self._log.held.append(ended)
            left_s = held.overhead_s - ended.overhead_s
            following = following._replace(start_s=time_s, overhead_s=left_s, goes_on=True)
        self._open[job, ""] = following

    def _node(self, event_type: str, nodes: Sequence[int], time_s: float) -> None:
        for node in nodes:
            if event_type not in BEGINS:
                self._down.setdefault((event_type, node), time_s)
            elif (start_s := self._down.pop((BEGINS[event_type], node), None)) is not None:
                self._log.outages.append(Outage(node, start_s, time_s))

    def _pace(self, job: str, event: dict[str, Any]) -> None:
        """Record a job's speed: a launch has the speed on free links, a `rate` that beside other jobs."""
        if event["kind"] in LEAVES:
            self._alone_s.pop(job, None)
        elif event["kind"] in LAUNCHES:
            self._alone_s[job] = _number(event, "iteration_time_s", LONGEST_S, 0.0)
        now_s = _number(event, "iteration_time_s", LONGEST_S, 0.0)
        slow = job in self._alone_s and now_s > self._alone_s[job] * (1 + SLOWED)
        (self._apply_slowdown.add if slow else self._apply_slowdown.discard)(job)
        pace = Pace(float(event["time_s"]), len(self._alone_s), len(self._apply_slowdown))
        paces = self._log.paces
        if paces and paces[-1].time_s == pace.time_s:
            paces[-1] = pace
        elif not paces or paces[-1][1:] != pace[1:]:
            paces.append(pace)

    def finish_log(self, end_s: float) -> RunLog:
        log = self._log
        log.held += [_cut_holding(held, end_s) for held in self._open.values()]
        log.held.sort(key=lambda held: (held.start_s, held.job, held.gpu_type))
        log.outages += [Outage(node, start_s, end_s) for (_, node), start_s in self._down.items()]
        log.outages.sort()
        return log


def _number(event: dict[str, Any], key: str, most: float, default: float | None = None) -> float:
    """Return an event's number, checked to be from 0 to `most`; raise KeyError or ValueError otherwise."""
    value = event[key] if default is None else event.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{key} is {value!r}, no number from 0 to {most:g}")
    return float(value)


def _nodes(event: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    nodes = tuple((node, gpus) for node, gpus in event["nodes"])
    if not all(type(number) is int and 0 <= number <= MOST_GPUS for pair in nodes for number in pair):
        raise ValueError("nodes are not a list of [node, GPUs]")
    return nodes


def _devices(event: dict[str, Any]) -> tuple[int, ...] | None:
    if "devices" not in event:
        return None
    devices = tuple(event["devices"])
    if not all(type(device) is int and 0 <= device <= MOST_GPUS for device in devices):
        raise ValueError("devices are not a list of numbers")
    return devices


def _cut_holding(held: Holding, end_s: float) -> Holding:
    if end_s < held.start_s:
        raise ValueError(f"time goes back to {end_s}")
    return held._replace(end_s=end_s, overhead_s=min(held.overhead_s, end_s - held.start_s))


def overhead_gpu_h(held: list[Holding]) -> dict[str, float]:
    """Return GPU-hours held without work, by cause: start, resume, rescale, migrate or save a checkpoint."""
    found = dict.fromkeys((*LAUNCHES, SAVES), 0.0)
    for holding in held:
        if holding.action in found:
            found[holding.action] += holding.overhead_s * holding.gpus * holding.share / 3600
    return found
