"""The tree of queues that jobs belong to, and its YAML file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameter_types import NonNegativeFloat, Period
from clustergym.common.parameters import build, check_value
from clustergym.common.paths import conf_dir
from clustergym.common.yaml_file import YamlMapping, field_name, read_mapping

if TYPE_CHECKING:
    from clustergym.trace.trace import Trace

Amount = NonNegativeFloat | Mapping[str, NonNegativeFloat | None] | None
"""GPUs: of every type alike, by type, or without limit."""


@dataclass(frozen=True)
class Queue:
    """The settings of a queue of tenants in a tree; a queue without children takes jobs."""

    parent: str | None = None
    """The queue that it is in; null: the cluster."""
    members: tuple[str, ...] = ()
    """Whose jobs are its own: by `assign_by`. A queue of that very name need not be listed."""
    quota: Amount = 0.0
    """GPUs that it has whenever its jobs want them; null: all of its parent's."""
    limit: Amount = None
    """Most GPUs that it ever has; of types left out as many as there are, here and below."""
    weight: NonNegativeFloat = 1.0
    """Its part of GPUs beyond quotas, against its siblings of equal priority."""
    priority: int = 100
    """Siblings of a higher one have all they want beyond quotas first."""
    guarantee: Amount = 0.0
    """GPUs of its quota that nobody else uses while it does not."""
    lending_limit: Amount = None
    """Most of its quota that others may use."""
    borrowing_limit: Amount = None
    """Most GPUs beyond its quota."""
    preempt_min_runtime_s: NonNegativeFloat | None = None
    """Time for which a job of it that was started is safe from others of the queue; null: as its parent's."""
    reclaim_min_runtime_s: NonNegativeFloat | None = None
    """The same, for jobs of other queues."""
    preemption_delay_s: NonNegativeFloat = 0.0
    """Time that a job of it must have waited before others are stopped for it."""


@dataclass(frozen=True)
class UsageWindow:
    """Settings of how queues' past use counts when GPUs beyond quotas are divided."""

    weight: NonNegativeFloat = 1.0
    """0: not at all."""
    window_s: Period = 7 * 86_400.0
    """Older use is forgotten."""
    half_life_s: Period | None = None
    """Time after which use counts half; null: all alike."""


@dataclass(frozen=True)
class Settings:
    """The settings in a file of queues that apply to the whole tree."""

    assign_by: Literal["virtual_cluster", "user"] = "virtual_cluster"
    """The column of the trace that says whose a job is."""
    unknown: str | None = None
    """Queue of those whom no queue lists; null: such a job is refused."""
    oversubscribe: bool = False
    """Whether quotas of children may together exceed their parent's."""
    eviction_s: NonNegativeFloat = 0.0
    """Time for which a job keeps its GPUs after it was first to give them to others."""
    history: UsageWindow = field(default_factory=UsageWindow)


