"""The log of a placer's answers in a run: record, write, read and replay it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from clustergym.cluster.allocation import AllocationError, Allocations, PartAllocations
from clustergym.cluster.parts import Place
from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.common.errors import InputError
from clustergym.results.decision_log import MOST_CHANGES, MOST_NAMES, shorten_error
from clustergym.scenario.policy import Infeasible, Placer, Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import DecisionTimes, drive
from clustergym.sim.engine import Simulation
from clustergym.sim.guard import StepWatchdog

LONGEST_REASON = 500
Run = tuple[int, int, int]
"""A run of adjacent nodes: first node, number of nodes, GPUs on each."""
Moves = tuple[tuple[int, tuple[Run, ...]], ...]
"""(row of a job, nodes proposed for it) of each proposed move."""


class PlacementError(InputError):
    """Raised if a logged answer of a placer is not legal at that point of the run."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a placer: a job's nodes, that there are none, or new nodes of running jobs.

    Attributes
    ----------
    time_s : float
    gpu_type, gpus : int
        The requested type and GPUs; -1 and 0 if moves were requested.
    nodes : tuple of Run
    infeasible : Infeasible or None
        The answer if the placer found no nodes.
    moves : Moves
        The answer if moves were requested.
    device : int
        On a divisible cluster, the device of a part of a GPU; -1: none.
    """

    time_s: float
    gpu_type: int = -1
    gpus: int = 0
    nodes: tuple[Run, ...] = ()
    infeasible: Infeasible | None = None
    moves: Moves = ()
    device: int = -1


@dataclass
class RecordingPlacer(Placer):
    """A placer that forwards requests to another placer and records the answers with their times.

    Attributes
    ----------
    answers : list of Answer
        All answers but those that propose no move.
    times : DecisionTimes
        Wall seconds of all answers.
    clock : callable
        Returns the simulated time, seconds.
    """

    name: ClassVar[str] = "recording"
    # What the inner placer can do, once there is one.
    places_evenly = places_segments = places_parts = False
    inner: Placer
    answers: list[Answer] = field(default_factory=list)
    times: DecisionTimes = field(default_factory=DecisionTimes)
    clock: Callable[[], float] = lambda: 0.0

    def __post_init__(self) -> None:
        self.defragment_s, self.places_evenly = self.inner.defragment_s, self.inner.places_evenly
        self.places_segments, self.places_parts = self.inner.places_segments, self.inner.places_parts
        self.name = self.inner.name  # type: ignore[misc]

    def reset(self, cluster: ClusterSpec, rng: np.random.Generator) -> None:
        """Prepare the inner placer for a new run."""
        self.inner.reset(cluster, rng)

    def place(self, allocations: Allocations, gpu_type: int, gpus: int) -> Nodes | Infeasible:
        """Ask the inner placer for nodes, and record and return its answer."""
        return self._answered(gpu_type, gpus, lambda: self.inner.place(allocations, gpu_type, gpus))

    def place_evenly(
        self, allocations: Allocations, gpu_type: int, gpus: int, nodes: int
    ) -> Nodes | Infeasible:
        """Ask the inner placer for nodes with equally many GPUs; record and return its answer."""
        return self._answered(
            gpu_type, gpus, lambda: self.inner.place_evenly(allocations, gpu_type, gpus, nodes)
        )

    def place_segments(
        self, allocations: Allocations, gpu_type: int, gpus: int, segment: int
    ) -> Nodes | Infeasible:
        """Ask for nodes with each `segment` GPUs in one NVLink domain; record and return the answer."""
        return self._answered(
            gpu_type, gpus, lambda: self.inner.place_segments(allocations, gpu_type, gpus, segment)
        )

    def _answered(
        self, gpu_type: int, gpus: int, place: Callable[[], Nodes | Infeasible]
    ) -> Nodes | Infeasible:
        before = time.perf_counter()
        found = place()
        self.times.add(time.perf_counter() - before)
        asked = self.clock(), int(gpu_type), int(gpus)
        if isinstance(found, Infeasible):
            self.answers.append(Answer(*asked, infeasible=found))
        else:
            self.answers.append(Answer(*asked, nodes=group_nodes(found)))
        return found

    def place_part(self, allocations: PartAllocations, job: int) -> Place | Infeasible:
        """Ask the inner placer for a node and GPU; record and return its answer."""
        before = time.perf_counter()
        found = self.inner.place_part(allocations, job)
        self.times.add(time.perf_counter() - before)
        gpus = allocations.count_gpus(job)
        if isinstance(found, Infeasible):
            self.answers.append(Answer(self.clock(), 0, gpus, infeasible=found))
        else:
            run = (int(found.node), 1, gpus)
            self.answers.append(Answer(self.clock(), 0, gpus, (run,), device=int(found.device)))
        return found

    def defragment(self, allocations: Allocations) -> list[tuple[int, Nodes]]:
        """Ask the inner placer to what nodes running jobs should move; record and return its answer."""
        before = time.perf_counter()
        found = self.inner.defragment(allocations)
        self.times.add(time.perf_counter() - before)
        if found:
            moves = tuple((int(row), group_nodes(nodes)) for row, nodes in found)
            self.answers.append(Answer(self.clock(), moves=moves))
        return found


@dataclass
class ReplayingPlacer(Placer):
    """A placer that repeats logged answers, and checks that the logged GPUs are free.

    Attributes
    ----------
    asked : int
        Number of requests so far.
    clock : callable
        Returns the simulated time, seconds.
    """

    name: ClassVar[str] = "replaying"
    # Whatever was asked for can stand in a log.
    places_evenly = places_segments = places_parts = True
    answers: Sequence[Answer] = ()
    defragment_s: float | None = None
    asked: int = 0
    clock: Callable[[], float] = lambda: 0.0
    _at: int = 0

    def place(self, allocations: Allocations, gpu_type: int, gpus: int, *_: int) -> Nodes | Infeasible:
        """Return the next logged placement, without choosing any nodes."""
        answer = self._answer(allocations, gpu_type, gpus)
        if answer.infeasible is not None:
            return answer.infeasible
        nodes = expand_runs(answer.nodes)
        self._check(allocations, nodes, {})
        return nodes

    place_evenly = place_segments = place  # type: ignore[assignment]

    def place_part(self, allocations: PartAllocations, job: int) -> Place | Infeasible:
        """Return the next logged placement, without choosing a node or GPU."""
        answer = self._answer(allocations, 0, allocations.count_gpus(job))
        if answer.infeasible is not None:
            return answer.infeasible
        place = Place(answer.nodes[0][0], answer.device)
        try:
            allocations.intend(job, place)
        except AllocationError as error:
            raise self._illegal(str(error)) from error
        return place

    def _answer(self, allocations: Allocations, gpu_type: int, gpus: int) -> Answer:
        self.asked += 1
        answer = self._next()
        # Compared with what is asked for, not only in order: a log of another run is found at its first
        # difference.
        if answer is None or (answer.time_s, answer.gpu_type, answer.gpus) != (self.clock(), gpu_type, gpus):
            name = allocations.spec.gpu_types[gpu_type]
            raise _make_diverged_error(
                self.clock(), f"{gpus} {name} are to be placed, which the log does not answer"
            )
        self._at += 1
        return answer

    def defragment(self, allocations: Allocations) -> list[tuple[int, Nodes]]:
        """Return the running jobs to move and their new nodes, as logged for this instant; can be empty."""
        self.asked += 1
        answer = self._next()
        if answer is None or not answer.moves or answer.time_s != self.clock():
            return []
        self._at += 1
        if isinstance(allocations, PartAllocations):
            raise self._illegal("nothing moves on nodes that can be divided")
        found = [(row, expand_runs(runs)) for row, runs in answer.moves]
        for row, nodes in found:
            held = dict(allocations.holding(row))
            if sum(held.values()) != sum(count for _, count in nodes):
                raise self._illegal(f"job {row} is to move to another number of GPUs than it holds")
            if allocations.spec.node_type[next(iter(held))] != allocations.spec.node_type[nodes[0][0]]:
                raise self._illegal(f"job {row} is to move to GPUs of another type")
            self._check(allocations, nodes, held)
        return found

    def finish(self) -> None:
        """Raise an `InputError` if logged answers are left that nobody asked for."""
        answer = self._next()
        if answer is not None:
            raise _make_diverged_error(answer.time_s, "the log answers what was never asked")

    def _next(self) -> Answer | None:
        return self.answers[self._at] if self._at < len(self.answers) else None

    def _check(self, allocations: Allocations, nodes: Nodes, held: Mapping[int, int]) -> None:
        """Check that the GPUs are free; skip failed nodes, for which the engine rejects the answer."""
        for node, count in nodes:
            free = int(allocations.free_on_node[node]) + held.get(node, 0)
            if count > free and node not in allocations.down:
                raise self._illegal(f"{count} GPUs on node {node}, of which {free} are free")

    def _illegal(self, message: str) -> PlacementError:
        return PlacementError(f"at {self.clock()} s: {message}", field="placements", remedy="it was edited")


def _make_diverged_error(time_s: float, message: str) -> InputError:
    remedy = "the log is of another scenario, version or seed, or was edited"
    return InputError(f"at {time_s} s: {message}", field="placements", remedy=remedy)


def group_nodes(nodes: Nodes) -> tuple[Run, ...]:
    """Compress an allocation: group adjacent nodes with equal numbers of GPUs into runs of nodes."""
    runs: list[list[int]] = []
    for node, gpus in nodes:
        if runs and node == runs[-1][0] + runs[-1][1] and gpus == runs[-1][2]:
            runs[-1][1] += 1
        else:
            runs.append([int(node), 1, int(gpus)])
    return tuple((first, number, gpus) for first, number, gpus in runs)


def expand_runs(runs: Sequence[Run]) -> Nodes:
    """Return the nodes, with the GPUs on each, of runs of adjacent nodes."""
    return tuple((first + place, gpus) for first, number, gpus in runs for place in range(number))


def simulate_recorded(
    scenario: Scenario, policy: Policy, placer: Placer, seed: int, watch: StepWatchdog | None = None
) -> tuple[Any, RecordingPlacer]:
    """Run a policy and record its placer's answers; return the run and the recording placer."""
    recording = RecordingPlacer(placer)
    simulation = Simulation(scenario, recording, policy.information_class, policy.round_s, seed)
    recording.clock = lambda: simulation.now_s
    return drive(simulation, policy, seed, watch=watch), recording


