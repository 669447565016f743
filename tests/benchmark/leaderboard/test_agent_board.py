"""Boards of agents: recorded actions are played again, scored, and refused where they are false."""

import gzip
import json
import shutil

import numpy as np
import pytest

from clustergym.benchmark.leaderboard import agent_entry
from clustergym.benchmark.leaderboard.agent_board import (
    Constants,
    load_agent_board,
    measure_constants,
    play_traces,
    read_constants,
)
from clustergym.benchmark.leaderboard.agent_entry import Run, record_run, replay_run
from clustergym.benchmark.leaderboard.agent_scores import (
    agent_rows,
    aggregate_agents,
    compute_agent_scores,
    replay_entry,
)
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError

pytestmark = pytest.mark.compiled
BOARD = """\
name: small
version: 1
title: Small
summary: Two traces.
traces: 2
environments:
- {name: burst, id: ClusterGym/Burst-16-v0, jobs: 5}
- {name: knobs, id: ClusterGym/Knobs-16-v0, jobs: 5}
"""
ENTRY = {
    "board": "small",
    "board_version": 1,
    "title": "An agent",
    "authors": ["A. Author"],
    "training_cpu_s": 0.0,
    "hardware": "one core",
    "licence": "CC0",
    "command": "none",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return a folder of boards with a board, its constants and an entry of the first legal edits."""
    root = tmp_path_factory.mktemp("boards")
    (root / "small").mkdir()
    (root / "small" / "agents.yaml").write_text(BOARD)
    board = load_agent_board("small", root)
    measure_constants(board)
    record_run(board, "first", Run("burst", 0), lambda _, masks: masks.argmax(1))
    rng = np.random.default_rng(0)
    for run in range(2):
        record_run(board, "first", Run("knobs", run), lambda *_: rng.uniform(-2, 2, (2, 28)))
    (root / "small" / "first" / "entry.yaml").write_text(json.dumps(ENTRY))
    return root


@pytest.fixture
def root(recorded, tmp_path):
    return shutil.copytree(recorded, tmp_path / "boards")


def test_played_again_it_is_what_was_recorded(root):
    board = load_agent_board("small", root)
    envs = board.environment("burst").make(2)
    played = play_traces(envs, board.seeds, lambda _, masks, __: masks.argmax(1))
    envs.close()
    assert played.complete.all()
    assert replay_run(board, "first", Run("burst", 0)).tolist() == played.jct_s.tolist()


def test_scores_by_hand():
    # Random play 10 and 20, the best known 5 and 10: 6 is 4/5 of the way, 10 all, 25 is worse.
    constants = Constants(random=[10.0, 20.0], best_known=[5.0, 10.0], heuristics={})
    scores = compute_agent_scores(np.array([[6.0, 10.0], [5.0, 25.0]]), constants)
    assert scores.tolist() == [[0.8, 1.0], [1.0, -0.5]]
    # Sorted -0.5, 0.8, 1, 1: the middle half has 0.8 and 1; the other environment's mean is 1.
    found = aggregate_agents([scores, np.ones((1, 2))])
    assert found.value == pytest.approx((0.9 + 1.0) / 2)
    assert found.low < found.value <= found.high <= 1.0


def test_the_command_scores_and_writes_the_page(root, capsys):
    assert main(["--root", str(root), "agents", "small", "--workers", "1", "--write"]) == 0
    page = (root / "small" / "README.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith("| An agent "))
    assert row.split("|")[2].strip() == "2"
    assert "| `hesrpt` |" in page
    # A trace on which random play is no worse than the best known would have no score.
    constants = read_constants(load_agent_board("small", root))
    assert all(np.all(np.array(one.best_known) < one.random) for one in constants.values())


def test_the_committed_table_is_what_its_actions_give():
    board = load_agent_board("rl")
    found = replay_entry(board, "ppo")
    page = (board.folder / "README.md").read_text(encoding="utf-8").splitlines()
    (row,) = agent_rows(board, [found])
    assert "| " + " | ".join(row) + " |" in page


def rewrite(path, change):
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    change(lines)
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


FALSE = {
    "too few actions": (lambda lines: lines[1]["actions"].pop(), "goes on after"),
    "too many actions": (lambda lines: lines[2]["actions"].append(0), "ends before its"),
    "an episode less": (lambda lines: lines.pop(), "has 1 episodes, not 2"),
    "no such action": (lambda lines: lines[1]["actions"].__setitem__(0, 10**9), "not of the environment"),
    "an action below": (lambda lines: lines[1]["actions"].__setitem__(0, -1), "not of the environment"),
    "another environment": (lambda lines: lines[0].update(environment="knobs"), "is of 2 traces of knobs"),
    "a box": (lambda lines: lines[1].update(actions=[[1]]), "not of the environment"),
    "a text": (lambda lines: lines[1].update(actions="os.system"), "actions"),
    "another key": (lambda lines: lines[1].update(digest="0"), "unknown key"),
    # Nothing but illegal edits: the episode stalls, with its jobs in the system.
    "a stall": (lambda lines: lines[1].update(actions=[0] * 1000), "ends before"),
}


@pytest.mark.parametrize("name", FALSE)
def test_false_actions_are_refused_in_a_line(name, root, capsys):
    change, message = FALSE[name]
    rewrite(root / "small/first/burst-0.jsonl.gz", change)
    assert main(["--root", str(root), "agents", "small", "first"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert "burst-0.jsonl.gz" in line


def test_a_box_beyond_its_bounds_is_refused(root, capsys):
    rewrite(root / "small/first/knobs-0.jsonl.gz", lambda lines: lines[1].update(actions=[[129]]))
    assert main(["--root", str(root), "agents", "small", "first"]) == 2
    assert "not of the environment" in capsys.readouterr().err


def test_what_does_not_belong_is_refused(root, tmp_path, capsys):
    folder = root / "small/first"
    (folder / "agent.pkl").write_bytes(b"cos\nsystem\n")
    assert main(["--root", str(root), "agents", "small", "first"]) == 2
    (folder / "agent.pkl").unlink()
    (folder / "burst-1.jsonl.gz").symlink_to(tmp_path)
    assert main(["--root", str(root), "agents", "small", "first"]) == 2
    (folder / "burst-1.jsonl.gz").unlink()
    (folder / "entry.yaml").write_text(json.dumps({**ENTRY, "trained_on": ["test"]}))
    assert main(["--root", str(root), "agents", "small", "first"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    words = ("agent.pkl", "burst-1", "trained_on")
    assert all(word in line for word, line in zip(words, lines, strict=True))
    with pytest.raises(InputError, match="no entry"):
        agent_entry.read_agent_entry(load_agent_board("small", root), "../small")


def test_an_agent_that_stalls_is_not_recorded(root):
    board = load_agent_board("small", root)
    with pytest.raises(InputError, match="ends before all jobs have left"):
        record_run(board, "lazy", Run("burst", 0), lambda *_: np.zeros(2, dtype=np.int64))
    assert not (root / "small/lazy").exists()