class QueueTree:
    """A tree of queues by name, with the members (users or groups) whose jobs each accepts.

    Parameters
    ----------
    queues : mapping of str to Queue
    settings : Settings

    Raises
    ------
    InputError
        If a parent is unknown or its own descendant, a queue with children has members, somebody is in two
        queues, a limit is below a quota, quotas exceed their parent's, or no sibling has a weight.
    """

    def __init__(
        self, queues: Mapping[str, Queue], settings: Settings, source: YamlMapping | None = None
    ) -> None:
        self.settings, self._source = settings, source
        self.queues = {name: queues[name] for name in self._in_order(queues)}
        self.children: dict[str | None, list[str]] = {None: []} | {name: [] for name in queues}
        for name, queue in self.queues.items():
            self.children[queue.parent].append(name)
        self.leaves = [name for name in self.queues if not self.children[name]]
        self._check_members()
        self._check_amounts()

    @cached_property
    def leaf_of(self) -> dict[str, str]:
        """The leaf queue of each member (a user or group)."""
        named = {name: name for name in self.leaves}
        return named | {member: name for name in self.leaves for member in self.queues[name].members}

    def leaf(self, member: str, job: str) -> str:
        """Return the leaf queue that takes a member's job; raise an `InputError` if there is none."""
        found = self.leaf_of.get(member, self.settings.unknown)
        if found is None:
            by, file = self.settings.assign_by, None if self._source is None else self._source.path
            remedy = f"list it in a queue's members, or give unknown: QUEUE ({nearest(member, self.leaf_of)})"
            raise InputError(f"no queue takes {by} {member!r}", file=file, field=job, remedy=remedy)
        return found

    def path(self, name: str) -> list[str]:
        """Return the names of the queues from the top of the tree down to a queue."""
        found = [name]
        while (parent := self.queues[found[-1]].parent) is not None:
            found.append(parent)
        return found[::-1]

    def most(self, name: str, gpu_type: str) -> float:
        """Return the most GPUs of a type that a queue may have, by its own limit and its ancestors'."""
        return min(get_most_gpus(self.queues[one], gpu_type) for one in self.path(name))

    def check_capacity(self, gpu_types: Sequence[str], capacity: Sequence[float]) -> None:
        """Raise an `InputError` if top queues' quotas exceed the cluster's GPUs and that is not allowed."""
        top = self.children[None]
        for gpu, gpus in zip(gpu_types, capacity, strict=True):
            # An unlimited quota (infinite) exceeds nothing: it means all of the parent's.
            finite = [own for name in top if (own := of_type(self.queues[name].quota, gpu)) < math.inf]
            if sum(finite) > gpus and not self.settings.oversubscribe:
                message = (
                    f"{gpu}: {sum(finite):g} GPUs of {', '.join(top)} are more than the cluster's {gpus:g}"
                )
                remedy = "lower the quotas, or give oversubscribe: true"
                self.refuse(message, ("queues", top[-1], "quota"), remedy)

    def plain(self) -> dict[str, Any]:
        """Return the settings and queues as plain values, for the scenario's digest."""
        settings = asdict(self.settings)
        # Left out where off: boards were frozen before it existed.
        if not self.settings.eviction_s:
            del settings["eviction_s"]
        return {"settings": settings, "queues": {name: asdict(one) for name, one in self.queues.items()}}

    def reclaim_min_runtime_s(self, taker: str, victim: str) -> float:
        """Return for how many seconds of running the victim's jobs are safe from the queue `taker`.

        That of the queue on the victim's side just below what both are in, or else of the nearest above it.
        """
        mine, other = self.path(taker), self.path(victim)
        # The first queue on the victim's side that the taker is not in.
        depth = next(
            (at for at, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), len(other) - 1
        )
        return self._nearest(other[: depth + 1], "reclaim_min_runtime_s")

    def preemption_delay_s(self, leaf: str) -> float:
        """Return how many seconds a leaf queue's job waits before other jobs are preempted for it."""
        return max(self.queues[name].preemption_delay_s for name in self.path(leaf))

    def preempt_min_runtime_s(self, leaf: str) -> float:
        """Return for how many seconds of running a leaf's jobs are safe from jobs of the same queue."""
        return self._nearest(self.path(leaf), "preempt_min_runtime_s")

    def _nearest(self, path: Sequence[str], key: str) -> float:
        given = (getattr(self.queues[name], key) for name in reversed(path))
        return next((float(value) for value in given if value is not None), 0.0)

    def refuse(self, message: str, keys: Sequence[str], remedy: str) -> NoReturn:
        """Raise an `InputError` with the file, the line and the key that is wrong."""
        line = None if self._source is None else self._source.line(keys)
        file = None if self._source is None else self._source.path
        raise InputError(message, file=file, line=line, field=field_name(keys), remedy=remedy)

    def _refuse(self, message: str, name: str, key: str, remedy: str) -> NoReturn:
        self.refuse(message, ("queues", name, key), remedy)

    def _in_order(self, queues: Mapping[str, Queue]) -> list[str]:
        found: dict[str, None] = {}
        for name in queues:
            path, at, last = {name: None}, queues[name].parent, name
            while at is not None and at not in found:
                if at not in queues:
                    self._refuse(f"unknown queue {at!r}", last, "parent", nearest(at, queues))
                if at in path:
                    circle = " in ".join([*dropwhile(at.__ne__, path), at])
                    message, remedy = f"queues are in a circle: {circle}", "make one of them a top queue"
                    self._refuse(message, last, "parent", remedy)
                path[at], last = None, at
                at = queues[at].parent
            # Parents before children, whatever the order in the file.
            found |= dict.fromkeys(reversed(path))
        return list(found)

    def _check_members(self) -> None:
        seen: dict[str, str] = {}
        for name, queue in self.queues.items():
            if self.children[name] and queue.members:
                remedy = "move its members to a queue in it"
                self._refuse(
                    f"has queues in it ({', '.join(self.children[name])}), and members",
                    name,
                    "members",
                    remedy,
                )
            for member in queue.members:
                other = seen.setdefault(member, name)
                if other != name:
                    self._refuse(f"{member!r} is in {other} too", name, "members", "keep one of them")
        unknown = self.settings.unknown
        if unknown is not None and unknown not in self.leaves:
            message = f"{unknown!r} is not a queue that takes jobs"
            file = None if self._source is None else self._source.path
            line = None if self._source is None else self._source.line(("unknown",))
            raise InputError(
                message, file=file, line=line, field="unknown", remedy=nearest(unknown, self.leaves)
            )

    def _check_amounts(self) -> None:
        for name, queue in self.queues.items():
            for gpu in _types(queue.quota, queue.limit, queue.guarantee):
                quota, most = of_type(queue.quota, gpu), of_type(queue.limit, gpu, math.inf)
                if queue.quota is not None and most < quota:
                    self._refuse(
                        f"{most:g} GPUs are less than the quota of {quota:g}",
                        name,
                        "limit",
                        "raise the limit",
                    )
                if of_type(queue.guarantee, gpu) > quota:
                    self._refuse(f"is more than the quota of {quota:g}", name, "guarantee", "raise the quota")
        for parent, names in self.children.items():
            siblings = [self.queues[name] for name in names]
            if siblings and not any(queue.weight for queue in siblings):
                self._refuse(
                    "is 0 for all queues beside it too", names[0], "weight", "give one a weight above 0"
                )
            if parent is not None and not self.settings.oversubscribe:
                self._check_sum(parent, names)

    def _check_sum(self, parent: str, names: Sequence[str]) -> None:
        own, quotas = self.queues[parent].quota, [self.queues[name].quota for name in names]
        for gpu, total in _sums(quotas, _types(own)).items():
            if total > of_type(own, gpu):
                message = f"{of_type(own, gpu):g} GPUs are less than the {total:g} of {', '.join(names)}"
                self._refuse(message, parent, "quota", "raise it, or give oversubscribe: true")