def answer_lines(scenario: Scenario, answers: Sequence[Answer]) -> Iterator[dict[str, Any]]:
    """Yield one JSON object for each answer of a placer."""
    for answer in answers:
        if answer.moves:
            moves = [[scenario.trace.job_id[row], runs] for row, runs in answer.moves]
            yield {"time_s": answer.time_s, "move": moves}
            continue
        line = {
            "time_s": answer.time_s,
            "gpu_type": scenario.cluster.gpu_types[answer.gpu_type],
            "gpus": answer.gpus,
        }
        short = answer.infeasible
        if short is None:
            yield {**line, "nodes": answer.nodes} | ({} if answer.device < 0 else {"device": answer.device})
        else:
            yield {**line, "infeasible": [short.reason, short.gpus_short, short.nodes_short]}


def parse_answers(
    path: Path, scenario: Scenario, lines: Iterable[tuple[int, dict[str, Any]]]
) -> list[Answer]:
    """Parse a placer's answers from numbered lines of a log; raises those of `read_schedule`."""
    reader, answers, last_s, named = _PlacementReader(scenario), list[Answer](), -math.inf, 0
    for number, entry in lines:
        try:
            answer = reader.answer(entry)
            if answer.time_s < last_s:
                raise ValueError(f"{answer.time_s} s is before the answer above")
            named += len(answer.nodes) + sum(1 + len(runs) for _, runs in answer.moves)
            if len(answers) == MOST_CHANGES or named > MOST_NAMES:
                raise ValueError(f"more than {MOST_CHANGES:,} answers, or {MOST_NAMES:,} jobs and nodes")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            remedy = "the log is of another scenario, or was edited"
            message = f"is not a placement of this scenario: {shorten_error(error)}"
            raise InputError(message, file=path, line=number, remedy=remedy) from error
        answers.append(answer)
        last_s = answer.time_s
    return answers


