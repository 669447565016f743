"""The simulation once more, plainly: a heap of events, no SimPy, nothing of `clustergym.sim`.

Covers: decision points at events and in rounds, horizon, GPU types, nodes and localities, launch, rescale,
preemption, drops; checkpoints, searches, first launches; profiles with every price and both ways of sharing
them; failures with checkpoints while working; stops that lose work, notice, jobs that are given nodes;
planned jobs with draining and estimates. Nodes are given out lowest first. Leaves out: shared links, a choice
of batch, defragmentation, and what comes first within a microsecond in which a node fails. Progress is
computed by the same operations in the same order as in the engine, so that half a microsecond is rounded
alike.
"""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from plain_parts import SECOND, Allotment, Job, PlannedJobs, Profile, Profiles
from scenarios import failures_of, planned_of

from clustergym.scenario.disturbances.checkpoints import Checkpoints
from clustergym.scenario.disturbances.failures import Failures


class Seen(NamedTuple):
    """What a rule sees of a job."""

    row: int
    left: float
    request: Allotment
    held: Allotment | None
    options: list[Allotment]
    nodes: dict[int, int]


Rule = Callable[[int, list[int], list[Seen]], tuple[Any, ...]]
"""(Tick, GPUs available of each type, jobs) -> the target, who is dropped, and where stops lose work who is
given notice, and the nodes that some are given."""


