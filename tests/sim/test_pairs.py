"""Jobs that share GPUs in pairs: hand-worked runs, bad decisions, and properties of random runs."""

import gzip
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import PairScript, RandomPairs, with_pairs
from scenarios import Job, Script, replays, small_scenario
from wild_scenarios import with_extras

from clustergym.results.decision_log import read_decisions
from clustergym.results.measured_run import make_result, measure_run
from clustergym.results.result_writing import decision_lines
from clustergym.scenario.disturbances.reservations import PlannedJobs, Reservation
from clustergym.scenario.policy import Decision
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

TIMES = {"a": {"X": {1: 1.0, 2: 0.5}, "Y": {1: 3.0}}, "b": {"X": {1: 2.0, 2: 1.2}, "Y": {1: 4.0}}}
KEPT = {("a", "b"): (0.8, 0.5), ("a", "a"): (0.6, 0.6)}


def two_jobs(groups=None, checkpoint_s=0.0, iterations=(100, 100), rounds="event"):
    jobs = [Job("a", 0, iterations[0], family="a"), Job("b", 10, iterations[1], family="b")]
    restart = {"a": checkpoint_s, "b": checkpoint_s}
    plain = small_scenario(jobs, groups or {"X": (1, 1)}, TIMES, checkpoint_s=restart, rounds=rounds)
    return with_pairs(plain, KEPT)


def ran(scenario, entries, horizon_s=None):
    scenario = replace(scenario, horizon_s=horizon_s)
    script = PairScript(scenario, entries)
    return make_result(simulate(scenario, script, Buddy())), script


def kinds(result, *without):
    events = result.run.simulation.log.events
    return [
        (event.time_s, str(event.event_type), event.job, event.partner)
        for event in events
        if event.event_type not in without
    ]


def test_both_are_slower_together_and_the_one_that_stays_is_as_fast_as_before():
    both = {"a": ("X", 1), "b": ("X", 1)}
    result, script = ran(two_jobs(), {0.0: ({"a": ("X", 1)}, ()), 10.0: (both, [("a", "b")])})
    # Alone a needs 1 s and b 2 s an iteration, together 1 / 0.8 = 1.25 s and 2 / 0.5 = 4 s.
    # a: 10 iterations alone until 10 s, then 90 at 1.25 s: it ends at 10 + 112.5 = 122.5 s.
    # b: 112.5 / 4 = 28.125 iterations beside a, then 71.875 at 2 s: it ends at 122.5 + 143.75 = 266.25 s.
    assert result.jobs.jct_s == pytest.approx([122.5, 256.25], abs=1e-9)
    assert kinds(result, EventType.SUBMIT) == [
        (0.0, "start", 0, -1),
        (10.0, "start", 1, 0),
        (10.0, "rate", 0, 1),
        (122.5, "complete", 0, -1),
        (122.5, "rate", 1, -1),
        (266.25, "complete", 1, -1),
    ]
    # The one GPU is held from 0 to 266.25 s and counts once: of a shared second each job is charged half.
    assert result.jobs.held_gpu_s == pytest.approx([10 + 112.5 / 2, 112.5 / 2 + 143.75], abs=1e-9)
    assert result.jobs.held_gpu_s.sum() == pytest.approx(266.25, abs=1e-9)
    assert result.metrics["gpu_utilization"] == pytest.approx(1.0, abs=1e-12)
    assert set(result.timeline.held_gpus.ravel().tolist()) == {0, 1}
    assert result.metrics["restarts_mean"] == 0.0
    shown = next(view for view in script.views if view.now_s == 122.5)
    assert shown.partner.tolist() == [-1]
    assert shown.attained_gpu_s == pytest.approx([112.5 / 2], abs=1e-9)


