"""Run a simulation to its end with the decisions of a policy or of a decision log."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.scenario.policy import Decision, InformationClass, InformationError, Placer, Policy, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import UNCHANGED, Change, Simulation
from clustergym.sim.engines import AnySimulation, Engine, is_compiled, make_simulation
from clustergym.sim.guard import NO_ROLE, PLACER, POLICY, OvertimeError, StepWatchdog, make_stopped_error

Progress = Callable[[AnySimulation], None]


@dataclass
class DecisionTimes:
    """A histogram of the real seconds that decisions take, with percentiles accurate to 2 %."""

    count: int = 0
    bins: dict[int, int] = field(default_factory=dict)

    def add(self, wall_s: float) -> None:
        """Add the real seconds that one decision took."""
        self.count += 1
        # Bins of equal ratio keep the relative error the same from microseconds to minutes.
        key = math.floor(math.log(max(wall_s, 1e-9)) / 0.02)
        self.bins[key] = self.bins.get(key, 0) + 1

    def percentile(self, share: float) -> float | None:
        """Return the quantile `share` (0 to 1) of decision times, in real seconds; None without decisions."""
        seen = 0
        for key in sorted(self.bins):
            seen += self.bins[key]
            if seen >= share * self.count:
                return math.exp((key + 0.5) * 0.02)
        return None


@dataclass(frozen=True)
class Run:
    """A finished run: the simulation with its logs, and how long decisions took in real seconds."""

    simulation: AnySimulation
    decision_times: DecisionTimes
    wall_s: float


def simulate(
    scenario: Scenario,
    policy: Policy,
    placer: Placer,
    seed: int = 0,
    progress: Progress | None = None,
    watch: StepWatchdog | None = None,
    engine: Engine = "auto",
) -> Run:
    """Simulate a scenario to its end under a policy and a placer, and return the finished run.

    Raises the errors of `drive` and `chosen_engine`.
    """
    return drive(make_simulation(scenario, policy, placer, seed, engine), policy, seed, progress, watch)


def drive(
    simulation: AnySimulation,
    policy: Policy,
    seed: int = 0,
    progress: Progress | None = None,
    watch: StepWatchdog | None = None,
) -> Run:
    """Let a policy decide in a new simulation from start to end, and return the finished run.

    Raises
    ------
    DecisionError
        If a decision of the policy is not legal.
    StalledError
        If the policy starts no job though nothing else can happen.
    StoppedError
        If the policy or placer exits, or takes longer than the watch allows.
    """
    started, scenario = time.perf_counter(), simulation.scenario
    if scenario.parts is not None and not policy.serves_parts:
        message = (
            f"{policy.name} gives whole GPUs, and those of cluster {scenario.cluster.name} can be divided"
        )
        raise InputError(message, field="policy", remedy="choose policy=fcfs, sjf, srtf, las or tiresias")
    times, role = DecisionTimes(), NO_ROLE
    try:
        with watch or StepWatchdog() as watching, _few_full_collections():
            advance, schedule, apply = watching.steps(simulation, policy)
            policy.check(simulation.known_trace, simulation.setting)
            policy.reset(simulation.setting, random_streams.POLICY.generator(seed))
            role = PLACER
            view = advance()
            while view is not None:
                role, before = POLICY, time.perf_counter()
                decision = schedule(view)
                times.add(time.perf_counter() - before)
                # A View that nobody keeps need not make the columns that nobody has read.
                role, view = PLACER, None
                apply(decision)
                if progress is not None:
                    progress(simulation)
                view = advance()
    except InformationError as error:
        raise InputError(
            f"policy {policy.name}: {error}", field="policy", remedy="declare the information class it needs"
        ) from error
    except (SystemExit, GeneratorExit, OvertimeError) as error:
        raise make_stopped_error(role, simulation, policy, error) from error
    return Run(simulation, times, time.perf_counter() - started)


@contextmanager
def _few_full_collections() -> Iterator[None]:
    """Let Python look through all objects for garbage a tenth as often as before, until the end of a run.

    A run's log only grows: with the defaults a third of the time of a run of 51,200 jobs went into looking
    through it again and again.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, 10 * old)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)


