"""What a live run says of itself: its calls, the scheduler's own log of ended jobs, where two logs differ."""

import gzip
from pathlib import Path
from typing import Any

from clustergym.operators.live.backend import FinishedAllocation, Part
from clustergym.operators.live.live_run import call_lines, compare, first_difference, write_completions

STARTED = {
    "cg-a-0": Part(nodes=(0, 1), gpus=4),
    "cg-b-0": Part(nodes=(2,), gpus=8),
    "cg-c-0": Part(nodes=(3,), gpus=1),
}
LOG = [
    FinishedAllocation("cg-a-0", "COMPLETED", (0, 1), 1000.0, 1060.0),
    FinishedAllocation("cg-b-0", "FAILED", (1,), 1010.0, 1020.0),
    FinishedAllocation("cg-c-0", "COMPLETED", (), 1010.0, 1020.0),
    FinishedAllocation("of another", "COMPLETED", (3,), 0.0, 9.0),
]


def run_s(since_1970_s: float) -> float:
    """Return the second of a run that began at 1,000 s and plays two seconds in one."""
    return 2 * (since_1970_s - 1000.0)


def test_the_schedulers_log_beside_the_runs() -> None:
    # a held 2 nodes of 4 GPUs for 120 s of the run, b one of 8 for 20 s, on another node than was given.
    assert compare(STARTED, LOG, run_s) == {
        "started": 3, "recorded": 2, "same_nodes": 1, "states": {"COMPLETED": 1, "FAILED": 1},
        "held_gpu_s": 2 * 4 * 120.0 + 8 * 20.0,
    }  # fmt: skip
    assert compare(STARTED, None, run_s) is None
    nothing = {"started": 3, "recorded": 0, "same_nodes": 0, "states": {}, "held_gpu_s": 0}
    assert compare(STARTED, [], run_s) == nothing


def test_the_log_as_a_table(tmp_path: Path) -> None:
    write_completions(tmp_path, STARTED, LOG, lambda time_s: time_s - 999.0004)
    assert (tmp_path / "completions.csv").read_text().splitlines() == [
        "allocation,state,nodes,gpus_per_node,start_s,end_s",
        "cg-a-0,COMPLETED,0 1,4,1.0,61.0",
        "cg-b-0,FAILED,1,8,11.0,21.0",
    ]
    write_completions(tmp_path, STARTED, None, run_s)
    assert len((tmp_path / "completions.csv").read_text().splitlines()) == 1


def test_the_first_difference_of_two_logs(tmp_path: Path) -> None:
    def write(name: str, text: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "events.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        return folder

    live = write("live", '{"a": 1}\n{"b": 2}\n')
    assert first_difference(live, write("same", '{"a": 1}\n{"b": 2}\n')) == ""
    assert first_difference(live, write("other", '{"a": 1}\n{"b": 3}\n')) == (
        'event 2: live {"b": 2}, simulated {"b": 3}'
    )
    assert first_difference(live, write("short", '{"a": 1}\n')) == 'event 2: live {"b": 2}, simulated nothing'


def test_lines_on_calls() -> None:
    told: dict[str, Any] = {
        "run": "night",
        "scheduler": "Slurm 23.11",
        "calls": {
            "launch": {"count": 3, "median_ms": 12.4, "max_ms": 99.6},
            "end": {"count": 1, "median_ms": 2.0, "max_ms": 2.0},
        },
        "completions": None,
        "seconds_per_hour": 60.0,
        "held_gpu_hours": 0.3,
    }
    first = "run night on Slurm 23.11: 3 launch (12 ms, at most 100), 1 end (2 ms, at most 2);"
    first += " ms: median until confirmed"
    assert list(call_lines(told)) == [first, "the scheduler keeps no log of ended jobs that can be read"]
    told["completions"] = compare(STARTED, LOG, run_s)
    said = "the scheduler's log has 2 of 3 allocations, 1 on the same nodes (1 COMPLETED, 1 FAILED)"
    # 1,120 GPU-seconds are 0.31 GPU-hours.
    held = "by its whole seconds they held 0.31 GPU h, by this run's log 0.30"
    assert list(call_lines(told)) == [first, said, held]
    assert list(call_lines(told | {"seconds_per_hour": None})) == [first, said]
    assert next(call_lines(told | {"calls": {}})).startswith("run night on Slurm 23.11: no calls; ms:")
