"""The engine agrees with a simulator written anew, event by event and to the microsecond."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from placers import LowestFirst
from plain_simulation import Allotment, PlainSimulation, Rule, Seen
from wild_scenarios import informed, wild_scenarios

from clustergym.results.measured_run import measure_run
from clustergym.scenario.disturbances.checkpoints import Checkpoints
from clustergym.scenario.policy import Decision, InformationClass, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import follow
from clustergym.sim.engine import Simulation, StalledError

Answer = tuple[Any, ...]


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


def any_stop(now: int, available: list[int], jobs: list[Seen]) -> Answer:
    """As `any_change`, with notice for some of those that stop or change, and nodes that jobs exchange."""
    target, drops = any_change(now, available, jobs)
    draws = np.random.default_rng([now % 2**32, len(jobs), 1])
    nodes: dict[int, dict[int, int]] = {}
    stay = [job for job in jobs if job.held and target.get(job.row) == job.held]
    for one, other in zip(stay[::2], stay[1::2], strict=False):
        if one.held == other.held and one.nodes != other.nodes and draws.random() < 0.7:
            nodes |= {one.row: other.nodes, other.row: one.nodes}
    staying = {job.row for job in stay} - nodes.keys()
    leave = [job.row for job in jobs if job.held and job.row not in staying.union(drops)]
    return target, drops, {row for row in leave if draws.random() < 0.6}, nodes


RULES: dict[str, Rule] = {
    rule.__name__: rule for rule in (first_come, shortest_first, even_shares, any_change)
}


def seen(view: View) -> list[Seen]:
    """Return what the engine shows as the plain simulation does."""
    counts, nodes = view.setting.counts.tolist(), view.places().nodes
    return [
        Seen(
            int(row),
            float(view.remaining_iterations[at]),
            (int(view.requested_type[at]), int(view.requested_gpus[at])),
            (int(view.gpu_type[at]), int(view.gpus[at])) if view.gpus[at] else None,
            [(int(kind), counts[k]) for kind, k in np.argwhere(view.feasible[at])],
            dict(nodes.get(int(row), ())),
        )
        for at, row in enumerate(view.job)
    ]


def engine(scenario: Scenario, information: InformationClass, rule: Rule) -> Simulation:
    simulation = Simulation(scenario, LowestFirst(), information)
    try:
        while (view := simulation.advance()) is not None:
            answer = rule(round(view.now_s * 1e6), view.available.tolist(), seen(view))
            target, drops, notices, nodes = (*answer, set(), {})[:4]
            allotments = ((row, *one) for row, one in sorted(target.items()))
            told = np.array(sorted(notices), dtype=np.int64)
            move = {row: tuple(sorted(there.items())) for row, there in nodes.items()}
            simulation.apply(replace(Decision.of(allotments, drops), notice=told, move=move))
    except StalledError:
        pass
    return simulation


def logged(simulation: Simulation) -> list[tuple[Any, ...]]:
    """Return the engine's log as the plain simulation writes it."""
    return [
        (round(e.time_s * 1e6), str(e.event_type), e.job, e.gpu_type, e.gpus, e.nodes)
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


@settings(max_examples=100, deadline=None, derandomize=True)
@given(wild_scenarios(("failures", "planned")), informed, st.sampled_from([7.0, 40.0, 1000.0]))
def test_both_tell_the_same_where_stops_lose_work(
    scenario: Scenario, information: InformationClass, every_s: float
) -> None:
    scenario = replace(scenario, disturbances=(Checkpoints(every_s), *scenario.disturbances))
    simulation = engine(scenario, information, any_stop)
    plain = PlainSimulation(scenario, information, any_stop)
    plain.run()
    assert sorted(plain.log) == sorted(logged(simulation))
    if simulation.end_s:
        measure_run(simulation)
        again = Simulation(scenario, LowestFirst(), information)
        follow(again, simulation.changes)
        assert again.log.digest == simulation.log.digest
        assert again.changes == simulation.changes
