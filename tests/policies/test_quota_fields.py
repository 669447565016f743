"""What each key of a queue does under quotas, on cases solved by hand; keys without effect are refused.

Jobs take 8 GPU-seconds an iteration on a cluster of 8 GPUs; the first letter of a job is its tenant.
"""

import pytest
import scenarios
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.quotas import Quotas
from queue_quotas import with_tenants
from refusals import refused
from scenarios import Job, small_scenario

from clustergym.sim.drive import simulate

LINEAR = {"m": {"X": {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}}}


@pytest.fixture
def run(queues):
    def run(text, jobs, rounds="event", **parameters):
        """Return the run's end of each job, and the policy's counters."""
        scenario = small_scenario(jobs, {"X": (1, 8)}, LINEAR, rounds=rounds)
        policy = Quotas(**parameters)
        done = simulate(with_tenants(scenario, queues(text)), policy, Buddy())
        return scenarios.ends(done), policy.counters()

    return run


def singles(who, count, submit_s=0.0):
    """Jobs of one GPU for 80 s."""
    return [Job(f"{who}{at}-{submit_s:g}", submit_s, 10) for at in range(count)]


def ended(ends, time_s):
    """Return how many jobs of each tenant ended at a time."""
    names = [name[0] for name, end_s in ends.items() if end_s == time_s]
    return {who: names.count(who) for who in set(names)}


@pytest.mark.parametrize("division", ["fair_share", "capacity"])
def test_a_guarantee_is_lent_to_nobody(run, division):
    # a may use 4 of 8 GPUs: a2 follows a1. b1 has its 4 at once, and stops nobody.
    jobs = [Job("a1", 0, 50, gpus=4), Job("a2", 0, 50, gpus=4), Job("b1", 10, 20, gpus=4)]
    ends, counters = run("queues:\n  a: {}\n  b: {quota: 4, guarantee: 4}\n", jobs, division=division)
    assert ends == {"b1": 50, "a1": 100, "a2": 200}
    assert counters["jobs_stopped_for_quota"] == 0
    ends, counters = run("queues:\n  a: {}\n  b: {quota: 4}\n", jobs, division=division, reclaim="stop")
    assert ends == {"b1": 50, "a1": 100, "a2": 140}
    assert counters["jobs_stopped_for_quota"] == 1


def test_a_guarantee_holds_in_a_tree(run):
    # c's 4 GPUs are kept from d beside it as from a: the others' three jobs of 40 s run one by one.
    tree = "queues:\n  p: {quota: 4}\n  a: {}\n  c: {parent: p, quota: 4, guarantee: 4}\n  d: {parent: p}\n"
    ends, _ = run(tree, [Job(name, 0, 20, gpus=4) for name in ("a1", "a2", "d1")])
    assert sorted(ends.values()) == [40, 80, 120]


def test_no_more_is_lent_than_the_lending_limit(run):
    # 2 of b's 4 GPUs stay idle: a3, of 2 GPUs, waits until 100.
    jobs = [Job("a1", 0, 50, gpus=4), Job("a2", 0, 25, gpus=2), Job("a3", 0, 25, gpus=2)]
    ends, _ = run("queues:\n  a: {}\n  b: {quota: 4, lending_limit: 2}\n", jobs)
    assert ends == {"a1": 100, "a2": 100, "a3": 200}
    ends, _ = run("queues:\n  a: {}\n  b: {quota: 4, lending_limit: 4}\n", jobs)
    assert ends == {"a1": 100, "a2": 100, "a3": 100}


def test_no_more_is_borrowed_than_the_borrowing_limit(run):
    jobs = [Job(f"b{at}", 0, 10, gpus=2) for at in range(3)]
    ends, _ = run("queues:\n  a: {}\n  b: {quota: 2, borrowing_limit: 2}\n", jobs)
    assert sorted(ends.values()) == [40, 40, 80]
    ends, _ = run("queues:\n  a: {}\n  b: {quota: 2, borrowing_limit: {X: null}}\n", jobs)
    assert sorted(ends.values()) == [40, 40, 40]


@pytest.mark.parametrize("bound", ["limit: 4", "quota: 2, borrowing_limit: 2"])
def test_a_parents_limit_holds_for_its_children_together(run, bound):
    tree = f"queues:\n  p: {{{bound}}}\n  a: {{parent: p}}\n  b: {{parent: p}}\n"
    ends, _ = run(tree, [Job("a1", 0, 10, gpus=4), Job("b1", 0, 10, gpus=4)])
    assert sorted(ends.values()) == [20, 40]


