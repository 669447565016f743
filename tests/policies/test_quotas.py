"""Quotas: shares of queues, what is lent and taken back, on cases solved by hand and drawn ones."""

import json
import os
from itertools import groupby

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.quotas import Quotas
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import with_pairs
from queue_quotas import with_tenants
from random_scenarios import all_left, random_scenarios
from scenarios import Job, ends, small_scenario

from clustergym.commands.replay import main as replay
from clustergym.commands.run import main as run_command
from clustergym.common.errors import InputError
from clustergym.results.metrics.intervals import read_intervals
from clustergym.scenario.tenants.division import Division
from clustergym.sim.drive import simulate

LINEAR = {"m": {"X": {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}}}
"""Seconds an iteration: 8 GPU-seconds on any count."""


def run(jobs, policy, queues="virtual_cluster", checkpoint_s=0.0, rounds="event"):
    """Simulate jobs whose tenants are the first letters of their names, on 8 GPUs."""
    scenario = small_scenario(jobs, {"X": (1, 8)}, LINEAR, rounds=rounds, checkpoint_s={"m": checkpoint_s})
    return simulate(with_tenants(scenario, queues), policy, Buddy())


def test_queues_let_no_job_share_a_gpu_in_a_scenario_with_pairs():
    jobs = [Job(name, 10 * at, 30, gpus=4) for at, name in enumerate(("a1", "a2", "b1", "b2"))]
    scenario = small_scenario(jobs, {"X": (1, 8)}, LINEAR, rounds="event")
    alone = with_tenants(scenario)
    runs = [
        simulate(given, Quotas(within="gavel packed=true"), Buddy())
        for given in (alone, with_pairs(alone, {("m", "m"): (1.0, 1.0)}))
    ]
    assert ends(runs[0]) == ends(runs[1])
    assert runs[0].simulation.log.digest == runs[1].simulation.log.digest


def test_what_is_lent_comes_back_by_stopping_the_job_that_started_last():
    # a holds all 8 GPUs until b asks for 4 at 10: a2 stops. b1 runs from 10 to 50 (20 iterations of 2 s).
    # Then a2, of which 5 iterations were done, goes on: 45 x 2 s, until 140.
    jobs = [Job("a1", 0, 50, gpus=4), Job("a2", 0, 50, gpus=4), Job("b1", 10, 20, gpus=4)]
    policy = Quotas(reclaim="stop")
    assert ends(run(jobs, policy)) == {"b1": 50, "a1": 100, "a2": 140}
    assert policy.counters()["jobs_stopped_for_quota"] == 1
    # Without taking back b1 waits until both of a's jobs end at 100.
    assert ends(run(jobs, Quotas(reclaim="never"))) == {"a1": 100, "a2": 100, "b1": 140}


def test_a_job_that_can_run_on_half_its_gpus_is_not_stopped():
    # a1 has done 10 of 50 iterations on 8 GPUs when b asks for 4; until 50 it does 20 more on 4 GPUs, and
    # then, alone again, its last 20 on 8, until 70. No GPU idles: 400 + 160 GPU s on 8 GPUs are 70 s.
    jobs = [Job("a1", 0, 50, gpus=8), Job("b1", 10, 20, gpus=4)]
    policy = Quotas(within="srtf elastic=true")
    assert ends(run(jobs, policy)) == {"b1": 50, "a1": 70}
    assert policy.counters() == {"jobs_shrunk_for_quota": 1, "jobs_stopped_for_quota": 0}


TWICE = {"m": LINEAR["m"], "slow": LINEAR["m"]}
"""Two models alike but for the time that a restart takes."""


