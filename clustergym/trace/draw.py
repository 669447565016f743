"""Draw models for jobs whose log records only time, duration and GPU count.

A seeded rule draws each job's model class among those that fit in memory on the GPUs it asked for.
Its iterations follow: as many as take the recorded duration, so a job keeps its GPU time to within
the rounding of one iteration.

* `arena` (Arena, section 5.1): a model family, then its size and batch, are drawn evenly among the
  evaluation's models; larger models go with more GPUs, in the ranges its published traces show. GPU
  types are drawn evenly among the reference cluster's.
* `ares` (Ares, section 5.1): a job's recorded GPU time says its class (S under 1 GPU-hour, M under 10,
  L under 100, XL above), and its model is drawn evenly among the class's.

The reference iteration time is that of the GPU type a job asks for; when it asks for any, that of
`reference_gpu`, or of the type on which it is fastest. A job on whose recorded GPU type no model of the rule
fits is drawn as if none were recorded. A log is timed by the run's oracle; a generated trace by the roofline
oracle, whatever the run's, so that one trace (and its digest) holds for all oracles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import round_up_counts
from clustergym.common.errors import InputError, require_known
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.options import ReadOptions, ReferenceTime

if TYPE_CHECKING:
    from clustergym.cluster.spec import ClusterSpec
    from clustergym.oracle.base import OracleTables

Choices = list[tuple[ModelClass, float]]
"""Model classes with their relative weights."""
TablesOf = Callable[[Sequence[ModelClass], "ClusterSpec", Sequence[int]], "OracleTables"]
"""(model classes, cluster, GPU counts) -> an oracle's tables."""

ARENA_BATCHES: dict[str, tuple[int, ...]] = {
    "gpt3": (128, 256, 512),
    "gshard_moe": (256, 512, 1024),
    "wide_resnet": (256, 512, 1024),
}
ARENA_SIZES: dict[str, dict[str, tuple[int, float]]] = {
    "gpt3": {"760M": (1, 4), "1.3B": (1, 8), "2.6B": (4, np.inf), "6.7B": (8, np.inf)},
    "gshard_moe": {"690M": (1, 4), "1.3B": (1, 8), "2.4B": (2, np.inf), "10B": (4, np.inf)},
    "wide_resnet": {"500M": (1, 4), "1B": (2, 8), "2B": (2, np.inf), "4B": (4, np.inf)},
}
"""Least and greatest GPU count a size is drawn for, as seen in Arena's published traces (1 to 16 GPUs)."""

