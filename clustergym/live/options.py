"""The `live` group of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Period
from clustergym.common.parameters import Parameters
from clustergym.live.clocks import LiveClock, LockStepClock, ScaledClock


@dataclass(frozen=True)
class LiveOptions(Parameters):
    """Options of a live run; `conf/live.yaml` explains each key."""

    config_key: ClassVar[str] = "live"
    engine: Literal["slurm-local", "slurm", "fake"] = "slurm-local"
    clock: Literal["lockstep", "scaled"] = "lockstep"
    seconds_per_hour: Period = 60.0
    dry_run: bool = False
    partition: str | None = None
    nodes: tuple[str, ...] | None = None
    gpus: Literal["gres", "cpus"] = "gres"
    inject_failures: bool = False
    arguments: tuple[str, ...] = ()
    jobs: str | None = None
    accounts: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)
    poll_s: Period = 0.2
    patience_s: Period = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jobs is not None and self.engine != "slurm":
            remedy = "give live.engine=slurm: they run on your cluster"
            raise InputError("are scripts of your own", field="live.jobs", remedy=remedy)
        if self.nodes is None:
            return
        twice = [name for place, name in enumerate(self.nodes) if name in self.nodes[:place]]
        if twice:
            raise InputError(f"node {twice[0]} is named twice", field="live.nodes", remedy="name each once")

    def team_words(self, team: str) -> list[str]:
        """Return the arguments of salloc for the account and partition of a team's jobs."""
        account, partition = self.accounts.get(team), self.partitions.get(team)
        return [*(["-A", account] if account else []), *(["-p", partition] if partition else [])]

    def live_clock(self) -> LiveClock:
        """Make the clock that the options choose."""
        return LockStepClock() if self.clock == "lockstep" else ScaledClock(self.seconds_per_hour)