def replay(
    scenario: Scenario,
    placer: Placer,
    information: InformationClass,
    round_s: float | None,
    seed: int,
    changes: Sequence[Change],
) -> AnySimulation:
    """Simulate a run again from its decision log, without its policy.

    The engine is chosen as that of a run is.

    Raises
    ------
    DecisionError
        If a logged decision is not legal where it stands.
    InputError
        If the log names a time that is not a decision point, or has entries after the end of the run.
    """
    if is_compiled(scenario, placer, round_s) and all(change.is_of_gpus_alone for change in changes):
        from clustergym.sim.compiled.simulation import CompiledSimulation

        compiled = CompiledSimulation(scenario, placer, information, round_s)
        # The policy may have asked for decision points, which only SimPy has. Where SimPy cannot follow the
        # log either, it says why.
        if compiled.follow(changes):
            return compiled
    simulation = Simulation(scenario, placer, information, round_s, seed)
    follow(simulation, changes)
    return simulation


def follow(simulation: Simulation, changes: Sequence[Change]) -> None:
    """Carry out the decisions of a decision log in a new simulation.

    Raises the errors of `replay`.
    """
    at, view = 0, simulation.advance()
    while view is not None:
        if at < len(changes) and changes[at].time_s < view.now_s:
            raise _make_diverged_error(changes[at])
        decision = UNCHANGED
        if at < len(changes) and changes[at].time_s == view.now_s:
            decision = _decision(changes[at], view)
            at += 1
        # A View that nobody keeps need not make the columns that nobody has read.
        view = None
        # A policy may have asked for the decision point of the next change.
        simulation.apply(decision, changes[at].time_s if at < len(changes) else None)
        view = simulation.advance()
    if at < len(changes):
        raise _make_diverged_error(changes[at])


def _make_diverged_error(change: Change) -> InputError:
    return InputError(
        f"the decision at {change.time_s} s is not at a decision point",
        field="decision log",
        remedy="the log is of another scenario, version or seed",
    )


def _decision(change: Change, view: View) -> Decision:
    launched = {row for row, _, _ in change.launch}
    gone = {*change.preempt, *change.drop, *(row for row in change.notice if row not in launched)}
    held = {
        int(row): (int(gpu_type), int(gpus))
        for row, gpu_type, gpus in zip(view.job, view.gpu_type, view.gpus, strict=True)
        if gpus and int(row) not in gone
    }
    held.update({row: (gpu_type, gpus) for row, gpu_type, gpus in change.launch})
    # On a divisible cluster jobs are placed in the order of the decision.
    ordered = sorted(held.items()) if view.parts is None else held.items()
    decision = Decision.of(((row, *allotment) for row, allotment in ordered), change.drop)
    kept = dict(zip(view.job.tolist(), view.batch.tolist(), strict=True))
    kept.update({row: 0 for row, _, _ in change.launch})
    kept.update(change.batch)
    decision = replace(decision, batch=np.array([kept[row] for row in decision.job.tolist()], dtype=np.int64))
    if change.avoid:
        decision = replace(decision, avoid=dict(change.avoid))
    if change.notice or change.move:
        notice = np.array(change.notice, dtype=np.int64)
        decision = replace(decision, notice=notice, move=dict(change.move))
    if change.capacity:
        decision = replace(decision, capacity=change.capacity)
    if view.partner is None and not change.partner:
        return decision
    return decision.paired([*_lasting_pairs(change, view), *change.partner])


def _lasting_pairs(change: Change, view: View) -> list[tuple[int, int]]:
    """Return the pairs of a View that a decision leaves as they are."""
    if view.partner is None:
        return []
    moved = {row for row, _, _ in change.launch} | {*change.preempt, *change.drop}
    pairs = zip(view.job.tolist(), view.partner.tolist(), strict=True)
    return [(row, other) for row, other in pairs if other > row and moved.isdisjoint((row, other))]
