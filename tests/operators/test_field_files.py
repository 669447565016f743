"""Files of Slurm as people post them are read right, or what is not is named; values worked out by hand."""

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from clustergym.operators.commands.twin import main as twin_main
from clustergym.operators.live.own.decide import _read_node

from clustergym.cluster.slurm_text import key_values
from clustergym.commands.cluster import main as cluster_main
from clustergym.commands.trace import main as trace_main
from clustergym.trace.readers import sacct
from clustergym.trace.slurm_fields import CellRules, find_zone

FIELD = Path(os.environ.get("CLUSTERGYM_DATA", Path(__file__).parents[3] / "shared" / "data")) / "field"
DOCS = Path(__file__).parents[2] / "docs" / "twin.md"
NOW = "2026-03-05T10:00:00"
LIKE = ["--like", "3090=A40", "--like", "4090=A40", "--like", "gpu=A40"]
NODE = "NodeName={} CPUTot=64 Gres=gpu:{} State=MIXED Partitions={} CfgTRES=cpu=64"
HEAD = "JOBID|USER|ACCOUNT|PARTITION|STATE|SUBMIT_TIME|START_TIME|TIME_LIMIT|TRES_PER_NODE|NODES|NODELIST"
HEAD += "|REASON"
RUNS = "RUNNING|2026-03-05T08:00:00|2026-03-05T08:00:00|12:00:00"
WAITS = "PENDING|2026-03-05T09:30:00|{}|04:00:00"


def field(name: str) -> Path:
    path = FIELD / name
    if not path.exists():
        pytest.skip(f"{path} is not here; set CLUSTERGYM_DATA")
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The base folder of docs/twin.md: two nodes of 8 A100."""
    for name, body in re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', DOCS.read_text(), re.DOTALL):
        (tmp_path / name).write_text(body)
    folder, at = tmp_path / "mine", str(tmp_path)
    words = ["import", f"{at}/sacct.txt", "--format", "sacct", "-o", str(folder / "log.csv")]
    assert trace_main(words) == 0
    assert cluster_main(["import", f"{at}/nodes.txt", "-o", str(folder / "cluster.yaml")]) == 0
    assert twin_main(["rules", f"{at}/config.txt", f"{at}/assoc.txt", "-o", str(folder)]) == 0
    return folder


def cluster(mine: Path, source: Path) -> dict[str, int]:
    """Import nodes as the twin's cluster; return its GPUs by type."""
    out = mine.parent / "cluster.json"
    words = ["import", str(source), "-o", str(mine / "cluster.yaml"), "--force", *LIKE, "--json", str(out)]
    assert cluster_main(words) == 0
    gpus: dict[str, int] = json.loads(out.read_text())["gpus"]
    return gpus


