"""A user's own scripts: what they ask for, each run once to its end, stops, sizes, others' jobs, kills."""

import csv
import math
from pathlib import Path

import pytest
from clustergym.operators.commands import live
from clustergym.operators.live.checks import LiveOptions
from clustergym.operators.live.own import drive
from clustergym.operators.live.own.decide import NodeState, OwnJob, decide_now
from clustergym.operators.live.own.drive import ScriptRun, drive_scripts
from clustergym.operators.live.own.ledger import open_ledger
from clustergym.operators.live.own.queue import OwnQueue
from clustergym.operators.live.own.script import Script, read_script, read_scripts
from refusals import refused
from scripted_slurm import ScriptedSlurm

from clustergym.common.errors import InputError
from clustergym.scenario.registry import make_placer, make_policy

NAN = float("nan")


def write(folder, name, *lines):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("\n".join(["#!/bin/bash", *lines, "sleep 5", "#SBATCH --array=1-9", ""]))
    return path


def ask(name="fcfs"):
    return lambda: (make_policy({"name": name}), make_placer({"name": "buddy", "defragment_s": None}))


def one_run(tmp_path, slurm, ledger, policy="fcfs", patience_s=0.0):
    queue = OwnQueue(slurm, ledger.run, patience_s)
    return ScriptRun(read_scripts(tmp_path / "jobs"), queue, ledger, ask(policy))


def play(run, slurm, steps=1):
    for _ in range(steps):
        run._decided = -1e9
        run.step()
        slurm.start_released()


def test_what_a_script_asks_for(tmp_path):
    path = write(
        tmp_path,
        "train.sh",
        "#SBATCH -N 2 --gres=gpu:a40:4,nvme:1 -t 1-12 -A vision  # a comment",
        "#SBATCH --partition=long --signal=B:USR1@90 --reservation=ours",
        "#CLUSTERGYM sizes=4,8, 16",
        "# words",
    )
    found = read_script(path)
    assert (found.nodes, found.gpus, found.gpu_type, found.limit_s) == (2, 8, "a40", 129_600.0)
    assert (found.account, found.partition, found.reservation) == ("vision", "long", "ours")
    assert (found.signal, found.batch, found.grace_s, found.sizes) == ("USR1", True, 90.0, (4, 8, 16))
    assert [found.shape(size) for size in (2, 4, 8, 16)] == [(1, 2), (1, 4), (2, 4), (4, 4)]
    plain = read_script(write(tmp_path, "plain", "#SBATCH --gpus=2"))
    assert (plain.nodes, plain.gpus, plain.signal, plain.sizes) == (1, 2, "", (2,))
    assert math.isnan(plain.limit_s)
    assert read_script(write(tmp_path, "each", "#SBATCH -N 3 --gpus-per-node=a40:2")).gpus == 6


@refused("live-scripts")
def test_scripts_that_cannot_be_driven(given, said, tmp_path):
    with said.of_error(tmp_path):
        read_script(write(tmp_path, "bad.sh", *given))


def test_folders_without_scripts(tmp_path):
    with pytest.raises(InputError, match="has no script"):
        read_scripts(tmp_path)
    with pytest.raises(InputError, match="is no folder"):
        read_scripts(tmp_path / "none")
    write(tmp_path, "a b")
    with pytest.raises(InputError, match="is no name of a script"):
        read_scripts(tmp_path)


def test_every_script_runs_once_beside_others(tmp_path, capsys):
    # Of two nodes of 4 GPUs others hold 3 on n0: a of 4 starts on n1, b of 2 waits for it, c of 1 too (fcfs).
    slurm = ScriptedSlurm({"n0": 4, "n1": 4})
    slurm.others["n0"] = 3
    for name, gpus in (("a", 4), ("b", 2), ("c", 1)):
        write(tmp_path / "jobs", name, f"#SBATCH --gres=gpu:a40:{gpus} -t 10")
    with open_ledger(tmp_path / "run") as ledger:
        run = one_run(tmp_path, slurm, ledger, patience_s=60.0)
        play(run, slurm, 3)
        assert (slurm.submissions, slurm.running()) == (["a", "b", "c"], ["a"])
        slurm.finish("a")
        play(run, slurm, 2)
        assert slurm.running() == ["b", "c"]
        slurm.finish("b", "FAILED")
        slurm.finish("c")
        play(run, slurm)
        assert run.done
        assert drive.write_jobs(run, tmp_path / "run") == {"COMPLETED": 2, "FAILED": 1}
    rows = list(csv.DictReader((tmp_path / "run/jobs.csv").read_text().splitlines()))
    assert [(row["script"], row["state"], row["attempts"], row["gpus"]) for row in rows] == [
        ("a", "COMPLETED", "1", "4"),
        ("b", "FAILED", "1", "2"),
        ("c", "COMPLETED", "1", "1"),
    ]
    # A run that has ended submits nothing.
    options = LiveOptions(engine="slurm", jobs=str(tmp_path / "jobs"), poll_s=0.1, patience_s=1.0)
    told = drive_scripts(options, tmp_path / "run", ask(), slurm)
    assert (told, len(slurm.submissions)) == ({"COMPLETED": 2, "FAILED": 1}, 3)
    assert "nothing is submitted" in capsys.readouterr().out
    # Nor does it take a script for another.
    write(tmp_path / "jobs", "a", "#SBATCH --gpus=1")
    with pytest.raises(InputError, match="was changed since it was submitted"):
        drive_scripts(options, tmp_path / "run", ask(), slurm)


