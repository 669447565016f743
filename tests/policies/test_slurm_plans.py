"""The reading of slurmctld's logs, by which the policy's plans are compared with Slurm's."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import slurm_plans  # noqa: E402
from slurm_agreement import SETTINGS, SleepJob, draw_jobs  # noqa: E402

LOG = """\
[2026-11-23T18:31:23.813] sched/backfill: _attempt_backfill: beginning
[2026-11-23T18:31:23.814] sched/backfill: _start_job: Started JobId=2 in main on a40n0
[2026-11-23T18:31:23.814] sched: Allocate JobId=77 NodeList=a40n[0-3] #CPUs=32 Partition=main
no line of slurmctld
[2026-11-23T18:31:23.814] sched/backfill: _dump_job_sched: JobId=1 to start at 2026-11-23T18:32:23, \
end at 2026-11-23T18:34:23 on nodes a40n[0,2-3] in partition main
[2026-11-23T18:31:23.815] sched/backfill: _attempt_backfill: completed testing 4(4) jobs, usec=1383
[2026-11-23T18:31:30.100] sched: Allocate JobId=3 NodeList=a40n1 #CPUs=8 Partition=main
[2026-11-23T18:31:31.500] _job_complete: JobId=2 WEXITSTATUS 0
[2026-11-23T18:31:31.500] _job_complete: JobId=2 done
[2026-11-23T18:31:31.900] sched/backfill: _attempt_backfill: beginning
[2026-11-23T18:31:31.901] sched/backfill: _attempt_backfill: completed testing 1(1) jobs, usec=3
"""


def job(gpus, minutes):
    return SleepJob("j", 15.0, gpus, 10, minutes, "a", urgent=False, nodes=1)


def test_a_log_is_read_pass_by_pass():
    jobs = {1: job(24, 2), 2: job(4, 1), 3: job(8, 3)}
    first, second = slurm_plans.read_passes(LOG.splitlines(), jobs, shapes=False)
    assert (first.free, first.running) == ([8, 8, 8, 8], [])
    # 2 starts in the pass, then 1 is planned a minute later, on three nodes. 77 is none of ours.
    assert first.plans == {2: (first.now_s, (0,)), 1: (first.now_s + 60, (0, 2, 3))}
    # Eight seconds later 2 has ended, and 3 is on all of node 1 until its limit of three minutes.
    assert (second.now_s - first.now_s, second.free, second.plans) == (8, [8, 0, 8, 8], {})
    assert second.running == [(first.now_s + 7 + 180.0, ((1, 8),))]


def test_plans_are_made_again_from_the_state_of_a_pass():
    jobs = {1: job(32, 2), 2: job(4, 1), 3: job(8, 3)}
    one = slurm_plans.Pass(100, [0, 8, 8, 8], [(160.0, ((0, 8),))], {2: (100, (1,)), 1: (160, (0, 1, 2, 3))})
    assert slurm_plans.plan_again(one, jobs, 1.0, shapes=False) == one.plans
    # Slurm waits a second for a node that is being cleared away; 1 then comes after it.
    slow = slurm_plans.Pass(100, one.free, one.running, {2: (101, (1,)), 1: (161, (0, 1, 2, 3))})
    assert slurm_plans.plan_again(slow, jobs, 1.0, shapes=False)[2] == (100, (1,))
    assert slurm_plans.plan_again(slow, jobs, 1.0, shapes=False, completing=True) == slow.plans


@pytest.mark.parametrize(
    ("listed", "numbers"), [("a40n3", (3,)), ("a40n[0-1,3]", (0, 1, 3)), ("a40n[2,4-5]", (2, 4, 5))]
)
def test_lists_of_nodes(listed, numbers):
    assert slurm_plans.node_numbers(listed) == numbers


def test_draws_of_all_settings_are_alike_but_for_arrays_and_quality_of_service():
    drawn = {setting.name: draw_jobs(setting, 30, 7) for setting in SETTINGS}
    assert drawn["backfill"] == drawn["default"] == drawn["fair_tree"] == drawn["partitions"]
    for name, jobs in drawn.items():
        pairs = zip(jobs, drawn["backfill"], strict=True)
        assert all(
            (a.name, a.submit_s, a.gpus, a.run_s) == (b.name, b.submit_s, b.gpus, b.run_s) for a, b in pairs
        )
        assert any(one.tasks > 1 for one in jobs) == (name == "shapes")
        assert any(one.urgent for one in jobs) == (name == "limits_qos")
    assert all((one.submit_s - 15.0) % 4.0 == 0.0 for one in drawn["backfill"])


def test_the_benchmark_ends_in_one_line_without_its_file(tmp_path):
    words = [
        sys.executable,
        str(ROOT / "benchmarks/slurm_plans.py"),
        str(tmp_path),
        str(tmp_path / "no.json"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "no.json" in done.stderr.splitlines()[-1]
