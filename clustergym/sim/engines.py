"""The engines of a run, and which one simulates it: the results are the same to the bit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias, Union

import numpy as np

from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled.coverage import UncoveredError, check_runnable
from clustergym.sim.engine import Simulation

if TYPE_CHECKING:
    from clustergym.sim.compiled.simulation import CompiledSimulation

AnySimulation: TypeAlias = Union[Simulation, "CompiledSimulation"]
Engine = Literal["auto", "simpy", "compiled"]

PLACES = "give run.engine=simpy, which covers that"
MANY = 4000
"""Expected steps from which `auto` chooses the compiled engine, which takes a while to load."""


def expected_steps(scenario: Scenario, policy_round_s: float | None) -> float:
    """Estimate a run's number of steps: starts and ends of jobs, or decisions if those are more.

    A decision is made at each start and end, or each round while jobs arrive.
    """
    submit_s, round_s = scenario.trace.submit_s, scenario.round_s(policy_round_s)
    until_s = math.inf if scenario.horizon_s is None else scenario.horizon_s
    ends = 2.0 * np.count_nonzero(submit_s <= until_s)
    if round_s is None:
        return ends
    last_s = min(float(submit_s.max(initial=0.0)), until_s)
    return max(ends, (last_s - float(submit_s.min(initial=last_s))) / round_s)


def chosen_engine(scenario: Scenario, policy: Policy, placer: Placer, engine: Engine) -> Engine:
    """Return the name of the engine that will simulate a run, `simpy` or `compiled`.

    Raises
    ------
    UncoveredError
        If `compiled` is asked for and does not cover the scenario.
    """
    if engine == "auto":
        compiled = not policy.needs_places and is_compiled(scenario, placer, policy.round_s)
        return "compiled" if compiled else "simpy"
    if engine == "compiled":
        if policy.needs_places:
            raise UncoveredError(
                f"policy {policy.name} asks where jobs are, moves them or gives notice",
                field="run.engine",
                remedy=PLACES,
            )
        check_runnable(scenario, placer)
    return engine


def is_compiled(scenario: Scenario, placer: Placer, policy_round_s: float | None) -> bool:
    """Return whether a run has so many steps that the compiled engine is worth loading, and is covered."""
    if expected_steps(scenario, policy_round_s) < MANY:
        return False
    try:
        check_runnable(scenario, placer)
    except UncoveredError:
        return False
    return True


def make_simulation(
    scenario: Scenario, policy: Policy, placer: Placer, seed: int = 0, engine: Engine = "auto"
) -> AnySimulation:
    """Make a new simulation for a policy, on the chosen engine.

    Raises the errors of `chosen_engine`.
    """
    if chosen_engine(scenario, policy, placer, engine) == "simpy":
        return Simulation(scenario, placer, policy.information_class, policy.round_s, seed)
    from clustergym.sim.compiled.simulation import CompiledSimulation

    return CompiledSimulation(scenario, placer, policy.information_class, policy.round_s)
