"""Training an entry anew."""

import json
import shutil

import pytest
from error_lines import error_line

from clustergym.benchmark.leaderboard.add import add
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.entry import read_entry
from clustergym.benchmark.leaderboard.retrain import _find_learned_part
from clustergym.commands.leaderboard import main
from clustergym.commands.train import main as train
from clustergym.scenario.registry import find_class

TRAINING = (
    *("agent.generations=1", "agent.population=4", "agent.episodes=1", "agent.validation=1", "processes=1"),
    *("agent.scenarios.origin=synthetic", "agent.scenarios.jobs=[10,12]", "progress=false", "seed=4"),
)


@pytest.fixture
def learned(root, tmp_path, monkeypatch):
    """The small board with an entry of a checkpoint that was trained for a moment."""
    assert train([*TRAINING, f"output={tmp_path / 'moment'}"]) == 0
    package = tmp_path / "package"
    package.mkdir()
    for suffix in (".safetensors", ".yaml"):
        shutil.copy(tmp_path / "moment" / f"moment{suffix}", package)
    monkeypatch.setattr("clustergym.agents.checkpoints.TRAINED", package)
    add(load_board("small", root), "mine", {"name": "learned", "checkpoint": "moment"})
    return root


def retrain(root, tmp_path, *words) -> int:
    given = ["--root", str(root), "retrain", "small", *words, "--workers", "1"]
    return main([*given, "--output", str(tmp_path / "anew"), "--json", str(tmp_path / "found.json")])


def test_the_same_seed_gives_the_same_weights_and_score(learned, tmp_path, capsys):
    assert retrain(learned, tmp_path, "mine") == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["largest_difference"] == 0.0
    assert found["same_traces"]
    assert found["inside"]
    assert found["seed"] == 4
    assert found["entered"] == found["found"]
    assert "inside that interval" in capsys.readouterr().out
    # The board is as it was.
    assert sorted(path.name for path in (learned / "small").iterdir() if path.is_dir()) == [
        "first",
        "mine",
        "short",
    ]


def test_another_seed_is_another_training(learned, tmp_path):
    status = retrain(learned, tmp_path, "mine", "--seed", "5")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["largest_difference"] > 0.01
    low, high = found["entered"]["low"], found["entered"]["high"]
    assert found["inside"] == (low <= found["found"]["value"] <= high)
    assert status == (0 if found["inside"] else 2)


@pytest.mark.parametrize(
    ("entry", "words", "said"),
    [
        ("short", [], "srtf is not learned from a checkpoint of the package"),
        ("none", [], "is not a folder of the board"),
        ("mine", ["--seed", "-1"], "give 0 or more"),
    ],
)
def test_what_cannot_be_trained_anew_is_one_line(learned, tmp_path, capsys, entry, words, said):
    capsys.readouterr()
    assert retrain(learned, tmp_path, entry, *words) == 2
    assert said in error_line(capsys)
    assert not (tmp_path / "anew").exists()


def test_a_file_that_an_entry_names_is_not_opened(learned, tmp_path, capsys):
    path = learned / "small" / "mine" / "entry.yaml"
    path.write_text(path.read_text().replace("checkpoint: moment", "checkpoint: /etc/passwd"))
    capsys.readouterr()
    assert retrain(learned, tmp_path, "mine") == 2
    assert "is not learned from a checkpoint of the package" in error_line(capsys)


def test_an_entry_that_names_no_checkpoint_has_the_policy_s_default(learned, monkeypatch):
    folder = learned / "small" / "mine"
    path = folder / "entry.yaml"
    path.write_text(
        path.read_text().replace("checkpoint: moment", "round_s: 60.0", 1).replace("round_s: null", "")
    )
    entry = read_entry(folder, load_board("small", learned))
    assert "checkpoint" not in entry.policy.parameters
    field = find_class("policy", "learned").__dataclass_fields__["checkpoint"]
    monkeypatch.setattr(field, "default", "elastic-384")
    assert _find_learned_part(entry, folder) == ("policy", "elastic-384")