def _sums(amounts: Sequence[Amount], types: Sequence[str]) -> dict[str, float]:
    """Return the sum of amounts by GPU type: of `types` and of all that amounts name.

    In time linear in what the amounts name: every one may name types of its own.
    """
    # fsum, as the order of queues in a file must not decide whether a sum exceeds its parent.
    of_all = math.fsum(of_type(amount, "") for amount in amounts if not isinstance(amount, Mapping))
    named: dict[str, list[float]] = {gpu: [of_all] for gpu in types}
    for amount in amounts:
        for gpu in amount if isinstance(amount, Mapping) else ():
            named.setdefault(gpu, [of_all]).append(of_type(amount, gpu))
    return {gpu: math.fsum(named[gpu]) for gpu in sorted(named)}


def list_gpu_types(queue: Queue) -> list[str]:
    """Return the GPU types that a queue's quota and limits name."""
    amounts = (queue.quota, queue.limit, queue.guarantee, queue.lending_limit, queue.borrowing_limit)
    return _types(*amounts)[1:]


def of_type(amount: Amount, gpu_type: str, missing: float = 0.0) -> float:
    """Return the GPUs of a type in an amount (a number or a mapping by type); infinite for None."""
    given = amount.get(gpu_type, missing) if isinstance(amount, Mapping) else amount
    return math.inf if given is None else float(given)


def get_most_gpus(queue: Queue, gpu_type: str) -> float:
    """Return the most GPUs of a type that a queue may have: its limit, or quota plus what it may borrow."""
    limit = of_type(queue.limit, gpu_type, math.inf)
    if queue.borrowing_limit is None:
        return limit
    borrowed = of_type(queue.borrowing_limit, gpu_type, math.inf)
    return min(limit, of_type(queue.quota, gpu_type) + borrowed)


