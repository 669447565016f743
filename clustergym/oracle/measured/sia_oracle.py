"""The oracle of Sia's published profiles (SOSP '23): measured step times of its applications and NeuMF."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Floats
from clustergym.common.columns import integers, numbers, quote_cell
from clustergym.common.errors import InputError, nearest
from clustergym.common.text_files import TextTable, read_csv
from clustergym.oracle.base import BatchTables, Oracle, OracleTables, check_choice, six_digits
from clustergym.oracle.measured.sia_training import Training, check_folder, read_training
from clustergym.oracle.models.catalog import Catalog, load_catalog
from clustergym.oracle.models.model_spec import ModelClass

FOLDERS = {
    "bert": "bert",
    "deepspeech2": "deepspeech2",
    "neumf": "ncf",
    "resnet18": "cifar10",
    "resnet50": "imagenet",
    "yolov3": "yolov3",
}
"""Folder of each model family; Sia names ResNet-18 and ResNet-50 by data set."""

SUFFIXES = {"A100": "dgx-ext", "QuadroRTX6000": "quad", "RTX2080Ti": "rtx", "T4": "aws", "V100": "azure"}
"""What Sia's files call each GPU type."""

CALIBRATION = {"resnet18": 1.8}
"""Ratio of a training's time to that of its profiled steps, by family, where it is not the usual one.

The applications' isolated run times (`workload.readers.sia.ISOLATED_S`) are longer than the profiles' steps
add up to, by the same ratio for all counts and GPU types."""
USUAL_CALIBRATION = 1.2

SEGMENTS = 10
"""Parts of a training in each of which the progress per sample at a batch is constant."""

BATCHES = ("fixed", "best")
"""Whether a job trains at its own global batch, or at the batch that ends it soonest."""

Key = TypeVar("Key", bound=Hashable)

Curve = tuple[Floats, Floats, Floats]
"""Local batch sizes, ascending, and at each seconds of a step and of the synchronisation it does not hide."""


@dataclass(frozen=True)
class SiaProfile:
    """Iteration times of one model on one GPU type, by placement, as published with the scheduler Sia.

    Attributes
    ----------
    placements : dict of tuple to Curve
        By GPUs per node, ascending, as in (4, 4).
    scalability : dict of (nodes, GPUs) to Curve
    """

    placements: dict[tuple[int, ...], Curve]
    scalability: dict[tuple[int, int], Curve]

    def curve(self, placement: tuple[int, ...]) -> Curve | None:
        """Return measured times at each local batch for a placement, or the nearest one; None without any.

        The curve of the placement itself; else that of the same count on equally many nodes; else of the same
        count on the nearest number of nodes.
        """
        if placement in self.placements:
            return self.placements[placement]
        nodes, gpus = len(placement), sum(placement)
        alike = [pair for pair in self.scalability if pair[1] == gpus and (pair[0] > 1) == (nodes > 1)]
        if not alike:
            return None
        return self.scalability[min(alike, key=lambda pair: (abs(pair[0] - nodes), pair[0]))]


def read_profile(folder: Path, suffix: str) -> SiaProfile:
    """Read a model's times on a GPU type from `placements-SUFFIX.csv` and `scalability-SUFFIX.csv`."""
    placed = read_csv(
        folder / f"placements-{suffix}.csv", ("placement", "local_bsz", "step_time", "sync_time")
    )
    scaled = read_csv(
        folder / f"scalability-{suffix}.csv",
        ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"),
    )
    nodes, gpus = integers(scaled, "num_nodes", low=1), integers(scaled, "num_replicas", low=1)
    if (gpus < nodes).any():
        row = int(np.argmax(gpus < nodes))
        raise InputError(
            f"{gpus[row]} GPUs on {nodes[row]} nodes",
            file=scaled.path,
            line=scaled.line[row],
            field="num_replicas",
            remedy="give at least one GPU a node",
        )
    pairs = list(zip(nodes.tolist(), gpus.tolist(), strict=True))
    return SiaProfile(_curves(placed, _placements(placed)), _curves(scaled, pairs))


def _placements(table: TextTable) -> list[tuple[int, ...]]:
    found = []
    for cell, line in zip(table.columns["placement"], table.line, strict=True):
        if not (cell.isascii() and cell.isdigit() and "0" not in cell):
            message = f"{quote_cell(cell)} is not a placement" if cell else "is empty"
            remedy = "give a digit from 1 for each node, its GPUs"
            raise InputError(message, file=table.path, line=line, field="placement", remedy=remedy)
        found.append(tuple(sorted(int(digit) for digit in cell)))
    return found


