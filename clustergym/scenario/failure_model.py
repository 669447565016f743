"""Settings of failures beyond a node's mean time between failures and its repair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from clustergym.common.errors import InputError, require
from clustergym.common.parameter_types import (
    Delay,
    Duration,
    Factor,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Slowdown,
)
from clustergym.common.parameters import Parameters

DAY_S = 86_400.0


@dataclass(frozen=True)
class Offenders:
    """Settings of the share of nodes that fail more often than others.

    Attributes
    ----------
    share : float
        Share of nodes, drawn for each node, that fail `factor` times as often as the others. The mean rate
        over all nodes stays that of `mtbf_s`.
    factor : float
    """

    share: Fraction = 0.0
    factor: Slowdown = 1.0


@dataclass(frozen=True)
class Exclusion:
    """Settings of the rule by which nodes that fail repeatedly are taken out of use for longer.

    Attributes
    ----------
    after : int or None
        A node that fails so many times within `within_s` seconds stays out for `for_s` seconds in place of
        its repair; then an ordinary node stands in its place. Null: none is excluded.
    within_s, for_s : float
    """

    after: PositiveInt | None = None
    within_s: Duration = 30 * DAY_S
    for_s: Duration = 7 * DAY_S


@dataclass(frozen=True)
class Restart:
    """Settings of how long each phase of a restart after a node failure takes.

    Attributes
    ----------
    in_place_share, process_share : float
        Shares of failures that leave the node in use. In place, its jobs stand still for `in_place_s` seconds
        and lose nothing; after a restart of their processes they stand still for `process_s` seconds and go
        on from their last checkpoints, on the same nodes. All other failures take the node out.
    in_place_causes, process_causes : tuple of str
        Causes whose failures always leave the node in use, whatever the shares. Where a list is given, the
        shares are of the failures that no list names.
    in_place_s, process_s : float
    node_s : float
        Seconds that a job which lost a node stands still at its next launch, besides the costs of any launch.
    """

    in_place_share: Fraction = 0.0
    in_place_s: Delay = 30.0
    process_share: Fraction = 0.0
    process_s: Delay = 180.0
    node_s: Delay = 0.0
    in_place_causes: tuple[str, ...] = ()
    process_causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spares:
    """Settings of the spare nodes that replace failed ones.

    Attributes
    ----------
    nodes : int
        Spares of each GPU type.
    swap_s : float
        Seconds until a spare works in a failed node's place. The failed node becomes a spare once it is
        repaired.
    """

    nodes: NonNegativeInt = 0
    swap_s: Delay = 900.0


@dataclass(frozen=True)
class FailureModel(Parameters):
    """The keys of `scenario.failures` that say how nodes and switches fail, are repaired and are replaced.

    Attributes
    ----------
    switch_path : str or None
        A CSV file of failures of switches (`failure_draws.SWITCH_COLUMNS`).
    leaf_mtbf_s, minipod_mtbf_s : float or None
        Mean seconds until a leaf, or the spine of a minipod, fails, which takes out all nodes below it.
    switch_mttr_s : float
        Mean seconds of its repair.
    repair_median_s : float or None
        Median seconds of a node's repair, log-normally distributed with the mean `mttr_s`; None:
        exponentially distributed.
    rate_scale : float
        Factor on the rates of all drawn failures.
    causes : mapping of str to float
        Causes of nodes' failures with their weights.
    offenders : Offenders
    exclusion : Exclusion
    detection_s : float
        Seconds until a failure of a node with jobs on it is noticed.
    restart : Restart
    spares : Spares
    checkpoint_rule : str
        `fixed`: every `checkpoint_every_s` seconds of work; `young` or `daly`: from the time that writing
        takes and the mean time between failures of the job's nodes and switches.
    checkpoint_write_s : float
        Seconds for which writing a checkpoint blocks a job.
    """

    config_key: ClassVar[str] = "scenario.failures"
    switch_path: str | None = None
    leaf_mtbf_s: Duration | None = None
    minipod_mtbf_s: Duration | None = None
    switch_mttr_s: Duration = 7200.0
    repair_median_s: Duration | None = None
    rate_scale: Factor = 1.0
    causes: Mapping[str, NonNegativeFloat] = field(default_factory=dict)
    offenders: Offenders = Offenders()
    exclusion: Exclusion = Exclusion()
    detection_s: Delay = 0.0
    restart: Restart = Restart()
    spares: Spares = Spares()
    checkpoint_rule: Literal["fixed", "young", "daly"] = "fixed"
    checkpoint_write_s: Delay = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        kept = self.restart.in_place_share + self.restart.process_share
        remedy = "give in_place_share and process_share that add up to at most 1"
        require(kept <= 1.0, f"{self.config_key}.restart", kept, remedy)
        if self.causes and not sum(self.causes.values()):
            message, remedy = "no cause has a weight above 0", "give one, or no causes"
            raise InputError(message, field=f"{self.config_key}.causes", remedy=remedy)
        self._check_causes_of_steps()
        if self.checkpoint_rule != "fixed" and not self.checkpoint_write_s:
            raise InputError(
                f"is 0, from which {self.checkpoint_rule}'s rule has no interval",
                field=f"{self.config_key}.checkpoint_write_s",
                remedy="give the seconds of a write, or checkpoint_rule=fixed",
            )

    def _check_causes_of_steps(self) -> None:
        """Raise an `InputError` unless the lists of causes by type of restart name known ones, each once."""
        named = {
            "in_place_causes": self.restart.in_place_causes,
            "process_causes": self.restart.process_causes,
        }
        for key, causes in named.items():
            for cause in causes:
                field_name = f"{self.config_key}.restart.{key}"
                if cause not in self.causes:
                    known = ", ".join(self.causes) or "none is given"
                    remedy = f"name one of {self.config_key}.causes: {known}"
                    raise InputError(f"{cause!r} is no cause of failures", field=field_name, remedy=remedy)
                if [*named["in_place_causes"], *named["process_causes"]].count(cause) > 1:
                    remedy = "name each cause once"
                    raise InputError(f"{cause!r} is named twice", field=field_name, remedy=remedy)

    def interval_s(self, fixed_s: float, failures_per_s: float) -> float:
        """Return the seconds of work between checkpoints: `fixed_s`, or Young's or Daly's optimum.

        Young's (CACM 17(9), 1974) and Daly's (FGCS 22(3), 2006, equation 37) first- and higher-order optima;
        both at least a second.

        Parameters
        ----------
        fixed_s : float
            The interval of the rule `fixed`.
        failures_per_s : float
            Rate at which the job's nodes and switches fail.
        """
        if self.checkpoint_rule == "fixed":
            return fixed_s
        write_s, mttf_s = self.checkpoint_write_s, 1.0 / failures_per_s
        # Young: the cost of writing, w / t, and of undone work, t / 2 MTTF, are least together at this t.
        young_s = math.sqrt(2.0 * write_s * mttf_s)
        if self.checkpoint_rule == "young":
            return max(young_s, 1.0)
        # Daly's series holds for writes below twice the time to a failure; beyond he takes that time.
        if write_s >= 2.0 * mttf_s:
            return max(mttf_s, 1.0)
        part = write_s / (2.0 * mttf_s)
        return max(young_s * (1.0 + math.sqrt(part) / 3.0 + part / 9.0) - write_s, 1.0)
