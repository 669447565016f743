"""Options for reading traces of other formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from clustergym.common.parameter_types import Fraction, PositiveFloat, PositiveInt, PositiveRange
from clustergym.oracle.models.model_spec import ModelClass

ReferenceTime = Callable[[ModelClass, str, int], float]
"""(model class, GPU type, GPU count) -> seconds per iteration; inf where it does not fit. An empty GPU type
is the one on which it is fastest."""
TypeNames = Callable[[str], str]
"""GPU type as a file spells it -> its name; raises an `InputError` for an unknown one."""
LimitChoice = Literal["ignore", "keep"] | PositiveRange
"""Time limits: none, those of the log, or the least and largest factor of the run time to draw them by."""


@dataclass(frozen=True)
class GeneratorOptions:
    """Options of generated traces: number of jobs, span, load, GPU counts, durations and tenants.

    Attributes
    ----------
    jobs : int
    span_s : float or None
        Seconds from the first to the last submission. None: what the source's own rate gives, or with `load`
        what that asks for.
    load : float or None
        Offered load on the whole cluster (see `offer`). Alone it scales the span and keeps the durations;
        with `span_s` it scales the iterations of all jobs by one factor.
    rule : str
        How models are drawn, `arena` or `ares` (see `clustergym.trace.draw`).
    requests : str
        `source`: GPU counts by the source's shares; `arena`: by those of Arena's published Philly trace;
        `pretraining`: 64 to 1,024 GPUs, as many in all for each power of two. Durations stay those of the
        source's counts.
    max_gpus : int or None
        GPU counts are drawn given that they are at most this. None: what the largest of the cluster's types
        has. Nothing is clipped.
    min_duration_s, max_duration_s : float or None
        Durations are drawn given that they lie within; nothing is clipped.
    start_hour : int
        Hour of the week at which the trace starts; 0 is Monday 00:00.
    tenants : mapping of str to float, or None
        Virtual clusters with their shares of the jobs (relative), in place of the source's own.
    bursty : float
        Share of the virtual clusters whose jobs come in bursts (`generators.arrivals.in_bursts`).
    """

    jobs: Annotated[PositiveInt, Le(2_000_000)] = 200
    span_s: Annotated[float, Ge(1e-3)] | None = None
    load: Annotated[float, Gt(0), Le(1e3)] | None = None
    rule: Literal["arena", "ares"] = "arena"
    requests: Literal["source", "arena", "pretraining"] = "source"
    max_gpus: Annotated[PositiveInt, Le(1_000_000)] | None = None
    min_duration_s: PositiveFloat | None = None
    max_duration_s: PositiveFloat | None = None
    start_hour: Annotated[int, Ge(0), Le(167)] = 0
    tenants: Mapping[str, float] | None = None
    bursty: Fraction = 0.0


@dataclass(frozen=True)
class LogOptions:
    """A user's options for reading traces of other formats, from the configuration or a command.

    Attributes
    ----------
    gavel_steps : str
        Whether a Gavel trace's steps and batch are the whole `job`'s or each `worker`'s.
    sia_profiles : str or None
        Sia's profiles folder: its jobs get the iterations that its validation files show for their
        batch. None: as many as take their run time alone at the reference iteration time.
    sia_lengths : str
        How many iterations those files show: `validated`, as many as the training at that batch took;
        `noise`, as many as its gradient statistics give for the progress of the training at the
        least batch, as in Sia's simulator (`oracle.sia_training.Training.by_noise`).
    keep_shares : bool
        Keep the part of a GPU that a job of PAI plans with, as a recorded job; by default it is rounded up.
    """

    gavel_steps: str = "job"
    sia_profiles: str | None = None
    sia_lengths: Literal["validated", "noise"] = "validated"
    keep_shares: bool = False


@dataclass(frozen=True)
class ReadOptions(LogOptions):
    """Options of the functions that read traces: how to complete what a file does not say.

    Attributes
    ----------
    seed : int
        Seed of what is drawn.
    rule : str
        How a job that was recorded without its model gets one: `arena` or `ares` (see `draw`).
    reference_time_s : callable, optional
        Seconds per iteration of (model class, GPU type, GPUs). By default the roofline oracle's
        on `reference_cluster`, compactly placed.
    reference_gpu : str
        GPU type on which the recorded duration holds for a job that asks for no type; empty: the type of the
        reference cluster on which it is fastest.
    reference_cluster : str
        Cluster whose GPU types are drawn and whose iteration times are the reference; with `reference_time_s`
        the name of the cluster that it holds for, empty for none.
    recorded_types : tuple of str, optional
        GPU types that a log may name, those of the reference cluster; a job on another is an error. None: any
        type of the catalogue, those that the reference cluster lacks on nodes of 8 GPUs.
    gpu_types : tuple of str, optional
        GPU types to draw among; empty: leave requests at any type. By default the rule's: those
        of the reference cluster for `arena`, any for `ares`.
    most_gpus : mapping of str to int, optional
        GPUs of each type to draw among: no job draws a type with fewer than it asks for, unless all have.
    type_name : callable, optional
        Names of the GPU types in a file; by default those of the hardware catalogue.
    outcomes : str
        `keep`: jobs that failed or were killed in a log end where they did (`workload.outcomes`); `ignore`:
        each job does what it did in the log, and all complete.
    node_gpus : mapping of str to int, optional
        GPUs of a node of each type: jobs ask for as many nodes as they had, if those have as many GPUs. None:
        they ask for any.
    power_of_two : bool
        Round GPU counts up to powers of two; a drawn job keeps its GPU time, any other its iterations.
    """

    seed: int = 0
    rule: str = "arena"
    reference_time_s: ReferenceTime | None = None
    reference_gpu: str = "A100"
    reference_cluster: str = "arena-sim"
    recorded_types: tuple[str, ...] | None = None
    gpu_types: tuple[str, ...] | None = None
    most_gpus: Mapping[str, int] | None = None
    type_name: TypeNames | None = None
    outcomes: str = "ignore"
    node_gpus: Mapping[str, int] | None = None
    power_of_two: bool = True


def types_to_draw(rule: str, any_type: bool, gpu_types: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the GPU types to sample for jobs that name none; (): sample none; None: the rule's default.

    Empty: none are sampled, and requests stay at any type. None: those that the rule samples by default.
    """
    if any_type:
        return ()
    return gpu_types if rule == "arena" else None