def _curves(table: TextTable, keys: Sequence[Key]) -> dict[Key, Curve]:
    """Return the curve of each key; rows of the same local batch are averaged."""
    local = numbers(table, "local_bsz", low=1)
    step, sync = numbers(table, "step_time", low=1e-9), numbers(table, "sync_time", low=0)
    over = np.flatnonzero(sync > step)
    if len(over):
        row = int(over[0])
        message = f"{sync[row]:.6g} s is longer than the step, {step[row]:.6g} s"
        raise InputError(
            message, file=table.path, line=table.line[row], field="sync_time", remedy="correct one of them"
        )
    rows: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    curves = {}
    for key, at in rows.items():
        sizes, place, count = np.unique(local[at], return_inverse=True, return_counts=True)
        curves[key] = sizes, np.bincount(place, step[at]) / count, np.bincount(place, sync[at]) / count
    return curves


def iteration_time_s(curve: Curve, gpus: int, global_batch: int) -> float:
    """Return the least seconds per iteration among the ways to split the global batch into local batches.

    With a steps of local batch b on N GPUs, N a b is the global batch (b rounded up), and an iteration
    takes a - 1 steps without and one with synchronisation (Sia, section 3.3). Step and synchronisation
    times are interpolated over b. The largest profiled b is the memory limit; a b below the least
    profiled one takes as long as that one.

    Parameters
    ----------
    curve : Curve
    gpus, global_batch : int
    """
    sizes, step, sync = curve
    # Fewer accumulation steps would exceed the largest local batch that was profiled.
    first = max(1, int(np.ceil(global_batch / (gpus * sizes[-1]))))
    last = max(first, int(global_batch // (gpus * sizes[0])))
    steps = np.arange(first, last + 1)
    local = np.ceil(global_batch / (gpus * steps))
    full, waiting = np.interp(local, sizes, step), np.interp(local, sizes, sync)
    # Only the last of the accumulation steps waits for the synchronisation.
    seconds = full + (steps - 1) * (full - waiting)
    return float(np.where(local <= sizes[-1], seconds, np.inf).min())


class Segments(NamedTuple):
    """The parts of a training: where each ends, and the progress per sample at each batch in it."""

    ends: Floats
    efficiency: Floats


class SiaProfileOracle(Oracle):
    """An oracle that reads iteration times from a folder of profiles published with the scheduler Sia.

    Inside a node, a count is the placement of that count. Across nodes, whatever the tier, it fills whole
    nodes; a count that would fit on one node is spread evenly over two. All three tables are equal, since
    Sia's jobs are data-parallel.

    A job may train at any validated global batch, where the validation files have gradient statistics and its
    own batch is between the validated ones (`OracleTables.batches`). A training is divided into at most
    `SEGMENTS` parts of equally many epochs. The efficiency of a batch is constant in a part: there it takes
    as many iterations as the part's epochs take together (`Training.by_noise`).

    Differences from Sia's simulator: a placement that was not measured has the times of the nearest measured
    one of the same count (see `SiaProfile.curve`), and is infeasible if there is none, where the simulator
    interpolates over counts; the local batch is the best for the global batch; a batch between the validated
    ones cannot be chosen.

    Parameters
    ----------
    path : str or Path
    batch : str
        `fixed`: a job trains at its own global batch, or at one that its policy chooses. `best`: on every
        allocation and under any policy it trains at the validated global batch that ends it soonest, and no
        policy chooses; the time of an iteration is then that of the whole training over its iterations at the
        job's own batch.
    calibrated : bool
        Whether the profile's times are multiplied by `CALIBRATION`, so that they agree with Sia's isolated
        run times.
    catalog : Catalog, optional
        `conf/model` by default.
    """

    name = "sia"

    def __init__(
        self,
        path: str | Path,
        batch: str = "fixed",
        calibrated: bool = True,
        catalog: Catalog | None = None,
    ) -> None:
        check_choice(batch, BATCHES, "oracle.batch")
        self.folder, self.batch, self.calibrated = Path(path), batch, calibrated
        self.catalog = catalog or load_catalog()
        check_folder(self.folder)
        if not any((self.folder / name).is_dir() for name in FOLDERS.values()):
            remedy = f"give a folder with at least one of {', '.join(sorted(FOLDERS.values()))}"
            raise InputError("holds no profiles of Sia", file=self.folder, remedy=remedy)
        self._profiles: dict[tuple[str, str], SiaProfile] = {}
        self._training: dict[str, Training] = {}

    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Return the classes' iteration times; raise an `InputError` if a profile is missing or malformed."""
        times = np.stack([self._times(model, cluster, counts) for model in classes])
        batches = self._batches(classes, cluster, counts)
        return OracleTables.from_oracle(classes, cluster, counts, [times] * 3, batches)

    def _times(self, model: ModelClass, cluster: ClusterSpec, counts: Sequence[int]) -> Floats:
        times = np.full((len(cluster.gpu_types), len(counts), len(Locality)), np.inf)
        for t, gpu in enumerate(cluster.gpu_types):
            profile = self._profile(model, gpu)
            room = int(cluster.gpus_per_node[t])
            for k, count in enumerate(counts):
                if count <= int(cluster.capacity[t]):
                    times[t, k] = self._by_locality(model, profile, int(count), room)
        return times * CALIBRATION.get(model.family, USUAL_CALIBRATION) if self.calibrated else times

    def _batches(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> BatchTables | None:
        """Return times and progress per sample at all batches; None where no class has a choice."""
        sizes = [self._sizes(model) for model in classes]
        width = max(map(len, sizes), default=1)
        if width == 1:
            return None
        table = np.zeros((len(classes), width), dtype=np.int64)
        shape = (len(cluster.gpu_types), len(counts), len(Locality))
        execution = np.full((len(classes), *shape, width), np.inf)
        ends = np.ones((len(classes), SEGMENTS))
        efficiency = np.zeros((len(classes), SEGMENTS, width))
        for c, (model, choices) in enumerate(zip(classes, sizes, strict=True)):
            table[c, : len(choices)] = choices
            for b, batch in enumerate(choices):
                execution[c, ..., b] = self._times(model._replace(global_batch=batch), cluster, counts)
            mine = self._efficiency(model, choices)
            ends[c, : len(mine.ends)] = mine.ends
            efficiency[c, :, : len(choices)] = mine.efficiency[-1]
            efficiency[c, : len(mine.ends), : len(choices)] = mine.efficiency
        return BatchTables(table, six_digits(execution), six_digits(ends), six_digits(efficiency))

    def _sizes(self, model: ModelClass) -> list[int]:
        """Return the batches that a model may train at, ascending, its own among them."""
        folder, own = self._find_folder(model), model.global_batch
        if self.batch == "best" or not any(folder.glob("validation-*.csv")):
            return [own]
        training = self._get_training(model)
        if not len(training.progress) or not training.batches[0] <= own <= training.batches[-1]:
            return [own]
        return sorted({own, *training.batches.astype(int).tolist()})

    def _efficiency(self, model: ModelClass, sizes: Sequence[int]) -> Segments:
        if len(sizes) == 1:
            return Segments(np.ones(1), np.ones((1, 1)))
        training = self._get_training(model)
        parts = np.array_split(np.arange(len(training.progress)), min(SEGMENTS, len(training.progress)))
        epochs = [training.by_noise(batch) for batch in sizes]
        needed = np.array([[column[part].sum() for column in epochs] for part in parts])
        own = needed[:, sizes.index(model.global_batch)]
        # Shares of the training at the job's own batch, in which its progress is counted.
        ends = np.cumsum(own) / own.sum()
        # The sum may miss 1 by rounding, and a training must not end beyond its last segment.
        ends[-1] = 1.0
        return Segments(ends, own[:, None] / needed * model.global_batch / np.array(sizes))

    def _get_training(self, model: ModelClass) -> Training:
        if model.family not in self._training:
            self._training[model.family] = read_training(self._find_folder(model))
        return self._training[model.family]

    def _find_folder(self, model: ModelClass) -> Path:
        if model.family not in FOLDERS or model.size:
            message = f"model {model.model} has no profile of Sia"
            raise InputError(message, field="model_family", remedy=nearest(model.family, FOLDERS))
        folder = self.folder / FOLDERS[model.family]
        check_folder(folder)
        return folder

    def _profile(self, model: ModelClass, gpu: str) -> SiaProfile:
        if gpu not in SUFFIXES:
            message = f"Sia's profiles have no GPU type {gpu}"
            raise InputError(message, field="gpu_type", remedy=nearest(gpu, SUFFIXES))
        key = (model.family, gpu)
        if key not in self._profiles:
            self._profiles[key] = read_profile(self._find_folder(model), SUFFIXES[gpu])
        return self._profiles[key]

    def _by_locality(self, model: ModelClass, profile: SiaProfile, count: int, room: int) -> list[float]:
        inside = self._time_s(model, profile, (count,)) if count <= room else np.inf
        if count > room:
            whole, rest = divmod(count, room)
            spread = (*((rest,) if rest else ()), *(room,) * whole)
        else:
            # The files have no row for GPUs that need not leave a node; evenly over two is the closest to a
            # real one.
            spread = (count // 2, count - count // 2)
        across = self._time_s(model, profile, spread) if count > 1 else np.inf
        return [inside, across, across, across]

    def _time_s(self, model: ModelClass, profile: SiaProfile, placement: tuple[int, ...]) -> float:
        curve = profile.curve(placement)
        if curve is None:
            return np.inf
        gpus = sum(placement)
        if self.batch == "fixed":
            return iteration_time_s(curve, gpus, model.global_batch)
        training = self._get_training(model)
        choices = zip(training.batches.astype(int), training.iterations, strict=True)
        totals = [needed * iteration_time_s(curve, gpus, size) for size, needed in choices]
        return float(min(totals) / training.interpolate_iterations(model.global_batch))