def ask(mine: Path, command: str, queue: Path, now: str = NOW) -> dict[str, Any]:
    out = mine.parent / "out.json"
    more = ["--draws", "9"] if command == "eta" else []
    assert twin_main([command, str(mine), str(queue), "--now", now, "--json", str(out), *more]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def at_once(found: dict[str, Any]) -> list[str]:
    """Return the jobs that start now in at least 10 % of the draws."""
    return [job["job_id"] for job in found["jobs"] if job["p10_s"] == 0]


def written(folder: Path, *rows: str, head: str = HEAD) -> Path:
    path = folder / "file.txt"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def test_the_table_of_plans_is_what_its_command_prints(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = DOCS.read_text()
    monkeypatch.chdir(mine.parent)
    line = next(line for line in page.splitlines() if line.startswith("clustergym twin whatif mine --plans"))
    assert twin_main(shlex.split(line)[2:]) == 0
    table = page.split("<!-- plans -->\n")[1].split("<!-- end of plans -->")[0].strip()
    assert table in capsys.readouterr().out


NODES = {
    "03-sinfo-two-brackets.txt": {"A100": 96},
    "03-nodes-two-brackets.txt": {"A100": 32},
    "04-slurm.conf": {"A100": 40, "H100": 16},
    "05-nodes-mig.txt": {"A100": 4},
    "06-nodes-mixed.txt": {"A40": 2, "V100": 2},
    "13-nodes-digits.txt": {"3090": 8, "A100": 8},
    "13-sinfo-digits.txt": {"4090": 16, "A100": 8},
    "22-nodes-a100-80.txt": {"A100-80": 8},
    "24-nodes-drained.txt": {"A100": 16},
    "35-real-scontrol-nodes.txt": {"3090": 4, "gpu": 4},
}


@pytest.mark.parametrize("name", NODES)
def test_nodes(mine: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster(mine, field(name)) == NODES[name]
    told = "".join(capsys.readouterr())
    assert ("left out 28 devices: a100_1g.5gb is no whole GPU" in told) == (name == "05-nodes-mig.txt")


def test_nodes_in_use() -> None:
    lines = field("35-real-scontrol-nodes.txt").read_text().splitlines()
    states = [state for line in lines for state in _read_node(key_values(line)).values()]
    assert [(state.gpus, state.used) for state in states] == [(4, 4), (4, 4)]


LOGS: dict[str, tuple[Sequence[str], Sequence[float], dict[str, int]]] = {
    "05-sacct-mig.txt": (["102"], [3600], {"MIG devices or shares, no whole GPUs": 1}),
    "08-sacct-dst.txt": (["201", "202"], [1200, 14_400], {}),
    "17-sacct-negative-elapsed.txt": (
        ["102"], [3600], {"ended before it started, by a change of the clock (give --timezone)": 1}
    ),
    "20-sacct-running.txt": (["501", "502"], [864_000, 3600], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_logs(name: str) -> None:
    jobs, run_s, left_out = LOGS[name]
    log = sacct.read_log(field(name), CellRules(find_zone("Europe/Zurich" if "dst" in name else None)))
    assert (log.job_id, log.duration_s.tolist(), log.left_out) == (jobs, run_s, left_out)


def test_a_log_with_dependencies_and_one_without_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    log = sacct.read_log(field("21-sacct-eligible.txt"))
    assert log.start_s is not None
    assert (log.start_s - log.submit_s).tolist() == [0.0, 0.0, 0.0]
    untracked = str(field("18-sacct-untracked.txt"))
    assert trace_main(["import", untracked, "--format", "sacct", "-o", "x.csv"]) == 2
    assert "AccountingStorageTRES=gres/gpu" in capsys.readouterr().err


def test_arrays(mine: Path) -> None:
    squeue, told = field("02-squeue-array-limit.txt"), field("29-sacct-pending-array.txt")
    assert at_once(ask(mine, "eta", squeue)) == ["50_1", "50_2"]
    starts = [job["job_id"] for job in ask(mine, "advise", squeue)["jobs"] if job["what"] == "start"]
    assert starts == ["50_1", "50_2"]
    found = ask(mine, "eta", told)
    assert (found["running"], found["waiting"], at_once(found)) == (2, 8, [])


def test_jobs_that_may_not_start(mine: Path) -> None:
    found = ask(mine, "eta", field("15-squeue-begin.txt"))
    assert [(job["job_id"], job["p10_s"]) for job in found["jobs"]] == [("41", 8 * 3600.0), ("44", 0.0)]
    assert found["not_used"]["left_out"] == {
        "job: waits for more than GPUs (JobHeldUser)": 1, "job: waits for more than GPUs (Dependency)": 1
    }  # fmt: skip


def test_gpus_that_squeue_does_not_print(mine: Path) -> None:
    found = ask(mine, "eta", field("01-squeue-gpus-na.txt"))
    assert found["not_used"]["left_out"] == {f"job: {sacct.NO_TRES}": 2}
    found = ask(mine, "eta", field("33-real-squeue.txt"), "2026-11-28T03:33:00")
    assert found["not_used"]["left_out"][f"job: {sacct.NO_TRES}"] == 3
    assert (found["running"], found["waiting"]) == (3, 46)
    names = " ".join(found["not_used"]["not_modelled"])
    assert "there is no column REASON" in names
    assert "heterogeneous jobs" in names


def test_hosts_with_two_brackets(mine: Path) -> None:
    cluster(mine, field("03-nodes-two-brackets.txt"))
    (job,) = ask(mine, "eta", field("03-squeue-two-brackets2.txt"))["jobs"]
    assert (job["p10_s"], job["p50_s"]) == (3600.0, 5 * 3600.0)


def test_types_of_digits(mine: Path) -> None:
    found = ask(mine, "eta", field("13-squeue-digits.txt"))
    assert (found["running"], found["waiting"], at_once(found)) == (1, 1, [])


@pytest.mark.parametrize("given", ["the files", "rows written here"])
@pytest.mark.parametrize("case", ["partitions", "types"])
def test_partitions_and_hosts_are_kept_apart(mine: Path, case: str, given: str) -> None:
    """The only node of a partition, or of its type, is in use; a node of another one is free."""
    of_case = {"partitions": "interactive batch a100 a100 :a100", "types": "v a v100 a100 "}
    used, free, used_type, free_type, asked = of_case[case].split(" ")
    if given == "the files":
        number, what = (23, "partitions") if case == "partitions" else (27, "two-types")
        nodes, end = field(f"{number}-nodes-{what}.txt"), "partitions" if case == "partitions" else "untyped"
        queue = field(f"{number}-squeue-{end}.txt")
    else:
        nodes = mine.parent / "own-nodes.txt"
        lines = (NODE.format("n1", f"{used_type}:8", used), NODE.format("n2", f"{free_type}:8", free))
        nodes.write_text("\n".join(lines) + "\n")
        queue = written(
            mine.parent,
            f"71|bob|speech|{used}|{RUNS}|gres/gpu{asked}:8|1|n1|None",
            f"72|ann|vision|{used}|{WAITS.format('N/A')}|gres/gpu{asked}:8|1||Resources",
        )
    cluster(mine, nodes)
    assert at_once(ask(mine, "eta", queue)) == []
    assert [(job["job_id"], job["what"]) for job in ask(mine, "advise", queue)["jobs"]] == [("72", "wait")]


def test_what_a_queue_can_say(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows with the features of those files, and of Slurm 22.05's `squeue -O`, for those who lack them."""
    head = HEAD.replace("|NODES", "|TRES_PER_JOB|TRES_PER_TASK|TASKS|NODES")
    rows = [
        f"1|bob|speech|gpu|{RUNS}|N/A|gres:gpu:a100:6|N/A|1|1|gpu01|None",
        f"2_[1-9:2%2]|ann|vision|gpu|{WAITS.format('N/A')}|gres:gpu:a100:1|N/A|N/A|1|1||Priority",
        f"3|ann|vision|gpu|{WAITS.format('2026-03-05T18:00:00')}|gpu:1|N/A|N/A|1|1||BeginTime",
        f"4|ann|vision|gpu|{WAITS.format('N/A')}|N/A|N/A|gres:gpu:3|3|1||Resources",
        f"5|ann|vision|gpu|{WAITS.format('N/A')}|gres/gpu:a100_1g.5gb:1|N/A|N/A|1|1||Resources",
        f"6|ann|vision|gpu|{WAITS.format('N/A')}|gres/gpu:1|N/A|N/A|1|1||QOSGrpGRES",
    ]
    found = ask(mine, "eta", written(mine.parent, *rows, head=head))
    assert (found["running"], found["waiting"]) == (1, 8)
    assert {job["job_id"]: job["gpus"] for job in found["jobs"] if "_" not in job["job_id"]} == {
        "3": 1, "4": 9, "6": 1
    }  # fmt: skip
    assert at_once(found)[:2] == ["2_1", "2_3"]
    assert "2_5" not in at_once(found)
    assert "left out 1 job: MIG devices or shares" in capsys.readouterr().err
    assert list(found["not_used"]["not_modelled"]) == ["reason QOSGrpGRES"]
    cut = written(mine.parent, rows[1].replace("2_[1-9:2%2]", "2_[1,3,...]"), head=head)
    assert twin_main(["eta", str(mine), str(cut), "--now", NOW]) == 2
    assert "file.txt:2: '2_[1,3,...]' is cut short: print each task (squeue -r)" in capsys.readouterr().err


def test_rules_name_what_they_do_not_follow(tmp_path: Path) -> None:
    given = [
        "SchedulerType = sched/backfill", "SchedulerParameters = bf_interval=30,bf_window=1440,defer",
        "PreemptType = preempt/qos", "PriorityWeightTRES = gres/gpu=2000", "PriorityWeightAssoc = 5",
        "PriorityFlags = CALCULATE_RUNNING,SMALL_RELATIVE_TO_TIME", "PriorityUsageResetPeriod = WEEKLY",
        "OverTimeLimit = 0 min", "TopologyPlugin = topology/none", "SlurmctldPort = 6817", "Strange = 3",
    ]  # fmt: skip
    (tmp_path / "config.txt").write_text("\n".join(given) + "\n")
    assoc = ("Account|User|ParentName|Share|GrpTRES", "root||root|1|", "a||root|parent|cpu=9,gres/gpu=8")
    (tmp_path / "assoc.txt").write_text("\n".join((*assoc, "a|bob||7|", "")))
    out = tmp_path / "out.json"
    sources = [str(tmp_path / "config.txt"), str(tmp_path / "assoc.txt")]
    assert twin_main(["rules", *sources, "-o", str(tmp_path), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["not_used"] == {
        "not_modelled": {
            **{"PreemptType": 1, "PriorityWeightTRES": 1, "PriorityWeightAssoc": 1},
            **{"PriorityUsageResetPeriod": 1, "PriorityFlags SMALL_RELATIVE_TO_TIME": 1},
            **{"SchedulerParameters bf_window": 1, "SchedulerParameters defer": 1},
            **{"shares and limits of users (give --by user)": 1, "Share parent": 1, "GrpTRES cpu": 1},
        },
        "not_read": {"key Strange": 1},
    }
    words = [*sources, "-o", str(tmp_path), "--force", "--hash-users", "x", "--json", str(out)]
    assert twin_main(["rules", *words]) == 0
    assert list(json.loads(out.read_text())["queues"]["queues"]) == [CellRules(salt="x").name("a"), "others"]
