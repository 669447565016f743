"""A job that is not submitted yet: each reason of a refusal worked out by hand, starts, Kueue's answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from clustergym.operators.commands.twin import main
from clustergym.operators.twin.admit import Admission, read_request
from clustergym.operators.twin.ahead import Ahead
from clustergym.operators.twin.folder import TwinFolder
from error_lines import error_line

from clustergym.trace.present import Present

ROOT = Path(__file__).parents[3]
DATA = ROOT.parent / "shared" / "data" / "kueue"
NOW_S = 1_772_539_200.0
NOW = "2026-03-03T12:00:00"
CLUSTER = """
name: mine
nodes:
- {gpu_type: A100, count: 2, gpus_per_node: 8}
hosts:
- {names: [g1, g2], gpu_type: A100, gpus: 8, partitions: [gpu]}
"""
QUEUES = """
queues:
  lab: {limit: 12}
  vision: {parent: lab, limit: 8}
  speech: {parent: lab}
"""
SQUEUE = "JOBID|USER|ACCOUNT|PARTITION|STATE|SUBMIT_TIME|START_TIME|TIME_LIMIT|TRES_PER_NODE|NODES"


@pytest.fixture
def folder(tmp_path):
    """A twin of 16 GPUs whose users all ran for half of their limits of two hours."""
    head = "job_id,submit_time,start_time,duration,gpus,gpu_type,user,virtual_cluster,outcome,time_limit_s"
    at = [f"2026-03-01T0{n}:00:00" for n in range(8)]
    rows = [f"{n},{at[n]},{at[n]},3600,8,A100,al,vision,completed,7200" for n in range(8)]
    (tmp_path / "log.csv").write_text("\n".join([head, *rows]) + "\n")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "policy.yaml").write_text("name: slurm-multifactor\nbackfill: none\n")
    (tmp_path / "queues.yaml").write_text(QUEUES)
    return tmp_path


def script(folder, options):
    path = folder / "train.sh"
    path.write_text(f"#!/bin/bash\n#SBATCH {options}\nsrun train\n")
    return path


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("-A vision -p cpu --gres=gpu:1", "there is no partition cpu (did you mean gpu?)"),
        ("-A vision -p gpu --gres=gpu:h100:1", "gpu has no H100"),
        ("-A speech -G 32", "asks for 32 GPUs, and there are 16 of one type"),
        ("-A vision -N 4 --gres=gpu:2", "asks for 4 nodes of 2 GPUs, and there are 2"),
        (
            "-A speech -N 2 --gres=gpu:4 --segment=2",
            "a segment of 8 GPUs is larger than an NVLink domain of 4",
        ),
        ("-A vision -G 16", "asks for 16 GPUs, and queue vision may have 8 of one type"),
        ("-A speech -G 16", "asks for 16 GPUs, and queue lab may have 12 of one type"),
        ("-A nobody -G 1", "no queue takes virtual_cluster 'nobody'"),
        ("-A vision -p gpu -N 1 --gres=gpu:a100:8", ""),
    ],
)
def test_what_refuses_a_job(folder, options, reason):
    if "segment" in options:
        (folder / "cluster.yaml").write_text(CLUSTER.replace("gpus_per_node: 8", "gpus_per_node: 4"))
    request = read_request(script(folder, options), NOW_S)
    assert Admission(Ahead(TwinFolder(folder), Present(NOW_S, (), ()))).find_refusal(request) == reason


def test_starts_and_the_smaller_request_that_starts_sooner_by_hand(folder, capsys):
    # All run for half of their limits: job 1, of four hours, an hour old, ends in an hour. 16 GPUs are in
    # two nodes of 8, job 1 has one of them. 4 GPUs start at once; 8 as well, on the other node; 12 must wait.
    (folder / "queues.yaml").write_text("queues:\n  vision: {}\n")
    start = "2026-03-03T11:00:00"
    line = f"1|al|vision|gpu|RUNNING|{start}|{start}|04:00:00|gres/gpu:a100:8|1"
    queue = folder / "squeue.txt"
    queue.write_text(f"{SQUEUE}\n{line}\n")
    words = [str(folder), str(script(folder, "-A vision -p gpu -G 16 -t 2:00:00")), "--queue", str(queue)]
    assert main(["admit", *words, "--now", NOW, "--draws", "3", "--json", str(folder / "a.json")]) == 0
    found = json.loads((folder / "a.json").read_text())
    assert (found["now"]["what"], found["sooner"]) == ("wait", 8)
    assert [(row["gpus"], row["p50_s"]) for row in found["requests"][:3]] == [(16, 3600), (8, 0), (4, 0)]
    assert "8 GPUs would start sooner" in capsys.readouterr().out


def test_a_file_that_is_no_job_is_refused(folder, capsys):
    path = script(folder, "--array=1-3 -G 1")
    assert main(["admit", str(folder), str(path)]) == 2
    assert "is an array: give a script for each task" in error_line(capsys)
    path.write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
    assert main(["admit", str(folder), str(path)]) == 2
    assert "give one Workload, of whole GPUs" in error_line(capsys)


@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded answers of Kueue's scheduler are not here")
def test_answers_are_those_of_kueues_own_scheduler(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import kueue_admit

    monkeypatch.setattr(sys, "argv", ["kueue_admit.py", "--data", str(DATA), "--instances", "30"])
    assert kueue_admit.main() == 0
    assert "30 of 30 answers agree" in capsys.readouterr().out