def get_reserved_gpus(queue: Queue, gpu_type: str) -> float:
    """Return the GPUs of a type reserved for a queue: its guarantee or, if more, the quota it never lends."""
    guarantee = of_type(queue.guarantee, gpu_type)
    if queue.lending_limit is None:
        return guarantee
    lent = of_type(queue.lending_limit, gpu_type, math.inf)
    return max(guarantee, of_type(queue.quota, gpu_type) - lent) if lent < math.inf else guarantee


def _types(*amounts: Amount) -> list[str]:
    """Return the GPU types that amounts tell apart, and one for all others."""
    return sorted({"", *(gpu for amount in amounts if isinstance(amount, Mapping) for gpu in amount)})


def load_queues(path: Path) -> QueueTree:
    """Read a tree of queues from a YAML file."""
    source = read_mapping(path)
    given = dict(source.content)
    try:
        rows = check_value(given.pop("queues", {}), Mapping[str, object], "queues")
        if not rows:
            raise InputError(
                "is missing", field="queues", remedy="list queues by name, as {team: {quota: 8}}"
            )
        settings: Settings = build(Settings, given, "")
        queues = {name: build(Queue, row or {}, f"queues.{name}") for name, row in rows.items()}
    except InputError as error:
        raise source.locate(error) from None
    return QueueTree(queues, settings, source)


def queues_by_member(members: Sequence[str]) -> QueueTree:
    """Return a tree with one queue for each member, all without quotas and with equal weights."""
    return QueueTree({name: Queue() for name in sorted(set(members))}, Settings())


BY_COLUMN = ("virtual_cluster", "user")
"""Columns of a trace of which each value may be a queue."""


def list_queue_files() -> dict[str, Path]:
    """Return the paths of the files in conf/queues, by name."""
    return {path.stem: path for path in sorted((conf_dir() / "queues").glob("*.yaml"))}


@dataclass(frozen=True, eq=False)
class Tenants:
    """A tree of queues, with the leaf queue of each of n jobs.

    Attributes
    ----------
    tree : QueueTree
    leaf : ndarray of int, shape (n,)
        Index into `tree.leaves`.
    """

    tree: QueueTree
    leaf: Ints

    @classmethod
    def from_queues(cls, queues: str, trace: Trace, gpu_types: Sequence[str]) -> Tenants:
        """Build the queues that a configuration chooses, and assign each job of the trace to one.

        Parameters
        ----------
        queues : str
            A YAML file of queues, a name of conf/queues, or a column of `BY_COLUMN`: then each of its values
            is a queue, without quota and of equal weight.
        trace : Trace
        gpu_types : sequence of str
            The cluster's.
        """
        if queues in BY_COLUMN:
            tree, by = queues_by_member(getattr(trace, queues)), queues
        else:
            tree = load_queues(list_queue_files().get(queues, Path(queues)))
            by = tree.settings.assign_by
        if not all(getattr(trace, by)) and tree.settings.unknown is None:
            row = getattr(trace, by).index("")
            remedy = "name a column that all jobs have, or in a file of queues unknown: QUEUE"
            raise InputError(f"job {trace.job_id[row]} has no {by}", field="scenario.queues", remedy=remedy)
        for name, queue in tree.queues.items():
            for unknown in set(list_gpu_types(queue)) - set(gpu_types):
                where, remedy = f"queues.{name}", nearest(unknown, gpu_types)
                raise InputError(f"the cluster has no {unknown}", file=queues, field=where, remedy=remedy)
        at = {name: place for place, name in enumerate(tree.leaves)}
        members = zip(getattr(trace, by), trace.job_id, strict=True)
        leaf = np.array([at[tree.leaf(member, job)] for member, job in members], dtype=np.int64)
        return cls(tree, leaf)

    def fingerprint(self) -> Any:
        """Return the settings of the tree that can change a run, and each job's queue, for the digest."""
        return [self.tree.plain(), self.leaf.tolist()]