class _PlacementReader:
    """Parses the answers in a placement log of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.spec = scenario.cluster
        self.rows = {name: row for row, name in enumerate(scenario.trace.job_id)}
        self.gpu_types = {name: gpu_type for gpu_type, name in enumerate(scenario.cluster.gpu_types)}

    def answer(self, entry: Mapping[str, Any]) -> Answer:
        """Parse one logged answer; raises KeyError, TypeError or ValueError if it is not valid."""
        keys, time_s = entry.keys() - {"time_s"}, entry["time_s"]
        if type(time_s) not in (int, float) or not 0 <= time_s < math.inf:
            raise ValueError(f"{time_s!r} is not a time")
        if keys == {"move"}:
            return Answer(float(time_s), moves=self._moves(entry["move"]))
        device = entry.get("device", -1)
        if keys - {"device"} not in ({"gpu_type", "gpus", "nodes"}, {"gpu_type", "gpus", "infeasible"}):
            raise ValueError(f"keys {sorted(keys)[:4]}")
        gpu_type, gpus = self.gpu_types[entry["gpu_type"]], entry["gpus"]
        if not _whole(gpus, 1):
            raise ValueError(f"{gpus!r} is not a number of GPUs")
        if "infeasible" in entry:
            return Answer(float(time_s), gpu_type, gpus, infeasible=_infeasible(entry["infeasible"]))
        nodes = self._runs(entry["nodes"])
        if sum(number * each for _, number, each in nodes) != gpus:
            raise ValueError(f"its nodes have not {gpus} GPUs")
        if self.spec.node_type[nodes[0][0]] != gpu_type:
            raise ValueError(f"node {nodes[0][0]} is of another GPU type")
        if device != -1 and not _whole(device, 0):
            raise ValueError(f"{device!r} is not a device")
        return Answer(float(time_s), gpu_type, gpus, nodes, device=device)

    def _moves(self, value: Any) -> Moves:
        if not isinstance(value, list) or not value:
            raise TypeError("moves are not a list")
        return tuple((self.rows[job], self._runs(runs)) for job, runs in value)

    def _runs(self, value: Any) -> tuple[Run, ...]:
        """Parse ascending runs of nodes of one GPU type."""
        if not isinstance(value, list) or not value:
            raise TypeError("nodes are not a list")
        runs, types = [(first, number, each) for first, number, each in value], self.spec.node_type
        for first, number, each in runs:
            inside = _whole(first, 0) and _whole(number, 1) and first + number <= len(types)
            if not inside or not _whole(each, 1):
                raise ValueError(f"{[first, number, each]!r} are not nodes of this cluster")
            if len(self.gpu_types) > 1 and (types[first : first + number] != types[runs[0][0]]).any():
                raise ValueError(f"{[first, number, each]!r} are of another GPU type than the first")
        if any(first + number > after[0] for (first, number, _), after in pairwise(runs)):
            raise ValueError("nodes are named twice or out of order")
        return tuple(runs)


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 2**31


def _infeasible(value: Any) -> Infeasible:
    reason, gpus, nodes = value
    plain = isinstance(reason, str) and len(reason) <= LONGEST_REASON and reason.isprintable()
    if not plain or not _whole(gpus, 0) or not _whole(nodes, 0):
        raise ValueError("is not a reason why nothing was placed")
    return Infeasible(reason, gpus, nodes)
