"""`clustergym live`: what it writes and prints, and what it refuses before anything is submitted."""

import json
import os
import re
from pathlib import Path

import pytest
from clustergym.operators.commands import live
from clustergym.operators.live.checks import LiveOptions, choose_words
from clustergym.operators.live.slurm import Slurm, SlurmWords
from clustergym.operators.live.slurm_backend import SlurmBackend
from error_lines import error_line
from refusals import refused as refused_of

from clustergym.cluster.cluster_files import cluster_from_config
from clustergym.commands import collect, replay

FOUR = ["cluster.nodes=[{gpu_type:A40,count:2,gpus_per_node:4},{gpu_type:A10,count:2,gpus_per_node:4}]"]
SMALL = [*FOUR, "trace.jobs=6", "trace.max_gpus=8", "progress=false", "report=false", "table=false"]
NODES = """\
a40-1|gpu*|64|a40,fast|gpu:a40:4(S:0-1)
a40-2|gpu*|64|a40|gpu:4
a10-1|gpu*|64|a10|gpu:a10:4
a10-2|gpu*|64|a10|gpu:a10:4
a10-3|gpu*|64|a10|gpu:a10:2
c-1|cpu|64|(null)|(null)
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A command line of Slurm that shows given nodes and jobs, and notes whatever would change anything."""
    folder, changed = tmp_path / "bin", tmp_path / "changed"
    folder.mkdir()
    shown = {"sinfo": NODES, "squeue": ""}

    def show(**texts: str) -> None:
        shown.update(texts)
        for name in ("salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue"):
            script = folder / name
            lines = ["#!/bin/sh", '[ "$1" = --version ] && { echo slurm 22.05.8; exit 0; }']
            if name == "sinfo":
                states = re.sub(r"\|.*", "|idle", shown[name])
                lines += [f'case "$*" in *%T*) cat <<E\n{states}E\n;; *) cat <<E\n{shown[name]}E\n;; esac']
            elif name == "squeue":
                lines += [f"cat <<E\n{shown[name]}E"]
            elif name == "scontrol":
                lines += [
                    '[ "$1 $2" = "show hostnames" ] && { echo "$3"; exit 0; }',
                    f'echo "$0" >> {changed}',
                ]
            else:
                lines += [f'echo "$0 $@" >> {changed}', "exit 1"]
            script.write_text("\n".join(lines) + "\n")
            script.chmod(0o755)

    show()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    yield show
    assert not changed.exists()


def refused(capsys, tmp_path, *words):
    """Return the one line with which a live run on the user's cluster is refused."""
    out = tmp_path / "out"
    given = ["policy=fcfs", "live.engine=slurm", f"hydra.run.dir={out}"]
    if not any(word.startswith("scenario.failures") for word in words):
        given.append("scenario.failures=null")
    assert live.main([*given, *SMALL, *words]) == 2
    assert not out.exists()
    return error_line(capsys)


