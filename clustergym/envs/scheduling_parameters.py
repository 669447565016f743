"""The parameters of the scheduling environments; the site's pages are made from this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from clustergym.inputs.errors import InputError, nearest, require
from clustergym.interface.policy import InformationClass

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


@dataclass(frozen=True)
class SchedulingParameters:
    """What a scheduling environment is made with; the text below each field describes it.

    Raises
    ------
    InputError
        If a value is out of its range.
    """

    scenario: str | None = None
    """A name of conf/scenario: every episode has its cluster, trace, costs and oracle. The next fields, up to
    `max_duration_s`, then do not count."""
    cluster: str = "arena-a"
    """A name of conf/cluster, or a YAML file."""
    trace: str | None = None
    """A name of traces/, or a trace file: the jobs of every episode. Null: each episode draws a trace."""
    costs: str = "profiled-free"
    """A name of conf/costs. By default no job is profiled: what is known of a job is known when it is
    submitted (docs/profiling.md)."""
    source: str = "philly"
    """A name of conf/generator: drawn traces resemble that source's."""
    rule: Literal["arena", "ares"] = "arena"
    """Which models are drawn; those of `ares` are data-parallel and fit on small GPUs."""
    jobs: int = 150
    """Jobs of an episode."""
    loads: tuple[float, ...] = (1.0,)
    """Offered loads; each episode draws one."""
    traces: int | None = None
    """Draw each episode among that many traces, `trace_seed` 0, 1, …; null: among any number."""
    deadlines: bool = False
    """Give drawn jobs deadlines."""
    max_gpus: int | None = None
    """Largest request drawn, GPUs."""
    min_duration_s: float = 60.0
    """Shortest duration drawn, at the request."""
    max_duration_s: float = 43200.0
    """Longest duration drawn, at the request."""
    horizon_s: float | None = None
    """When an episode is truncated; null: it lasts until every job has left."""
    information: str = "profiled"
    """What the agent knows of iteration times: clairvoyant, profiled, data_parallel, bootstrap or none."""
    round_s: float | None = 300.0
    """Seconds between decision points; null: every event is a decision point."""
    placer: str = "buddy"
    """A name of conf/placer, with its default parameters."""
    rows: int = 48
    """Most jobs that an observation shows, and actions can edit, at a decision point."""
    actions: Literal["edit", "admit", "drop", "meta", "scores", "weights"] = "edit"
    """What an action does: edit allotments, reject new jobs too (admit) or any (drop), choose a policy, or
    score the moves of an auction, each of them or by weights of their features."""
    features: Literal["jobs", "summary", "moves"] = "jobs"
    """What is observed: rows of jobs and the summary, the summary alone, or moves of an auction too."""
    observation: Literal["dict", "flat"] = "dict"
    """The form of an observation: a dict of arrays, or one array."""
    reward: Mapping[str, float] = field(default_factory=lambda: {"jobs_in_system": 1.0})
    """Weights of the terms jobs_in_system, slowdown, unfairness, deadlines_met and broken_promises."""
    baseline: str | None = None
    """A policy whose terms on the same trace are subtracted: `fcfs`, or `ares alpha=0.6`."""
    mask_stop_while_idle: bool = False
    """Make it illegal to stop while a waiting job in a row could use idle GPUs."""
    on_illegal: Literal["ignore", "raise"] = "ignore"
    """An illegal action changes nothing (ignore), or is an error (raise)."""
    policies: tuple[str, ...] = MENU
    """What `actions=meta` chooses among: policies, each with its parameters."""
    engine: Literal["auto", "simpy", "compiled"] = "auto"
    """What simulates: the SimPy engine, or its compiled form with the same results, which is faster. auto:
    the compiled form where it covers what the parameters and the scenario ask for."""

    def __post_init__(self) -> None:
        known = [member.value for member in InformationClass]
        if self.information not in known:
            message, remedy = f"unknown value {self.information!r}", nearest(self.information, known)
            raise InputError(message, field="env.information", remedy=remedy)
        for name in ("rows", "jobs", "traces"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"env.{name}", value, "give a whole number from 1")
        round_s, loads = self.round_s, self.loads
        require(round_s is None or 1e-3 <= round_s < 1e9, "env.round_s", round_s, "give seconds, or null")
        positive = all(isfinite(load) and load > 0 for load in loads)
        require(bool(loads) and positive, "env.loads", list(loads), "give at least one positive number")
        require(bool(self.policies), "env.policies", "no policy", "name at least one")

    @property
    def information_class(self) -> InformationClass:
        """`information` as an `InformationClass`."""
        return InformationClass(self.information)
