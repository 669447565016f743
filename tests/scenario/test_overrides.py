"""Overrides of a run that are wrong: each ends in one line that says what to give, and nothing is written."""

import pytest
import yaml

import clustergym
from clustergym.commands import run
from clustergym.common.errors import InputError
from clustergym.common.paths import conf_dir
from clustergym.scenario.configuration.overrides import READ_WITH_FILE, check_words

SMALL = ["cluster=arena-16", "trace=philly-like", "trace.jobs=3", "compare=null", "report=false"]


def test_a_missing_file_is_not_answered_with_folders(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nosuch").mkdir()
    (tmp_path / "nosuch.tsv").touch()
    assert run.main(["trace=file", "trace.path=nosuch.csv", "hydra.run.dir=out"]) == 2
    assert "nosuch.csv: no such file (did you mean nosuch.tsv?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["policy=arena,fcfs", "-m"],
        ["policy=choice(arena,fcfs)"],
        ["sweep=null", "experiment=null"],
        ["policy='arena'"],
        ["--cfg", "job", "--resolve"],
        ["++policy.round_s=5", "~trace.load"],
    ],
)
def test_what_hydra_accepts_passes(words):
    check_words(words)


def test_a_function_is_never_a_way_to_run_code():
    with pytest.raises(InputError, match="names code to be run"):
        check_words(["+hydra.callbacks.mine._target_=os.system"])


def test_what_a_file_says_is_not_overridden_in_silence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("nodes: [{count: 1, gpu_type: A40, gpus_per_node: 4}]\n")
    assert (
        run.main([*SMALL[1:], "cluster.path=mine.yaml", "cluster.nodes.0.count=6", "hydra.run.dir=out"]) == 2
    )
    expected = "cluster.nodes.0.count: has no effect: mine.yaml says it (edit the file, or drop cluster.path)"
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=r"trace.jobs: has no effect: a.csv says it"):
        clustergym.load_scenario("testbed", ["trace=philly-like", "+trace.path=a.csv", "trace.jobs=5"])


@pytest.mark.parametrize("order", [1, -1], ids=["null first", "null last"])
def test_a_key_below_one_that_is_null_has_no_effect(order, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["scenario.failures=null", "scenario.failures.mtbf_s=3600"][::order]
    assert run.main([*SMALL, *words, "hydra.run.dir=out"]) == 2
    expected = (
        "scenario.failures.mtbf_s: has no effect beside scenario.failures=null (leave out one of the two)"
    )
    assert capsys.readouterr().err == f"error: {expected}\n"
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=r"has no effect beside scenario\.failures=null"):
        clustergym.load_scenario("testbed", words)
    check_words(["scenario.failures=null", "scenario.failures_of_jobs=1", "scenario.name=null"])


def test_every_key_of_a_trace_from_a_file_counts():
    keys = yaml.safe_load((conf_dir() / "trace" / "file.yaml").read_text())
    assert set(READ_WITH_FILE["trace"]) == set(keys)


def test_an_override_of_the_seed_is_not_lost():
    load = clustergym.load_scenario
    given, named = load("testbed", [*SMALL[:3], "seed=1"]), load("testbed", SMALL[:3], seed=1)
    assert given.sha256 == named.sha256 != load("testbed", SMALL[:3]).sha256
