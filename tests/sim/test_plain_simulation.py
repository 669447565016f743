"""The engine agrees with a simulator written anew, event by event and to the microsecond."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_simulation import Allotment, PlainSimulation, Rule, Seen
from wild_scenarios import informed, wild_scenarios

from clustergym.results.measured_run import measure_run
from clustergym.scenario.policy import Decision, Infeasible, InformationClass, Placer, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation, StalledError

Answer = tuple[dict[int, Allotment], list[int]]


class LowestFirst(Placer):
    """Gives out the nodes of least number."""

    name = "lowest-first"

    def place(self, allocations, gpu_type, gpus):
        nodes = []
        for node in np.flatnonzero((allocations.spec.node_type == gpu_type) & (allocations.free_on_node > 0)):
            if gpus:
                nodes.append((int(node), min(gpus, int(allocations.free_on_node[node]))))
                gpus -= nodes[-1][1]
        return Infeasible("too few", gpus_short=gpus) if gpus else tuple(nodes)


def _asked(job: Seen) -> list[Allotment]:
    """Return the allotments of the count a job asks for, of its type or of any."""
    kind, gpus = job.request
    return [one for one in job.options if one[1] == gpus and kind in (-1, one[0])]


def _in_order(jobs: list[Seen], available: list[int]) -> dict[int, Allotment]:
    """Give each job in order what it asks for, if that is left."""
    free, target = list(available), dict[int, Allotment]()
    for job in jobs:
        options = [job.held] if job.held else _asked(job)
        for kind, gpus in options:
            if gpus <= free[kind] and job.row not in target:
                target[job.row] = kind, gpus
                free[kind] -= gpus
    return target


def first_come(now: int, available: list[int], jobs: list[Seen]) -> Answer:
    """Those that run go on, then in order of submission."""
    return _in_order(sorted(jobs, key=lambda job: (job.held is None, job.row)), available), []


def shortest_first(now: int, available: list[int], jobs: list[Seen]) -> Answer:
    """The job with the fewest iterations left comes first, and pre-empts."""
    return _in_order(sorted(jobs, key=lambda job: (round(job.left, 3), job.row)), available), []


def even_shares(now: int, available: list[int], jobs: list[Seen]) -> Answer:
    """Each job gets the most GPUs that do not exceed an even share of them all."""
    free, target = list(available), dict[int, Allotment]()
    share = max(sum(available) // max(len(jobs), 1), 1)
    for job in jobs:
        options = sorted(((gpus, -kind) for kind, gpus in job.options if gpus <= free[kind]), reverse=True)
        small = [one for one in options if one[0] <= share] or options[-1:]
        if small:
            gpus, kind = small[0][0], -small[0][1]
            target[job.row] = kind, gpus
            free[kind] -= gpus
    return target, []


def any_change(now: int, available: list[int], jobs: list[Seen]) -> Answer:
    """What the time says: keeps, moves, pre-empts and drops."""
    draws = np.random.default_rng([now % 2**32, len(jobs)])
    free, target, drops = list(available), dict[int, Allotment](), []
    for job in [jobs[at] for at in draws.permutation(len(jobs))]:
        draw = draws.random()
        options = [job.held] if job.held and draw < 0.5 else job.options if draw < 0.9 else []
        options = [one for one in options if one[1] <= free[one[0]]]
        if draw > 0.98:
            drops.append(job.row)
        elif options:
            target[job.row] = kind, gpus = options[draws.integers(len(options))]
            free[kind] -= gpus
    return target, drops


RULES: dict[str, Rule] = {
    rule.__name__: rule for rule in (first_come, shortest_first, even_shares, any_change)
}


def seen(view: View) -> list[Seen]:
    """Return what the engine shows as the plain simulation does."""
    counts = view.setting.counts.tolist()
    return [
        Seen(
            int(row),
            float(view.remaining_iterations[at]),
            (int(view.requested_type[at]), int(view.requested_gpus[at])),
            (int(view.gpu_type[at]), int(view.gpus[at])) if view.gpus[at] else None,
            [(int(kind), counts[k]) for kind, k in np.argwhere(view.feasible[at])],
        )
        for at, row in enumerate(view.job)
    ]


def engine(scenario: Scenario, information: InformationClass, rule: Rule) -> Simulation:
    simulation = Simulation(scenario, LowestFirst(), information)
    try:
        while (view := simulation.advance()) is not None:
            target, drops = rule(round(view.now_s * 1e6), view.available.tolist(), seen(view))
            allotments = ((row, *one) for row, one in sorted(target.items()))
            simulation.apply(Decision.of(allotments, drops))
    except StalledError:
        pass
    return simulation


def logged(simulation: Simulation) -> list[tuple[Any, ...]]:
    """Return the engine's log as the plain simulation writes it."""
    return [
        (round(e.time_s * 1e6), str(e.kind), e.job, e.gpu_type, e.gpus, e.nodes)
        for e in simulation.log.events
    ]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(wild_scenarios(("failures", "planned")), informed, st.sampled_from(sorted(RULES)))
def test_both_tell_the_same(scenario: Scenario, information: InformationClass, rule: str) -> None:
    simulation = engine(scenario, information, RULES[rule])
    plain = PlainSimulation(scenario, information, RULES[rule])
    plain.run()
    assert sorted(plain.log) == sorted(logged(simulation))
    if simulation.end_s:
        jct_s = measure_run(simulation).records.jct_s
        finished = np.flatnonzero(np.isfinite(jct_s)).tolist()
        ended_s = jct_s + scenario.trace.submit_s
        assert plain.ended == {row: round(float(ended_s[row]) * 1e6) for row in finished}