ARES_CLASSES: tuple[dict[str, tuple[int, ...]], ...] = (
    {"resnet18": (2048, 4096), "neumf": (16384, 32768)},
    {"bert": (192, 384), "deepspeech2": (320, 640)},
    {"yolov3": (256, 512)},
    {"resnet50": (6400, 12800)},
)
"""Families and batches of the classes S, M, L and XL (Ares, Table 2)."""
ARES_LIMITS_GPU_H = (1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Records:
    """Recorded jobs whose models are not known, as columns of length n, in the order of the file.

    Attributes
    ----------
    path : Path
    row : ndarray of int
        Number of the row in the source, counting those that were left out: the key of its draw.
    line : list of int
    duration_s : ndarray of float
        Seconds it ran on `gpus` GPUs, above 0.
    gpus : ndarray of int
    gpu_type : list of str, optional
        Recorded GPU types; an empty name, or None for all jobs: any.
    """

    path: Path
    row: Ints
    line: Sequence[int]
    duration_s: Floats
    gpus: Ints
    gpu_type: Sequence[str] | None = None


@dataclass(frozen=True)
class DrawnJobs:
    """Randomly chosen models, batches, iterations and GPU types of n jobs, as columns of length n."""

    model_family: list[str]
    model_size: list[str]
    global_batch: Ints
    iterations: Ints
    gpu_type: list[str]
    gpus: Ints
    time_s: Floats
    facts: dict[str, Any]

    @property
    def columns(self) -> dict[str, Any]:
        """The columns by name, as arguments for `build_trace`."""
        return {name: value for name, value in vars(self).items() if name not in ("time_s", "facts")}


@dataclass(frozen=True)
class Rule:
    """A rule that lists the models to choose from for a job, by its GPU-hours and its GPU count.

    Attributes
    ----------
    limits_gpu_h : tuple of float
        Recorded GPU-hours at which the next class of jobs begins, ascending.
    tiers : callable
        (class, GPU count) -> tiers of choices; a tier is used if no model of the earlier tiers fits.
    draws_gpu_type : bool
        Whether GPU types are drawn if the options do not name any.
    """

    limits_gpu_h: tuple[float, ...]
    tiers: Callable[[int, int], Iterator[Choices]]
    draws_gpu_type: bool

    @property
    def strata(self) -> range:
        """Indices of the classes into which jobs are divided by GPU time."""
        return range(len(self.limits_gpu_h) + 1)

    def stratum(self, gpu_s: Floats) -> Ints:
        """Return the index of each job's class by its recorded GPU-seconds, shape (n,)."""
        return np.searchsorted(self.limits_gpu_h, gpu_s / 3600.0, side="right").astype(np.int64)


def _even(table: Mapping[str, Mapping[str, tuple[int, ...]]]) -> Choices:
    """Return choices that share the weight evenly among families, then sizes, then batches."""
    return [
        (ModelClass(family, size, batch), 1.0 / len(table) / len(sizes) / len(batches))
        for family, sizes in table.items()
        for size, batches in sizes.items()
        for batch in batches
    ]


def _arena_tiers(stratum: int, gpus: int) -> Iterator[Choices]:
    in_range = {
        family: {size: ARENA_BATCHES[family] for size, (low, high) in sizes.items() if low <= gpus <= high}
        for family, sizes in ARENA_SIZES.items()
    }
    yield _even({family: sizes for family, sizes in in_range.items() if sizes})
    yield _even(
        {family: {size: ARENA_BATCHES[family] for size in sizes} for family, sizes in ARENA_SIZES.items()}
    )


def _ares_tiers(stratum: int, gpus: int) -> Iterator[Choices]:
    below = range(stratum, -1, -1)
    above = range(stratum + 1, len(ARES_CLASSES))
    for index in (*below, *above):
        yield _even({family: {"": batches} for family, batches in ARES_CLASSES[index].items()})


RULES = {
    "arena": Rule((), _arena_tiers, draws_gpu_type=True),
    "ares": Rule(ARES_LIMITS_GPU_H, _ares_tiers, draws_gpu_type=False),
}


class ReferenceTimes:
    """Seconds per iteration on a cluster's GPUs in the most compact placement, by model and GPU count.

    For a GPU type that the cluster lacks, it assumes as many nodes of 8 GPUs as the job needs, on the
    same fabric. The empty type is, of those that have as many GPUs, the one on which a model is fastest.

    Parameters
    ----------
    cluster : ClusterSpec
    tables_of : callable, optional
        (model classes, cluster, GPU counts) -> `OracleTables`; by default the roofline oracle's.
    counts : sequence of int
        GPU counts that are computed together, since another set of them takes long.
    remedy : str
        What to do, besides choosing another rule, where no model of a rule has a time.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        tables_of: TablesOf | None = None,
        counts: Sequence[int] = (),
        remedy: str = "",
    ) -> None:
        from clustergym.oracle.roofline.roofline_oracle import RooflineOracle

        self.oracle, self._cluster = RooflineOracle(), cluster
        self._tables_of, self._counts = tables_of or self.oracle.tables, frozenset(counts)
        self.remedy = remedy
        self._room = dict(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))
        self._known: dict[tuple[ModelClass, str, int], float] = {}
        self._prepared: dict[Rule, set[tuple[int, int]]] = {}

    def __call__(self, model: ModelClass, gpu_type: str, gpus: int) -> float:
        """Return the seconds per iteration; inf if the model does not fit."""
        # A job that names no type is timed where it is fastest, among the types that have as many GPUs as it
        # asks for: it then takes as long as in the log on the best that it can be given.
        if not gpu_type:
            large = [type_name for type_name in self._cluster.gpu_types if self._room[type_name] >= gpus]
            return min(self(model, type_name, gpus) for type_name in large or self._cluster.gpu_types)
        if (model, gpu_type, gpus) not in self._known:
            self.prepare([model], [gpus], gpu_type)
        return self._known[model, gpu_type, gpus]

    def prepare(self, models: Sequence[ModelClass], counts: Sequence[int], gpu_type: str = "") -> None:
        """Compute and cache many iteration times on the cluster's GPU types, or on a `gpu_type` it lacks."""
        missing = gpu_type and gpu_type not in self._cluster.gpu_types
        gpu_types = [gpu_type] if missing else self._cluster.gpu_types
        wanted = ((model, type_name, gpus) for model in models for type_name in gpu_types for gpus in counts)
        if all(key in self._known for key in wanted):
            return
        cluster = self._nodes_of(gpu_type, max(counts)) if missing else self._cluster
        # All counts that will be asked for are computed together, once.
        together = self._counts if self._counts.issuperset(counts) and not missing else counts
        tables = self._tables_of(models, cluster, sorted(together))
        # A measured table may lack the most compact tier; the next one that it has stands for it.
        execution = tables.tighter_where_missing()
        for t, type_name in enumerate(tables.gpu_types):
            for k, gpus in enumerate(tables.counts.tolist()):
                tier = int(cluster.compact_locality(t, gpus))
                for c, model in enumerate(tables.classes):
                    self._known[model, type_name, gpus] = float(execution[c, t, k, tier])

    def prepare_rule(self, rule: Rule, pairs: Iterable[tuple[int, int]]) -> None:
        """Compute and cache times of all models a rule may choose for (GPU-hours class, GPU count) pairs."""
        prepared = self._prepared.setdefault(rule, set())
        if new := set(pairs) - prepared:
            models = {model for pair in new for tier in rule.tiers(*pair) for model, _ in tier}
            self.prepare(sorted(models), sorted({count for _, count in new}))
            prepared |= new

    def _nodes_of(self, gpu_type: str, gpus: int) -> ClusterSpec:
        from clustergym.cluster.cluster_files import canonical_gpu_type, load_gpu_types
        from clustergym.cluster.spec import ClusterSpec, NodeGroup

        group = NodeGroup(load_gpu_types()[canonical_gpu_type(gpu_type)], -(-gpus // 8), 8)
        return ClusterSpec(gpu_type, (group,), replace(self._cluster.fabric, minipods=None))


@lru_cache(maxsize=64)
def get_reference_times(cluster: ClusterSpec) -> ReferenceTimes:
    """Return the reference iteration times on a cluster, cached for all traces of this process."""
    return ReferenceTimes(cluster)


@cache
def reference_times(cluster: str) -> ReferenceTimes:
    """Return the reference iteration times on a cluster, given by name."""
    from clustergym.cluster.cluster_files import load_cluster

    return ReferenceTimes(load_cluster(cluster))


def choose_reference(options: ReadOptions) -> ReferenceTime:
    """Return the function of iteration times that `options` hold, or else that of their reference cluster."""
    return options.reference_time_s or reference_times(options.reference_cluster)


def uniforms(seed: int, row: Ints) -> Floats:
    """Return a random number in [0, 1) for each row, which depends only on the seed and the row's number."""
    if seed < 0:
        raise InputError(f"{seed} is negative", field="seed", remedy="give 0 or more")
    # By the row in the file, not by the place among the rows that are kept: what is left out changes no other
    # job's model.
    stream = random_streams.MODELS.generator(seed).random(int(row.max()) + 1 if len(row) else 0)
    return np.asarray(stream[row], dtype=np.float64)


def draw(records: Records, options: ReadOptions) -> DrawnJobs:
    """Choose at random the model, batch, iterations and GPU type of each recorded job.

    Parameters
    ----------
    records : Records
    options : ReadOptions
        Only `seed`, `rule`, `reference_*`, `gpu_types`, `most_gpus` and `power_of_two` are used.
    """
    require_known(options.rule, RULES, "rule", "rule")
    rule, reference = RULES[options.rule], choose_reference(options)
    types = options.gpu_types
    if types is None and rule.draws_gpu_type:
        from clustergym.cluster.cluster_files import load_cluster

        types = load_cluster(options.reference_cluster).gpu_types
    gpus = round_up_counts(records.gpus) if options.power_of_two else records.gpus
    # Of the GPUs in the log: rounding a count up to a power of two must not put a job into a larger class.
    gpu_s = records.duration_s * records.gpus
    recorded = records.gpu_type or [""] * len(records.row)
    room = tuple((options.most_gpus or {}).items())
    menus = _menus(rule, reference, tuple(types or ()), options.reference_gpu, room)
    stratum = rule.stratum(gpu_s)
    keys = list(zip(stratum.tolist(), _choose_timed_counts(gpus, options).tolist(), recorded, strict=True))
    asked = sorted(set(keys))
    if isinstance(reference, ReferenceTimes):
        reference.prepare_rule(rule, [key[:2] for key in asked])
    row = {key: menus.row(*key) for key in asked}
    # Of the keys in order of size the first without a model; of its jobs the first in the file is named.
    if -1 in row.values():
        first = next(key for key in asked if row[key] < 0)
        raise _nothing_fits(records, options, reference, keys.index(first), first[1], menus.types)
    of = np.array([row[key] for key in keys], dtype=np.int64)
    return _collect_drawn(
        records, options, menus, of, menus.pick(of, uniforms(options.seed, records.row)), gpus
    )


def _choose_timed_counts(gpus: Ints, options: ReadOptions) -> Ints:
    """Return the GPU count at which each job is timed; where no type has as many, the largest that fits."""
    if not options.most_gpus:
        return gpus
    most = max(options.most_gpus.values())
    # A job larger than the cluster is an error or dropped later, with a line of its own; here it only needs a
    # time.
    return np.minimum(gpus, 1 << (most.bit_length() - 1) if options.power_of_two else most)


@lru_cache(maxsize=64)
def _menus(
    rule: Rule,
    reference: ReferenceTime,
    types: tuple[str, ...],
    reference_gpu: str,
    room: tuple[tuple[str, int], ...],
) -> _Menus:
    """Return the menus of a rule; all draws of this process share them."""
    return _Menus(rule, reference, types, reference_gpu, dict(room))


class _Menus:
    """The models and GPU types that a rule may choose for each (class, GPU count, recorded type).

    Attributes
    ----------
    types : tuple of str
        GPU types to draw among for jobs without a recorded one, and those whose own fits no model; of these
        types, those that `room` gives as many GPUs as a job asks for.
    models, gpu_types : list
        Of the choices of all menus: model class, GPU type.
    time_s : ndarray of float
        Seconds per iteration of the choices.
    later_tier, retyped : ndarray of bool
        Of each menu: no model of the first tier fits; none fits on the recorded type.
    """

    def __init__(
        self,
        rule: Rule,
        reference: ReferenceTime,
        types: tuple[str, ...],
        reference_gpu: str,
        room: Mapping[str, int],
    ) -> None:
        self.types, self._room = types, room
        self.models: list[ModelClass] = []
        self.gpu_types: list[str] = []
        self.time_s = np.empty(0)
        self.later_tier = self.retyped = np.empty(0, dtype=np.bool_)
        self._rule, self._reference, self._reference_gpu = rule, reference, reference_gpu
        self._row: dict[tuple[int, int, str], int] = {}
        self._first = self._last = np.empty(0, dtype=np.int64)
        self._until = np.empty((0, 0))

    def row(self, stratum: int, gpus: int, asked: str) -> int:
        """Return the row of the menu of models for a class, GPU count and GPU type; -1 if no model fits."""
        key = stratum, gpus, asked
        if key not in self._row:
            self._row[key] = self._add(*key)
        return self._row[key]

    def pick(self, row: Ints, chance: Floats) -> Ints:
        """Choose one model from each given menu by a random number in [0, 1)."""
        until, last = self._until[row], self._last[row]
        # Weights of a menu need not add up to 1, as models that do not fit are left out of it: the chance is
        # of their sum.
        total = until[np.arange(len(row)), last]
        # All jobs at once: rows are padded with infinity, which no chance reaches, so that a menu's length
        # does not matter.
        picked = (until <= (chance * total)[:, None]).sum(axis=1)
        choice: Ints = self._first[row] + np.minimum(picked, last)
        return choice

    def _add(self, stratum: int, gpus: int, asked: str) -> int:
        fitting, depth = self._fitting((asked,), stratum, gpus) if asked else ([], 0)
        retyped = bool(asked) and not fitting
        if not fitting:
            # Types that are large enough come first; where none is, memory decides alone, as the job may get
            # fewer GPUs.
            large = tuple(type_name for type_name in self.types if self._room.get(type_name, gpus) >= gpus)
            fitting, depth = self._fitting(large or self.types or ("",), stratum, gpus)
        if not fitting:
            return -1
        self._first = np.append(self._first, len(self.models))
        self._last = np.append(self._last, len(fitting) - 1)
        self.later_tier = np.append(self.later_tier, depth > 0)
        self.retyped = np.append(self.retyped, retyped)
        self.models += [model for model, _, _, _ in fitting]
        self.gpu_types += [type_name for _, type_name, _, _ in fitting]
        self.time_s = np.append(self.time_s, [time for _, _, _, time in fitting])
        rows, columns = self._until.shape
        longer = np.full((rows + 1, max(columns, len(fitting))), np.inf)
        longer[:rows, :columns] = self._until
        longer[rows, : len(fitting)] = np.cumsum([weight for _, _, weight, _ in fitting])
        self._until = longer
        return rows

    def _fitting(
        self, types: tuple[str, ...], stratum: int, gpus: int
    ) -> tuple[list[tuple[ModelClass, str, float, float]], int]:
        """Return the fitting choices of the first tier that has any, and the tier's number.

        A choice is (model class, GPU type, weight, seconds per iteration).
        """
        for depth, tier in enumerate(self._rule.tiers(stratum, gpus)):
            fitting = [
                (model, type_name, weight, time)
                for type_name in types
                for model, weight in tier
                if np.isfinite(time := self._reference(model, type_name or self._reference_gpu, gpus))
            ]
            if fitting:
                return fitting, depth
        return [], 0


def _nothing_fits(
    records: Records,
    options: ReadOptions,
    reference: ReferenceTime,
    row: int,
    gpus: int,
    types: tuple[str, ...],
) -> InputError:
    gpu_types = ", ".join(types) or options.reference_gpu or options.reference_cluster
    others = " or ".join(sorted(set(RULES) - {options.rule}))
    return InputError(
        f"no model of rule {options.rule!r} fits on {gpus} GPUs of {gpu_types}",
        file=records.path,
        line=int(records.line[row]) or None,
        field="gpus",
        remedy=", or ".join([f"choose rule {others}", *filter(None, [getattr(reference, "remedy", "")])]),
    )


def _collect_drawn(
    records: Records, options: ReadOptions, menus: _Menus, menu: Ints, choice: Ints, gpus: Ints
) -> DrawnJobs:
    """Return for each job the model, batch and iterations of its choice from its menu."""
    gpu_s = records.duration_s * records.gpus
    time_s = menus.time_s[choice]
    # GPU time is kept, not the duration: a job on 6 GPUs that gets 8 runs for three quarters of its time.
    iterations = np.maximum(1, np.rint(gpu_s / gpus / time_s)).astype(np.int64)
    picked = choice.tolist()
    models = [menus.models[index] for index in picked]
    facts = {
        "rule": options.rule,
        "seed": options.seed,
        "gpu_types": list(menus.types),
        "reference_gpu": options.reference_gpu,
        "reference_cluster": options.reference_cluster,
        "power_of_two": options.power_of_two,
        "gpus_rounded_up": int((gpus != records.gpus).sum()),
        "outside_class": int(menus.later_tier[menu].sum()),
        "gpu_type_not_kept": int(menus.retyped[menu].sum()),
        "gpu_s_recorded": float(gpu_s.sum()),
        "gpu_s_drawn": float((iterations * time_s * gpus).sum()),
    }
    return DrawnJobs(
        model_family=[model.family for model in models],
        model_size=[model.size for model in models],
        global_batch=np.array([model.global_batch for model in models], dtype=np.int64),
        iterations=iterations,
        gpu_type=[menus.gpu_types[index] for index in picked],
        gpus=gpus,
        time_s=time_s,
        facts=facts,
    )
