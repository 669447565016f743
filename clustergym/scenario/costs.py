"""The costs of preemption, restart and profiling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError, require_known
from clustergym.common.parameter_types import Condition, NonNegativeFloat, PositiveFloat, PositiveInt
from clustergym.common.parameters import Parameters
from clustergym.scenario.policy import InformationClass

BYTES_PER_PARAMETER = {"fp16": 14, "fp32": 12}
"""Checkpoint bytes per parameter with Adam: weights, master weights (for fp16) and two moments."""

Search = Literal["pruned", "full", "proxy"]
SecondsByName = Mapping[str, NonNegativeFloat]

UNPRICED: Mapping[str, str] = {
    InformationClass.NONE: "a policy that knows nothing profiles nothing",
    InformationClass.CLAIRVOYANT: "an oracle knows what no profile can tell",
}
"""Information classes that have no profile price, and why."""


@dataclass(frozen=True)
class ProfilePrice:
    """The time and GPUs that it costs to profile a job, for policies that see profiled iteration times.

    Attributes
    ----------
    seconds : float
        Seconds that a profile takes on one GPU type.
    gpus : int
        GPUs of the type that a profile holds meanwhile.
    types : {"each", "requested"}
        Profile each type on which the job fits, or only the requested one (each, if any is requested).
    per : {"job", "configuration"}
        What takes these seconds: a job, or each allowed GPU count at which the job fits on the type.
    """

    seconds: Annotated[
        float, Condition(lambda s: s > 0, "above 0; ~costs.profile.CLASS lets the class know for nothing")
    ]
    gpus: PositiveInt
    types: Literal["each", "requested"]
    per: Literal["job", "configuration"]


def _default_prices() -> dict[str, ProfilePrice]:
    """Return the prices in conf/costs/default.yaml, which names their sources."""
    seconds = {"bootstrap": 300.0, "data_parallel": 600.0, "profiled": 510.0}
    return {name: ProfilePrice(time, 1, "each", "job") for name, time in seconds.items()}


@dataclass(frozen=True)
class Costs(Parameters):
    """The costs in time of launching a job: checkpoint, search for a parallel plan, and profiling.

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
        Seconds by type of search: per GPU of the allotment, and at most.
    profile : mapping of str to ProfilePrice
        Price of profiling a job, by the policy's information class; a class that is left out does not
        profile.
    profile_reuse : {"job", "model"}
        Whether a profile is of one job, or shared by all jobs of a model and global batch.
    first_launch : bool
        Whether a job's first launch costs a checkpoint too, as every later launch does.
    restart_s : float or None
        Seconds to save and load a checkpoint of any job, as an operator states them; null: by the model.
    """

    config_key: ClassVar[str] = "costs"
    storage_gbs: PositiveFloat = 1.0
    measured: bool = False
    measured_s: SecondsByName = field(default_factory=dict)
    search: Search = "pruned"
    search_s_per_gpu: SecondsByName = field(default_factory=lambda: {"pruned": 10.0, "full": 150.0})
    search_s_max: SecondsByName = field(default_factory=lambda: {"pruned": 90.0, "full": 600.0})
    profile: Mapping[str, ProfilePrice] = field(default_factory=_default_prices)
    profile_reuse: Literal["job", "model"] = "model"
    first_launch: bool = False
    restart_s: NonNegativeFloat | None = None

    def fingerprint(self) -> dict[str, object]:
        """Return all values as plain mappings for the scenario's digest, without optional costs that are off.

        So the digest of a scenario without them stays the same.
        """
        # Boards were frozen before there were these two.
        off = {"first_launch": not self.first_launch, "restart_s": self.restart_s is None}
        return {key: value for key, value in asdict(self).items() if not off.get(key, False)}

    def __post_init__(self) -> None:
        super().__post_init__()
        known = [information.value for information in InformationClass if information not in UNPRICED]
        for name in self.profile:
            key = f"costs.profile.{name}"
            if name in UNPRICED:
                message, remedy = f"{name} has no price: {UNPRICED[name]}", f"leave it out, as ~{key} does"
                raise InputError(message, field=key, remedy=remedy)
            require_known(name, known, "information class", key)

    def checkpoint_s(
        self, model: str, family: str, parameters: float, dtype: str, relaunch_s: float | None
    ) -> float:
        """Return the seconds to save and load a model's checkpoint: fixed, measured, or from its size."""
        if self.restart_s is not None:
            return self.restart_s
        # The model's own before its family's, and both before the catalogue's.
        for name in (model, family):
            if name in self.measured_s:
                return float(self.measured_s[name])
        if self.measured and relaunch_s is not None:
            return float(relaunch_s)
        # Saved once and loaded once.
        return 2 * parameters * BYTES_PER_PARAMETER[dtype] / (self.storage_gbs * 1e9)

    def search_s(self, counts: Ints) -> Floats:
        """Return the seconds that the search for a parallel plan takes, in the shape of `counts`."""
        per_gpu = self.search_s_per_gpu.get(self.search, 0.0)
        longest = self.search_s_max.get(self.search, math.inf)
        seconds: Floats = np.minimum(counts * per_gpu, longest)
        return seconds
