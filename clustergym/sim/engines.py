"""The engines of a run, and which one simulates it: the results are the same to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, Union

from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled.coverage import UncoveredError, check_runnable
from clustergym.sim.engine import Simulation

if TYPE_CHECKING:
    from clustergym.sim.compiled.simulation import CompiledSimulation

AnySimulation: TypeAlias = Union[Simulation, "CompiledSimulation"]
Engine = Literal["auto", "simpy", "compiled"]

PLACES = "give run.engine=simpy, which says so"
MANY = 4000
"""Expected decisions from which `auto` chooses the compiled engine, which takes a while to load."""


def expected_decisions(scenario: Scenario, policy: Policy) -> float:
    """Return about how many decisions a run takes: two for each job, or one each round while jobs arrive."""
    submit_s, round_s = scenario.trace.submit_s, scenario.round_s(policy.round_s)
    if round_s is None:
        return 2.0 * len(submit_s)
    last_s = float(submit_s.max(initial=0.0))
    until_s = last_s if scenario.horizon_s is None else min(last_s, scenario.horizon_s)
    return (until_s - float(submit_s.min(initial=until_s))) / round_s


def chosen_engine(scenario: Scenario, policy: Policy, placer: Placer, engine: Engine) -> Engine:
    """Return the engine that simulates a run, `simpy` or `compiled`.

    Raises
    ------
    UncoveredError
        If `compiled` is asked for and does not cover the scenario.
    """
    if engine == "simpy" or (engine == "auto" and expected_decisions(scenario, policy) < MANY):
        return "simpy"
    try:
        if policy.needs_places:
            raise UncoveredError(
                f"policy {policy.name} asks where jobs are", field="run.engine", remedy=PLACES
            )
        check_runnable(scenario, placer)
    except UncoveredError:
        if engine == "compiled":
            raise
        return "simpy"
    return "compiled"


def make_simulation(
    scenario: Scenario, policy: Policy, placer: Placer, seed: int = 0, engine: Engine = "auto"
) -> AnySimulation:
    """Return a new simulation for a policy; raises as `chosen_engine`."""
    if chosen_engine(scenario, policy, placer, engine) == "simpy":
        return Simulation(scenario, placer, policy.information_class, policy.round_s, seed)
    from clustergym.sim.compiled.simulation import CompiledSimulation

    return CompiledSimulation(scenario, placer, policy.information_class, policy.round_s)
