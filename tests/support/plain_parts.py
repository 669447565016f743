"""Parts of the plain simulation: its jobs and profiles, how profiles run, and how planned jobs get nodes."""

import math
from dataclasses import dataclass, field

SECOND = 1_000_000
Allotment = tuple[int, int]
"""GPU type and GPUs."""


@dataclass(eq=False)
class Job:
    """A job of the run; times are ticks."""

    left: float
    phase: str = "future"
    held: Allotment | None = None
    nodes: dict[int, int] = field(default_factory=dict)
    since: int = 0
    works_from: int = 0
    pace_s: float = 1.0
    written: float = 0.0
    launched: bool = False
    searched: set[Allotment] = field(default_factory=set)
    launches: int = 0
    back_to: float | None = None


@dataclass(eq=False)
class Profile:
    """What is measured of a job, or a model, on one type."""

    unit: int
    kind: int
    row: int
    left: int
    since: int = -1
    nodes: dict[int, int] = field(default_factory=dict)


class PlannedJobs:
    """Keeps nodes for planned jobs, and starts them there."""

    def drain(self, row: int) -> None:
        if self.jobs[row].phase != "dropped" and self.s.request_gpus[row]:
            self.kept[row] = []
            self.at(self.start[row], lambda: self.due.add(row))

    def estimated_end(self, row: int, allotment: Allotment, stands: int) -> float:
        level = self.s.tables.counts.tolist().index(allotment[1])
        seconds = self.left(self.jobs[row]) * float(self.known_s[self.s.class_of[row], allotment[0], level])
        if not self.kept or self.information == "none" or not math.isfinite(seconds):
            return math.inf
        return self.now + stands + round(seconds * SECOND)

    def serve_planned(self) -> None:
        for row in sorted(self.kept, key=lambda row: (self.start[row], row)):
            kind, gpus = int(self.s.request_type[row]), int(self.s.request_gpus[row])
            if kind < 0:
                times = self.s.known_times("clairvoyant")[self.s.class_of[row]]
                kind = int(times[:, self.s.tables.counts.tolist().index(gpus)].argmin())
            if not self.kept[row]:
                self.kept[row] = self.choose(row, kind, gpus)
            if row in self.due and self.kept[row] and self.jobs[row].phase == "queued":
                self.start_planned(row, kind, gpus)

    def choose(self, row: int, kind: int, gpus: int) -> list[int]:
        closed = self.down | {n for other, nodes in self.kept.items() if other != row for n in nodes}
        busy = set[int]()
        for r, job in enumerate(self.jobs):
            if job.held and r in self.start:
                closed |= job.nodes.keys()
            elif job.held:
                end = self.estimated_end(r, job.held, max(job.works_from - self.now, 0))
                busy |= job.nodes.keys() if end > self.start[row] else set()
        per_node = int(self.s.cluster.gpus_per_node[kind])
        for shut in (closed | busy, closed):
            whole = [n for n, of in enumerate(self.node_type) if of == kind and n not in shut]
            if len(whole) >= math.ceil(gpus / per_node):
                return whole[: math.ceil(gpus / per_node)]
        return []

    def start_planned(self, row: int, kind: int, gpus: int) -> None:
        nodes = self.kept.pop(row)
        for holder in [one for one in self.holders if not one.nodes.keys().isdisjoint(nodes)]:
            if isinstance(holder, Profile):
                self.postpone(holder)
            else:
                self.preempt(self.jobs.index(holder))
        self.due.discard(row)
        per_node, shares = int(self.s.cluster.gpus_per_node[kind]), {}
        for place, node in enumerate(nodes):
            shares[node] = min(per_node, gpus - place * per_node)
        self.launch(row, (kind, gpus), "", shares)
        self.wanted = True


class Profiles:
    """Measures jobs on GPUs that are free."""

    def unit(self, row: int) -> int:
        return int(self.s.class_of[row]) if self.s.costs.profile_reuse == "model" else row

    def needed(self, row: int, kind: int) -> int:
        fits = int(self.s.feasible[self.s.class_of[row], kind].sum())
        return round(self.price.seconds * (fits if self.price.per == "configuration" else 1) * SECOND)

    def ask(self, row: int) -> None:
        asked, unit = int(self.s.request_type[row]), self.unit(row)
        for kind, waiting in enumerate(self.waiting):
            other = self.price.types == "requested" and asked not in (-1, kind)
            fits = self.s.feasible[self.s.class_of[row], kind].any()
            if (unit, kind) in self.known or other or not fits:
                continue
            profile = self.begun.setdefault((unit, kind), Profile(unit, kind, row, self.needed(row, kind)))
            if profile not in self.holders and profile not in waiting:
                profile.row = row
                waiting.append(profile)

    def start_profiles(self) -> None:
        for kind, waiting in enumerate(self.waiting):
            while waiting and (nodes := self.place(kind, self.price.gpus, self.now + waiting[0].left)):
                self.begin_profile(waiting.popleft(), nodes)

    def begin_profile(self, profile: Profile, nodes: dict[int, int]) -> None:
        self.take(profile, nodes)
        profile.since = since = self.now
        self.note("profile_start", profile.row, (profile.kind, self.price.gpus), nodes)
        ends = lambda: self.profiled(profile) if profile in self.holders and profile.since == since else None  # noqa: E731
        self.at(self.now + profile.left, ends)

    def end_profile(self, profile: Profile) -> None:
        self.give_back(profile)
        profile.left -= self.now - profile.since
        self.note("profile_end", profile.row, (profile.kind, self.price.gpus), profile.nodes)

    def postpone(self, profile: Profile) -> None:
        self.end_profile(profile)
        self.waiting[profile.kind].appendleft(profile)

    def profiled(self, profile: Profile) -> None:
        self.end_profile(profile)
        self.known.add((profile.unit, profile.kind))
        for row, job in enumerate(self.jobs):
            if self.unit(row) == profile.unit and job.phase == "profiling":
                job.phase = "queued"
        self.wanted = True