def test_a_run_that_was_killed_submits_nothing_twice(tmp_path):
    slurm = ScriptedSlurm({"n0": 4})
    for name in "ab":
        write(tmp_path / "jobs", name, "#SBATCH --gpus=1")
    slurm.cut_off = True
    with pytest.raises(KeyboardInterrupt), open_ledger(tmp_path / "run") as ledger:
        one_run(tmp_path, slurm, ledger).step()
    slurm.cut_off = False
    # The last line was cut off, too.
    with (tmp_path / "run/jobs.jsonl").open("ab") as file:
        file.write(b'{"event": "subm')
    with open_ledger(tmp_path / "run") as ledger:
        run = one_run(tmp_path, slurm, ledger)
        play(run, slurm, 2)
        assert (slurm.submissions, slurm.running()) == (["a", "b"], ["a", "b"])
        with pytest.raises(InputError, match="another process drives"), open_ledger(tmp_path / "run"):
            pass


def test_a_controller_that_restarts_loses_nothing(tmp_path, monkeypatch):
    slurm = ScriptedSlurm({"n0": 4})
    write(tmp_path / "jobs", "a", "#SBATCH --gpus=1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with open_ledger(tmp_path / "run") as ledger:
        run = one_run(tmp_path, slurm, ledger, patience_s=60.0)
        # The submission is not answered, and neither are two looks after it.
        slurm.down = 3
        play(run, slurm, 3)
        assert (slurm.submissions, slurm.running()) == (["a"], ["a"])
        slurm.down = 5
        play(run, slurm)
        slurm.finish("a")
        # The database is later than the queue.
        slurm.records = False
        play(run, slurm, 3)
        assert (run.done, slurm.submissions) == (False, ["a"])
        slurm.records = True
        play(run, slurm)
        assert run.done
    with open_ledger(tmp_path / "other") as ledger:
        run = one_run(tmp_path, slurm, ledger)
        slurm.down = 9
        with pytest.raises(InputError, match="Unable to contact"):
            run.step()


def test_a_script_is_stopped_by_its_signal_and_goes_on_at_another_size(tmp_path, monkeypatch):
    slurm = ScriptedSlurm({"n0": 8})
    asked = ("#SBATCH --gres=gpu:a40:4 -t 10 --signal=B:USR1@0", "#CLUSTERGYM sizes=2,4")
    write(tmp_path / "jobs", "a", *asked)
    write(tmp_path / "jobs", "b", "#SBATCH --gpus=1")
    wanted = {"a": 4, "b": 1}
    monkeypatch.setattr(drive, "decide_now", lambda *given: dict(wanted))
    with open_ledger(tmp_path / "run") as ledger:
        run = one_run(tmp_path, slurm, ledger, patience_s=60.0)
        play(run, slurm, 2)
        wanted.update(a=2, b=0)
        play(run, slurm)
        # b names no signal, and goes on.
        assert (slurm.jobs["1"].signals, slurm.running()) == (["USR1"], ["a", "b"])
        play(run, slurm)
        assert (slurm.jobs["1"].state, slurm.running()) == ("CANCELLED by 0", ["b"])
        play(run, slurm, 2)
        assert (slurm.submissions, slurm.jobs["3"].shape) == (["a", "b", "a"], (1, 2))
        assert slurm.running() == ["b", "a"]
        # What is asked for while it waits is submitted anew, too: Slurm does not change a job's nodes.
        slurm.finish("a", "NODE_FAIL")
        wanted.update(a=0)
        play(run, slurm, 2)
        wanted.update(a=4)
        play(run, slurm, 4)
        assert [slurm.jobs[number].shape for number in slurm.jobs] == [(1, 4), (1, 1), (1, 2), (1, 2), (1, 4)]
        for name in "ab":
            slurm.finish(name)
        play(run, slurm)
        assert run.done
        assert ledger.entries["a"].attempt == 4


def test_a_script_that_ends_while_it_is_stopped_has_ended(tmp_path, monkeypatch):
    slurm = ScriptedSlurm({"n0": 8})
    write(tmp_path / "jobs", "a", "#SBATCH --gpus=4 --signal=USR1@60")
    wanted = {"a": 4}
    monkeypatch.setattr(drive, "decide_now", lambda *given: dict(wanted))
    with open_ledger(tmp_path / "run") as ledger:
        run = one_run(tmp_path, slurm, ledger, patience_s=60.0)
        play(run, slurm, 2)
        wanted.update(a=0)
        play(run, slurm, 2)
        assert slurm.jobs["1"].signals == ["USR1"]
        slurm.finish("a")
        play(run, slurm)
        assert (run.done, slurm.submissions) == (True, ["a"])


def test_what_does_not_start_is_held_again(tmp_path, capsys):
    slurm = ScriptedSlurm({"n0": 4})
    write(tmp_path / "jobs", "a", "#SBATCH --gpus=4")
    with open_ledger(tmp_path / "run") as ledger:
        run = one_run(tmp_path, slurm, ledger)
        run.step()
        assert not slurm.jobs["1"].held
        slurm.others["n0"] = 1
        for _ in range(3):
            run.step()
        assert slurm.jobs["1"].held
        assert "a does not start: Resources" in capsys.readouterr().err


def test_partitions_and_reservations_are_kept(tmp_path):
    slurm = ScriptedSlurm({"n0": 4, "n1": 4}, {"n0": "main", "n1": "main,other"})
    slurm.reservations = [
        "ReservationName=his StartTime=1 EndTime=99999999999 Nodes=n1 Users=eve State=ACTIVE"
    ]
    write(tmp_path / "jobs", "a", "#SBATCH --gpus=3 -p other -t 5")
    write(tmp_path / "jobs", "b", "#SBATCH --gpus=3 -t 5")
    write(tmp_path / "jobs", "c", "#SBATCH --gpus=3 -t 5")
    with open_ledger(tmp_path / "run") as ledger:
        run = one_run(tmp_path, slurm, ledger, patience_s=60.0)
        play(run, slurm, 3)
        assert (slurm.running(), slurm.jobs["2"].nodes) == (["b"], ["n0"])
        slurm.reservations = []
        play(run, slurm, 3)
        # a waits for longer than c, which n1 would have room for as well.
        assert slurm.running() == ["a", "b"]


def job(name, gpus, limit_s=600.0, sizes=(), submit_s=0.0, start_s=NAN):
    sizes, signal = sizes or (gpus,), "USR1" if sizes else ""
    script = Script(Path(name), "", 1, gpus, "a40", limit_s, "a", sizes=sizes, signal=signal)
    return OwnJob(script, submit_s, start_s, gpus)


def test_decisions_by_hand():
    # Of 8 GPUs r holds 1 and others 1. wide waits for all 8, so first come, first served keeps the others
    # waiting; the shortest first starts both.
    nodes = {f"n{at}": NodeState(4, 2 - 2 * at, "A40", frozenset({"main"})) for at in range(2)}
    jobs = [job("r", 1, start_s=50.0), job("wide", 8, submit_s=10.0, limit_s=700.0)]
    jobs += [job("x", 2, 300.0, submit_s=20.0), job("y", 2, submit_s=30.0)]

    def decide(policy, jobs=jobs):
        return decide_now(jobs, nodes, 100.0, ask(policy))

    assert decide("fcfs") == {"r": 1, "wide": 0, "x": 0, "y": 0}
    assert decide("srtf") == {"r": 1, "wide": 0, "x": 2, "y": 2}
    # A policy that resizes gives more GPUs to what can use them, and one size to what names no other.
    resized = decide("arena", [job("r", 1, start_s=50.0), job("x", 2, 300.0, (1, 2, 4)), job("y", 2)])
    assert (resized["x"], resized["y"]) == (4, 2)
    assert decide_now([job("z", 9)], nodes, 100.0, ask()) == {}


def test_what_is_wrong_with_the_command_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "jobs", "a", "#SBATCH --gpus=1")
    assert live.main(["policy=fcfs", "live.jobs=jobs"]) == 2
    assert "live.jobs: are scripts of your own" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert live.main(["policy=fcfs", "live.engine=slurm", "live.jobs=jobs"]) == 2
    assert "Slurm is not installed" in capsys.readouterr().err
