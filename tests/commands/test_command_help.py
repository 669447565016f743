"""The help of the commands that take KEY=VALUE."""

import re

import pytest

from clustergym.commands import run
from clustergym.common.paths import conf_dir
from clustergym.scenario.configuration.overrides import GROUPS, OPTIONAL_GROUPS, OPTIONS


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["policy=ares", "--help"], ["-m", "seed=0,1", "--help"]]
)
def test_run_says_what_can_be_overridden_and_where_results_go(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run.main(words) == 0
    out = capsys.readouterr().out
    assert "Hydra" not in out
    groups = dict(re.findall(r"^  (\w+)=\s+((?:.|\n {14})*)", out, re.MULTILINE))
    assert set(groups) == {*GROUPS, *OPTIONAL_GROUPS}
    for group, names in groups.items():
        stems = {path.stem for path in (conf_dir() / group).glob("*.yaml")}
        assert stems <= {name.rstrip("*") for name in re.split(r"[,\s]+", names)}, group
    assert "arena*" in groups["policy"]
    keys = set(re.findall(r"^  (\w+):", out, re.MULTILINE))
    assert keys == {*OPTIONS, "scenario"}
    assert "hydra.run.dir=DIR" in out
    assert "result.json" in out
    assert max(map(len, out.splitlines())) <= 120
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_examples_of_run_are_accepted(capsys, monkeypatch, tmp_path):
    assert run.main(["--help"]) == 0
    examples = re.findall(r"^  clustergym run (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert len(examples) == 4
    monkeypatch.chdir(tmp_path)
    for example in examples:
        words = [word for word in example.split() if word != "-m"]
        words = [word.replace("=fcfs,srtf", "=srtf").replace("=0,1,2", "=0") for word in words]
        assert run.main([*words, "--cfg", "job"]) == 0, example
