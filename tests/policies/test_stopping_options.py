"""Who is stopped, and who saves before: the options `victims` and `notice`, worked out by hand."""

from dataclasses import replace

import pytest
from clustergym.operators.policies.kai import Kai
from clustergym.operators.policies.kueue import Kueue
from clustergym.policies.arena import Arena
from clustergym.policies.capacity import Capacity
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.quotas import Quotas
from clustergym.policies.shared.notices import decide_with_notice
from queue_quotas import with_tenants
from scenarios import Job, Script, small_scenario

from clustergym.common.errors import InputError
from clustergym.scenario.disturbances.checkpoints import Checkpoints
from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.drive import follow, simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.engines import chosen_engine
from clustergym.sim.log import EventType

# 8 GPUs, of which y has a quota of 4 and x none. x1 runs from 0, x2 from 25, each on 4; y1 wants 4 at 65.
# Jobs save each 60 s: x1 has worked 65 s, 5 of them since, x2 40. To save and to load takes 10 s each.
FLAT = {"m": {"X": {2: 1.0, 4: 1.0, 8: 1.0}}}
JOBS = [
    Job("x1", 0.0, 200, 4, priority=1),
    Job("x2", 25.0, 200, 4, priority=1),
    Job("y1", 65.0, 50, 4, priority=1),
]
QUEUES = "history: {weight: 0}\nqueues:\n  x: {quota: 0}\n  y: {quota: 4}\n"
MAKE = {
    "quotas": lambda **more: Quotas(within="fcfs round_s=null", reclaim="stop", **more),
    "kueue": lambda **more: Kueue(reclaim_within_cohort="any", round_s=None, **more),
    "kai": lambda **more: Kai(round_s=None, **more),
    "capacity": lambda **more: Capacity(round_s=None, **more),
}


@pytest.fixture
def scenario(queues):
    base = small_scenario(JOBS, {"X": (2, 4)}, FLAT, checkpoint_s={"m": 20.0})
    return replace(with_tenants(base, queues(QUEUES)), disturbances=(Checkpoints(60.0),))


def run(scenario, policy):
    return simulate(scenario, policy, Buddy(defragment_s=None)).simulation


def stops_of(simulation):
    """Return who began to save or was stopped, and when y1 started."""
    ids = simulation.scenario.trace.job_id
    kinds = (EventType.SAVE, EventType.UNDO, EventType.PREEMPT)
    found = [
        (e.time_s, str(e.event_type), ids[e.job]) for e in simulation.log.events if e.event_type in kinds
    ]
    starts = {ids[e.job]: e.time_s for e in simulation.log.events if e.event_type == EventType.START}
    return found, starts["y1"]


@pytest.mark.parametrize("policy", MAKE)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # x2 came last: it loses 40 s.
        ({}, ([(65.0, "undo", "x2"), (65.0, "preempt", "x2")], 65.0)),
        # x1 loses 5 s.
        ({"victims": "cheapest"}, ([(65.0, "undo", "x1"), (65.0, "preempt", "x1")], 65.0)),
        # Saving takes x2 10 s, and not 40: y1 starts at 75.
        ({"notice": "cheaper"}, ([(65.0, "save", "x2"), (75.0, "preempt", "x2")], 75.0)),
        # x1 loses 5 s, x2 would save for 10: x1 stops, and at once.
        (
            {"victims": "cheapest", "notice": "cheaper"},
            ([(65.0, "undo", "x1"), (65.0, "preempt", "x1")], 65.0),
        ),
        (
            {"victims": "cheapest", "notice": "always"},
            ([(65.0, "save", "x2"), (75.0, "preempt", "x2")], 75.0),
        ),
    ],
)
def test_who_stops_and_who_saves_before(scenario, policy, options, expected):
    simulation = run(scenario, MAKE[policy](**options))
    assert stops_of(simulation) == expected
    again = Simulation(scenario, Buddy(defragment_s=None), InformationClass.NONE)
    follow(again, simulation.changes)
    assert again.log.digest == simulation.log.digest


