"""What preemption, restart and profiling cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError, nearest
from clustergym.policy import InformationClass

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BYTES_PER_PARAMETER = {"fp16": 14, "fp32": 12}
"""Checkpoint of a model trained with Adam: weights, master weights where fp16, two moments."""

SEARCHES = ("pruned", "full", "proxy")


@dataclass(frozen=True)
class Costs:
    """Standstill that a launch costs: checkpoint, parallelism search, profiling.

    Attributes
    ----------
    storage_gbs : float
        Bandwidth at which a job saves, and loads, its checkpoint, GB/s.
    measured : bool
        Use a model's measured relaunch time, where the catalogue has one, for saving and loading.
    measured_s : mapping of str to float
        Measured relaunch seconds by model (`family` or `family-size`); win over the catalogue.
    search : str
        How a plan is found for an allotment the job has not had before: `pruned` or `full`
        search, or the `proxy` plan, which needs no search.
    search_s_per_gpu, search_s_max : mapping of str to float
        Seconds by kind of search: per GPU of the allotment, and at most.
    profile_s : mapping of str to float
        Seconds a new job is profiled on each GPU type, by the policy's information class.
    profile_gpus : int
        GPUs of each type that profiling holds for that long.
    first_launch : bool
        Whether a job's first launch loads a checkpoint too, as every later one does: it starts the same
        processes.
    """

    storage_gbs: float = 1.0
    measured: bool = False
    measured_s: Mapping[str, float] = field(default_factory=dict)
    search: str = "pruned"
    search_s_per_gpu: Mapping[str, float] = field(default_factory=lambda: {"pruned": 10.0, "full": 150.0})
    search_s_max: Mapping[str, float] = field(default_factory=lambda: {"pruned": 40.0, "full": 600.0})
    profile_s: Mapping[str, float] = field(default_factory=lambda: {"profiled": 510.0})
    profile_gpus: int = 1
    first_launch: bool = False

    def fingerprint(self) -> dict[str, object]:
        """Return all values as plain mappings; what is off by default only where it is on."""
        values = asdict(self)
        return values if self.first_launch else {k: v for k, v in values.items() if k != "first_launch"}

    def __post_init__(self) -> None:
        if self.search not in SEARCHES:
            raise InputError(
                f"unknown search {self.search!r}", field="costs.search", remedy=nearest(self.search, SEARCHES)
            )
        if not (self.storage_gbs > 0 and math.isfinite(self.storage_gbs)):
            raise InputError("must be a positive number", field="costs.storage_gbs", remedy="give GB/s")
        if self.profile_gpus < 1:
            raise InputError("must be at least 1", field="costs.profile_gpus", remedy="give a GPU count")
        for table in ("measured_s", "search_s_per_gpu", "search_s_max", "profile_s"):
            for key, value in getattr(self, table).items():
                if not (value >= 0 and math.isfinite(value)):
                    raise InputError(
                        f"{value} is no duration", field=f"costs.{table}.{key}", remedy="give seconds >= 0"
                    )
        known = [c.value for c in InformationClass]
        for key in self.profile_s:
            if key not in known:
                raise InputError(
                    f"unknown information class {key!r}",
                    field="costs.profile_s",
                    remedy=nearest(key, known),
                )

    def checkpoint_s(
        self, model: str, family: str, parameters: float, dtype: str, relaunch_s: float | None
    ) -> float:
        """Return the seconds that saving and loading a model's checkpoint take together."""
        for name in (model, family):
            if name in self.measured_s:
                return float(self.measured_s[name])
        if self.measured and relaunch_s is not None:
            return float(relaunch_s)
        return 2 * parameters * BYTES_PER_PARAMETER[dtype] / (self.storage_gbs * 1e9)

    def search_s(self, counts: Ints) -> Floats:
        """Return the seconds of a first search for each GPU count."""
        per_gpu = self.search_s_per_gpu.get(self.search, 0.0)
        longest = self.search_s_max.get(self.search, math.inf)
        seconds: Floats = np.minimum(counts * per_gpu, longest)
        return seconds
