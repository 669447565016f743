"""A search for values: what it tries, what it calls best, and what it says of bad input."""

import json

import pytest
from refusals import refused

from clustergym.commands.tune import main

RUN = ["policy=ares", "scenario=ares", "trace=philly-like", "trace.rule=ares", "trace.jobs=40"]


def test_the_best_of_the_values_that_were_tried(tmp_path, capsys):
    pytest.importorskip("optuna", reason="pip install 'clustergym[tune]'")
    file = tmp_path / "tuned.json"
    given = ["policy.alpha=0.5,0.95", "--trials", "4", "--out", str(tmp_path / "out"), "--json", str(file)]
    assert main([*RUN, *given]) == 0
    told = json.loads(file.read_text())
    jct_s = {}
    for path in (tmp_path / "out").glob("*/result.json"):
        result = json.loads(path.read_text())
        jct_s[str(result["policy"]["parameters"]["alpha"])] = result["metrics"]["jct_mean"]
    assert set(jct_s) == {"0.5", "0.95"}, "seed 0 tries both values"
    assert jct_s["0.5"] != jct_s["0.95"]
    assert len(told["trials"]) == 4
    assert told["best"]["jct_mean"] == min(jct_s.values())
    assert jct_s[told["best"]["values"]["policy.alpha"]] == min(jct_s.values())
    shown = capsys.readouterr()
    assert "best of 4 trials" in shown.out
    assert shown.err.count("trial ") == 4


def test_an_interval_of_whole_numbers(tmp_path):
    pytest.importorskip("optuna", reason="pip install 'clustergym[tune]'")
    file = tmp_path / "tuned.json"
    given = ["policy=arena", "trace=philly-like", "trace.jobs=10", "policy.search_depth=int(interval(1,3))"]
    more = f"--metric throughput_mean --trials 2 --out {tmp_path / 'out'} --json {file}"
    assert main([*given, *more.split()]) == 0
    told = json.loads(file.read_text())
    assert {trial["values"]["policy.search_depth"] for trial in told["trials"]} <= {"1", "2", "3"}
    assert told["best"]["throughput_mean"] == max(trial["throughput_mean"] for trial in told["trials"])


@refused("tune", words=True)
def test_bad_input_is_one_line(given, said, tmp_path, capsys):
    pytest.importorskip("optuna", reason="pip install 'clustergym[tune]'")
    assert main([*given, "--out", str(tmp_path / "out")]) == 2
    said.check(capsys.readouterr().err, tmp_path)