@pytest.mark.parametrize(
    ("jobs", "reclaimed", "left"),
    [
        # b lacks 2 GPUs. Each of a1 and a2 can give 2: it then stands still with the 2 it keeps, a1 for 9 s.
        ([Job("a1", 0, 90, gpus=4, family="slow"), Job("a2", 0, 90, gpus=4)], 2, {"a2": 2}),
        # b lacks 1. 4 GPUs would become 2, which lose 6 GPU-seconds; a2's 2 become 1, which loses 3.
        ([Job("a1", 0, 90, gpus=4), Job("a2", 0, 90, gpus=2), Job("b1", 0, 90, gpus=2)], 1, {"a2": 1}),
        # b lacks 3. a2 would lose 3 GPU-seconds for 1 GPU. a1 keeps 1 of 4, which loses 3 for all 3.
        ([Job("a1", 0, 90, gpus=4), Job("a2", 0, 90, gpus=2), Job("a3", 0, 90, gpus=2)], 3, {"a1": 1}),
    ],
)
@pytest.mark.parametrize("within", ["fcfs", "srtf elastic=true"])
def test_the_job_that_loses_least_gpu_time_is_shrunk_by_what_is_lacking(jobs, reclaimed, left, within):
    """The queue that gives back decides nothing else then, whatever its policy."""
    late = [Job(f"b{at + 2}", 5, 90, gpus=1) for at in range(reclaimed)]
    trace = [*jobs, *late]
    scenario = small_scenario(
        trace, {"X": (1, 8)}, TWICE, rounds=10.0, horizon_s=15.0, checkpoint_s={"m": 3.0, "slow": 9.0}
    )
    done = simulate(with_tenants(scenario), Quotas(within=within), Buddy())
    changed = [e for e in done.simulation.log.events if e.time_s == 10 and e.job < len(jobs)]
    assert {trace[e.job].job_id: e.gpus for e in changed} == left


def test_a_job_keeps_its_gpus_until_its_eviction_is_over(queues):
    # a2 is to stop from 10 on, and does at 40, when the next job comes: b1 runs until 60, and b2 after it.
    path = queues("eviction_s: 20\nqueues:\n  a: {}\n  b: {quota: 4}\n")
    jobs = [Job("a1", 0, 50, gpus=4), Job("a2", 0, 50, gpus=4), Job("b1", 10, 10, gpus=4)]
    jobs.append(Job("b2", 40, 5, gpus=4))
    # b1 takes 20 s, b2 10 s; a2 was stopped at 40 with 30 of 50 iterations to do, and goes on at 70.
    assert ends(run(jobs, Quotas(reclaim="stop"), path)) == {"b1": 60, "b2": 70, "a1": 100, "a2": 130}


def test_a_queue_keeps_its_quota_and_borrows_within_its_limit(queues):
    # a deserves 6 of 8 GPUs, b may never have more than 2.
    path = queues("queues:\n  a: {quota: 6}\n  b: {limit: 2}\n")
    jobs = [Job(f"b{at}", 0, 10, gpus=2) for at in (1, 2)] + [Job("a1", 0, 10, gpus=4)]
    # b1 takes 40 s and b2 follows it; a1 takes 20 s beside b1.
    assert ends(run(jobs, Quotas(), path)) == {"a1": 20, "b1": 40, "b2": 80}


def test_queues_that_do_not_fit_the_trace_or_cluster_are_one_line(queues):
    jobs = [Job("a1", 0, 5)]
    path = queues("queues:\n  a: {quota: {Y: 4}}\n")
    with pytest.raises(InputError, match=r"queues.yaml: queues.a: the cluster has no Y"):
        run(jobs, Quotas(), path)
    path = queues("queues:\n  b: {}\n")
    with pytest.raises(InputError, match=r"queues.yaml: a1: no queue takes virtual_cluster 'a'"):
        run(jobs, Quotas(), path)


WITHIN = ("fcfs", "srtf", "srtf elastic=true", "ares", "ares work_conserving=true", "arena", "sia", "las")


