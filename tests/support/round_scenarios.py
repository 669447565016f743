"""Random small scenarios to run policies on, and a check that a run was legal to its end."""

from dataclasses import replace
from typing import Any

import numpy as np
from clustergym.policies.placers.buddy import Buddy
from hypothesis import strategies as st
from scenarios import Job, decided, small_scenario

from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import Run, simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.state import Phase


@st.composite
def random_scenarios(draw: st.DrawFn, rounds: str | float = "policy") -> Scenario:
    """Draw up to 8 jobs on one to three GPU types, with memory limits and restart costs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = [f"T{kind}" for kind in range(draw(st.integers(1, 3)))]
    groups = {kind: (int(rng.integers(1, 4)), int(rng.choice([1, 2, 4]))) for kind in kinds}
    times: dict[str, dict[str, dict[int, float]]] = {}
    for family in ("m", "n"):
        base = {kind: float(rng.uniform(1.0, 10.0)) for kind in kinds}
        least = int(rng.choice([1, 1, 2]))
        times[family] = {
            kind: {count: round(base[kind] / count**0.8, 3) for count in (1, 2, 4, 8) if count >= least}
            for kind in kinds
        }
    largest = max(nodes * per_node for nodes, per_node in groups.values())
    jobs = [
        Job(
            f"j{row}",
            submit_s=float(rng.integers(0, 2000)),
            iterations=int(rng.integers(1, 500)),
            gpus=int(min(rng.choice([1, 2, 4]), largest)),
            family=str(rng.choice(["m", "n"])),
        )
        for row in range(draw(st.integers(1, 8)))
    ]
    jobs.sort(key=lambda job: job.submit_s)
    costs = Costs(search="pruned", search_s_per_gpu={"pruned": 5.0}, profile={})
    return small_scenario(
        jobs, groups, times, checkpoint_s={"m": 20.0, "n": 60.0}, costs=costs, rounds=rounds, oversize="drop"
    )


def without_profiles(scenario: Scenario, family: str, kinds: tuple[str, ...] | None = None) -> Scenario:
    """Return the scenario where pure data parallelism does not fit for a family, on some types or all."""
    tables = scenario.tables
    table = tables.data_parallel.copy()
    for row, model in enumerate(tables.classes):
        for kind, name in enumerate(tables.gpu_types):
            if model.family == family and (kinds is None or name in kinds):
                table[row, kind] = np.inf
    return replace(scenario, tables=replace(tables, data_parallel=table))


def run_to_the_end(scenario: Scenario, policy: Policy) -> Run:
    """Run a policy; every job must complete, or be dropped because it fits nowhere."""
    run = simulate(scenario, policy, Buddy())
    phase = run.simulation.jobs.phase
    assert (phase >= Phase.COMPLETED).all()
    assert ((phase == Phase.DROPPED) == (scenario.request_gpus == 0)).all()
    return run


def assert_counts_jobs_without_profiles(scenario: Scenario, policy: Policy) -> None:
    """Run a policy where models "m" have no profile; it must count those of their jobs that fit."""
    run_to_the_end(without_profiles(scenario, "m"), policy)
    rows = zip(scenario.trace.model_family, scenario.request_gpus, strict=True)
    fits = [model == "m" and bool(gpus) for model, gpus in rows]
    assert policy.counters()["jobs_without_profile"] == sum(fits)


def first_view(scenario: Scenario, policy: Policy) -> Any:
    """Return the View of the first decision point."""
    view = Simulation(scenario, Buddy(), policy.information_class, policy.round_s).advance()
    assert view is not None
    return view


def first_decided(scenario: Scenario, policy: Policy) -> dict[str, tuple[str, int]]:
    """Return what a policy decides first: job id -> (GPU type, GPUs)."""
    view = first_view(scenario, policy)
    policy.reset(view.setting, np.random.default_rng(0))
    return decided(scenario, policy.schedule(view))
