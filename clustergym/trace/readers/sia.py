"""Read the workloads of Sia's artifact (SOSP '23): newTrace, Philly and Helios-Saturn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.columns import MAX_GPUS, integers, numbers, relative_origin, round_up_counts
from clustergym.common.errors import InputError, nearest
from clustergym.common.text_files import TextTable, header, read_csv
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.draw import choose_reference
from clustergym.trace.options import ReadOptions
from clustergym.trace.records import FAMILIES, families, provenance
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import build_trace

NAME = "sia"
REQUIRED = ("name", "time", "application", "num_replicas", "batch_size")
OPTIONAL = ("num_epochs", "duration")
"""Further columns of the format, which are not read."""
ISOLATED_GPUS = (4, 8, 16)
ISOLATED_S: dict[str, dict[str, tuple[int, int, int]]] = {
    "A100": {
        "cifar10": (399, 254, 176),
        "deepspeech2": (4228, 2486, 1583),
        "bert": (383, 198, 136),
        "yolov3": (8800, 5420, 3537),
        "imagenet": (45635, 24838, 16803),
    },
    "RTX2080Ti": {
        "cifar10": (1017, 655, 498),
        "deepspeech2": (4337, 2567, 1686),
        "bert": (2069, 1236, 831),
        "yolov3": (20364, 10771, 6964),
        "imagenet": (85096, 48944, 28068),
    },
    "T4": {
        "cifar10": (2091, 1487, 809),
        "deepspeech2": (5979, 4201, 2523),
        "bert": (4004, 2976, 1602),
        "yolov3": (13300, 14351, 8022),
        "imagenet": (181183, 95545, 52886),
    },
}
"""Seconds an application trains alone on `ISOLATED_GPUS` GPUs of a type, computed from Sia's published
profiles (dgx-ext, rtx and aws) with the batch size that is best there."""


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like a workload of Sia."""
    return bool({"num_replicas", "application"} & header(lines))


def _read_validated(table: TextTable, folder: Path, lengths: str) -> Ints:
    """Return the iterations that Sia's validation files show for each job's application and batch."""
    from clustergym.oracle.measured.sia_oracle import FOLDERS
    from clustergym.oracle.measured.sia_training import Training, read_training

    training: dict[str, Training] = {}
    iterations = []
    jobs = zip(table.columns["application"], integers(table, "batch_size"), table.line, strict=True)
    for application, batch, line in jobs:
        name = FOLDERS[FAMILIES[application.lower()]]
        if name not in training:
            training[name] = read_training(folder / name)
        try:
            found = training[name]
            needed = (
                found.interpolate_iterations(int(batch))
                if lengths == "validated"
                else found.by_noise(int(batch)).sum()
            )
            iterations.append(max(1, round(needed)))
        except InputError as error:
            raise InputError(
                f"{error.message} in {training[name].path}",
                file=table.path,
                line=line,
                field="batch_size",
                remedy=error.remedy,
            ) from error
    return np.array(iterations, dtype=np.int64)


def _iterations(table: TextTable, classes: list[ModelClass], options: ReadOptions) -> Ints:
    """Return the iterations of each job: from Sia's profiles if given, else from isolated run times."""
    if options.sia_profiles is not None:
        return _read_validated(table, Path(options.sia_profiles), options.sia_lengths)
    options = replace(options, reference_gpu=_reference_gpu(options))
    known: dict[tuple[str, ModelClass], int] = {}
    keys = list(zip(map(str.lower, table.columns["application"]), classes, strict=True))
    for row, key in enumerate(keys):
        if key not in known:
            known[key] = _of_class(*key, table, row, options)
    return np.array([known[key] for key in keys], dtype=np.int64)


def _reference_gpu(options: ReadOptions) -> str:
    """Return the GPU type whose isolated run times count: the one named, or the reference cluster's first."""
    named, types = options.reference_gpu, options.recorded_types or ()
    found = named or next((name for name in ISOLATED_S if name in types), "")
    if found in ISOLATED_S:
        return found
    message = "Sia's applications have no isolated run time on "
    if named:
        raise InputError(f"{message}{named!r}", field="reference_gpu", remedy=nearest(named, ISOLATED_S))
    remedy = f"name a cluster with {' or '.join(ISOLATED_S)}, or give trace.sia_profiles"
    message += f"cluster {options.reference_cluster} ({', '.join(types)})"
    raise InputError(message, field="trace.reference_cluster", remedy=remedy)


def _of_class(application: str, model: ModelClass, table: TextTable, row: int, options: ReadOptions) -> int:
    path, line, field = table.path, table.line[row], "application"
    isolated_s = ISOLATED_S[options.reference_gpu].get(application)
    if isolated_s is None:
        remedy = nearest(application, ISOLATED_S[options.reference_gpu])
        message = f"unknown application {application!r}"
        raise InputError(message, file=path, line=line, field=field, remedy=remedy)
    for gpus, seconds in zip(ISOLATED_GPUS, isolated_s, strict=True):
        time_s = choose_reference(options)(model, options.reference_gpu, gpus)
        if np.isfinite(time_s):
            return max(1, round(seconds / time_s))
    most = f"{ISOLATED_GPUS[-1]} {options.reference_gpu}"
    message = f"{model.model} at batch {model.global_batch} does not fit on {most}"
    raise InputError(message, file=path, line=line, field=field, remedy="choose another reference GPU")


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a workload of Sia, and compute how many iterations its jobs train, which it does not state.

    A job has as many iterations, at its batch size, as take the application's run time alone
    (`ISOLATED_S`) at the reference iteration time of `options.reference_gpu`, on the least count of
    `ISOLATED_GPUS` on which it fits; with `options.sia_profiles` as many as Sia's validation files show
    for its batch, or as their gradient statistics give. It is drawn from nothing: no seed matters.
    """
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    time_s = numbers(table, "time", low=0)
    origin = relative_origin(time_s)
    replicas = integers(table, "num_replicas", low=1, high=MAX_GPUS)
    batch = integers(table, "batch_size", low=1)
    family = families(table.columns["application"], FAMILIES, path, table.line, "application")
    classes = [ModelClass(name, "", int(size)) for name, size in zip(family, batch, strict=True)]
    return build_trace(
        path=path,
        line=table.line,
        job_id=table.columns["name"],
        submit_s=np.round(time_s - origin, 6),
        model_family=family,
        global_batch=batch,
        iterations=_iterations(table, classes, options),
        gpus=round_up_counts(replicas) if options.power_of_two else replicas,
        asked_gpus=replicas,
        source_names={
            "job_id": "name",
            "submit_s": "time",
            "gpus": "num_replicas",
            "global_batch": "batch_size",
        },
        provenance=provenance(path, NAME, table.sha256, origin, reference_gpu=options.reference_gpu),
    )
