"""Load the sources that generators are calibrated on: conf/generator/*.yaml, checked."""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import conf_dir
from clustergym.common.yaml_file import field_name, read_mapping

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
GpuCount = Annotated[int, Field(ge=1, le=1_000_000)]


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class SourcePart(_Keys):
    """A random component of the hourly rate's logarithm: its share of the variance, its correlation time."""

    share: Positive
    correlation_h: Positive


class Hourly(_Keys):
    """Random variation of the hourly arrival rate: its strength, and how it is correlated over time."""

    cv2: NotNegative
    parts: Annotated[tuple[SourcePart, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> Hourly:
        if abs(sum(part.share for part in self.parts) - 1.0) > 1e-6:
            raise ValueError("the shares of the parts must sum to 1")
        return self


class Level(_Keys):
    """Bursts of arrivals within an hour: the rate times another random factor every `period_s` seconds."""

    period_s: Annotated[int, Field(ge=1, le=1800)]
    cv2: NotNegative


class Arrivals(_Keys):
    """The arrival rate of jobs: relative rates by hour of day and day of week, and bursts."""

    hour_of_day: Annotated[tuple[NotNegative, ...], Field(min_length=24, max_length=24)]
    day_of_week: Annotated[tuple[NotNegative, ...], Field(min_length=7, max_length=7)]
    hourly: Hourly
    within_hour: tuple[Level, ...] = ()

    @model_validator(mode="after")
    def _periods_nest(self) -> Arrivals:
        periods = [3600, *(level.period_s for level in self.within_hour)]
        if any(long % short or short >= long for long, short in pairwise(periods)):
            raise ValueError("periods within the hour must each divide the one before, and the first 3600")
        if min(sum(self.hour_of_day), sum(self.day_of_week)) <= 0:
            raise ValueError("some hour and some day must have arrivals")
        return self


class Component(_Keys):
    """One log-normal component of a mixture of durations."""

    weight: Positive
    ln_mean: Finite
    ln_sigma: Positive


class Mixture(_Keys):
    """The distribution of durations of jobs in a range of GPU counts: a mixture of log-normals.

    Attributes
    ----------
    gpus : tuple of int
        Least and greatest GPU count of the range.
    components : tuple of Component
        Their `ln_mean` holds for one GPU.
    ln_slope : float
        Added to `ln_mean` per doubling of the count.
    """

    gpus: tuple[GpuCount, GpuCount]
    components: Annotated[tuple[Component, ...], Field(min_length=1)]
    ln_slope: Finite = 0.0


class Durations(_Keys):
    """The distributions of job durations by GPU count, and bounds in seconds."""

    min_s: Positive
    max_s: Positive
    mixtures: Annotated[tuple[Mixture, ...], Field(min_length=1)]


class VirtualClusterShare(_Keys):
    """Jobs of a virtual cluster (a team's part of a cluster): their number, and their shares by GPU count."""

    jobs: Annotated[int, Field(ge=1)]
    gpus: dict[GpuCount, NotNegative]


class Source(_Keys):
    """Statistics of a published trace, from which similar random traces are generated.

    Attributes
    ----------
    description : str
    jobs, span_s : int, float
        Size of the published trace, seconds from its first to its last submission.
    arrivals : Arrivals
    gpus : dict
        GPU count -> share of the jobs (relative).
    durations : Durations
    virtual_clusters : dict
    """

    description: str
    jobs: Annotated[int, Field(ge=2)]
    span_s: Positive
    arrivals: Arrivals
    gpus: Annotated[dict[GpuCount, NotNegative], Field(min_length=1)]
    durations: Durations
    virtual_clusters: dict[str, VirtualClusterShare] = {}

    _weights: dict[int, Floats] = PrivateAttr(default_factory=dict)

    def virtual_cluster_weights(self, gpus: int) -> Floats:
        """Return virtual clusters' numbers of jobs on `gpus` GPUs; if all are 0, of jobs on any GPU count."""
        if gpus not in self._weights:
            groups = self.virtual_clusters.values()
            weights = np.array([group.jobs * group.gpus.get(gpus, 0.0) for group in groups])
            everywhere = np.array([float(group.jobs) for group in groups])
            self._weights[gpus] = weights if weights.sum() > 0 else everywhere
        return self._weights[gpus]

    @model_validator(mode="after")
    def _every_count_has_durations(self) -> Source:
        if sum(self.gpus.values()) <= 0:
            raise ValueError("some GPU count must have a share")
        for count in self.gpus:
            if not any(low <= count <= high for low, high in (m.gpus for m in self.durations.mixtures)):
                raise ValueError(f"no mixture of durations holds for {count} GPUs")
        return self


def source_names() -> list[str]:
    """Return the names of the sources in conf/generator, ascending."""
    return sorted(path.stem for path in (conf_dir() / "generator").glob("*.yaml"))


def load_source(name_or_path: str) -> Source:
    """Load the statistics of a published trace by their name in conf/generator or from a YAML file."""
    shipped = conf_dir() / "generator" / f"{name_or_path}.yaml"
    if os.sep not in name_or_path and shipped.is_file():
        return _read(shipped)
    if name_or_path.endswith((".yaml", ".yml")) or os.sep in name_or_path:
        return _read(Path(name_or_path))
    raise InputError(
        f"unknown source {name_or_path!r}", field="source", remedy=nearest(name_or_path, source_names())
    )


def _read(path: Path) -> Source:
    try:
        stamp = path.stat().st_mtime_ns
    except (OSError, ValueError):
        stamp = 0
    return _read_cached(path, stamp)


@lru_cache(maxsize=16)
def _read_cached(path: Path, stamp: int) -> Source:
    document = read_mapping(path)
    try:
        return Source.model_validate(document.content)
    except ValidationError as error:
        found: list[Any] = list(error.errors())
        first = next((problem for problem in found if problem["type"] == "extra_forbidden"), found[0])
        keys = tuple(first["loc"])
        message = "unknown key" if first["type"] == "extra_forbidden" else str(first["msg"])
        message = message.removeprefix("Value error, ")
        raise InputError(
            message[:1].lower() + message[1:],
            file=path,
            line=document.line(keys),
            field=field_name(keys) or None,
            remedy="conf/generator/philly.yaml shows a complete source",
        ) from None
