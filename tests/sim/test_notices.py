"""Stops with and without notice, and moves, worked out by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from placers import LowestFirst
from refusals import refused
from scenarios import ONE_S, Job, Script, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.decision_log import parse_changes
from clustergym.results.measured_run import measure_run
from clustergym.results.result_writing import decision_lines, event_lines
from clustergym.scenario.disturbances.checkpoints import Checkpoints
from clustergym.scenario.disturbances.failures import Failures, NodeFailure
from clustergym.scenario.policy import Decision, InformationClass, StopCosts
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import follow, simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventType

# NVLink joins each four nodes of 4 X. Every iteration takes 1 s. To save and to load takes 20 s, 10 s each.
X4 = ("X", 4)
SAVE_S = LOAD_S = 10.0


class Told(Script):
    """A script that also gives notices (job ids) and moves (job id -> nodes or domain) at its times.

    Between its entries it keeps what runs and starts what fits, in order of submission.
    """

    def __init__(self, scenario, entries, notices=None, moves=None):
        super().__init__(scenario, entries)
        self.notices, self.moves = notices or {}, moves or {}
        self.costs = {}

    def schedule(self, view):
        self.costs[view.now_s] = view.stop_costs()
        named = view.now_s in self.entries
        decision = super().schedule(view)
        free = 0 if named else int(view.free[0])
        for row, gpus in zip(
            view.job.tolist(), np.where(view.gpus, 0, view.requested_gpus).tolist(), strict=True
        ):
            if 0 < gpus <= free:
                decision, free = decision.also([(row, 0, gpus)]), free - gpus
        notice = [self.row[name] for name in self.notices.get(view.now_s, ())]
        move = {self.row[name]: target for name, target in self.moves.get(view.now_s, {}).items()}
        return replace(decision, notice=np.array(notice, dtype=np.int64), move=move or None)


def in_domains(scenario):
    """Return a scenario on a cluster of which NVLink joins each four nodes."""
    groups = tuple(replace(group, nodes_per_domain=4) for group in scenario.cluster.groups)
    return replace(scenario, cluster=replace(scenario.cluster, groups=groups))


def make_scenario(jobs, nodes=1, every_s=60.0, failures=()):
    scenario = small_scenario(jobs, {"X": (nodes, 4)}, ONE_S, checkpoint_s={"m": SAVE_S + LOAD_S})
    kept = () if every_s is None else (Checkpoints(every_s),)
    return in_domains(replace(scenario, disturbances=(*kept, *failures)))


def run_of(scenario, entries, notices=None, moves=None):
    script = Told(scenario, entries, notices, moves)
    return simulate(scenario, script, LowestFirst()).simulation, script


def events_of(simulation, *kinds):
    return [(e.time_s, str(e.event_type), e.job) for e in simulation.log.events if e.event_type in kinds]


CHANGES = "start", "resume", "save", "undo", "migrate", "rescale", "preempt", "fail", "complete"
TWO = [Job("a", 0.0, 200, 4), Job("b", 100.0, 50, 4)]


def test_a_stop_without_notice_loses_what_was_done_since_the_last_checkpoint():
    # a saves each 60 s of work. Stopped at 100 it goes back to 60: 40 s and 40 iterations on 4 GPUs are lost.
    # b runs 100 to 150; then a loads for 10 s and does the other 140: 150 + 10 + 140 = 300.
    simulation, script = run_of(make_scenario(TWO), {0.0: {"a": X4}, 100.0: {"b": X4}, 150.0: {"a": X4}})
    assert events_of(simulation, *CHANGES) == [
        (0.0, "start", 0),
        (100.0, "undo", 0),
        (100.0, "preempt", 0),
        (100.0, "start", 1),
        (150.0, "complete", 1),
        (150.0, "resume", 0),
        (300.0, "complete", 0),
    ]
    undo = next(e for e in simulation.log.events if e.event_type == EventType.UNDO)
    assert (undo.gpus, undo.lost_s, undo.lost_iterations) == (4, 40.0, 40.0)
    metrics = measure_run(simulation).metrics
    assert metrics["lost_gpu_hours"] == pytest.approx(4 * 40 / 3600)
    assert metrics["overhead_gpu_hours"] == pytest.approx(4 * 10 / 3600)
    costs = script.costs[100.0]
    # What the View says: 40 s undone or 10 s of saving, and 10 s of loading.
    assert costs.lost_gpu_s.tolist() == [4 * 40.0, 0.0]
    assert costs.save_gpu_s.tolist() == [4 * 10.0, 0.0]
    assert costs.restart_gpu_s.tolist() == [4 * 10.0, 0.0]
    assert costs.checkpoint_age_s.tolist() == [40.0, 0.0]
    assert costs.lost_iterations.tolist() == [40.0, 0.0]
    assert costs.save_s.tolist() == [10.0, 10.0]
    assert costs.loses


def test_a_stop_undoes_writing_too():
    # After each 60 s of work a writes for 20 s: a quarter of its time, so an iteration takes 4/3 s. Stopped
    # at 100 it goes back to 80 s and 60 iterations: 20 s are undone, with 15 iterations. b has 60 s for its
    # 45; then a loads for 10 s and does the other 140: 160 + 10 + 186.667.
    jobs = [Job("a", 0.0, 200, 4), Job("b", 100.0, 45, 4)]
    scenario = replace(make_scenario(jobs, every_s=None), disturbances=(Checkpoints(60.0, 20.0),))
    simulation, _ = run_of(scenario, {0.0: {"a": X4}, 100.0: {"b": X4}, 160.0: {"a": X4}})
    undo = next(e for e in simulation.log.events if e.event_type == EventType.UNDO)
    assert (undo.lost_s, undo.lost_iterations, undo.write_share) == (20.0, pytest.approx(15.0), 0.25)
    metrics = measure_run(simulation).metrics
    # 200 s of work lasted in 356.667 s, and 45 s in 60.
    assert metrics["ettr_mean"] == pytest.approx((200 / (170 + 560 / 3) + 0.75) / 2)
    # Of 100 + 60 + 186.667 s with GPUs in use.
    assert metrics["checkpoint_gpu_hours"] == pytest.approx(4 * 0.25 * (100 + 60 + 560 / 3) / 3600)
    assert simulation.log.events[-1].time_s == pytest.approx(160 + 10 + 140 / 0.75, abs=1e-5)


def test_a_job_with_notice_saves_first_and_loses_only_that_time():
    # a has notice at 100 and saves until 110 on its GPUs: no View shows it, 4 GPUs are coming, none is
    # available. b runs 110 to 160; a loads for 10 s and does the other 100: 160 + 10 + 100 = 270.
    entries = {0.0: {"a": X4}, 100.0: {}, 110.0: {"b": X4}, 160.0: {"a": X4}}
    simulation, _ = run_of(make_scenario(TWO), entries, notices={100.0: ["a"]})
    assert events_of(simulation, *CHANGES) == [
        (0.0, "start", 0),
        (100.0, "save", 0),
        (110.0, "preempt", 0),
        (110.0, "start", 1),
        (160.0, "complete", 1),
        (160.0, "resume", 0),
        (270.0, "complete", 0),
    ]
    metrics = measure_run(simulation).metrics
    assert metrics["lost_gpu_hours"] == 0
    assert metrics["overhead_gpu_hours"] == pytest.approx(4 * (10 + 10) / 3600)
    assert simulation.changes[1].notice == (0,)
    assert simulation.changes[1].preempt == ()


def test_until_a_job_has_saved_its_gpus_are_coming_and_no_view_shows_it():
    # c comes at 105, while a saves: its View shows b and c, none of 4 GPUs available, 4 coming.
    jobs = [*TWO, Job("c", 105.0, 10, 4)]
    entries = {0.0: {"a": X4}, 100.0: {}, 110.0: {"b": X4}, 160.0: {"c": X4}, 170.0: {"a": X4}}
    _, script = run_of(make_scenario(jobs), entries, notices={100.0: ["a"]})
    views = {view.now_s: view for view in script.views}
    assert views[105.0].job.tolist() == [1, 2]
    assert views[105.0].available.tolist() == [0]
    assert views[105.0].coming.tolist() == [4]
    assert views[110.0].job.tolist() == [0, 1, 2]
    assert views[110.0].available.tolist() == [4]
    assert views[110.0].coming is None


def test_a_node_that_fails_while_a_job_saves_takes_its_work_since_the_checkpoint():
    # a saves from 100; its node fails at 105: it goes back to 60, as at a failure without notice.
    failures = (Failures(schedule=(NodeFailure(105.0, 0, 20.0),), checkpoint_every_s=60.0),)
    scenario = make_scenario(TWO, failures=failures)
    entries = {0.0: {"a": X4}, 100.0: {}, 125.0: {"a": X4}}
    simulation, _ = run_of(scenario, entries, notices={100.0: ["a"]})
    assert events_of(simulation, EventType.SAVE, EventType.FAIL, EventType.PREEMPT, EventType.RESUME) == [
        (100.0, "save", 0),
        (105.0, "fail", 0),
        (125.0, "resume", 0),
    ]
    fail = next(e for e in simulation.log.events if e.event_type == EventType.FAIL)
    assert fail.lost_iterations == 40.0


@pytest.mark.parametrize(("noticed", "ends_s"), [(True, 220.0), (False, 250.0)])
def test_a_rescale_is_a_stop_too(noticed, ends_s):
    # a shrinks from 4 to 2 X at 100. With notice it saves and loads for 20 s and does its other 100: 220.
    # Without it loads for 10 s and does 140 again: 250.
    scenario = make_scenario([TWO[0], Job("b", 100.0, 50, 2)])
    entries = {0.0: {"a": X4}, 100.0: {"a": ("X", 2)}}
    simulation, _ = run_of(scenario, entries, notices={100.0: ["a"]} if noticed else {})
    assert events_of(simulation, EventType.COMPLETE)[0] == (ends_s, "complete", 0)


@pytest.mark.parametrize(
    ("target", "nodes"), [(((1, 4),), ((1, 4),)), (((0, 2), (1, 2)), ((0, 2), (1, 2))), (1, ((4, 4),))]
)
def test_a_job_moves_to_nodes_or_to_a_domain(target, nodes):
    # Five nodes: 0 to 3 are domain 0, 4 is domain 1. b wakes the policy at 100. Jobs save when they are
    # stopped: a moves at 100, stands still for 20 s and does its other 100: 220.
    scenario = make_scenario([TWO[0], Job("b", 100.0, 1, 4)], nodes=5, every_s=None)
    simulation, script = run_of(scenario, {0.0: {"a": X4}}, moves={100.0: {"a": target}})
    move = next(e for e in simulation.log.events if e.event_type == EventType.MIGRATE)
    assert (move.time_s, move.nodes, move.overhead_s) == (100.0, nodes, 20.0)
    assert events_of(simulation, EventType.COMPLETE)[-1] == (220.0, "complete", 0)
    costs = script.costs[100.0]
    assert (costs.loses, costs.checkpoint_age_s[0], costs.restart_gpu_s[0]) == (False, 100.0, 4 * 20.0)
    assert not costs.lost_gpu_s.any()
    assert not costs.save_gpu_s.any()


def test_a_move_without_notice_loses_work_and_with_notice_saves_first():
    # At 100 a goes from node 0 to node 1. Without notice: back to 60, 10 s of loading, 140 left: 250. With
    # notice: 10 s of saving, 10 of loading, 100 left: 220.
    for notices, ends_s in (({}, 250.0), ({100.0: ["a"]}, 220.0)):
        scenario = make_scenario([TWO[0], Job("b", 100.0, 500, 4)], nodes=2)
        entries = {0.0: {"a": X4}}
        simulation, _ = run_of(scenario, entries, notices, moves={100.0: {"a": ((1, 4),)}})
        ended = dict((row, time_s) for time_s, _, row in events_of(simulation, EventType.COMPLETE))
        assert ended[0] == ends_s


def test_two_jobs_change_places_at_once_and_a_job_that_waits_starts_where_it_is_told():
    jobs = [Job("a", 0.0, 100, 4), Job("b", 0.0, 100, 4), Job("c", 50.0, 10, 2)]
    scenario = make_scenario(jobs, nodes=3, every_s=None)
    entries = {0.0: {"a": X4, "b": X4}, 50.0: {"a": X4, "b": X4, "c": ("X", 2)}}
    moves = {50.0: {"a": ((1, 4),), "b": ((0, 4),), "c": ((2, 2),)}}
    simulation, _ = run_of(scenario, entries, moves=moves)
    placed = {e.job: e.nodes for e in simulation.log.events if e.time_s == 50.0 and e.nodes}
    assert placed == {0: ((1, 4),), 1: ((0, 4),), 2: ((2, 2),)}
    # To name the nodes that a job has already changes nothing.
    scenario = make_scenario(jobs, nodes=3, every_s=None)
    simulation, _ = run_of(scenario, entries, moves={50.0: {"a": ((0, 4),)}})
    assert not events_of(simulation, EventType.MIGRATE)


def test_the_decisions_of_a_run_with_notices_and_moves_replay_it():
    jobs = [Job("a", 0.0, 200, 4), Job("b", 0.0, 150, 4), Job("c", 100.0, 50, 4)]
    entries = {0.0: {"a": X4, "b": X4}, 100.0: {"b": X4}, 110.0: {"b": X4, "c": X4}}
    scenario = make_scenario(jobs, nodes=3)
    simulation, _ = run_of(scenario, entries, {100.0: ["a", "b"]}, {100.0: {"b": ((2, 4),)}})
    again = Simulation(scenario, LowestFirst(), InformationClass.NONE)
    follow(again, simulation.changes)
    assert again.log.digest == simulation.log.digest
    assert again.changes == simulation.changes
    kinds = {e.event_type for e in simulation.log.events}
    assert {EventType.SAVE, EventType.MIGRATE} <= kinds
    result = {"policy": {"name": ""}, "placer": {"name": "", "parameters": {}}, "seed": 0}
    lines = [(at, line) for at, line in enumerate(decision_lines(simulation, result)) if "time_s" in line]
    assert {key for _, line in lines for key in line} >= {"notice", "move"}
    assert parse_changes(Path("log"), scenario, json.loads(json.dumps(lines))) == simulation.changes
    events = list(event_lines(simulation))
    assert {"time_s": 100.0, "kind": "save", "job_id": "a"}.items() <= events[5].items()


@refused("decision-lines")
def test_a_log_with_wrong_notices_or_moves_is_refused_in_one_line(given, said):
    with said.of_error():
        parse_changes(Path("log"), make_scenario(TWO), [(1, {"time_s": 0.0, **given})])


WRONG = [
    ({"notice": [1]}, r"job b.* is given notice and does not run"),
    ({"notice": [7]}, r"job #7.* is given notice and does not run"),
    ({"notice": [0]}, r"job a.* is given notice and keeps its GPUs"),
    ({"drop": [0], "job": [], "notice": [0]}, r"job a.* is given notice and dropped, or twice"),
    ({"job": [], "notice": [0, 0]}, r"job a.* is given notice and dropped, or twice"),
    ({"move": {1: ((1, 4),)}}, r"job b.* is given nodes, but no GPUs"),
    ({"move": {0: ((1, 2),)}}, r"job a.* has 4 GPUs and moves to 2"),
    ({"move": {0: ((2, 4),)}}, r"job a.* moves to 4 GPUs of node 2, where 2 are free"),
    ({"move": {0: ((9, 4),)}}, r"job a.* moves to nodes \[9\].*of 0 to 5"),
    ({"move": {0: ((2, 2), (1, 2))}}, r"job a.* moves to nodes \[2, 1\]"),
    ({"move": {0: ((5, 4),)}}, r"job a.* moves to nodes \[5\], not all with X"),
    ({"move": {0: 1}}, r"job a.* moves with 4 X to domain 1, which has 0"),
    ({"move": {0: 7}}, r"job a.* moves with 4 X to domain 7, which has 0"),
    ({"move": {0: "there"}}, r"its moves are no nodes or domains of jobs"),
    ({"move": [(0, 1)]}, r"its moves are no nodes or domains of jobs"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_what_cannot_be_noticed_or_moved_is_named_with_its_limit(given, message):
    # Nodes 0 to 3 have X, domain 0; 4 and 5 have Y, domain 1. a runs on node 0, c on 2 GPUs of node 2,
    # b waits.
    jobs = [Job("a", 0.0, 99, 4, "X"), Job("b", 0.0, 99, 4, "X"), Job("c", 0.0, 99, 2, "X")]
    times = {"m": {"X": {2: 1.0, 4: 1.0}, "Y": {4: 1.0}}}
    scenario = small_scenario(jobs, {"X": (4, 4), "Y": (2, 4)}, times)
    scenario = in_domains(replace(scenario, disturbances=(Checkpoints(60.0),), rounds=10.0))
    simulation = Simulation(scenario, LowestFirst(), InformationClass.NONE)
    simulation.advance()
    start = Decision.of([(0, 0, 4), (2, 0, 2)])
    simulation.apply(replace(start, move={0: ((0, 4),), 2: ((2, 2),)}))
    view = simulation.advance()
    before = simulation.log.digest
    decision = Decision.keep(view)
    if "job" in given:
        decision = Decision.of([(2, 0, 2)])
    decision = replace(
        decision,
        notice=np.array(given.get("notice", []), dtype=np.int64),
        drop=np.array(given.get("drop", []), dtype=np.int64),
        move=given.get("move"),
    )
    with pytest.raises(DecisionError, match=message):
        simulation.apply(decision)
    assert simulation.log.digest == before
    simulation.apply(Decision.keep(view))


def test_a_full_domain_and_notice_where_jobs_save_anyhow_are_refused():
    # Nodes 0 to 3 are domain 0, 4 and 5 domain 1, of 8 GPUs, of which b and c hold 6.
    jobs = [Job("a", 0.0, 99, 4), Job("b", 0.0, 99, 4), Job("c", 0.0, 99, 2)]
    scenario = make_scenario(jobs, nodes=6, every_s=None)
    simulation = Simulation(replace(scenario, rounds=10.0), LowestFirst(), InformationClass.NONE)
    simulation.advance()
    start = Decision.of([(0, 0, 4), (1, 0, 4), (2, 0, 2)])
    simulation.apply(replace(start, move={0: ((0, 4),), 1: 1, 2: 1}))
    view = simulation.advance()
    with pytest.raises(DecisionError, match=r"job a.* moves to domain 1, where 2 of its 4 GPUs are free"):
        simulation.apply(replace(Decision.keep(view), move={0: 1}))
    with pytest.raises(DecisionError, match=r"job a.* is given notice, where jobs save whenever"):
        simulation.apply(replace(Decision.of([(1, 0, 4)]), notice=np.array([0])))


@pytest.mark.parametrize(
    ("given", "message"),
    [({"write_s": 5.0}, "but no interval"), ({"every_s": 4.0, "write_s": 5.0}, "longer than 4 s")],
)
def test_checkpoints_take_no_longer_than_their_interval(given, message):
    with pytest.raises(InputError, match=message):
        Checkpoints.from_config(given, None, None, 0)
    assert Checkpoints.from_config({}, None, None, 0) is None


def test_checkpoints_that_cost_make_work_slower():
    # Every 60 s of work take 75 s with 15 s of writing: 200 iterations take 250 s.
    scenario = replace(make_scenario([TWO[0]]), disturbances=(Checkpoints(60.0, 15.0),))
    simulation, _ = run_of(scenario, {0.0: {"a": X4}})
    assert events_of(simulation, EventType.COMPLETE) == [(250.0, "complete", 0)]


def test_a_domain_that_lacks_one_gpu_is_too_small():
    # Domain 1 is node 4 alone. c holds 1 of its 4 GPUs, so that a, which asks for all 4, lacks one.
    scenario = make_scenario([TWO[0], Job("c", 0.0, 99, 1)], nodes=5, every_s=None)
    entries, moves = {0.0: {"a": X4, "c": ("X", 1)}}, {0.0: {"a": ((0, 4),), "c": ((4, 1),)}}
    moves[50.0] = {"a": 1}
    with pytest.raises(DecisionError, match="moves to domain 1, where 3 of its 4 GPUs are free"):
        run_of(replace(scenario, rounds=50.0), entries, moves=moves)


def test_costs_of_some_jobs_are_theirs():
    of_three = [np.array([1.0, 2.0, 3.0]) * factor for factor in (1, 10, 100, 1000, 10_000, 100_000)]
    some = StopCosts(*of_three, loses=True).select(np.array([2, 0]))
    assert some.checkpoint_age_s.tolist() == [3.0, 1.0]
    assert some.save_s.tolist() == [30.0, 10.0]
    assert some.restart_gpu_s.tolist() == [300_000.0, 100_000.0]
    assert some.loses