def test_quotas_stop_the_lowest_priority_first(scenario):
    trace = replace(scenario.trace, priority=scenario.trace.priority - [1, 0, 0])
    simulation = run(replace(scenario, trace=trace), MAKE["quotas"](victims="priority"))
    assert stops_of(simulation)[0][1] == (65.0, "preempt", "x1")
    assert stops_of(run(replace(scenario, trace=trace), MAKE["quotas"]()))[0][1] == (65.0, "preempt", "x2")


def test_shrinking_counts_the_work_that_is_undone(scenario):
    # Who is shrunk to 2 stands still for 10 s with 2 GPUs. By that alone the later, x2; with what is undone
    # (5 s and 40 s on 4 GPUs) x1. y1 lacks 4, so both are shrunk where each gives 2 alone; here x1 gives all.
    policy = Quotas(within="fcfs round_s=null", victims="cheapest")
    assert run(scenario, policy).changes[2].launch[0][0] == 0
    first = {
        e.job for e in run(scenario, policy).log.events if e.event_type == EventType.UNDO and e.time_s == 65.0
    }
    assert 0 in first


def test_arena_scales_with_notice():
    # a has 8 X and is halved for b at 250, when it has worked for 250 s and never saved. Without notice these
    # are undone; with it a saves and loads for 20 s.
    times = {"m": {"X": {2: 2.0, 4: 1.2, 8: 1.0}}}
    jobs = [Job("a", 0.0, 2000, 8, "X"), Job("b", 250.0, 500, 4, "X")]
    scenario = small_scenario(jobs, {"X": (2, 4)}, times, checkpoint_s={"m": 20.0})
    scenario = replace(scenario, disturbances=(Checkpoints(10_000.0),))
    without, noticed = (run(scenario, Arena(notice=notice)) for notice in ("never", "cheaper"))
    first = next(e for e in without.log.events if e.event_type == EventType.UNDO)
    rescale = next(e for e in noticed.log.events if e.event_type == EventType.RESCALE)
    assert (first.time_s, first.lost_s, first.gpus) == (250.0, 250.0, 8)
    assert not [e for e in noticed.log.events if e.event_type == EventType.UNDO]
    assert (rescale.time_s, rescale.overhead_s, rescale.gpus) == (250.0, 20.0, 4)


def test_starts_wait_for_the_gpus_of_those_that_save():
    # a (4 GPUs) is to make room for b (4) and c (2); 2 are free. c starts at once, b when a has saved.
    jobs = [Job("a", 0.0, 300, 4), Job("b", 100.0, 50, 4), Job("c", 100.0, 50, 2)]
    base = small_scenario(jobs, {"X": (3, 2)}, FLAT, checkpoint_s={"m": 20.0})

    class MakesRoom(Script):
        needs_places = True

        def decide(self, view):
            late = [
                (int(row), 0, int(g)) for row, g in zip(view.job, view.requested_gpus, strict=True) if row
            ]
            return Decision.of(late or [(0, 0, 4)])

        def schedule(self, view):
            return decide_with_notice(view, "cheaper", self.decide)

    simulation = run(replace(base, disturbances=(Checkpoints(500.0),)), MakesRoom(base, {}))
    kinds = (EventType.START, EventType.SAVE, EventType.PREEMPT)
    found = [(e.time_s, str(e.event_type), e.job) for e in simulation.log.events if e.event_type in kinds]
    assert found == [
        (0.0, "start", 0),
        (100.0, "save", 0),
        (100.0, "start", 2),
        (110.0, "preempt", 0),
        (110.0, "start", 1),
    ]


def test_policies_that_give_notice_or_move_run_on_simpy(scenario):
    plain = replace(scenario, disturbances=())
    for policy in (MAKE["kueue"](notice="cheaper"), MAKE["kueue"](moves_per_hour=1.0)):
        assert policy.needs_places
        assert chosen_engine(plain, policy, Buddy(), "auto") == "simpy"
        with pytest.raises(InputError, match="asks where jobs are, moves them or gives notice"):
            chosen_engine(plain, policy, Buddy(), "compiled")
    assert not MAKE["kueue"](victims="cheapest").needs_places