class PlainSimulation(PlannedJobs, Profiles):
    """A run of a rule on a scenario.

    Attributes
    ----------
    log : list of tuple
        (tick, kind, job, GPU type, GPUs, nodes) of every event.
    ended : dict of int to int
        Tick at which each job completed.
    """

    def __init__(self, scenario: Any, information: str, rule: Rule) -> None:
        self.s, self.rule, self.information = scenario, rule, information
        self.jobs = [Job(float(n), written=float(n)) for n in scenario.trace.iterations]
        self.price = scenario.costs.profile.get(information)
        self.known_s = scenario.known_times("clairvoyant" if information == "none" else information)
        self.node_type = scenario.cluster.node_type.tolist()
        self.free = scenario.cluster.node_gpus.tolist()
        self.size = list(self.free)
        self.down: set[int] = set()
        self.holders: list[Job | Profile] = []
        self.known: set[tuple[int, int]] = set()
        self.begun: dict[tuple[int, int], Profile] = {}
        self.waiting: list[deque[Profile]] = [deque() for _ in scenario.cluster.gpu_types]
        self.start = {one.job: round(one.start_s * SECOND) for one in planned_of(scenario)}
        self.kept: dict[int, list[int]] = {}
        self.due: set[int] = set()
        kept = [d for d in scenario.disturbances if isinstance(d, Checkpoints)]
        self.loses, asked = bool(kept), [one.every_s for one in kept]
        asked += [d.checkpoint_every_s for d in scenario.disturbances if isinstance(d, Failures)]
        self.every = round(min(asked, default=0) * SECOND)
        self.log: list[tuple[Any, ...]] = []
        self.ended: dict[int, int] = {}
        self.now, self.record_decision, self.wanted = 0, -1, False
        self.round = None if scenario.rounds == "event" else round(scenario.rounds * SECOND)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        for row, submit_s in enumerate(scenario.trace.submit_s.tolist()):
            self.at(round(submit_s * SECOND), lambda row=row: self.submit(row))
        for one in planned_of(scenario):
            begin = max(self.start[one.job] - round(one.lead_s * SECOND), 0)
            self.at(begin, lambda row=one.job: self.drain(row))
        for one in failures_of(scenario).schedule:
            repair = max(round(one.repair_s * SECOND), 1)
            self.at(round(one.time_s * SECOND), lambda n=one.node, r=repair: self.fail_node(n, r))

    def at(self, tick: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (tick, next(self._count), action))

    def note(
        self, kind: str, row: int, allotment: Allotment = (-1, 0), nodes: dict[int, int] | None = None
    ) -> None:
        self.log.append((self.now, kind, row, *allotment, tuple(sorted((nodes or {}).items()))))

    def run(self) -> None:
        """Run to the end, to the horizon, or until nothing can happen any more."""
        horizon = math.inf if self.s.horizon_s is None else round(self.s.horizon_s * SECOND)
        while any(job.phase not in ("completed", "dropped") for job in self.jobs) and self._heap:
            if self._heap[0][0] > horizon:
                return
            self.now = self._heap[0][0]
            while self._heap and self._heap[0][0] == self.now:
                heapq.heappop(self._heap)[2]()
            self.serve_planned()
            due = self.wanted
            if self.round is not None:
                due = self.now % self.round == 0 and self.now > self.record_decision
            if not (due and any(self.jobs[row].phase == "queued" for row in self.view())):
                self.start_profiles()
            if due and self.now < horizon:
                self.wanted = False
                if self.record_decision == self.now:
                    self.at(self.now + 1, self.want)
                elif self.view():
                    self.decide()
            if self.round is not None and self.view():
                self.at((self.now // self.round + 1) * self.round, lambda: None)

    def view(self) -> list[int]:
        """Return the jobs that a rule sees."""
        return [
            r for r, job in enumerate(self.jobs) if job.phase in ("queued", "running") and r not in self.start
        ]

    # Decisions

    def want(self) -> None:
        self.wanted = True

    def decide(self) -> None:
        self.record_decision = self.now
        out = [0] * len(self.waiting)
        for node in self.down:
            out[self.node_type[node]] += self.size[node]
        for one in self.holders:
            if isinstance(one, Profile):
                out[one.kind] += self.price.gpus
            elif self.jobs.index(one) in self.start or one.phase == "saving":
                out[one.held[0]] += one.held[1]
        available = [int(c) - o for c, o in zip(self.s.cluster.capacity, out, strict=True)]
        answer = self.rule(self.now, available, [self.seen(row) for row in self.view()])
        target, drops, notices, nodes = (*answer, set(), {})[:4]
        for row in sorted(drops):
            self.drop(row)
        seen = self.view()
        for row in seen:
            if self.jobs[row].held and row not in target:
                self.stop_or_save(row, row in notices)
        self.launch_changed(seen, target, notices, nodes)
        self.wanted = False
        self.start_profiles()

    def launch_changed(
        self,
        seen: list[int],
        target: dict[int, Allotment],
        notices: set[int],
        nodes: dict[int, dict[int, int]],
    ) -> None:
        changed = [row for row in seen if row in target and target[row] != self.jobs[row].held]
        changed += [row for row in nodes if row not in changed and nodes[row] != self.jobs[row].nodes]
        ran = {row: self.jobs[row].held for row in changed if self.jobs[row].held}
        for row in ran:
            if row not in notices:
                self.undo(row)
            self.stop(row)
        for row in sorted(changed, key=lambda row: (row not in nodes, -target[row][1], row)):
            what = "" if row not in ran else "migrate" if ran[row] == target[row] else "rescale"
            saves_s = self.save_s(row) if row in notices and row in ran else 0.0
            self.launch(row, target[row], what, to=nodes.get(row), saves_s=saves_s)

    def seen(self, row: int) -> Seen:
        job, counts = self.jobs[row], self.s.tables.counts.tolist()
        fits = self.s.feasible[self.s.class_of[row]]
        options = [
            (kind, gpus)
            for kind in range(len(self.waiting))
            for level, gpus in enumerate(counts)
            if fits[kind, level] and (self.price is None or (self.unit(row), kind) in self.known)
        ]
        request = int(self.s.request_type[row]), int(self.s.request_gpus[row])
        return Seen(row, self.left(job), request, job.held, options, dict(job.nodes) if job.held else {})

    # Jobs

    def submit(self, row: int) -> None:
        self.note("submit", row)
        if not self.s.request_gpus[row]:
            self.leave(row, "dropped")
            self.note("drop", row)
            return
        asks = self.price is not None and row not in self.start
        self.jobs[row].phase = "queued"
        if asks:
            self.ask(row)
        if asks and not any((self.unit(row), kind) in self.known for kind in range(len(self.waiting))):
            self.jobs[row].phase = "profiling"
        else:
            self.wanted |= row not in self.start

    def left(self, job: Job, tick: int | None = None) -> float:
        now = self.now if tick is None else tick
        return job.left - max(now - job.works_from, 0) / (job.pace_s * SECOND) if job.held else job.left

    def save_s(self, row: int) -> float:
        return float(self.s.checkpoint_s[self.s.class_of[row]]) / 2

    def written(self, job: Job) -> float:
        """Return the iterations a job had left at its last checkpoint."""
        worked = max(self.now - job.works_from, 0)
        if self.every and worked >= self.every:
            return self.left(job, self.now - worked % self.every)
        return job.written

    def undo(self, row: int) -> None:
        """Let a job that is about to stop go back to its last checkpoint, where stops lose work."""
        if self.loses:
            self.note("undo", row, self.jobs[row].held)
            self.jobs[row].back_to = self.written(self.jobs[row])

    def stop_or_save(self, row: int, notice: bool) -> None:
        if notice:
            self.save(row)
            return
        self.undo(row)
        self.preempt(row)

    def save(self, row: int) -> None:
        """Let a job save, and stop it then."""
        job, takes = self.jobs[row], round(self.save_s(row) * SECOND)
        job.written, job.left = self.written(job), self.left(job)
        job.works_from, job.launches = max(job.works_from, self.now + takes), job.launches + 1
        job.phase, launches = "saving", job.launches
        self.note("save", row, job.held)
        self.at(
            self.now + takes, lambda: self.preempt(row) if job.launches == launches and job.held else None
        )

    def launch(
        self,
        row: int,
        allotment: Allotment,
        what: str,
        on: dict[int, int] | None = None,
        to: dict[int, int] | None = None,
        saves_s: float = 0.0,
    ) -> None:
        job, costs, (kind, gpus) = self.jobs[row], self.s.costs, allotment
        stands_s = 0.0
        if allotment not in job.searched and costs.search in costs.search_s_max:
            stands_s = min(costs.search_s_per_gpu[costs.search] * gpus, costs.search_s_max[costs.search])
        if job.launched or costs.first_launch:
            stands_s += float(self.s.checkpoint_s[self.s.class_of[row]]) / (2 if self.loses else 1)
        stands = round((stands_s + saves_s) * SECOND)
        nodes = on or self.place(kind, gpus, self.estimated_end(row, allotment, stands), to)
        if nodes is None:
            self.note("unplaced", row, allotment)
            if what:
                self.requeue(row, "preempt")
            return
        self.take(job, nodes)
        tier = self.s.execution[self.s.class_of[row], kind, self.s.tables.counts.tolist().index(gpus)]
        job.pace_s = float(tier[self.locality(nodes)])
        self.note(what or ("resume" if job.launched else "start"), row, allotment, nodes)
        job.phase, job.held, job.launched, job.written = "running", allotment, True, job.left
        job.searched.add(allotment)
        job.works_from, job.launches = self.now + stands, job.launches + 1
        end, launches = job.works_from + round(job.left * job.pace_s * SECOND), job.launches
        self.at(end, lambda: self.complete(row) if job.launches == launches and job.held else None)

    def locality(self, nodes: dict[int, int]) -> int:
        cluster = self.s.cluster
        leaves, pods = {cluster.node_leaf[n] for n in nodes}, {cluster.node_minipod[n] for n in nodes}
        return 0 if len(nodes) == 1 else 1 if len(leaves) == 1 else 2 if len(pods) == 1 else 3

    def stop(self, row: int) -> None:
        job = self.jobs[row]
        job.left, job.held = max(self.left(job), 0.0) if job.back_to is None else job.back_to, None
        job.back_to = None
        self.give_back(job)

    def requeue(self, row: int, why: str) -> None:
        self.note(why, row)
        self.jobs[row].phase = "queued"
        self.wanted |= row not in self.start

    def preempt(self, row: int) -> None:
        self.stop(row)
        self.requeue(row, "preempt")

    def drop(self, row: int) -> None:
        if self.jobs[row].held:
            self.stop(row)
        self.note("drop", row)
        self.leave(row, "dropped")

    def complete(self, row: int) -> None:
        self.stop(row)
        self.note("complete", row)
        self.ended[row] = self.now
        self.leave(row, "completed")
        self.wanted = True

    def leave(self, row: int, phase: str) -> None:
        self.jobs[row].phase = phase
        running = [one for one in self.holders if isinstance(one, Profile)]
        for profile in [one for one in [*running, *itertools.chain(*self.waiting)] if one.row == row]:
            phases = ("profiling", "queued", "running", "saving")
            here = (r for r, job in enumerate(self.jobs) if job.phase in phases)
            heir = next((r for r in here if self.unit(r) == profile.unit and r not in self.start), None)
            nodes = profile.nodes if profile in running else {}
            if nodes:
                self.end_profile(profile)
            elif heir is None:
                self.waiting[profile.kind].remove(profile)
            profile.row = row if heir is None else heir
            if nodes and heir is not None:
                self.begin_profile(profile, nodes)

    # Nodes

    def place(
        self, kind: int, gpus: int, until: float, to: dict[int, int] | None = None
    ) -> dict[int, int] | None:
        shut = {
            n for row, nodes in self.kept.items() if until > self.start[row] or row in self.due for n in nodes
        }
        if to is not None:
            return None if shut & to.keys() else to
        nodes: dict[int, int] = {}
        for node, free in enumerate(self.free):
            if self.node_type[node] == kind and free and node not in shut and gpus > sum(nodes.values()):
                nodes[node] = min(free, gpus - sum(nodes.values()))
        return nodes if sum(nodes.values()) == gpus else None

    def take(self, holder: Job | Profile, nodes: dict[int, int]) -> None:
        holder.nodes = nodes
        self.holders.append(holder)
        for node, gpus in nodes.items():
            self.free[node] -= gpus

    def give_back(self, holder: Job | Profile) -> None:
        self.holders.remove(holder)
        for node, gpus in holder.nodes.items():
            self.free[node] += gpus

    def fail_node(self, node: int, repair: int) -> None:
        if node in self.down:
            return
        self.note("node_fail", -1, (self.node_type[node], self.size[node]), {node: self.size[node]})
        self.kept = {row: [] if node in nodes else nodes for row, nodes in self.kept.items()}
        for holder in [one for one in self.holders if node in one.nodes]:
            if isinstance(holder, Profile):
                self.postpone(holder)
                holder.left = self.needed(holder.row, holder.kind)
            else:
                self.fail(self.jobs.index(holder))
        self.down.add(node)
        self.free[node] = 0
        self.at(self.now + repair, lambda: self.repair(node))
        self.wanted = True

    def repair(self, node: int) -> None:
        self.down.remove(node)
        self.free[node] = self.size[node]
        self.note("node_repair", -1, (self.node_type[node], self.size[node]), {node: self.size[node]})
        self.wanted = True

    def fail(self, row: int) -> None:
        job = self.jobs[row]
        written, allotment = self.written(job), job.held
        self.stop(row)
        job.left, job.phase = written, "queued"
        self.note("fail", row, allotment)
        self.wanted |= row not in self.start
        if row in self.start:
            self.kept[row] = []
            self.due.add(row)
