"""A network beside policies, and the example, from the command line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from clustergym.commands import train as train_command
from clustergym.training import play, plot

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def always_first(tmp_path_factory):
    """Return a checkpoint of a menu of one policy: hesrpt decides always."""
    folder = tmp_path_factory.mktemp("trained") / "one"
    given = [
        "agent=ppo", "env.policies=[hesrpt]", "env.jobs=6", "env.baseline=null", "agent.steps=8",
        "agent.validate_every=8", "agent.n_steps=8", "agent.n_envs=1", "agent.batch_size=8",
        "agent.validation=1", "agent.hidden=[4]", "progress=false", "processes=1", f"output={folder}",
    ]  # fmt: skip
    assert train_command.main(given) == 0
    return str(folder / "one.safetensors")


def test_a_menu_of_one_policy_is_that_policy(always_first, capsys):
    given = [always_first, "--policy", "hesrpt", "--policy", "fcfs", "--traces", "3"]
    assert play.main(given) == 0
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines()]
    assert [row[0] for row in rows[2:]] == ["learned", "hesrpt", "fcfs"]
    assert rows[2][1:] == rows[3][1:]
    assert rows[3][2] == "1.000 [1.000, 1.000]"
    assert float(rows[4][2].split()[0]) < 1
    assert play.main(given) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--policy", "hesprt"], "did you mean hesrpt"),
        (["--policy", "hesrpt alpha"], "'alpha' is not a parameter"),
        (["--traces", "0"], "--traces"),
    ],
)
def test_mistakes_are_one_line(always_first, capsys, more, words):
    assert play.main([always_first, *more]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words in shown.err
    assert shown.err.count("\n") == 1


def test_a_checkpoint_that_is_not_there(capsys):
    assert play.main(["nothing.safetensors"]) == 2
    assert "no checkpoint 'nothing.safetensors'" in capsys.readouterr().err


def test_the_example_trains_and_compares(capsys):
    spec = importlib.util.spec_from_file_location("meta_ppo", ROOT / "examples" / "meta_ppo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = ["--steps", "64", "--jobs", "5"]
    assert module.main(given) == 0
    first = capsys.readouterr().out
    assert [line.split(":")[0] for line in first.splitlines()] == [
        "always fcfs", "always srtf elastic=true", "always hesrpt", "PPO after 64 steps",
    ]  # fmt: skip
    assert module.main(given) == 0
    assert capsys.readouterr().out == first
    assert module.main(["--steps", "0"]) == 2


def test_curves_are_drawn_the_same_again(always_first, tmp_path):
    pytest.importorskip("matplotlib")
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        assert plot.main([always_first, "--output", str(path)]) == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert b"mean JCT on dev traces" in paths[0].read_bytes()


def test_the_imitator_is_step_0_of_a_curve():
    imitation = [{"dev_return": -2.0, "dev_jct_h": 2.0}, {"dev_return": -1.5, "dev_jct_h": 1.5}]
    curves = {"imitation": imitation, "segments": [{"steps": 10, "dev_jct_h": 1.25}]}
    assert plot.points(curves) == ([0.0, 10.0], [1.5, 1.25])


def test_the_curve_of_an_evolution_is_over_generations(capsys, tmp_path):
    curves = plot.read_curves(["fair"])
    generations, objective = plot.points(curves["fair"])
    assert generations == list(range(5, 65, 5))
    assert min(objective) == objective[6]  # after 35 of 60 generations
    assert plot.main(["fair", "elastic-16", "--output", str(tmp_path / "x.svg")]) == 2
    assert "elastic-16.yaml: has a curve over other steps than fair" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["curves: 3", "curves: {segments: [{steps: x, dev_jct_h: y}]}", "a: *b"])
def test_a_checkpoint_without_curves_is_one_line(tmp_path, capsys, text):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"")
    path.with_suffix(".yaml").write_text(f"schema: clustergym.network/1\n{text}\n")
    assert plot.main([str(path), "--output", str(tmp_path / "x.svg")]) == 2
    assert "has no curves" in capsys.readouterr().err
    assert not (tmp_path / "x.svg").exists()