def test_what_a_job_held_alone_counts_whole_though_it_shares_now():
    jobs = [Job("a", 0, 100, family="a"), Job("b", 10, 100, family="b"), Job("c", 20, 100, family="b")]
    scenario = with_pairs(small_scenario(jobs, {"X": (1, 1)}, TIMES, rounds="event"), KEPT)
    both = {"a": ("X", 1), "b": ("X", 1)}
    _, script = ran(scenario, {0.0: ({"a": ("X", 1)}, ()), 10.0: (both, [("a", "b")])}, horizon_s=21.0)
    # a has the GPU alone for 10 s, and half of it for another 10 s, as has b.
    shown = next(view for view in script.views if view.now_s == 20.0)
    assert shown.attained_gpu_s == pytest.approx([15.0, 5.0, 0.0], abs=1e-9)


def test_a_job_that_returns_beside_its_partner_slows_it_while_it_loads_its_checkpoint():
    both = {"a": ("X", 1), "b": ("X", 1)}
    entries = {
        0.0: ({"a": ("X", 1)}, ()),
        10.0: (both, [("a", "b")]),
        20.0: ({"b": ("X", 1)}, ()),
        30.0: (both, [("a", "b")]),
    }
    result, _ = ran(two_jobs(rounds=10.0, checkpoint_s=5.0), entries)
    # a: 10 alone and 10 / 1.25 = 8 beside b; it returns at 30 s and works from 35 s: 82 take until 137.5 s.
    # b: 10 / 4 = 2.5 beside a, 10 / 2 = 5 alone, until 137.5 s 107.5 / 4 = 26.875; 65.625 at 2 s are left.
    assert result.jobs.jct_s == pytest.approx([137.5, 137.5 + 131.25 - 10], abs=1e-9)
    assert result.jobs.held_gpu_s.sum() == pytest.approx(137.5 + 131.25, abs=1e-9)
    assert result.jobs.preemptions.tolist() == [1, 0]


def test_two_running_jobs_that_are_put_together_and_apart_again():
    apart = {"a": ("X", 1), "b": ("X", 1)}
    entries = {0.0: ({"a": ("X", 1)}, ()), 10.0: (apart, ()), 20.0: (apart, [("a", "b")]), 40.0: (apart, ())}
    result, _ = ran(two_jobs({"X": (1, 2)}, rounds=10.0, checkpoint_s=5.0), entries)
    # The job of the lower row stays: a does 20 + 20 x 0.8 = 36 until 40 s, then 64: it ends at 104 s.
    # b does 10 / 2 = 5, moves for 5 s, does 15 / 4 = 3.75, moves for 5 s, does 91.25 at 2 s from 45 s on.
    assert result.jobs.jct_s == pytest.approx([104.0, 45 + 182.5 - 10], abs=1e-9)
    assert result.jobs.migrations.tolist() == [0, 2]
    held = dict(zip(result.timeline.time_s.tolist(), result.timeline.held_gpus[:, 0].tolist(), strict=True))
    assert (held[10.0], held[20.0], held[40.0], held[104.0]) == (2, 1, 2, 1)


def test_pairs_are_read_from_the_log(tmp_path):
    scenario = two_jobs()
    both = {"a": ("X", 1), "b": ("X", 1)}
    run = ran(scenario, {0.0: ({"a": ("X", 1)}, ()), 10.0: (both, [("a", "b")])})[0].run
    named = {"policy": {"name": "script"}, "placer": {"name": "buddy", "parameters": {}}, "seed": 0}
    lines = [json.dumps(line) + "\n" for line in decision_lines(run.simulation, named)]
    path = tmp_path / "decisions.jsonl.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    changes = list(read_decisions(path, scenario)[1])
    assert changes[1].partner == ((1, 0),)
    assert changes == run.simulation.changes


def test_partners_change_without_more_moves_than_needed():
    jobs = [Job(name, 0, 1000, family="a") for name in ("p", "q", "r")]
    scenario = with_pairs(small_scenario(jobs, {"X": (1, 2)}, TIMES, rounds=10.0), KEPT)
    all_three = {name: ("X", 1) for name in ("p", "q", "r")}
    entries = {0.0: (all_three, [("p", "q")]), 10.0: (all_three, [("q", "r")])}
    result, _ = ran(scenario, entries)
    moved = [
        (e.time_s, str(e.event_type), e.job) for e in result.run.simulation.log.events if e.time_s == 10.0
    ]
    # p keeps the GPU it had with q, which joins r.
    assert moved == [(10.0, "migrate", 1), (10.0, "rate", 0), (10.0, "rate", 2)]


