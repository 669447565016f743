"""The reproduce command: what it refuses, and Arena's study on the published data where it is here."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from clustergym.papers.arena_scenarios import data_parallel_fits, read_memory
from clustergym.papers.arena_sections import REFERENCE
from clustergym.papers.claim_files import judge_claims
from clustergym.papers.reproduce import main
from clustergym.papers.reproduction import Options, RunSpec, change, choose, presets, run_all
from clustergym.papers.titles import PAPERS
from published_data import DATA, needs
from refusals import refused
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.common.tables import table
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.papers import gavel, sia
from clustergym.scenario.policy import InformationClass


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLUSTERGYM_DATA", "none")


@refused("reproduce", words=True)
def test_bad_input_is_one_line(given, said, capsys, tmp_path):
    assert main(given) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    said.check(shown.err)
    assert not list(tmp_path.iterdir())


def test_help_lists_what_exists(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"  {paper} " in shown for paper in PAPERS)


def test_policies_are_chosen_by_preset():
    assert "elasticflow-ls" in presets()
    assert choose(["fcfs", "nobody", "arena"], None) == (
        ["fcfs", "arena"],
        "\n\nNot installed, so left out: nobody.",
    )
    assert choose(["fcfs"], ["crius", "crius"]) == (["crius"], "")
    with pytest.raises(InputError, match=r"--policies: unknown policy 'criu' .did you mean crius"):
        choose([], ["criu"])
    with pytest.raises(InputError, match=r"--policies: names no policy .give some of fcfs"):
        choose(["fcfs"], [])
    policy = RunSpec("philly", None, "fair", "crius", (("planner", "dp"),)).make_policy()
    assert (policy.opportunistic, policy.information_class) == (True, InformationClass.DATA_PARALLEL)


def test_a_finished_run_is_not_run_again(tmp_path, capsys):
    options = Options(tmp_path, True, None, tmp_path / "work")
    cells = [RunSpec("one", None, "plain", "fcfs")] * 2
    first = run_all(cells, one_job, options)
    assert first[cells[0]]["jct_mean"] == 100.0
    assert capsys.readouterr().err.count("fcfs took") == 1
    assert run_all(cells, one_job, options) == first
    assert capsys.readouterr().err == ""


def one_job(data, spec):
    return small_scenario([Job("a", 0, 10)], {"X": (1, 1)}, {"m": {"X": {1: 10.0}}})


def test_the_memory_rule(tmp_path):
    # 40 GB: 0.8 x 40 = 32 >= 1.2 x GB up to 26.67 GB. 4 and 8 GPUs count as the greatest degree, 2.
    path = tmp_path / "memory.csv"
    path.write_text(
        "model_family,params,batch_size,dp_degree,memory_gb,recorded\n"
        "bert,1.3B,32,1,26.7,1\nbert,1.3B,32,2,26.6,1\nbert,2.6B,32,1,,0\nbert,2.6B,32,2,9.0,1\n"
    )
    memory = read_memory(path)
    scenario = small_scenario([Job("a", 0, 1, family="gpt3")], {"X": (2, 4)}, {"gpt3": {"X": {1: 1.0}}})
    for size, fits in (("1.3B", [0, 1, 1, 1]), ("2.6B", [0, 1, 1, 1]), ("6.7B", [0, 0, 0, 0])):
        model = ModelClass("gpt3", size, 32)
        cut = replace(scenario, tables=replace(scenario.tables, classes=(model,)))
        assert data_parallel_fits(cut, memory)[0, 0].tolist() == fits


def test_tables_and_changes():
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
    assert [change(110.0, 100.0), change(None, 1.0), change(1.0, 0.0)] == ["+10 %", "-", "-"]


@needs("arena")
def test_fcfs_is_within_15_percent_of_the_published_simulator(capsys):
    argv = ["arena", "--quick", "--data", str(DATA), "--policies", "fcfs", "--json", "figures.json"]
    assert main(argv) == 0
    capsys.readouterr()
    text = Path("outputs/reproduction/quick/arena.md").read_text()
    assert "| fcfs | *published* | 202 |" in text
    rows = json.loads(Path("figures.json").read_text())["runs"]
    assert {row["trace"] for row in rows} == {"philly", "testbed-a", "testbed-b"}
    assert all(row["jobs_finished"] == 244 for row in rows if row["trace"].startswith("testbed"))
    published = REFERENCE[664]["fcfs"]
    for row in (row for row in rows if row["trace"] == "philly"):
        assert row["jobs_finished"] == pytest.approx(published["jobs_finished"], rel=0.15)
        assert row["throughput_mean"] == pytest.approx(published["throughput_mean"], rel=0.15)
        assert row["jct_mean"] == pytest.approx(published["jct_mean"], rel=0.15)
        assert np.isfinite(row["jct_mean_censored"])


@needs("gavel")
def test_gavel_reproduces_its_simulator(capsys):
    argv = ["gavel", "--quick", "--data", str(DATA), "--json", "figures.json", "--work", "w"]
    assert main(argv) == 0
    found = json.loads(Path("figures.json").read_text())
    assert {row["jobs_finished"] for row in found["runs"]} == {96}
    claims = {claim["claim"]: claim for claim in found["claims"]}
    assert claims["mean JCT, max-min fairness"]["as_published"] == pytest.approx(4.06, rel=0.03)
    assert claims["makespan, minimum makespan"]["as_published"] == pytest.approx(17.09, rel=0.03)
    # FIFO is as long as published only if jobs take the last type, as its simulator has it.
    assert claims["mean JCT, FIFO"]["as_published"] == pytest.approx(9.97, rel=0.03)
    assert claims["mean JCT, FIFO"]["verdict"] == "reproduced (fair: smaller)"
    others = {claim["verdict"] for name, claim in claims.items() if name != "mean JCT, FIFO"}
    assert others == {"reproduced", "not run"}
    # FIFO that draws a type differs from seed to seed.
    assert len({row["jct_mean"] for row in found["runs"] if row["policy"] == "fcfs"}) == 8 + 1


@needs("sia")
@pytest.mark.nightly
def test_sia_and_gavel_are_within_10_percent_of_sias_simulator(capsys, monkeypatch):
    # One of its two traces; `.ci/nightly` holds the verdicts on both.
    monkeypatch.setattr(sia, "WORKLOADS", (("philly", 1),))
    assert main(["sia", "--quick", "--data", str(DATA), "--json", "figures.json", "--work", "w"]) == 0
    figures = json.loads(Path("figures.json").read_text())
    jct = [claim for claim in figures["claims"] if claim["claim"].startswith("mean JCT")]
    assert len(jct) == 5
    (of_sia,) = (claim for claim in jct if claim["claim"] == "mean JCT, sia, philly-1")
    assert of_sia["as_published"] == pytest.approx(of_sia["paper"], rel=0.08)
    assert {claim["verdict"].partition(" (")[0] for claim in jct} == {"reproduced"}
    assert "## Claims" in capsys.readouterr().out


JOB = "ResNet-18 (batch size 64)\tx\tx\tx\t0\t100\t1\t1\t-1\t{arrival_s}\n"


def test_the_jobs_of_gavel_have_the_rates_of_the_table(tmp_path):
    (tmp_path / "gavel" / "traces_physical").mkdir(parents=True)
    (tmp_path / "gavel" / "traces_physical" / "max_min_fairness.trace").write_text(JOB.format(arrival_s="5"))
    rates = {"v100": {"('ResNet-18 (batch size 64)', 1)": {"null": 4.0}}, "p100": {}, "k80": {}}
    (tmp_path / "gavel" / "simulation_throughputs.json").write_text(json.dumps(rates))
    scenario = gavel._scenario(tmp_path)
    assert (scenario.trace.submit_s.tolist(), scenario.trace.iterations.tolist()) == ([5.0], [100])
    # Four steps a second on one V100, at any locality; on other types and counts it does not run.
    times = dict(zip(scenario.cluster.gpu_types, scenario.tables.execution[0], strict=True))
    assert times.pop("V100")[0].tolist() == [0.25] * 4
    assert all(np.isinf(one).all() for one in times.values())


def test_sia_is_held_against_each_other_policy():
    # On philly-1 sia 1 h and another 4 h: 75 % less; the paper has 0.542 against 1.671 h, 67.6 % less.
    traces = [("philly-1", "sia"), ("philly-1", "gavel max-sum")]
    found = {
        sia._spec(trace, label, setting): {"jct_mean": hours * 3600.0, "makespan": 1.0, "restarts_mean": 1.0}
        for (trace, label), hours in zip(traces, (1.0, 4.0), strict=True)
        for setting in (sia.FAIR, sia.PUBLISHED)
    }
    claims = {claim.claim: claim for claim in judge_claims("sia", sia.sia_figures(traces, found))}
    against = claims["mean JCT, sia against gavel max-sum, philly-1"]
    assert (against.paper, against.fair) == (pytest.approx(-67.6, abs=0.1), pytest.approx(-75.0))
    assert claims["mean JCT, sia, philly-1"].why == "not known"
    assert claims["mean JCT, sia against gavel max-sum, saturn-1"].verdict == "not run"
