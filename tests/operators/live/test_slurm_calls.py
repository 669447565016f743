"""Every word that a run says to Slurm, and all that it takes from answers, which are written here."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clustergym.operators.live import slurm as slurm_module
from clustergym.operators.live.backend import NoAnswerError, Part
from clustergym.operators.live.own import queue as queue_module
from clustergym.operators.live.own.decide import Nodes, NodeState, Reservation, read_nodes
from clustergym.operators.live.own.queue import HELD, RUNNING, WAITING, OwnQueue, QueuedJob
from clustergym.operators.live.own.script import Script
from clustergym.operators.live.slurm import Slurm, SlurmWords, last_line, parse_time
from clustergym.operators.live.slurm_backend import _gpus_each

from clustergym.cluster.slurm_text import key_values
from clustergym.common.errors import InputError

ME = str(os.geteuid())
NAN = float("nan")


class Scripted(Slurm):
    """Answers each command by a rule, and notes what was asked."""

    def __init__(self, answer: Callable[..., str | tuple[int, str]]) -> None:
        super().__init__({})
        self.answer, self.asked = answer, list[tuple[str, ...]]()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        self.asked.append(words)
        told = self.answer(*words)
        status, text = told if isinstance(told, tuple) else (0, told)
        return subprocess.CompletedProcess(words, status, "" if status else text, text if status else "")


def queue_of(answer: Any, patience_s: float = 0.0) -> tuple[OwnQueue, list[tuple[str, ...]]]:
    """Return a queue whose Slurm gives an answer, or answers by a rule, and what is asked of it."""
    made = Scripted(answer if callable(answer) else lambda *words: answer)
    return OwnQueue(made, "night", patience_s), made.asked


def script(tmp_path: Path, **changes: Any) -> Script:
    return Script(path=tmp_path / "train.sh", sha256="0", nodes=2, gpus=8, **{"signal": "USR1", **changes})


def test_a_script_is_submitted_held(tmp_path: Path) -> None:
    queue, asked = queue_of("123;cluster\n")
    assert queue.slurm.environment == {"SLURM_TIME_FORMAT": "%s"}
    assert queue.submit(script(tmp_path), 3, 8) == "123"
    assert queue.submit(script(tmp_path, folder="/data", gpu_type="a100"), 4, 4) == "123"
    assert queue.submit(script(tmp_path, folder="/data"), 5, 16) == "123"
    path = str(tmp_path / "train.sh")
    head = ("sbatch", "--parsable", "--hold")
    assert asked == [
        (*head, "--comment=clustergym:night:train.sh:3", f"--chdir={tmp_path}",
         "--export=ALL,CLUSTERGYM_ATTEMPT=3,CLUSTERGYM_GPUS=8", path),
        (*head, "--comment=clustergym:night:train.sh:4", "--nodes=1", "--gres=gpu:a100:4",
         "--export=ALL,CLUSTERGYM_ATTEMPT=4,CLUSTERGYM_GPUS=4", path),
        (*head, "--comment=clustergym:night:train.sh:5", "--nodes=4", "--gres=gpu:4",
         "--export=ALL,CLUSTERGYM_ATTEMPT=5,CLUSTERGYM_GPUS=16", path),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("told", "kind", "line"),
    [
        ((1, "sbatch: error\nUnable to contact slurm controller\n"), NoAnswerError,
         "Unable to contact slurm controller (is slurmctld running?)"),
        ((1, "Socket timed out on send/recv\n"), NoAnswerError, "Socket timed out on send/recv (is"),
        ((3, ""), InputError, "sbatch: exit status 3 (mend the script, or move it away)"),
        ((1, "invalid partition\n\n"), InputError, "sbatch: invalid partition (mend the script"),
        ((0, "no number\n"), InputError, "sbatch: exit status 0 (mend"),
    ],
)  # fmt: skip
def test_a_script_that_is_not_taken(tmp_path: Path, told: Any, kind: type, line: str) -> None:
    queue, _ = queue_of(told)
    with pytest.raises(InputError) as error:
        queue.submit(script(tmp_path), 1, 8)
    assert type(error.value) is kind
    assert line in str(error.value)
    assert str(tmp_path / "train.sh") in str(error.value)


def test_what_was_submitted_is_found_by_its_comment() -> None:
    lines = "7|other\n8|clustergym:night:train.sh:10\n"
    lines += "x|clustergym:night:train.sh:1\n9|clustergym:night:train.sh:1\n"
    queue, asked = queue_of(lines)
    assert queue.find("train.sh", 1) == "9"
    assert queue.find("train.sh", 2) == ""
    assert asked == [("squeue", "-h", "-a", "-u", ME, "-o", "%A|%k")] * 2


def test_the_queue() -> None:
    rows = [
        "1|PENDING|0|N/A|None", "2|PENDING|5|N/A|JobHeldUser", "3|PENDING|5|N/A|Priority",
        "4|RUNNING|5|1772539200|None", "5|COMPLETING|5|1772539201|None", "6|RUNNING|5|1|None",
        "4|RUNNING|5|a name with | more|2|3", "",
    ]  # fmt: skip
    queue, asked = queue_of("\n".join(rows))
    found = queue.poll(["1", "2", "3", "4", "5"])
    assert {name: (job.state, job.reason) for name, job in found.items()} == {
        "1": (HELD, "None"), "2": (HELD, "JobHeldUser"), "3": (WAITING, "Priority"),
        "4": (RUNNING, ""), "5": (RUNNING, ""),
    }  # fmt: skip
    assert math.isnan(found["3"].start_s)
    assert (found["4"].start_s, found["5"].start_s) == (1772539200.0, 1772539201.0)
    assert found["4"] == QueuedJob(RUNNING, 1772539200.0, "")
    assert asked == [("squeue", "-h", "-a", "-u", ME, "-o", "%A|%T|%Q|%S|%r")]


def test_how_jobs_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MOST_AT_ONCE", 2)
    rows = {
        "1,2": "1|COMPLETED|100|250|a1\n2|CANCELLED by 1000|Unknown|300|None assigned\n",
        "3": "3|RUNNING|100|Unknown|a1\n3|PENDING|1|2|a\ngarbage\n",
    }
    queue, asked = queue_of(lambda *words: rows[words[5]])
    assert queue.ends(["1", "2", "3"]) == {
        "1": {"state": "COMPLETED", "start_s": 100.0, "end_s": 250.0, "nodes": "a1"},
        "2": {"state": "CANCELLED", "start_s": None, "end_s": 300.0, "nodes": "None assigned"},
    }
    asks = [
        ("sacct", "-n", "-X", "-P", "-j", some, "-o", "JobIDRaw,State,Start,End,NodeList") for some in rows
    ]
    assert asked == asks
    assert queue.ends([]) == {}


def test_what_is_told_to_jobs(tmp_path: Path) -> None:
    queue, asked = queue_of("")
    queue.control("release", "7")
    queue.control("hold", "7")
    queue.send_signal("7", script(tmp_path))
    queue.send_signal("7", script(tmp_path, batch=True))
    queue.cancel("7")
    queue.check_accounting()
    assert asked == [
        ("scontrol", "release", "7"),
        ("scontrol", "hold", "7"),
        ("scancel", "-u", ME, "--signal=USR1", "7"),
        ("scancel", "-u", ME, "--signal=USR1", "--batch", "7"),
        ("scancel", "-u", ME, "7"),
        ("sacct", "-n", "-X", "-S", "now", "-o", "JobID"),
    ]
    queue, _ = queue_of((1, "Slurm accounting storage is disabled\n"))
    with pytest.raises(InputError) as error:
        queue.check_accounting()
    wanted = "live.jobs: sacct: Slurm accounting storage is disabled (live.jobs needs Slurm's accounting)"
    assert str(error.value) == wanted


def test_a_silent_scheduler_is_asked_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(queue_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(queue_module.time, "sleep", sleep)
    queue, asked = queue_of((1, "down\n"), patience_s=5.0)
    with pytest.raises(NoAnswerError, match="squeue: down"):
        queue.read("squeue")
    # Each half second, until 5 s have passed; once more at 105.5 s.
    assert (slept, len(asked)) == ([0.5] * 11, 12)
    answers = iter([(1, "down"), "a\nb\n"])
    queue, asked = queue_of(lambda *words: next(answers), patience_s=60.0)
    assert queue.read("squeue", "-h") == ["a", "b"]
    assert slept[11:] == [1.0]  # At most a second.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1772539200", 1772539200.0),
        ("1234567890123", 123456789012.0),
        ("", NAN),
        ("Unknown", NAN),
        ("²", NAN),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_time(text) == pytest.approx(seconds, nan_ok=True)


def test_local_times_and_pairs() -> None:
    assert parse_time("2026-03-03T12:00:00") - parse_time("2026-03-03T11:00:00") == 3600.0
    assert key_values("NodeName=a1 State=IDLE Gres=gpu:a100:8 Comment=x=y  Empty= 9=z Gres=gpu:1") == {
        "NodeName": "a1", "State": "IDLE", "Gres": "gpu:a100:8", "Comment": "x=y", "Empty": ""
    }  # fmt: skip


def test_nodes_as_slurm_prints_them() -> None:
    shown = [
        "NodeName=a1 State=MIXED+PLANNED Gres=gpu:a100:8 GresUsed=gpu:a100:3(IDX:0-2) Partitions=gpu,all",
        "NodeName=a2 State=IDLE Gres=gpu:4 Partitions=gpu",
        "NodeName=a3 State=IDLE* Gres=gpu:4",
        "NodeName=a4 State=DOWN+DRAIN Gres=gpu:4",
        "NodeName=a5 State=IDLE Gres=(null)",
    ]
    kept = [
        "ReservationName=repair StartTime=100 EndTime=200 Nodes=a1,a2 Flags=MAINT",
        "ReservationName=licences StartTime=100 EndTime=200 Nodes=(null)",
        "No reservations in the system",
    ]
    answers = {
        ("scontrol", "-d", "-o", "show", "node"): "\n".join(shown),
        ("scontrol", "-o", "show", "reservation"): "\n".join(kept),
        ("sinfo", "-h", "-a", "-o", "%P"): "all\ngpu*\n",
    }
    queue, asked = queue_of(lambda *words: answers[words])
    nodes = read_nodes(queue)
    assert asked == list(answers)
    assert nodes.states == {
        "a1": NodeState(8, 3, "A100", frozenset({"gpu", "all"})),
        "a2": NodeState(4, 0, "gpu", frozenset({"gpu"})),
    }
    assert nodes.reservations == (Reservation("repair", 100.0, 200.0, frozenset({"a1", "a2"})),)
    assert nodes.default == "gpu"
    assert list(nodes.of_partition("")) == ["a1", "a2"]
    assert list(nodes.of_partition("all")) == ["a1"]
    # Kept from 100 s up to 200 s: a job may end at 100 s and start at 200 s.
    kept_at = [
        nodes.is_reserved("a1", *span)
        for span in ((0, 100), (0, 100.5), (150, 160), (199.5, 300), (200, 300))
    ]
    assert kept_at == [False, True, True, True, False]
    assert not nodes.is_reserved("a1", 150, 160, by="repair")
    assert not nodes.is_reserved("a3", 150, 160)
    answers[("sinfo", "-h", "-a", "-o", "%P")] = "all\n"
    assert read_nodes(queue).default == ""


def test_what_is_in_use_is_never_free() -> None:
    """Untyped GPUs, types of digits, several types a node, MIG devices, and words that are not known."""
    shown = [
        "NodeName=u State=MIXED Gres=gpu:8(S:0-1) GresUsed=gpu:(null):8(IDX:0-7) Partitions=gpu",
        "NodeName=d State=MIXED Gres=gpu:3090:8 GresUsed=gpu:3090:8(IDX:0-7) Partitions=gpu",
        "NodeName=t State=MIXED Gres=gpu:a100:8 GresUsed=gpu:(null):3(IDX:0-2) Partitions=gpu",
        "NodeName=m State=MIXED Gres=gpu:v100:2(S:0),gpu:a40:2 GresUsed=gpu:v100:1(IDX:0),gpu:a40:0(IDX:N/A)",
        "NodeName=g State=IDLE Gres=gpu:a100_1g.5gb:28 Partitions=gpu",
        "NodeName=s State=MIXED Gres=gpu:a100:4,shard:16 GresUsed=gpu:a100:0(IDX:N/A),shard:2 Partitions=gpu",
        "NodeName=w State=MIXED Gres=gpu:a100:4 GresUsed=gpu:a100:?(IDX:0) Partitions=gpu",
        "NodeName=n State=MIXED Gres=gpu:a100:4 Partitions=gpu",
        "NodeName=c State=MIXED Gres=gpu:a100:4 GresUsed=gpu:a100:0 Partitions=gpu AllocTRES=gres/gpu=2",
    ]
    answers = {("scontrol", "-d", "-o", "show", "node"): "\n".join(shown)}
    queue, _ = queue_of(lambda *words: answers.get(words, ""))
    states = {name: (one.gpus, one.used, one.gpu_type) for name, one in read_nodes(queue).states.items()}
    assert states == {
        "u": (8, 8, "gpu"), "d": (8, 8, "3090"), "t": (8, 3, "A100"), "m:V100": (2, 1, "V100"),
        "m:A40": (2, 0, "A40"), "s": (4, 4, "A100"), "n": (4, 4, "A100"), "c": (4, 2, "A100"),
    }  # fmt: skip
    assert _gpus_each("gres/gpu:3090:8") == _gpus_each("gres:gpu:8") == 8


def test_room_is_taken_on_the_fullest_nodes() -> None:
    states = {
        "a": NodeState(8, 0, "A100", frozenset({"gpu"})),
        "b": NodeState(8, 4, "A100", frozenset({"gpu"})),
        "c": NodeState(8, 0, "V100", frozenset({"gpu"})),
    }
    nodes = Nodes(states, (Reservation("repair", 1000.0, 2000.0, frozenset({"a"})),), "gpu")

    def take(
        gpu_type: str, shape: tuple[int, int], limit_s: float, partition: str = "", ours: str = ""
    ) -> bool:
        asked = Script(Path("x"), "0", shape[0], math.prod(shape), gpu_type, limit_s, "", partition, ours)
        return nodes.take(asked, asked.gpus, now_s=500.0)

    assert take("A100", (1, 4), 100.0)  # b has just the four.
    assert not take("A100", (2, 4), 100.0)  # a alone has four left.
    assert not take("A100", (1, 4), 500.5)  # It would run into the repair of a,
    assert not take("A100", (1, 4), NAN)  # and so may a job without a limit,
    assert take("A100", (1, 4), NAN, ours="repair")  # but not one that has the reservation.
    assert take("A100", (1, 4), 500.0)
    assert not take("A100", (1, 1), 100.0)
    assert take("", (1, 8), 100.0, "gpu")  # Any type: c.
    assert not take("", (1, 1), 100.0, "other")


def test_words_for_allocations() -> None:
    two = Part(nodes=(0, 2), gpus=4)
    plain = SlurmWords(["n0", "n1", "n2"], "", True, ())
    head = ["salloc", "--no-shell", "--immediate=1", "-J", "cg-run-1-0", "-N", "2", "-w", "n0,n2"]
    assert plain.submit("cg-run-1-0", two) == [*head, "--gres=gpu:4", "--ntasks-per-node=1"]
    assert plain.down(1) == ["scontrol", "update", "nodename=n1", "state=down", "reason=clustergym"]
    assert plain.up(2) == ["scontrol", "update", "nodename=n2", "state=resume"]
    two_sizes = {"name": "cg-run-1-0", "nodes": [[0, 4], [2, 4], [1, 2]]}
    assert [line[:54] for line in plain.list_commands("start", two_sizes)] == [
        "salloc --no-shell --immediate=1 -J cg-run-1-0.0 -N 2 -",
        "salloc --no-shell --immediate=1 -J cg-run-1-0.1 -N 1 -",
    ]
    assert plain.list_commands("stop", {"names": ["a", "b"]}) == [
        "scancel --user=$USER --name=a",
        "scancel --user=$USER --name=b",
    ]
    assert plain.list_commands("repair", {"node": 0}) == ["scontrol update nodename=n0 state=resume"]
    assert plain.list_commands("wait", {"due": 5, "down": []}) == []
    rich = SlurmWords(["n0", "n1", "n2"], "gpu", False, ["-A", "mine"], [["-A", "first"], ["-A", "second"]])
    head[4] = "cg-run-1-0"
    assert rich.submit("cg-run-1-0", two) == [
        *head, "--ntasks-per-node=4", "-c", "1", "-p", "gpu", "-A", "mine", "-A", "second"
    ]  # fmt: skip
    # Whose an allocation for a profile is is not known.
    assert rich.submit("cg-run-profile-0", two)[-2:] == ["-A", "mine"]


def test_commands_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm()
    assert slurm.environment == dict(os.environ)
    python = sys.executable
    assert slurm.read(python, "-c", "print('a\\x0cb'); print()") == ["a\x0cb", ""]
    assert slurm.read(python, "-c", "") == []
    odd = "import sys; sys.stdout.buffer.write(b'a\\xffb')"
    assert slurm.read(python, "-c", odd) == ["a\ufffdb"]
    assert Slurm({"A": "x"}).read(python, "-c", "import os; print(os.environ['A'])") == ["x"]
    with pytest.raises(NoAnswerError) as error:
        slurm.read(python, "-c", "import sys; print('one', file=sys.stderr); sys.exit('two ')")
    assert str(error.value) == f"live.engine: {python}: two (is slurmctld running?)"
    with pytest.raises(NoAnswerError, match="exit status 3"):
        slurm.read(python, "-c", "import sys; sys.exit(3)")
    with pytest.raises(InputError) as error:
        slurm.run("no-such-command", "x")
    assert str(error.value) == (
        "live.engine: Slurm is not installed: no no-such-command on PATH (live.engine=slurm-local or fake)"
    )
    with pytest.raises(InputError, match=r"cannot be run: .*\(look at PATH and live\.arguments\)"):
        slurm.run(python, "\0")
    monkeypatch.setattr(slurm_module, "CALL_S", 0.2)
    with pytest.raises(InputError) as error:
        slurm.run(python, "-c", "import time; time.sleep(20)")
    assert str(error.value) == (
        f"live.engine: {python} did not come back within 0.2 s (look at slurmctld's log)"
    )


def test_last_lines() -> None:
    assert last_line(" a \n\n b \n \n") == "b"
    assert last_line("\n") == ""
