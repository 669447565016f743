"""A study in one file: its runs, figures, files, resumption, and bad input."""

import csv
import itertools
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from error_lines import error_line
from refusals import refused

from clustergym.benchmark.study.page import TextTable, escape_latex, order_columns
from clustergym.benchmark.study.study_file import read_study
from clustergym.commands import run
from clustergym.commands.study import main
from clustergym.results.metrics.catalogue import Metric
from clustergym.results.metrics.statistics import aggregate_paired_ratio

ROOT = Path(__file__).parents[3]
STUDY = {
    "title": "Two costs",
    "scenarios": {"as measured": "testbed costs=ares", "free": "testbed costs=free"},
    "policies": ["fcfs", "srtf policy.elastic=true"],
    "settings": ["trace=philly-like", "trace.jobs=15", "horizon_s=40000"],
    "seeds": [0, 1],
    "metrics": {"jct_mean_censored": "mean JCT", "unfair_fraction": "unfair"},
    "reference_policy": "fcfs",
    "reference_scenario": "free",
}


def save(path, **changes):
    content = {key: value for key, value in (STUDY | changes).items() if value is not None}
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A study that was run: its folder and its JSON."""
    folder = tmp_path_factory.mktemp("study")
    path = save(folder / "study.yaml")
    out = folder / "out"
    assert main([str(path), "--out", str(out), "--json", str(folder / "all.json")]) == 0
    return out, json.loads((folder / "all.json").read_text())


def test_every_cell_is_run_once_and_is_the_run_of_its_words(done, tmp_path):
    _, content = done
    cells = [(one["scenario"], one["policy"], one["seed"]) for one in content["runs"]]
    assert cells == list(itertools.product(STUDY["scenarios"], STUDY["policies"], STUDY["seeds"]))
    words = ["costs=free", "policy=srtf", "policy.elastic=true", *STUDY["settings"], "seed=1"]
    assert run.main([*words, "compare=null", "progress=false", f"hydra.run.dir={tmp_path}"]) == 0
    alone = json.loads((tmp_path / "result.json").read_text())
    (same,) = [
        one
        for one in content["runs"]
        if (one["scenario"], one["seed"], one["policy"][:4]) == ("free", 1, "srtf")
    ]
    assert (same["digest"], same["run_key"]) == (alone["digest"], alone["run_key"])


def test_ratios_are_paired_over_the_seeds(done):
    _, content = done
    values = {
        (one["scenario"], one["policy"], one["seed"]): one["metrics"]["jct_mean_censored"]
        for one in content["runs"]
    }

    def of(scenario, policy):
        return np.array([values[scenario, policy, seed] for seed in STUDY["seeds"]])

    fcfs, srtf = STUDY["policies"]
    expected = aggregate_paired_ratio(of("free", srtf), of("free", fcfs))
    (column,) = [c for c in content["scenarios"]["free"]["columns"] if c["label"] == srtf]
    assert column["ratio"]["jct_mean_censored"] == expected.value
    assert column["ratio_interval"]["jct_mean_censored"] == [expected.low, expected.high]
    assert content["scenarios"]["free"]["reference"] == fcfs
    expected = aggregate_paired_ratio(of("as measured", srtf), of("free", srtf))
    (column,) = [c for c in content["policies"][srtf]["columns"] if c["label"] == "as measured"]
    assert column["ratio_interval"]["jct_mean_censored"] == [expected.low, expected.high]


def test_the_page_has_tables_plots_hashes_versions_and_the_command(done):
    out, content = done
    page = (out / "study.md").read_text()
    assert content["command"] in page
    assert content["sha256"] in page
    assert content["digest"] in page
    assert f"clustergym {content['versions']['clustergym']}" in page
    for name in ("summary", "scenario-as-measured", "scenario-free", "policy-fcfs"):
        table = (out / "tables" / f"{name}.md").read_text().strip()
        assert table in page
        assert table.count("\n") == (out / "tables" / f"{name}.tex").read_text().count(" \\\\\n")
    for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page):
        assert (out / picture).is_file()
    rows = list(csv.DictReader((out / "runs.csv").read_text().splitlines()))
    assert [row["digest"] for row in rows] == [one["digest"] for one in content["runs"]]
    assert all((out / "runs" / row["folder"] / "result.json").is_file() for row in rows)


def test_plots_are_svg_and_pdf_and_the_same_each_time(done, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed: pip install 'clustergym[report]'")
    out, _ = done
    names = {"scenario-as-measured", "scenario-free", "policy-fcfs", "policy-srtf-policy-elastic-true"}
    drawn = {path.name: path.read_bytes() for path in (out / "plots").iterdir()}
    assert set(drawn) == {f"{name}.{suffix}" for name in names for suffix in ("svg", "pdf")}
    assert b"as measured" in drawn["policy-fcfs.svg"]
    assert drawn["policy-fcfs.pdf"].startswith(b"%PDF")
    assert main([str(out.parent / "study.yaml"), "--out", str(out)]) == 0
    assert {path.name: path.read_bytes() for path in (out / "plots").iterdir()} == drawn


def test_without_matplotlib_there_is_a_page_without_plots(done, monkeypatch, capsys):
    out, _ = done
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([str(out.parent / "study.yaml"), "--out", str(out)]) == 0
    assert "note: no plots without Matplotlib" in capsys.readouterr().err
    assert "![" not in (out / "study.md").read_text()


def test_finished_runs_are_not_run_again(tmp_path, capsys):
    small = {"scenarios": ["testbed"], "seeds": [0], "reference_scenario": None, "summary": None}
    path, out = save(tmp_path / "s.yaml", policies=["fcfs"], **small), tmp_path / "out"
    assert main([str(path), "--out", str(out)]) == 0
    assert "1 run, 0 finished before" in capsys.readouterr().out
    (first,) = (out / "runs").glob("*/result.json")
    before = first.stat().st_mtime_ns
    save(path, policies=["fcfs", "las"], **small)
    assert main([str(path), "--out", str(out)]) == 0
    assert "2 runs, 1 finished before" in capsys.readouterr().out
    assert first.stat().st_mtime_ns == before
    # What a label stands for has changed: an old result is not taken for the new one.
    save(path, policies={"fcfs": "sjf", "las": "las"}, **small)
    assert main([str(path), "--out", str(out)]) == 0
    assert "2 runs, 1 finished before" in capsys.readouterr().out
    assert json.loads(first.read_text())["policy"]["name"] == "sjf"


def test_joblib_gives_the_same_runs(done, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="pip install 'clustergym[sweep]'")
    _, content = done
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    path = save(tmp_path / "s.yaml", seeds=[0])
    assert main([str(path), *launcher, "--out", str(tmp_path / "o"), "--json", str(tmp_path / "j")]) == 0
    mine = json.loads((tmp_path / "j").read_text())["runs"]
    assert mine == [one for one in content["runs"] if one["seed"] == 0]


def test_a_failed_run_leaves_no_page_and_the_others_are_kept(tmp_path, capsys):
    path, out = save(tmp_path / "s.yaml", policies=["elasticflow", "fcfs"], seeds=[0]), tmp_path / "out"
    assert main([str(path), "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert "2 of them failed" in told
    assert "elasticflow" in told
    assert told.endswith("some runs failed, so no page is written (mend them, and run it again)\n")
    assert not (out / "study.md").exists()
    assert len(list((out / "runs").glob("*/result.json"))) == 2


@refused("study")
def test_a_bad_study_is_one_line_and_runs_nothing(given, said, tmp_path, capsys):
    path = save(tmp_path / "s.yaml", **given)
    assert main([str(path), "--out", str(tmp_path / "out")]) == 2
    said.check(error_line(capsys), tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("horizn_s=3", "horizn_s: unknown key"),
        ("hydra.sweep.dir=x", "'hydra.sweep.dir=x' is not for a study"),
        ("hydra/launcher=jobli", "hydra/launcher: unknown hydra/launcher 'jobli'"),
    ],
)
def test_a_bad_word_is_one_line(word, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([str(save(tmp_path / "s.yaml", seeds=[0])), word]) == 2
    assert told in error_line(capsys)


def test_latex_is_escaped():
    # 100 % of a_b & c is \% \_ \&; a bracket at the start of a row would be an argument of \\.
    assert escape_latex("100 % a_b & c") == "100 \\% a\\_b \\& c"
    table = TextTable("n", "title", ["policy", "JCT ↓"], [["[x]", "1.5"], ["y", "2"]], 1)
    assert table.latex == (
        "% title\n\\begin{tabular}{lr}\n\\toprule\npolicy & JCT $\\downarrow$ \\\\\n\\midrule\n"
        "{[}x] & 1.5 \\\\\ny & 2 \\\\\n\\bottomrule\n\\end{tabular}\n"
    )


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples/studies").glob("*.yaml")))
def test_the_examples_are_studies(name):
    study = read_study(ROOT / "examples" / "studies" / name)
    assert math.prod(map(len, (study.scenarios, study.policies, study.seeds))) == len(list(study.cells()))
    assert set(study.summary) <= set(study.scenarios)


def test_what_if_a_team_had_more_gpus(tmp_path, capsys):
    # Both teams ask for all 16 GPUs at once, for jobs of equal length; the quota says who waits for whom.
    (tmp_path / "even.yaml").write_text("queues: {a: {quota: 8}, b: {quota: 8}}")
    (tmp_path / "more.yaml").write_text("queues: {a: {quota: 16}, b: {}}")
    head = "job_id,submit_s,model_family,global_batch,iterations,gpus,virtual_cluster"
    jobs = [f"{team}{at},0,resnet50,6400,400,8,{team}" for team in "ab" for at in range(2)]
    (tmp_path / "jobs.csv").write_text("\n".join([head, *jobs, ""]))
    metrics = {"jct_mean_s of a": "mean JCT of a", "jct_mean_s of b": "of b", "tenant_owed_time": "owed"}
    path = save(
        tmp_path / "study.yaml",
        scenarios={team: f"ares scenario.queues={tmp_path / team}.yaml" for team in ("even", "more")},
        policies={"quotas": "quotas policy.within=fcfs"},
        settings=["cluster=ares-16", "trace=file", f"trace.path={tmp_path / 'jobs.csv'}"],
        seeds=[0],
        metrics=metrics,
        reference_policy=None,
        reference_scenario="even",
    )
    out = tmp_path / "out"
    assert main([str(path), "--out", str(out), "--json", str(tmp_path / "all.json")]) == 0
    even, more = (one["metrics"] for one in json.loads((tmp_path / "all.json").read_text())["runs"])
    # With a quota each, one job of each team runs first; with all of it a's two do, and b's after them.
    assert even["jct_mean_s of a"] == pytest.approx(even["jct_mean_s of b"], rel=0.02)
    assert more["jct_mean_s of a"] < even["jct_mean_s of a"] < more["jct_mean_s of b"]
    page = (out / "study.md").read_text()
    assert f"{more['jct_mean_s of a'] / even['jct_mean_s of a']:.2f}x" in page
    capsys.readouterr()
    path.write_text(path.read_text().replace("jct_mean_s of b", "jct_mean_s of c"))
    assert main([str(path), "--out", str(out)]) == 2
    assert "jct_mean_s of c: has no queue 'c' (valid: a, b)" in capsys.readouterr().err


@pytest.mark.parametrize(("better", "labels"), [("lower", "few many none"), ("higher", "many few none")])
def test_rows_are_ordered_best_first(better, labels):
    figures = {"many": {"m": SimpleNamespace(mean=9.0)}, "none": {}, "few": {"m": SimpleNamespace(mean=1.0)}}
    told = SimpleNamespace(information_class="none")
    columns = [SimpleNamespace(label=label, any=told) for label in figures]
    group = SimpleNamespace(columns=columns, figures=lambda column: figures[column.label])
    assert [
        one.label for one in order_columns(group, Metric("m", "s", better, "of something"))
    ] == labels.split()
