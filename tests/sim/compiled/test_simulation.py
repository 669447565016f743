"""Policies in Python decide the same in both engines, event by event and to the bit.

AGREEMENT_CASES=20000 python -m pytest tests/sim/compiled/test_simulation.py -s -p no:xdist
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from agreement_scenarios import agreement_scenarios
from clustergym.policies.placers.buddy import Buddy
from drawn_cases import CASES, counted, run
from hypothesis import strategies as st
from random_scenarios import with_queues_for
from scenarios import Job, Script, small_scenario

from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.results.measured_run import simulate
from clustergym.scenario.policy import Decision, InformationClass, Policy, View
from clustergym.scenario.registry import make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim import engines
from clustergym.sim.compiled import first_come
from clustergym.sim.compiled.simulation import CompiledSimulation
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import drive, replay
from clustergym.sim.engine import Change, StalledError
from clustergym.sim.engines import AnySimulation, Engine, make_simulation
from clustergym.sim.guard import StepWatchdog

STEPS = 60
"""Most decisions of a case."""

POLICIES: tuple[dict[str, Any], ...] = (
    *({"name": name} for name in ("srtf", "sjf", "las", "tiresias", "arena", "ares", "gavel", "themis")),
    *({"name": name} for name in ("optimus", "allox", "elasticflow", "gandiva", "hesrpt", "lucid", "random")),
    *({"name": "fcfs", "backfill": backfill} for backfill in ("none", "aggressive", "easy", "conservative")),
    *({"name": name} for name in ("sia", "pollux", "capacity", "kai", "kueue")),
)
TIMES = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}, "Y": {1: 8.0}}}


def small() -> Scenario:
    jobs = [Job("a", 0, 100, 2), Job("b", 10, 10, 1), Job("c", 10, 50, 1, "Y"), Job("d", 30, 7, 4)]
    return small_scenario(jobs, {"X": (2, 4), "Y": (1, 1)}, TIMES)


def ended(scenario: Scenario, policy: Policy, placer: Buddy, engine: Engine) -> tuple[Any, Any]:
    """Return a simulation after so many decisions (None: the policy refuses it), and what ended it."""
    simulation = make_simulation(scenario, policy, placer, engine=engine)
    try:
        policy.check(simulation.known_trace, simulation.setting)
    except InputError as error:
        # The compiled engine has gone to its first decision point by now, SimPy's has not begun.
        return None, str(error)
    try:
        policy.reset(simulation.setting, random_streams.POLICY.generator(0))
        advance, schedule, apply = StepWatchdog().steps(simulation, policy)
        view = advance()
        while view is not None and simulation.decision_points <= STEPS:
            decision, view = schedule(view), None
            apply(decision)
            view = advance()
    except (StalledError, InputError) as error:
        return simulation, (type(error).__name__, str(error))
    return simulation, view is None


def agrees(scenario: Scenario, named: dict[str, Any], defragment_s: float | None) -> None:
    """Both engines come to the same by the decisions of one policy."""
    scenario = with_queues_for(named["name"], scenario)
    mine, other = (
        ended(scenario, make_policy(named), Buddy(defragment_s), engine) for engine in ("compiled", "simpy")
    )
    assert mine[1] == other[1]
    if mine[0] is None or other[0] is None:
        assert mine == other
        counted["refused"] += 1
        return
    assert facts(mine[0]) == facts(other[0])
    if other[1] is True:
        again = make_simulation(scenario, make_policy(named), Buddy(defragment_s), engine="compiled")
        assert isinstance(again, CompiledSimulation)
        assert again.follow(other[0].changes)
        assert facts(again) == facts(other[0])
        counted["replayed"] += 1
    counted.update(
        {"cases": 1, "decisions": other[0].decision_points, "errors": other[1] not in (True, False)}
    )
    counted.update(event.event_type for event in other[0].log.events)


def facts(simulation: AnySimulation) -> tuple[Any, ...]:
    log = simulation.log
    return log.events, log.digest, simulation.changes, simulation.decision_points, simulation.jobs_left


def test_policies() -> None:
    run(
        agrees,
        CASES,
        scenario=agreement_scenarios(),
        named=st.sampled_from(POLICIES),
        defragment_s=st.sampled_from([3600.0, 3600.0, None, 60.0]),
    )


@pytest.mark.parametrize("queue", ["cluster", "gpu_type"])
def test_first_come_first_served_decides_the_same_compiled(queue: str) -> None:
    seen = Counter[bool]()

    def agrees_compiled(scenario: Scenario, defragment_s: float | None) -> None:
        named = {"name": "fcfs", "queue": queue}
        seen[first_come.is_compiled(make_policy(named), scenario)] += 1
        agrees(scenario, named, defragment_s)

    run(
        agrees_compiled,
        CASES,
        scenario=agreement_scenarios(),
        defragment_s=st.sampled_from([3600.0, None, 60.0]),
    )
    assert seen[True] > seen[False]
    assert not first_come.is_compiled(make_policy({"name": "fcfs", "backfill": "easy"}), small())


def test_a_policy_that_asks_where_jobs_are_runs_on_simpy() -> None:
    scenario, policy = (
        with_queues_for("slurm-multifactor", small()),
        make_policy({"name": "slurm-multifactor"}),
    )
    assert make_simulation(scenario, policy, Buddy()).engine == "simpy"
    with pytest.raises(InputError, match="policy slurm-multifactor asks where jobs are"):
        make_simulation(scenario, policy, Buddy(), engine="compiled")
    view = make_simulation(small(), make_policy({"name": "fcfs"}), Buddy(), engine="compiled").advance()
    with pytest.raises(InputError, match=r"declare Policy\.needs_places"):
        view.places()


def test_a_view_that_a_policy_keeps_stays_as_it_was() -> None:
    entries = {
        0.0: {"a": ("X", 2)},
        10.0: {"a": ("X", 4), "b": ("X", 1)},
        30.0: {"d": ("X", 4), "c": ("Y", 1)},
    }
    views: list[list[View]] = []
    for engine in ("compiled", "simpy"):
        policy = Script(small(), entries)
        with pytest.raises(StalledError):
            drive(make_simulation(small(), policy, Buddy(), engine=engine), policy)  # type: ignore[arg-type]
        views.append(policy.views)
    assert len(views[0]) == len(views[1]) > 4
    arrays = 0
    for mine, other in zip(*views, strict=True):
        assert len(mine) == len(other)
        for name in (field.name for field in fields(View)):
            value, expected = getattr(mine, name), getattr(other, name)
            if isinstance(expected, np.ndarray):
                np.testing.assert_array_equal(value, expected, name)
                assert value.dtype == expected.dtype, name
                assert not value.flags.writeable
                arrays += 1
    assert arrays > 80
    np.testing.assert_array_equal(replace(views[0][1], job=views[1][1].job).gpus, views[1][1].gpus)
    assert views[0][1].with_columns({"now_s": 1.0}).gpus.tolist() == views[1][1].gpus.tolist()


WRONG: dict[str, Callable[[View], object]] = {
    "a type": lambda _: Decision.of([(0, 2, 1)]),
    "a negative type": lambda _: Decision.of([(0, -1, 1)]),
    "a count": lambda _: Decision.of([(0, 0, 3)]),
    "no GPUs": lambda _: Decision.of([(0, 0, 0)]),
    "more than fit": lambda _: Decision.of([(0, 1, 2)]),
    "more than there are": lambda _: Decision.of([(0, 0, 4), (1, 0, 8)]),
    "another job": lambda _: Decision.of([(3, 0, 1)]),
    "no job": lambda _: Decision.of([(99, 0, 1)]),
    "before the first job": lambda _: Decision.of([(-1, 0, 1)]),
    "twice": lambda _: Decision.of([(0, 0, 1), (0, 0, 1)]),
    "dropped and launched": lambda _: Decision.of([(0, 0, 1)], drop=[0]),
    "dropped twice": lambda _: Decision.of([], drop=[0, 0]),
    "a batch": lambda _: replace(Decision.of([(0, 0, 1)]), batch=np.array([7])),
    "columns of other lengths": lambda _: Decision(np.array([0]), np.array([0, 1]), np.array([1])),
    "batches of another length": lambda _: replace(Decision.of([(0, 0, 1)]), batch=np.array([0, 0])),
    "a pair": lambda _: Decision.of([(0, 0, 1), (1, 0, 1)]).paired([(0, 1)]),
    "fractions": lambda _: Decision(np.array([0]), np.array([0]), np.array([1.5])),
    "no decision": lambda _: None,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_decision_that_is_not_legal_is_refused_in_the_same_words(wrong: str) -> None:
    refusals = []
    for engine in ("compiled", "simpy"):
        simulation = make_simulation(small(), make_policy({"name": "fcfs"}), Buddy(), engine=engine)  # type: ignore[arg-type]
        simulation.advance()
        simulation.apply(Decision.of([(0, 0, 2)]))
        view = simulation.advance()
        assert view is not None
        with pytest.raises(DecisionError) as refusal:
            simulation.apply(WRONG[wrong](view))  # type: ignore[arg-type]
        # Nothing has been done: the next decision is carried out as if that had not been.
        simulation.apply(Decision.of([(1, 0, 1)], drop=[0]))
        refusals.append((str(refusal.value), simulation.changes))
        with pytest.raises(RuntimeError, match="needs a decision point"):
            simulation.apply(Decision.of([]))
    assert refusals[0] == refusals[1]


def test_a_job_on_nodes_of_one_gpu_moves_into_a_leaf() -> None:
    # Two leaves of four nodes with a GPU each. At 10 s a node of each leaf is free for both GPUs of the last
    # job, which goes half as fast so. At 30 s two nodes of the first leaf are free; at 60 s it moves there.
    runs_s = [30, 30, 500, 10, 500, 500, 500, 10]
    jobs = [Job(f"j{at}", 0.0, count, gpus=1) for at, count in enumerate(runs_s)]
    jobs.append(Job("a", 5.0, 400, gpus=2))
    scenario = small_scenario(jobs, {"X": (8, 1)}, {"m": {"X": {1: 1.0, 2: 1.0}}}, rounds=10.0)
    scenario.tables.execution[..., 2:] *= 2
    logs = []
    for engine in ("compiled", "simpy"):
        simulation, over = ended(scenario, make_policy({"name": "fcfs"}), Buddy(60.0), engine)
        assert over
        logs.append(simulation.log.events)
    assert logs[0] == logs[1]
    # 25 of 400 iterations in 50 s, then one a second.
    assert [(e.time_s, e.nodes) for e in logs[0] if e.event_type == "migrate"] == [(60.0, ((0, 1), (1, 1)))]
    assert max(e.time_s for e in logs[0] if e.job == 8) == 435.0


def test_a_long_run_is_replayed_on_the_compiled_engine_which_the_log_may_not_contradict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # b comes at 10 s, and the others wait until a has ended at 200 s: 100 iterations of 2 s. What the log
    # does not name is kept.
    log = [Change(0.0, ((0, 0, 2),), (), ()), Change(200.0, ((1, 0, 1), (2, 1, 1), (3, 0, 4)), (), ())]
    given = small(), Buddy(), InformationClass.CLAIRVOYANT, None, 0
    short = replay(*given, log)
    monkeypatch.setattr(engines, "MANY", 0)
    long = replay(*given, log)
    assert (short.engine, long.engine) == ("simpy", "compiled")
    assert facts(long) == facts(short)
    # b: 10 iterations of 4 s, c: 50 of 8 s, d: 7 of 1 s, from 200 s on.
    assert long.end_s == 600.0
    # A decision point that nothing but the policy asks for is SimPy's.
    asked = replay(*given, [log[0], replace(log[1], time_s=201.0)])
    assert (asked.engine, asked.end_s) == ("simpy", 601.0)
    with pytest.raises(InputError, match=r"the decision at 700\.0 s is not at a decision point"):
        replay(*given, [*log, replace(log[0], time_s=700.0)])
    # A batch is checked by SimPy.
    with pytest.raises(DecisionError, match="batch"):
        replay(*given, [replace(log[0], batch=((0, 7),))])


def test_simpy_rebuilds_a_compiled_run_from_its_decisions() -> None:
    policy = make_policy({"name": "srtf"})
    run_of = simulate(small(), policy, engine="compiled")
    changes = run_of.run.simulation.changes
    rebuilt = replay(small(), Buddy(), InformationClass.CLAIRVOYANT, policy.round_s, 0, changes)
    assert rebuilt.log.digest == run_of.digest
    assert run_of.metrics == simulate(small(), policy, engine="simpy").metrics