@settings(max_examples=25, deadline=None)
@given(random_scenarios(), st.sampled_from(WITHIN), st.sampled_from(["shrink", "stop", "never"]), st.data())
def test_every_job_of_drawn_scenarios_ends_under_quotas(scenario, within, reclaim, data):
    n = len(scenario.trace)
    tenants = data.draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n))
    scenario = with_tenants(scenario, tenants=tenants)
    done = simulate(scenario, Quotas(within=within, reclaim=reclaim), Buddy())
    assert all_left(done)
    again = simulate(scenario, Quotas(within=within, reclaim=reclaim), Buddy())
    assert again.simulation.log.digest == done.simulation.log.digest


@pytest.mark.slow
def test_one_queue_is_the_policy_itself():
    rng = np.random.default_rng(0)
    jobs = [
        Job(f"a{at}", float(5 * at), int(rng.integers(5, 60)), gpus=int(2 ** rng.integers(0, 4)))
        for at in range(30)
    ]
    from clustergym.scenario.registry import parse_policy

    for within in WITHIN:
        plain = run(jobs, parse_policy(within, "policy"), checkpoint_s=3.0)
        assert ends(run(jobs, Quotas(within=within), checkpoint_s=3.0)) == ends(plain), within


@settings(max_examples=20, deadline=None)
@given(random_scenarios(), st.sampled_from(["fcfs", "ares"]), st.data())
def test_a_steady_policy_that_is_not_asked_again_decides_as_if_it_were(scenario, within, data):
    n = len(scenario.trace)
    tenants = data.draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n))
    scenario = with_tenants(scenario, tenants=tenants)
    done = simulate(scenario, Quotas(within=within), Buddy())
    assert done.simulation.log.digest == simulate(scenario, Asked(within), Buddy()).simulation.log.digest


@pytest.mark.slow
@pytest.mark.parametrize("within", ["fcfs", "ares", "ares alpha=0.4"])
def test_a_steady_policy_of_many_queues_is_asked_less_often(within, monkeypatch):
    rng = np.random.default_rng(1)
    jobs = [
        Job(f"{who}{at}", float(7 * at), int(rng.integers(5, 40)), gpus=int(2 ** rng.integers(0, 4)))
        for at, who in enumerate(rng.choice(list("abcdefgh"), 24))
    ]
    asked, plain = Asked(within), Quotas(within=within)
    digest = run(jobs, asked, rounds=10.0).simulation.log.digest
    calls, schedule = [], type(plain._make()).schedule
    monkeypatch.setattr(type(plain._make()), "schedule", lambda *given: calls.append(1) or schedule(*given))
    assert run(jobs, plain, rounds=10.0).simulation.log.digest == digest
    often = len(calls)
    run(jobs, Asked(within), rounds=10.0)
    assert often < 0.7 * (len(calls) - often)


def test_gpus_are_divided_anew_only_if_demand_changes(monkeypatch):
    # a1 has the cluster from 0 to 100 s, a decision every 10 s; b1 comes at 55 s and waits. Demand changes
    # when each of them comes, and when a1 ends.
    divided, divide = [], Division.divide
    monkeypatch.setattr(Division, "divide", lambda *given: divided.append(1) or divide(*given))
    run([Job("a1", 0, 100, gpus=8), Job("b1", 55, 10, gpus=8)], Quotas(), rounds=10.0)
    assert len(divided) == 3


class Asked(Quotas):
    """Quotas that ask the policy of each queue at each decision point."""

    def __init__(self, within):
        super().__init__(within=within)

    def check(self, trace, setting):
        super().check(trace, setting)
        self._steady = False


def crowd(seed, within_s):
    """Return tenant, submission and iterations of 10 to 40 jobs; lists of Hypothesis are mostly shorter."""
    rng = np.random.default_rng(seed)
    jobs = int(rng.integers(10, 41))
    columns = rng.choice(list("abc"), jobs), rng.integers(0, within_s, jobs), rng.integers(1, 31, jobs)
    return list(zip(*(column.tolist() for column in columns), strict=True))


