"""What the time that calls and decisions take does to a policy on a live cluster: in memory, without Slurm.

python benchmarks/live_delays.py sia    # the table of docs/live.md, a few minutes
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from clustergym.operators.live.backend import FakeBackend
from clustergym.operators.live.bridge import LiveSimulation
from clustergym.operators.live.clocks import LiveClock
from clustergym.operators.live.link import Answer, Link

from clustergym.common.tables import percent
from clustergym.common.tables import table as markdown_table
from clustergym.results.metrics.metrics import measure_scenario
from clustergym.scenario.by_name import load_scenario
from clustergym.scenario.clock import ticks
from clustergym.scenario.policy import Decision, Policy, View
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import drive
from clustergym.sim.engine import Simulation

DRAWS, MOVED_S = 16, 5.0
DELAYS_S = {"wait": 0.01, "decide": 0.05, "start": 0.025, "stop": 0.07}
"""About what they take on Slurm on one machine (docs/live.md)."""


class Delays(LiveClock):
    """Stands still but for what is added to it."""

    def __init__(self, delays_s: Mapping[str, float]) -> None:
        self.delays_s, self.now = delays_s, 0

    def begin(self, wall_s: float, tick: int = 0) -> None:
        """Begin at 0."""

    def reading(self) -> int:
        """Return the tick of now."""
        return self.now

    def compute_wait_s(self, tick: float) -> float:
        """Move on to a tick."""
        self.now = max(self.now, int(tick))
        return 0.0

    def take(self, what: str) -> None:
        """Move on by what something takes."""
        self.now += ticks(self.delays_s.get(what, 0.0))


def live(scenario: Scenario, policy: Policy, delays_s: Mapping[str, float]) -> Simulation:
    """Run a policy on a back end in memory whose calls take a time."""
    clock = Delays(delays_s)
    link = Link(FakeBackend(scenario.cluster.node_gpus), clock, 0.0, 1.0)

    def ask(call: str, given: dict[str, Any]) -> Answer:
        answer = link.ask(call, given)
        clock.take(call)
        return {**answer, "t": clock.reading()}

    placer, known = make_placer({"name": "buddy"}), policy.information_class
    simulation = LiveSimulation(scenario, placer, known, policy.round_s, 0, ask, "cg-delays")
    link.expected = simulation.allocator.expected
    decide = policy.schedule

    def schedule(view: View) -> Decision:
        decision = decide(view)
        clock.take("decide")
        return decision

    with mock.patch.object(policy, "schedule", schedule):
        drive(simulation, policy)
    return simulation


def drawn(scenario: Scenario, seed: int) -> Scenario:
    """Return a scenario whose submissions are moved by up to `MOVED_S`."""
    trace = scenario.trace
    moved = np.random.default_rng(seed).uniform(-MOVED_S, MOVED_S, len(trace))
    submit_s = np.sort(np.maximum(trace.submit_s + moved, 0.0))
    return replace(scenario, trace=replace(trace, submit_s=submit_s))


def figures(scenario: Scenario, name: str, delays_s: Mapping[str, float] | None) -> tuple[float, float]:
    """Return the mean JCT, seconds, and the restarts a job; without delays, of the simulator."""
    policy = make_policy({"name": name})
    if delays_s is None:
        placer, known = make_placer({"name": "buddy"}), policy.information_class
        simulation = drive(Simulation(scenario, placer, known, policy.round_s), policy).simulation
    else:
        simulation = live(scenario, policy, delays_s)
    metrics = measure_scenario(scenario, simulation.log.events, simulation.end_s).metrics
    return float(metrics["jct_mean"] or 0.0), float(metrics["restarts_mean"] or 0.0)


def main(name: str) -> None:
    """Print the table of a policy."""
    scenario = load_scenario("live-small", [])
    draws = [drawn(scenario, seed) for seed in range(DRAWS)]
    sixtyfold = {what: 60.0 * taken_s for what, taken_s in DELAYS_S.items()}
    print(f"{name} in the simulator: %.0f s, %.2f restarts" % figures(scenario, name, None))
    rows, base = [], 0.0
    for label, delays_s, late_s in (
        ("simulator", None, 1e-3),
        ("calls and decisions 60 times as long, late launches taken for slow iterations", sixtyfold, np.inf),
        ("calls and decisions 60 times as long", sixtyfold, 1e-3),
        ("calls and decisions as long as they are", DELAYS_S, 1e-3),
    ):
        with mock.patch("clustergym.policies.shared.goodput.LATE_S", late_s):
            found = np.array([figures(draw, name, delays_s) for draw in draws])
        jct_s, restarts = found.mean(axis=0)
        base = base or jct_s
        spread = f"{found[:, 0].min():,.0f} to {found[:, 0].max():,.0f}"
        rows.append([label, f"{jct_s:,.0f}", spread, percent(jct_s / base - 1), f"{restarts:.2f}"])
    print(
        markdown_table([f"mean of {DRAWS} draws", "mean JCT, s", "least to most", "", "restarts a job"], rows)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
