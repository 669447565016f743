"""The parameters of the scheduling environments; the site's pages are made from this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import MinLen

from clustergym.common.parameter_types import (
    Factor,
    Fraction,
    NonNegativeFloat,
    OneOf,
    Period,
    PositiveFloat,
    PositiveInt,
)
from clustergym.common.parameters import Parameters
from clustergym.scenario.policy import InformationClass


@dataclass(frozen=True)
class SchedulingParameters(Parameters):
    """The parameters of a scheduling environment; the text below each field describes it."""

    config_key: ClassVar[str] = "env"
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
    failures: str | None = None
    """A name of conf/failures: nodes fail as that operator's do (docs/failures.md), other ones in each drawn
    episode. Null: none fail."""
    failure_scale: Factor = 1.0
    """Factor on the rates of these failures."""
    source: str = "philly"
    """A name of conf/generator: drawn traces resemble that source's."""
    rule: Literal["arena", "ares"] = "arena"
    """Which models are drawn; those of `ares` are data-parallel and fit on small GPUs."""
    queues: str | None = None
    """Queues of tenants (docs/tenants.md): a name of conf/queues, a YAML file, virtual_cluster or user. They
    need `features=tenants`. Null: none."""
    bursty: Fraction = 0.0
    """Share of the virtual clusters of drawn traces whose jobs come in bursts."""
    checkpoint_every_s: Period | None = None
    """Seconds of work between two checkpoints of a job: a stop without notice takes back what it has done
    since (docs/stopping-and-moving.md). Null: jobs save when they are stopped."""
    jobs: PositiveInt = 150
    """Jobs of an episode."""
    loads: Annotated[tuple[PositiveFloat, ...], MinLen(1)] = (1.0,)
    """Offered loads; each episode draws one."""
    traces: PositiveInt | None = None
    """Draw each episode among that many traces, `trace_seed` 0, 1, …, or the first of the split; null: among
    any number, in the splits dev and test among 40."""
    split: Literal["train", "dev", "test"] | None = None
    """Draw traces whose `trace_seed` modulo 3 is 0 (train), 1 (dev) or 2 (test), so that no trace is in two
    splits; null: any. Training refuses test."""
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
    information: Annotated[str, OneOf(InformationClass)] = "profiled"
    """What the agent knows of iteration times: clairvoyant, profiled, data_parallel, bootstrap or none."""
    round_s: Period | None = 300.0
    """Seconds between decision points; null: every event is a decision point."""
    placer: str = "buddy"
    """A name of conf/placer, with its default parameters."""
    rows: PositiveInt = 48
    """Most jobs that an observation shows, and actions can edit, at a decision point."""
    actions: Literal["edit", "admit", "drop", "scores", "weights", "priorities", "knobs"] = "edit"
    """What an action does: edit allotments, reject new jobs too (admit) or any (drop), or score the moves of
    an auction: each of them, by weights of their features, by two priorities of each job, or by what is added
    to the weights of a known auction (knobs)."""
    hold: PositiveInt | None = 1
    """Decision points for which weights or knobs hold; null: to the end of the episode."""
    features: Literal["jobs", "summary", "moves", "ranked", "tenants"] = "jobs"
    """What is observed: rows of jobs and the summary, the summary alone, or moves of an auction, sizes and
    ranks of the jobs or queues of tenants too."""
    observation: Literal["dict", "flat"] = "dict"
    """The form of an observation: a dict of arrays, or one array."""
    reward: Mapping[str, float] = field(default_factory=lambda: {"jobs_in_system": 1.0})
    """Weights of the terms jobs_in_system, log_jct, slowdown, unfairness, deadlines_met, broken_promises, and
    with queues owed."""
    baseline: str | None = None
    """A policy whose terms on the same trace are subtracted: `fcfs`, or `ares alpha=0.6`."""
    mask_stop_while_idle: bool = True
    """Make it illegal to stop while a waiting job in a row could use idle GPUs. Policies that leave GPUs
    idle on purpose need false."""
    stall_penalty: NonNegativeFloat | None = None
    """What is subtracted from the last reward of a stalled episode, times the share of its jobs that have not
    left. Null: instead, its costs count as if these jobs were there until all jobs of the episode could have
    run one after another."""
    on_illegal: Literal["ignore", "penalty", "repair", "raise"] = "ignore"
    """An illegal action changes nothing (ignore), costs `illegal_penalty` too (penalty), is replaced by a
    legal one (repair), or is an error (raise)."""
    illegal_penalty: NonNegativeFloat = 0.01
    """What `penalty` takes off the reward for each illegal action."""
    engine: Literal["auto", "simpy", "compiled"] = "auto"
    """What simulates: the SimPy engine, or its compiled form with the same results, which is faster. auto:
    the compiled form where it covers what the parameters and the scenario ask for."""

    @property
    def information_class(self) -> InformationClass:
        """The parameter `information` as a member of the enumeration `InformationClass`."""
        return InformationClass(self.information)