def test_a_missing_pair_that_the_rule_allows_is_counted():
    jobs = [Job("a", 0, 10, family="a"), Job("b", 0, 10, family="b")]
    scenario = with_pairs(small_scenario(jobs, {"X": (1, 1)}, TIMES), {("a", "b"): (1.0, 1.0)}, (("a", "b"),))
    result, _ = ran(scenario, {0.0: ({"a": ("X", 1), "b": ("X", 1)}, [("a", "b")])})
    assert dict(result.run.simulation.sharing.launches) == {"free": 1}
    assert result.jobs.jct_s == pytest.approx([10.0, 20.0], abs=1e-9)


@pytest.mark.parametrize(
    ("table", "pairs", "message"),
    [
        ({"a": ("X", 2), "b": ("X", 1)}, [("a", "b")], "shares 2 X with job b, which has 1 X"),
        ({"a": ("Y", 1), "b": ("X", 1)}, [("a", "b")], "shares 1 Y with job b, which has 1 X"),
        ({"b": ("X", 1)}, [("b", "a")], "shares with a, which does not share with it"),
        ({"b": ("X", 1), "c": ("X", 1)}, [("b", "c")], "may not share with job c"),
        ({name: ("X", 1) for name in "abc"}, (), "uses 3 X, 2 are available"),
    ],
)
def test_a_decision_that_breaks_a_rule_of_pairs_names_job_and_remedy(table, pairs, message):
    jobs = [Job(name, 0, 10, family="a" if name == "a" else "b") for name in "abc"]
    scenario = with_pairs(small_scenario(jobs, {"X": (1, 2), "Y": (1, 1)}, TIMES), KEPT)
    with pytest.raises(DecisionError, match=message):
        simulate(scenario, PairScript(scenario, {0.0: (table, pairs)}), Buddy())


def test_one_sided_pairs_and_pairs_without_a_table_are_refused():
    scenario = two_jobs(iterations=(10, 10))
    lone = small_scenario([Job("a", 0, 10, family="a")], {"X": (1, 1)}, TIMES)

    class OneSided(Script):
        def schedule(self, view):
            n = len(view)
            table = view.job, np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
            return Decision(*table, partner=np.arange(n)[::-1] + (n == 1))

    with pytest.raises(DecisionError, match="does not share with it"):
        simulate(scenario, OneSided(scenario, {}), Buddy())
    with pytest.raises(DecisionError, match="the scenario has no pairs"):
        simulate(lone, OneSided(lone, {}), Buddy())


@pytest.mark.parametrize(
    ("iterations", "ends"),
    [
        # b would need 4 s an iteration beside a; the GPU is kept from 100 s on for p, of 10 s.
        # 22 iterations, from 10 to 98 s, may join. a: 10 iterations alone, 50 at 1.25 s, until 72.5 s. b has
        # done 62.5 / 4 = 15.625 then, and needs 2 s for each of the other 6.375: until 85.25 s.
        ((60, 22), {"a": 72.5, "b": 85.25, "p": 110.0}),
        # 23 iterations, until 102 s, may not: b waits until the policy starts it alone, at 110 s.
        ((60, 23), {"a": 60.0, "p": 110.0, "b": 110.0 + 23 * 2}),
        # a alone would end at 95 s. Beside b, from 10 to 98 s, it does 70.4 iterations; 2 more until p
        # stops it at 100 s, with 12.6 to do.
        ((95, 22), {"b": 98.0, "p": 110.0, "a": 110.0 + 12.6}),
    ],
)
def test_a_job_joins_only_if_it_ends_before_the_planned_job_for_which_its_node_is_kept(iterations, ends):
    jobs = [Job("a", 0, iterations[0], family="a"), Job("b", 10, iterations[1], family="b")]
    plain = small_scenario([*jobs, Job("p", 10, 10, family="a")], {"X": (1, 1)}, TIMES, rounds="event")
    kept_for_p = replace(plain, disturbances=(PlannedJobs((Reservation(2, 100.0, 100.0),)),))
    scenario = with_pairs(kept_for_p, KEPT)
    both, left = {"a": ("X", 1), "b": ("X", 1)}, {"a" if ends["a"] > 110 else "b": ("X", 1)}
    entries = {0.0: ({"a": ("X", 1)}, ()), 10.0: (both, [("a", "b")])}
    entries |= {110.0: (left, ())} if max(ends.values()) > 110 else {}
    result, _ = ran(scenario, entries)
    events = result.run.simulation.log.events
    found = {scenario.trace.job_id[e.job]: e.time_s for e in events if e.event_type == "complete"}
    assert found == pytest.approx(ends, abs=1e-9)