CASES = int(os.environ.get("QUOTA_CASES", "60"))
SAFE_S, ROUND_S, RESTART_S = 40.0, 10.0, 3.0


@settings(max_examples=CASES, deadline=None)
@given(
    quotas=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    jobs=st.one_of(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.integers(1, 30)),
            min_size=1,
            max_size=40,
        ),
        st.builds(crowd, st.integers(0, 2**32 - 1), st.sampled_from([60, 200, 400])),
    ),
    rule=st.sampled_from(["fair_share", "capacity"]),
    reclaim=st.sampled_from(["shrink", "stop"]),
    within=st.sampled_from(["fcfs", "las", "srtf", "ares"]),
)
def test_nobody_lacks_gpus_of_his_quota_for_longer_than_others_are_protected(
    tmp_path_factory, quotas, jobs, rule, reclaim, within
):
    """`QUOTA_CASES=10000` draws more. Jobs ask for one GPU each, so that no gang waits for the rest of it."""
    path = tmp_path_factory.mktemp("queues") / "queues.yaml"
    rows = "".join(
        f"  {name}: {{quota: {quota}, reclaim_min_runtime_s: {SAFE_S}}}\n"
        for name, quota in zip("abc", (*quotas, 0), strict=True)
    )
    path.write_text(f"queues:\n{rows}")
    trace = [
        Job(f"{who}{at}", float(when), work)
        for at, (who, when, work) in enumerate(sorted(jobs, key=lambda j: j[1]))
    ]
    scenario = small_scenario(trace, {"X": (1, 8)}, LINEAR, rounds=ROUND_S, checkpoint_s={"m": RESTART_S})
    scenario = with_tenants(scenario, str(path))
    done = simulate(scenario, Quotas(within=within, division=rule, reclaim=reclaim), Buddy())
    assert all_left(done)
    simulation = done.simulation
    intervals = read_intervals(simulation.log.events, scenario.trace, simulation.end_s)
    for who, quota in zip("ab", quotas, strict=True):
        own = np.array([job.job_id[0] == who for job in trace])
        assert longest_short_s(intervals, own, quota) <= SAFE_S + RESTART_S + ROUND_S


def longest_short_s(intervals, own, quota):
    """Return for how long jobs of one GPU each, in the system, hold less than as many, up to a quota."""
    runs = intervals.launches
    mine = own[runs.job]
    changes = [
        *((time_s, 1, 0) for time_s in intervals.submit_s[own]),
        *((time_s, -1, 0) for time_s in intervals.leave_s[own]),
        *zip(runs.start_s[mine], np.zeros(mine.sum()), runs.gpus[mine], strict=True),
        *zip(runs.stop_s[mine], np.zeros(mine.sum()), -runs.gpus[mine], strict=True),
    ]
    longest, asked, held, since_s = 0.0, 0, 0, None
    for time_s, steps in groupby(sorted(changes), key=lambda change: change[0]):
        for _, more_asked, more_held in steps:
            asked, held = asked + more_asked, held + more_held
        short = held < min(asked, quota)
        if since_s is not None:
            longest = max(longest, time_s - since_s)
        since_s = (time_s if since_s is None else since_s) if short else None
    return longest


@pytest.mark.slow
def test_a_run_under_quotas_is_replayed_from_another_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queues.yaml").write_text("unknown: rest\nqueues:\n  rest: {}\n  6214e9: {quota: 8}\n")
    words = "trace=philly-like-160-distributed policy=quotas policy.within=srtf scenario.queues=queues.yaml"
    assert run_command([*words.split(), "compare=null", "report=false", "hydra.run.dir=out"]) == 0
    assert "6214e9" in capsys.readouterr().out
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    assert replay([str(tmp_path / "out")]) == 0
    told = json.loads((tmp_path / "out" / "result.json").read_text())["tenants"]
    assert told["queues"]["6214e9"]["quota_gpus"] == 16  # 8 of each of the two types
