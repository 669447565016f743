"""Files of recorded actions and what an entry's folder may have, line by line, without playing any."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from clustergym.benchmark.leaderboard.agent_entry import (
    Run,
    agent_names,
    read_actions,
    read_agent_entry,
)
from clustergym.common.errors import InputError

THREE = spaces.Discrete(3)
BOX = spaces.Box(-2.0, 2.0, (2, 2), np.float32)
ENVIRONMENT = SimpleNamespace(name="burst")
REMEDY = "(record it anew with clustergym.benchmark.leaderboard.agent_entry.record_run)"
ENTRY = {
    "board": "small",
    "board_version": 2,
    "title": "An agent",
    "authors": ["A"],
    "training_cpu_s": 0.0,
    "hardware": "a CPU",
    "licence": "MIT",
    "command": "python agent.py",
}


def write_actions(path: Path, *episodes, environment="burst", traces=2) -> Path:
    lines = [{"schema": "clustergym.actions/1", "environment": environment, "traces": traces}]
    lines += [{"actions": one} for one in episodes]
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return path


def refusal(call, *given) -> str:
    with pytest.raises(InputError) as caught:
        call(*given)
    return str(caught.value)


def test_numbers_of_actions_come_back(tmp_path):
    first, second = read_actions(write_actions(tmp_path / "a", [0, 2], [1]), ENVIRONMENT, 2, THREE)
    assert (first.tolist(), second.tolist()) == ([0, 2], [1])


def test_numbers_of_a_box_are_filled_with_zeros(tmp_path):
    path = write_actions(tmp_path / "a", [[128, -128], []], [[1, 2, 3, 4]])
    first, second = read_actions(path, ENVIRONMENT, 2, BOX)
    assert first.tolist() == [[128, -128, 0, 0], [0, 0, 0, 0]]
    assert second.tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("space", "action"),
    [(THREE, 3), (THREE, -1), (THREE, [1]), (BOX, [129]), (BOX, [-129]), (BOX, [0, 0, 0, 0, 1]), (BOX, 1)],
)
def test_an_action_that_is_not_of_the_space(tmp_path, space, action):
    good = [0] if space is THREE else [[0]]
    path = write_actions(tmp_path / "a", good, [action])
    told = refusal(read_actions, path, ENVIRONMENT, 2, space)
    assert told == f"{path}:3: an action is not of the environment's space {REMEDY}"


def test_actions_of_something_else(tmp_path):
    path = write_actions(tmp_path / "a", [0], [0], environment="knobs")
    told = refusal(read_actions, path, ENVIRONMENT, 2, THREE)
    assert told == f"{path}:1: is of 2 traces of knobs {REMEDY}"
    path = write_actions(tmp_path / "a", [0], [0])
    assert refusal(read_actions, path, ENVIRONMENT, 3, THREE) == f"{path}:1: is of 2 traces of burst {REMEDY}"
    path = write_actions(tmp_path / "a", [0])
    assert refusal(read_actions, path, ENVIRONMENT, 2, THREE) == f"{path}: has 1 episodes, not 2 {REMEDY}"


@pytest.fixture
def board(tmp_path):
    """A board of two environments with one entry, `first`, of three files of actions."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "entry.yaml").write_text(json.dumps(ENTRY))
    for name in ("knobs-9", "burst-1", "burst-0"):
        (tmp_path / "first" / f"{name}.jsonl.gz").write_bytes(b"")
    environments = [SimpleNamespace(name=name) for name in ("knobs", "burst")]
    return SimpleNamespace(name="small", version=2, folder=tmp_path, environments=environments)


def test_the_runs_of_an_entry(board):
    entry, runs = read_agent_entry(board, "first")
    assert (entry.title, entry.trained_on) == ("An agent", [])
    assert runs == [Run("knobs", 9), Run("burst", 0), Run("burst", 1)]
    (board.folder / "empty").mkdir()
    assert agent_names(board) == ["first"]


def test_an_entry_that_is_none(board):
    told = refusal(read_agent_entry, board, "frist")
    assert told == "entry: 'frist' is no entry of small (did you mean first?)"
    (board.folder / "second").symlink_to(board.folder / "first")
    assert refusal(read_agent_entry, board, "second").startswith("entry: 'second' is no entry of small (")
    assert refusal(read_agent_entry, board, "../first").startswith("entry: '../first' is no entry of small (")


@pytest.mark.parametrize("name", ["notes.txt", "burst-10.jsonl.gz", "trace-0.jsonl.gz"])
def test_what_does_not_belong_in_an_entry(board, name):
    (board.folder / "first" / name).write_text("")
    told = refusal(read_agent_entry, board, "first")
    assert told == (
        f"{board.folder / 'first' / name}: is a link, no plain file, or does not belong in an entry "
        "(an entry has entry.yaml and ENVIRONMENT-RUN.jsonl.gz)"
    )


def test_a_link_in_an_entry(board):
    (board.folder / "first" / "burst-0.jsonl.gz").unlink()
    (board.folder / "first" / "burst-0.jsonl.gz").symlink_to("burst-1.jsonl.gz")
    assert "burst-0.jsonl.gz: is a link" in refusal(read_agent_entry, board, "first")


@pytest.mark.parametrize(
    ("change", "what"), [({"board": "large"}, "large version 2"), ({"board_version": 1}, "small version 1")]
)
def test_an_entry_of_another_board(board, change, what):
    path = board.folder / "first" / "entry.yaml"
    path.write_text(json.dumps(ENTRY | change))
    told = refusal(read_agent_entry, board, "first")
    assert told == f"{path}: board: is of {what} (record it anew for small version 2)"


def test_an_entry_without_actions(board):
    for path in (board.folder / "first").glob("*.gz"):
        path.unlink()
    told = refusal(read_agent_entry, board, "first")
    assert told == f"{board.folder / 'first'}: has no actions {REMEDY}"


def test_lines_of_another_form_name_the_file(tmp_path):
    path = write_actions(tmp_path / "a", [0], traces="two")
    assert refusal(read_actions, path, ENVIRONMENT, 2, THREE).startswith(f"{path}: traces: ")
    path = write_actions(tmp_path / "a", [0], "one")
    assert refusal(read_actions, path, ENVIRONMENT, 2, THREE).startswith(f"{path}: actions")
