"""What the README tells a user to do, done."""

import json
import re
import shlex
from pathlib import Path

import pytest

from clustergym import __main__ as console
from clustergym import load_scenario, simulate
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cells import Place, load_table
from clustergym.benchmark.leaderboard.pairs import compare_with_reference

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"<!-- figures.*?<!-- end -->", re.DOTALL)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_ci_runs_the_tests_as_the_readme_says():
    commands = re.findall(r"^    (.*)$", README, re.MULTILINE)
    assert commands[3] == "python -m clustergym.run policy=arena scenario=board-testbed seed=2000"
    assert [command for command in commands if re.match(r"python3 -m venv .*pytest", command)] == commands[4:]
    assert "README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_it_is_short_and_measured_figures_are_those_of_the_file():
    """What a command does not make anew was measured once, and stands in a file with how it was."""
    assert len(README.split()) <= 900
    measured = json.loads((ROOT / "benchmarks/measured/readme.json").read_text(encoding="utf-8"))
    told = re.findall(r"takes (\d+) MB and (\d+) s of one core, the run (\S+) s\.", README)
    install = measured["install"]
    assert told == [(f"{install['mb']}", f"{install['cpu_s']}", f"{measured['first_run']['cpu_s']}")]
    (wants,) = re.findall(r"((?:^\|.*\n)+)", re.sub(BLOCK, "", README), re.MULTILINE)
    assert cells(wants, 0, -1) == [[want, takes] for want, takes in measured["takes"].items()]
    peers = re.findall(r"(?:took|clustergym) ([\d.]+) s", README)
    assert [float(one) for one in peers] == [one for pair in measured["peers"].values() for one in pair]


def cells(table, *columns):
    """Return columns of the rows of a Markdown table."""
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in table.splitlines()[2:]]
    return [[row[column] for column in columns] for row in rows]


def test_its_first_command_is_a_run_of_a_board_with_the_figures_of_its_table():
    one, scenario = load_table(load_board("testbed")), load_scenario("board-testbed", seed=2000)
    rows = [one.rows[Place(name, "philly", 2000, "")] for name in ("arena", "fcfs")]
    assert [simulate(scenario, row.place.policy).digest for row in rows] == [row.digest for row in rows]
    arena_s, fcfs_s = (row.metrics["jct_mean"] for row in rows)
    overall = compare_with_reference(one, "arena", reference="fcfs").overall
    figures = (arena_s / 3600, fcfs_s / 3600, arena_s / fcfs_s, overall.value)
    words = "{:.2f} h under Arena and {:.2f} h under FCFS: a ratio of {:.2f}, and of {:.2f} over all {} runs"
    assert words.format(*figures, overall.seeds * len(one.keys.scenarios)) in README


def commands():
    """Every `clustergym …` command of the README, on small inputs."""
    found = re.findall(r"`clustergym ([^`]+)`", README.replace("\n", " "))
    # The reproduction takes minutes and the published data; tests/papers/test_reproduce.py runs a
    # part of it.
    elsewhere = ("reproduce",)
    return sorted({" ".join(c.split()) for c in found if not " ".join(c.split()).startswith(elsewhere)})


def test_the_readme_has_commands():
    assert len(commands()) >= 7


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_runs(command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    trace = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus\na,0,gpt3,760M,128,10,2\n"
    measured = (
        "model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,iteration_time_s\n"
        "gpt3,760M,128,A40,1,1,8.0\n"
    )
    nodes = ", ".join(f"{{gpu_type: {name}, count: 16, gpus_per_node: 2}}" for name in ("A40", "A10"))
    cluster = f"name: mine\nnodes: [{nodes}]\n"
    content = measured if "oracle" in command else trace
    (tmp_path / "FILE").write_text(content)
    (tmp_path / "mine.yaml").write_text(cluster)
    sweep = ["run", "-m", "policy=fcfs,srtf", "compare=null"]
    prepare = {
        "replay": ["run", "policy=fcfs", "compare=null", "hydra.run.dir=DIR"],
        "collect": sweep,
        "report": sweep,
    }
    arguments = [word.replace("NAME", "arena-a") for word in shlex.split(command)]
    if arguments[0] in prepare:
        assert console.main(prepare[arguments[0]]) == 0
    assert console.main(arguments) == 0
    assert capfd.readouterr().out
