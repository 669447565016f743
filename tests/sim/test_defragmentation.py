"""Moves that a placer proposes: enacted where they end the job earlier, worked out by hand."""

from dataclasses import replace

import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, Script, small_scenario

from clustergym.scenario.disturbances.reservations import PlannedJobs, Reservation
from clustergym.scenario.policy import InformationClass
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

TIMES = {"m": {"X": {2: 1.0, 4: 1.0}}}


class Packing(Buddy):
    """Places the first job on half of each of two nodes, and proposes to move it onto one of them."""

    first, onto = True, 0

    def place(self, allocations, kind, gpus):
        if self.first:
            self.first = False
            return ((0, 2), (1, 2))
        return super().place(allocations, kind, gpus)

    def defragment(self, allocations):
        return [(0, ((self.onto, 4),))] if 0 in allocations.holders else []


def run_of(jobs, checkpoint_s, every_s=10.0, onto=0, information=InformationClass.PROFILED, **changes):
    """Run jobs of which an iteration takes 1 s on one node, and 2 s on two."""
    scenario = small_scenario(jobs, {"X": (2, 4)}, TIMES, checkpoint_s={"m": checkpoint_s}, rounds=10.0)
    scenario.tables.execution[..., 1:] *= 2
    scenario = replace(scenario, **changes)
    placer = Packing(defragment_s=every_s)
    placer.onto = onto
    entries = {0.0: {job.job_id: ("X", job.gpus) for job in jobs if job.job_id != "p"}}
    return simulate(scenario, Script(scenario, entries, information), placer)


def times_of(run, kind):
    return [e.time_s for e in run.simulation.log.events if e.event_type == kind and e.job == 0]


@pytest.mark.parametrize(
    ("checkpoint_s", "moved_s", "end_s"), [(0.0, [10.0], 105.0), (94.0, [10.0], 199.0), (95.0, [], 200.0)]
)
def test_a_move_is_made_where_it_ends_the_job_earlier(checkpoint_s, moved_s, end_s):
    # At 10 s 5 of 100 iterations are done. To stay takes 95 x 2 = 190 s, to move a checkpoint and 95 s.
    run = run_of([Job("a", 0.0, 100, 4)], checkpoint_s)
    assert times_of(run, EventType.MIGRATE) == moved_s
    assert times_of(run, EventType.COMPLETE) == [end_s]


def test_moves_are_looked_for_every_so_many_seconds():
    # Rounds are 10 s apart: every 25 s is at 30. 15 iterations are done then, 85 left.
    run = run_of([Job("a", 0.0, 100, 4)], 0.0, every_s=25.0)
    assert times_of(run, EventType.MIGRATE) == [30.0]
    assert times_of(run, EventType.COMPLETE) == [115.0]


@pytest.mark.parametrize(
    ("start_s", "information", "moved_s"),
    [
        (112.0, InformationClass.PROFILED, [10.0]),
        (111.0, InformationClass.PROFILED, []),
        (112.0, InformationClass.NONE, []),
    ],
)
def test_a_move_onto_nodes_that_drain_ends_by_the_planned_start(start_s, information, moved_s):
    # Node 0 is kept for p from 5 s on. Moved at 10 s, a ends at 10 + 7 + 95 = 112, its restart included.
    # Of a job of which nothing is known nobody can tell.
    jobs = [Job("a", 0.0, 100, 4), Job("p", 0.0, 10, 4)]
    planned = PlannedJobs((Reservation(1, start_s, start_s - 5.0),))
    run = run_of(jobs, 7.0, information=information, disturbances=(planned,), horizon_s=150.0)
    started = next(e for e in run.simulation.log.events if e.event_type == EventType.START and e.job == 1)
    assert (started.time_s, started.nodes) == (start_s, ((0, 4),))
    assert times_of(run, EventType.MIGRATE)[:1] == moved_s


def test_a_move_onto_gpus_that_others_hold_is_not_made():
    # b, on 2 GPUs of node 0, leaves no room there for a's four until it ends at 100 s; on node 1 there is.
    jobs = [Job("a", 0.0, 100, 4), Job("b", 0.0, 100, 2)]
    for onto, moved_s in ((0, [100.0]), (1, [20.0])):
        run = run_of(jobs, 0.0, every_s=20.0, onto=onto)
        on = next(
            e.nodes for e in run.simulation.log.events if e.event_type == EventType.START and e.job == 1
        )
        assert on == ((0, 2),)
        assert times_of(run, EventType.MIGRATE)[:1] == moved_s
