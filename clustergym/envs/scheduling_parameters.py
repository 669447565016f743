"""The parameters of the scheduling environments, as conf/env/elastic.yaml has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from clustergym.errors import InputError, nearest, require
from clustergym.policy import InformationClass

ACTIONS = ("edit", "admit", "drop", "meta")
FEATURES = ("jobs", "summary")

MENU = (
    "fcfs",
    "srtf",
    "srtf elastic=true",
    "las",
    "hesrpt",
    "optimus",
    "ares",
    "ares work_conserving=true",
)

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "actions": ACTIONS,
    "features": FEATURES,
    "information": tuple(member.value for member in InformationClass),
    "observation": ("dict", "flat"),
    "rule": ("arena", "ares"),
    "on_illegal": ("ignore", "raise"),
}


@dataclass(frozen=True)
class SchedulingParameters:
    """What a scheduling environment is made with.

    Attributes
    ----------
    scenario : str or None
        A name of conf/scenario: its cluster, trace, costs and oracle in every episode. The next
        fields, up to `max_duration_s`, do not count then.
    cluster : str
        A name of conf/cluster, or a YAML file.
    trace : str or None
        A name of traces/, or a trace file: the jobs of every episode. None: drawn for each episode.
    costs : str
        A name of conf/costs. By default nothing is profiled: what is known of a job is known when it
        comes (docs/profiling.md).
    source : str
        A name of conf/generator, like which traces are drawn.
    rule : {"arena", "ares"}
        Whose models are drawn; those of `ares` are data-parallel and fit on small GPUs.
    jobs : int
        Jobs of an episode.
    loads : tuple of float
        Offered loads, one of which is drawn for each episode.
    traces : int or None
        Draw among that many traces only, `trace_seed` 0, 1, …; None: no end of them.
    deadlines : bool
        Give drawn jobs deadlines.
    max_gpus : int or None
        Largest request drawn.
    min_duration_s, max_duration_s : float
        Shortest and longest duration drawn, at the request.
    horizon_s : float or None
        When an episode is truncated; None: it goes on until every job has left.
    information : str
        What the agent knows of iteration times, an `InformationClass`.
    round_s : float or None
        Seconds between decision points; None: one at every event.
    placer : str
    rows : int
        Most jobs that an observation shows, and actions can edit, at one decision point.
    actions : {"edit", "admit", "drop", "meta"}
        What an action is; see `clustergym.envs.actions`.
    features : {"jobs", "summary"}
        What is observed: rows of jobs and the summary, or the summary alone.
    observation : {"dict", "flat"}
    reward : mapping of str to float
        Weights of the terms of `clustergym.envs.scheduling_costs.COSTS`.
    baseline : str or None
        A policy whose terms on the same trace are subtracted: `fcfs`, or `ares alpha=0.6`.
    mask_stop_while_idle : bool
        Whether stopping is illegal while a waiting job in a row could use idle GPUs.
    on_illegal : {"ignore", "raise"}
        Whether an illegal action changes nothing, or is an error.
    policies : tuple of str
        What `actions="meta"` chooses among: policy names, each with its parameters.

    Raises
    ------
    InputError
        If a value is out of its range.
    """

    scenario: str | None = None
    cluster: str = "arena-a"
    trace: str | None = None
    costs: str = "profiled-free"
    source: str = "philly"
    rule: str = "arena"
    jobs: int = 150
    loads: tuple[float, ...] = (1.0,)
    traces: int | None = None
    deadlines: bool = False
    max_gpus: int | None = None
    min_duration_s: float = 60.0
    max_duration_s: float = 43200.0
    horizon_s: float | None = None
    information: str = "profiled"
    round_s: float | None = 300.0
    placer: str = "buddy"
    rows: int = 48
    actions: str = "edit"
    features: str = "jobs"
    observation: str = "dict"
    reward: Mapping[str, float] = field(default_factory=lambda: {"jobs_in_system": 1.0})
    baseline: str | None = None
    mask_stop_while_idle: bool = False
    on_illegal: str = "ignore"
    policies: tuple[str, ...] = MENU

    def __post_init__(self) -> None:
        for name, valid in _CHOICES.items():
            value = getattr(self, name)
            if value not in valid:
                raise InputError(
                    f"unknown value {value!r}", field=f"env.{name}", remedy=nearest(value, valid)
                )
        for name, least in {"rows": 1, "jobs": 1, "traces": 1}.items():
            value = getattr(self, name)
            require(
                value is None or value >= least, f"env.{name}", value, f"give a whole number from {least}"
            )
        round_s, loads = self.round_s, self.loads
        require(round_s is None or 1e-3 <= round_s < 1e9, "env.round_s", round_s, "give seconds, or null")
        positive = all(isfinite(load) and load > 0 for load in loads)
        require(bool(loads) and positive, "env.loads", list(loads), "give at least one positive number")
        require(bool(self.policies), "env.policies", "no policy", "name at least one")

    @property
    def information_class(self) -> InformationClass:
        """`information` as the class the simulation takes."""
        return InformationClass(self.information)