families = st.sampled_from(["a", "a", "b"])
rows = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 120), families), min_size=2, max_size=10)


@settings(max_examples=int(os.environ.get("PAIR_CASES", "40")), deadline=None)
@given(
    rows,
    st.sampled_from(["event", 20.0, 7.5]),
    st.sampled_from([None, 250.0]),
    st.integers(0, 5),
    st.sets(st.sampled_from(["contention", "failures", "planned"])),
)
def test_any_run_conserves_gpus_and_work_and_replays(rows, rounds, horizon_s, seed, extras):
    jobs = [Job(f"j{at}", time, work, family=name) for at, (time, work, name) in enumerate(sorted(rows))]
    groups = {"X": (2, 2), "Y": (1, 2)}
    restart = {"a": 3.0, "b": 7.5}
    plain = small_scenario(jobs, groups, TIMES, checkpoint_s=restart, rounds=rounds, horizon_s=horizon_s)
    scenario = with_pairs(with_extras(plain, extras, seed), {**KEPT, ("b", "b"): (1.1, 1.1)})
    run = simulate(scenario, RandomPairs(), Buddy(defragment_s=50.0), seed)
    # Raises if a finished job did not do exactly its work, or any job more than it.
    measured = measure_run(run.simulation)
    held_gpu_s = gpus_from_the_log(scenario, run.simulation)
    assert measured.records.held_gpu_s.sum() == pytest.approx(held_gpu_s, rel=1e-9, abs=1e-6)
    integral = sum(measured.timeline.integral(column) for column in measured.timeline.held_gpus.T)
    assert integral == pytest.approx(held_gpu_s, rel=1e-9, abs=1e-6)
    assert replays(run.simulation, Buddy(defragment_s=50.0), seed)


def gpus_from_the_log(scenario, simulation):
    """Return the GPU-seconds in use; check at each instant that no GPU is in use by more than one pair."""
    held, total, last_s = {}, 0.0, 0.0
    events, launches = simulation.log.events, ("start", "resume", "rescale", "migrate")
    for at, event in enumerate(events):
        if event.event_type in launches:
            held[event.job] = (event.nodes, event.partner)
        elif event.event_type == "rate":
            held[event.job] = (held[event.job][0], event.partner)
        elif event.event_type in ("preempt", "complete", "fail", "drop"):
            held.pop(event.job, None)
        if at + 1 < len(events) and events[at + 1].time_s == event.time_s:
            continue
        free = scenario.cluster.node_gpus.copy()
        for job, (nodes, partner) in held.items():
            if partner >= 0:
                assert held[partner] == (nodes, job)
            if partner < job:
                for node, gpus in nodes:
                    free[node] -= gpus
        assert free.min() >= 0
        until = events[at + 1].time_s if at + 1 < len(events) else simulation.end_s
        total += float((scenario.cluster.node_gpus - free).sum()) * (until - event.time_s)
        last_s = until
    assert last_s == simulation.end_s
    return total
