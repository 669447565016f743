"""Kueue's cycles: instances worked out by hand, and recorded answers of its own scheduler."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))

import kueue_agreement  # noqa: E402

DATA = ROOT.parent / "shared" / "data" / "kueue"


def queue(name, cohort="root", weight="1", **nominal):
    quota = {flavor: {"nominal": gpus} for flavor, gpus in (nominal or {"f0": 0}).items()}
    return {"name": name, "cohort": cohort, "quota": quota, "weight": weight}


def cohort(name, parent=None, **nominal):
    return {
        "name": name,
        "parent": parent,
        "quota": {key: {"nominal": gpus} for key, gpus in nominal.items()},
    }


def job(name, gpus, created, priority=0, admitted=None, flavor="f0"):
    row = {"name": name, "queue": name[0], "gpus": gpus, "priority": priority, "created": created}
    return row if admitted is None else {**row, "admitted": admitted, "flavor": flavor}


def run_cycles(queues, jobs, *, cohorts=None, fair_sharing=False, flavors=("f0",), **policies):
    """Return, by cycle, who was admitted and who was stopped."""
    instance = {
        "fair_sharing": fair_sharing,
        "flavors": list(flavors),
        "cohorts": cohorts or [cohort("root")],
        "queues": queues,
        "policies": policies,
        "workloads": jobs,
    }
    scheduler, built = kueue_agreement.build_scheduler(instance)
    names = {one.row: row["name"] for one, row in zip(built, jobs, strict=True)}
    return [
        (
            sorted(names[one.row] for one, _ in cycle.admitted),
            sorted(names[one.row] for one, _ in cycle.preempted),
        )
        for cycle in scheduler.run(1000.0)
    ]


def test_two_heads_of_a_cycle_stop_different_jobs():
    # Both a1 and b1 would stop c2, which was admitted last. a1 is first, so b1 stops c1, in the same cycle.
    done = run_cycles(
        [queue("a", f0=2), queue("b", f0=2), queue("c")],
        [job("a1", 2, 3), job("b1", 2, 4), job("c1", 2, 1, admitted=1), job("c2", 2, 2, admitted=2)],
        reclaim_within_cohort="Any",
    )
    assert done[:2] == [([], ["c1", "c2"]), (["a1", "b1"], [])]


def test_jobs_of_the_shape_of_one_that_fails_are_set_aside_with_it():
    # a1 wants more than there is. a2 asks for the same, and is not tried: in the second cycle a3 is.
    done = run_cycles([queue("a", f0=4)], [job("a1", 8, 1), job("a2", 8, 2), job("a3", 1, 3)])
    assert [admitted for admitted, _ in done[:2]] == [[], ["a3"]]


def test_a_job_that_others_were_stopped_for_is_the_head_until_it_is_admitted():
    """8 GPUs, 4 of each queue; b holds all.

    First a1 (8 GPUs, beyond its quota) fails. Then a2 takes back 4 from b2, the last admitted. That
    brings a1 back into the queue, before a2: were it the head, b2 would borrow the GPUs again.
    """
    done = run_cycles(
        [queue("a", f0=4), queue("b", f0=4)],
        [
            job("a1", 8, 3, priority=2),
            job("a2", 4, 4, priority=1),
            job("b1", 4, 1, admitted=1),
            job("b2", 4, 2, admitted=2),
        ],
        reclaim_within_cohort="Any",
    )
    assert done[:3] == [([], []), ([], ["b2"]), (["a2"], [])]
    assert not any(stopped for _, stopped in done[3:])


def test_a_queue_within_its_quota_takes_back_whatever_the_shares():
    """Of 8 GPUs a has 4, the rest is the root's; d, beside a in the cohort m, holds 6, and b holds 2.

    With a1 the cohort m borrows 6 + 2 - 4 of 8, a share of 1/2; b has 2 of 8, 0 without b1. By shares b1
    would stay; d1 is of the priority of a1. But a1 is within a's quota.
    """
    done = run_cycles(
        [queue("a", "m", f0=4), queue("d", "m"), queue("b")],
        [job("a1", 2, 9, priority=1), job("d1", 6, 1, priority=1, admitted=1), job("b1", 2, 2, admitted=2)],
        cohorts=[cohort("root", f0=4), cohort("m", "root")],
        fair_sharing=True,
        reclaim_within_cohort="LowerPriority",
    )
    assert done[0] == ([], ["b1"])


def test_a_head_that_borrows_nothing_is_before_one_of_a_smaller_share():
    """2 GPUs of f0, a's own, and 4 of f1, which are the root's and which a0 borrows.

    a's share is 4 of 6, that of b with its head 2 of 6; but a1 borrows nothing of f0, and b1 does.
    """
    done = run_cycles(
        [queue("a", f0=2, f1=0), queue("b", f0=0)],
        [job("a0", 4, 1, admitted=1, flavor="f1"), job("b1", 2, 2), job("a1", 2, 3)],
        cohorts=[cohort("root", f1=4)],
        fair_sharing=True,
        flavors=("f0", "f1"),
    )
    assert done[0] == (["a1"], [])


def test_a_queue_reserves_its_own_quota_for_a_job_that_finds_nobody_to_stop():
    # a1 is first, by priority, but a0 stays: what is left of a's quota is kept from b1 in this cycle.
    done = run_cycles(
        [queue("a", f0=4), queue("b")],
        [job("a0", 2, 1, admitted=1), job("a1", 4, 2, priority=1), job("b1", 2, 3)],
    )
    assert done[0] == ([], [])


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded answers of Kueue's scheduler are not here")
def test_decisions_are_those_of_kueues_own_scheduler():
    instances = kueue_agreement.read_rows(DATA / "instances.jsonl.gz")
    verdicts = kueue_agreement.read_rows(DATA / "verdicts.jsonl.gz")
    rows = [kueue_agreement.compare(instance, verdicts[at]) for at, instance in instances.items()]
    rested = [row for row in rows if "came to rest" in row["features"]]
    assert sum(row["in_scope"] for row in rested) > 1000
    assert [row["id"] for row in rested if not row["agrees"]] == []


@pytest.mark.processes
def test_the_benchmark_ends_in_one_line_without_its_data(tmp_path):
    words = [sys.executable, str(ROOT / "benchmarks/kueue_agreement.py"), "--data", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "instances.jsonl.gz" in done.stderr