@pytest.mark.slow
def test_it_writes_what_the_simulator_writes_and_says_that_it_is_equal(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["policy=ares", "live.engine=fake", f"hydra.run.dir={out}", *SMALL]
    assert live.main(words) == 0
    printed = capsys.readouterr().out
    assert "lock-step: decisions, nodes and times equal the simulator's" in printed
    for name in ("decisions.jsonl.gz", "events.jsonl.gz"):
        assert (out / name).read_bytes() == (out / "simulated" / name).read_bytes()
    result = json.loads((out / "result.json").read_text())
    told = result["live"]["completions"]
    assert told["started"] == told["recorded"] == told["same_nodes"] > 6
    assert replay.main([str(out)]) == 0
    assert collect.main([str(out)]) == 0
    capsys.readouterr()
    assert live.main(words) == 0
    assert "finished already, not run again" in capsys.readouterr().out


@pytest.mark.slow
def test_a_scaled_run_is_replayed_from_its_journal(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["policy=srtf", "live.engine=fake", "live.clock=scaled", "live.seconds_per_hour=0.3"]
    assert live.main([*words, "live.poll_s=0.01", f"hydra.run.dir={out}", *SMALL]) == 0
    assert "scaled clock: mean JCT " in capsys.readouterr().out
    assert json.loads((out / "result.json").read_text())["live"]["seconds_per_hour"] == 0.3
    assert replay.main([str(out)]) == 0
    assert ": equal: " in capsys.readouterr().out
    journal = (out / "journal.jsonl").read_text().splitlines()
    at, wait = next((at, json.loads(line)) for at, line in enumerate(journal) if line.startswith('["wait"'))
    edits = (
        ({"t": []}, ""),
        ({"t": 10**400}, ""),
        ({"t": None, "wall_s": "x"}, ""),
        ({"down": [999]}, ": node 999 is down, of "),
        ({"down": "ab"}, ""),
        ({"gone": 3}, ""),
    )
    for edit, told in edits:
        line = json.dumps([*wait[:2], wait[2] | edit])
        (out / "journal.jsonl").write_text("\n".join([*journal[:at], line, *journal[at + 1 :]]) + "\n")
        assert replay.main([str(out)]) == 2
        assert f"journal.jsonl{told}" in re.sub(r":\d+", "", error_line(capsys))
    (out / "journal.jsonl").write_text("\n".join(journal[:5]) + "\n")
    assert replay.main([str(out)]) == 2
    assert "does not answer" in error_line(capsys)


@pytest.mark.slow
def test_a_difference_is_shown_and_is_exit_status_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("clustergym.operators.live.live_run._events", lambda folder: iter([folder.name]))
    words = ["policy=fcfs", "live.engine=fake", f"hydra.run.dir={tmp_path / 'out'}", *SMALL]
    assert live.main(words) == 1
    text = "lock-step: DIFFERS from the simulator at event 1: live out, simulated simulated"
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(("states", "status"), [({"COMPLETED": 3}, 0), ({"COMPLETED": 2, "FAILED": 1}, 1)])
def test_scripts_that_did_not_complete_are_exit_status_1(states, status, tmp_path, capsys, monkeypatch):
    asked = []

    def drive_scripts(options, folder, make, slurm, queues):
        asked.append((options.jobs, [one.name for one in make()], queues))
        return states

    monkeypatch.setattr("clustergym.operators.live.own.drive.drive_scripts", drive_scripts)
    words = ["policy=srtf", f"live.jobs={tmp_path}", "live.engine=slurm", f"hydra.run.dir={tmp_path / 'out'}"]
    assert live.main(words) == status
    assert asked == [(str(tmp_path), ["srtf", "buddy"], None)]
    told = ", ".join(f"{count} {state.lower()}" for state, count in states.items())
    assert f"3 scripts: {told}; wrote " in capsys.readouterr().out


@pytest.mark.slow
def test_a_dry_run_prints_the_calls_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["policy=fcfs", "live.dry_run=true", f"hydra.run.dir={out}", *SMALL]
    assert live.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("salloc --no-shell --immediate=1 -J cg-dry-0-1.0 -N 1 -w a")
    assert {line.split()[0] for line in lines} <= {"salloc", "scancel", "scontrol"}
    assert sum(line.startswith("salloc") for line in lines) == sum("scancel" in line for line in lines)
    assert not out.exists()


@pytest.mark.slow
def test_a_dry_run_on_a_cluster_asks_it_only_for_its_nodes(slurm, tmp_path, capsys):
    words = ["policy=fcfs", "live.dry_run=true", "live.engine=slurm", "scenario.failures=null"]
    further = ["live.partition=gpu", "live.arguments=['--account=x']", f"hydra.run.dir={tmp_path / 'out'}"]
    assert live.main([*words, *further, *SMALL]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert re.search(r"-w a\d0-\d --gres=gpu:\d --ntasks-per-node=1 -p gpu --account=x$", first), first


@pytest.mark.slow
def test_slurm_can_neither_be_found_nor_fetched(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("clustergym.operators.live.local_slurm._search_path", lambda: str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "out"
    assert live.main(["policy=fcfs", f"hydra.run.dir={out}", *SMALL]) == 2
    assert "Slurm is not installed and cannot be fetched" in error_line(capsys)
    assert not list((tmp_path / "cache").rglob("*.deb"))


def test_a_controller_that_does_not_answer(slurm, tmp_path, capsys):
    fails = 'echo "slurm_load_partitions: no answer" >&2; exit 1'
    (tmp_path / "bin" / "sinfo").write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\n{fails}\n')
    assert "sinfo: slurm_load_partitions: no answer" in refused(capsys, tmp_path)


@pytest.mark.slow
@refused_of("live", words=True)
def test_what_is_refused(given, said, slurm, tmp_path, capsys):
    said.check(refused(capsys, tmp_path, *given), tmp_path)


@refused_of("live-nodes")
def test_nodes_that_do_not_suffice(given, said, slurm):
    kinds = [{"gpu_type": name, "count": 2, "gpus_per_node": 4} for name in ("A40", "A10")]
    cluster = cluster_from_config({"name": "four", "nodes": kinds})
    with said.of_error():
        choose_words(Slurm(), cluster, LiveOptions(engine="slurm", **given))


def test_gpus_of_a_job_are_read_as_slurm_shows_them(slurm):
    # As squeue's %b shows them: with and without a type, of Slurm 20 and of 21 on, beside another resource.
    shown = ["gres:gpu:2", "gres:gpu:a40:3", "gres/gpu:4", "gres/gpu:a40:1", "gres/nic:9,gres/gpu:2"]
    own = os.geteuid()
    held = "".join(f"{at}|{own}|RUNNING|64|{gres}|a40-1,a10-1\n" for at, gres in enumerate(shown))
    names = "".join(f"{at}|{own}|cg-x-{at}-1.0\n" for at in range(len(shown)))
    backend = SlurmBackend(Slurm(), SlurmWords(["a40-1", "a10-1"], "", True, ()), "x")
    slurm(squeue=names)
    backend.others()
    slurm(squeue=held)
    parts = backend.poll().parts
    assert {part.nodes for part in parts.values()} == {(0, 1)}
    assert [parts[f"cg-x-{at}-1.0"].gpus for at in range(len(shown))] == [2, 3, 4, 1, 2]


@pytest.mark.slow
def test_jobs_of_others_on_its_nodes(slurm, tmp_path, capsys):
    # Numbers, users, states and nodes; the first is on a node that the run does not need.
    slurm(squeue="7|ann|RUNNING|c-1\n8|bob|RUNNING|a10-1\n\ngarbled\n")
    told = refused(capsys, tmp_path)
    assert "its nodes have jobs that this run did not start: job 8 of bob is running on a10-1" in told


def test_lines_of_sinfo_that_are_no_nodes_are_left_out(slurm):
    slurm(sinfo="a40-9|gpu*|many|a40|gpu:4\n\n|\na40-8|gpu*|64|a40|gpu:4|x\n" + NODES)
    kinds = [{"gpu_type": name, "count": 2, "gpus_per_node": 4} for name in ("A40", "A10")]
    cluster = cluster_from_config({"name": "four", "nodes": kinds})
    assert choose_words(Slurm(), cluster, LiveOptions(engine="slurm")).nodes == (
        *("a40-1", "a40-2"),
        *("a10-1", "a10-2"),
    )


@pytest.mark.slow
def test_the_plain_run_has_no_live_keys(tmp_path, capsys):
    from clustergym.commands import run

    assert run.main(["live.engine=fake", f"hydra.run.dir={tmp_path}"]) == 2
    assert "unknown key 'live" in error_line(capsys)
    assert Path(live.__file__).name == "live.py"