def test_the_safe_time_is_that_towards_each_queue_that_lacks_gpus(run):
    # c's jobs are safe from d, beside it, for no time, and from b outside for 100 s.
    tree = (
        "queues:\n  p: {quota: 4, reclaim_min_runtime_s: 100}\n  b: {quota: 4}\n"
        "  c: {parent: p, reclaim_min_runtime_s: 0}\n  d: {parent: p, quota: 4}\n"
    )
    holder = [Job("c1", 0, 80, gpus=4), Job("c2", 0, 80, gpus=4)]  # both until 160
    ends, _ = run(tree, [*holder, Job("d1", 10, 10, gpus=4)], reclaim="stop")
    assert ends == {"d1": 30, "c1": 160, "c2": 180}
    later = [Job("b1", 10, 10, gpus=4), Job("b2", 120, 1, gpus=4)]  # decisions fall on events: at 120
    ends, _ = run(tree, [*holder, *later], reclaim="stop")
    assert ends == {"b1": 140, "b2": 142, "c1": 160, "c2": 182}


def test_a_job_started_in_place_of_another_is_no_safer_than_that(run):
    # a1 holds all GPUs from 0, and is safe until 60. At 20 a's policy, shortest first, puts a2 in its place:
    # b1 waits for 60 all the same, not for 20 + 60. a2 did 40 of 80 iterations by then.
    tree = "queues:\n  a: {reclaim_min_runtime_s: 60}\n  b: {quota: 8}\n"
    jobs = [Job("a1", 0, 200, gpus=8), Job("a2", 20, 80, gpus=8), Job("b1", 30, 10, gpus=8)]
    ends, _ = run(tree, jobs, rounds=10.0, within="srtf", reclaim="stop")
    assert ends == {"b1": 70, "a2": 110, "a1": 290}


@pytest.mark.parametrize(
    "tree",
    [
        "a: {reclaim_min_runtime_s: 30}\n  b: {quota: 8}",
        "a: {}\n  b: {quota: 8, preemption_delay_s: 30}",
        # A parent's delay holds for its children.
        "a: {}\n  p: {quota: 8, preemption_delay_s: 30}\n  b: {parent: p, quota: 8}",
    ],
)
def test_no_job_is_stopped_before_its_minimum_run_time_or_the_others_delay(run, tree):
    # At 10 a1 has run for 10 s only: b1 waits. Decisions fall on events: on b2's arrival at 40.
    jobs = [Job("a1", 0, 50, gpus=8), Job("b1", 10, 10, gpus=8), Job("b2", 40, 1, gpus=8)]
    ends, _ = run(f"queues:\n  {tree}\n", jobs, reclaim="stop")
    assert ends == {"b1": 50, "b2": 51, "a1": 61}


@pytest.mark.parametrize(
    ("tree", "first"),
    [
        ("a: {weight: 3}\n  b: {}", {"a": 6, "b": 2}),
        ("a: {priority: 200}\n  b: {weight: 100}", {"a": 8}),
        ("a: {quota: null}\n  b: {weight: 100}", {"a": 8}),
        ("a: {quota: 5}\n  b: {quota: 3}", {"a": 5, "b": 3}),
    ],
)
def test_what_weight_priority_and_quota_give(run, tree, first):
    ends, _ = run(f"queues:\n  {tree}\n", singles("a", 8) + singles("b", 8))
    assert ended(ends, 80) == first


@pytest.mark.parametrize(
    ("history", "second"),
    [
        ("{}", {"a": 3, "b": 5}),
        ("{weight: 0}", {"a": 4, "b": 4}),
        ("{window_s: 50}", {"a": 4, "b": 4}),
        ("{half_life_s: 5}", {"a": 4, "b": 4}),
    ],
)
def test_past_use_counts_by_its_weight_window_and_half_life(run, history, second):
    # a uses all 8 GPUs until 80: 0.4 of what there was until 200. Then both have 8 jobs, and draw on the GPUs
    # by 1/2 + (1/2 - 0.4) and 1/2 + 1/2: 3 and 5 of 8.
    jobs = [*singles("a", 8), *singles("a", 8, 200.0), *singles("b", 8, 200.0)]
    ends, _ = run(f"history: {history}\nqueues: {{a: {{}}, b: {{}}}}\n", jobs, rounds=10.0)
    assert ended(ends, 280) == second


@refused("queues-without-effect")
def test_keys_without_effect_are_refused(given, said, run, tmp_path):
    text, division = given
    with said.of_error(tmp_path):
        run(text, [Job("a1", 0, 1)], division=division)
