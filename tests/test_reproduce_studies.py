"""The studies of Ares, Arnold and Crius: what they refuse, what they conclude, and short runs of each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clustergym.reproduce import main
from clustergym.reproduction import ares, arnold, crius
from clustergym.reproduction.ares_scenarios import KINDS, START, START_JOBS, scenario_of, trace_names
from clustergym.reproduction.line_plots import LinePlot, Panel
from clustergym.reproduction.study import Cell, Options

DATA = Path(os.environ.get("CLUSTERGYM_DATA", Path(__file__).parents[2] / "shared" / "data"))
needs_data = pytest.mark.skipif(
    not (DATA / "sia" / "profiles").is_dir(), reason=f"{DATA} is not here; set CLUSTERGYM_DATA"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLUSTERGYM_DATA", raising=False)


def jct_only(jct_s):
    return dict.fromkeys(ares.METRICS, 0.0) | {"jct_mean": jct_s}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["ares"],
            "error: ../shared/data/sia/workloads/philly/workload-1.csv: no such file (name the folder",
        ),
        (["crius"], "error: ../shared/data/arena/arena_profile.csv: no such file (name the folder"),
        (["arnold", "--policies", "fcfs"], "error: --policies: placement runs all its algorithms (leave it"),
    ],
)
def test_bad_input_is_one_line(argv, message, capsys, tmp_path):
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith(message)
    assert not list(tmp_path.iterdir())


def test_eight_traces_of_each_kind_half_of_them_published():
    for kind in KINDS:
        names = trace_names(kind, quick=False)
        assert (len(set(names)), sum(" sia " in name for name in names)) == (8, 4)
        assert trace_names(kind, quick=True) == [f"{kind} sia 1"]


def test_alpha_is_judged_by_the_mean_of_ratios():
    # Of eight traces one takes 90 instead of 100 s at 0.8 and a long one 2,000 instead of 1,000:
    # (0.9 + 2 + 6 x 1) / 8 = 1.1125, whatever their lengths.
    study = ares.Study(False, ["ares"], [])
    found = {cell: jct_only(100.0) for alpha in study.alphas for cell in study.cells("philly", "ares", alpha)}
    for alpha in study.alphas:
        found[study.cells("philly", "ares", alpha)[1]] = jct_only(2000.0 if alpha == 0.8 else 1000.0)
    found[study.cells("philly", "ares", 0.8)[0]] = jct_only(90.0)
    relative = dict(zip(study.alphas, ares._relative(study, found, "philly"), strict=True))
    assert relative == pytest.approx({alpha: 1.1125 if alpha == 0.8 else 1.0 for alpha in study.alphas})


@pytest.mark.parametrize(
    ("pollux_s", "gavel_s", "other", "share", "sentence"),
    [
        (160.0, 200.0, "pollux", 0.375, "holds, with a margin of 38 % over pollux."),
        (125.0, 200.0, "pollux", 0.2, "Ares is first, by 20 % over pollux instead of 30 %."),
        (200.0, 80.0, "gavel", -0.25, "does not hold here, as Ares is 25 % above gavel."),
    ],
)
def test_a_claim_is_held_against_the_best_other(pollux_s, gavel_s, other, share, sentence):
    study = ares.Study(True, ["ares", "gavel", "pollux"], [])
    seconds = {"ares": 100.0, "gavel": gavel_s, "pollux": pollux_s}
    found = {cell: jct_only(s) for policy, s in seconds.items() for cell in study.cells("philly", policy)}
    gain = ares._gain(study, found, "philly", "jct_mean")
    assert gain.other == other
    assert gain.share == pytest.approx(share)
    assert ares._gap("mean JCT", "philly", 0.303, gain).startswith(f"mean JCT, philly: {sentence}")


def test_a_policy_of_fewer_traces_is_held_against_ares_on_those():
    # Pollux is run on the first trace of newTrace: 80 s, where Ares takes 100 s, and 20 s on the others.
    study = ares.Study(False, ["ares", "pollux"], [])
    runs = study.cells("newtrace", "ares")
    own = study.cells("newtrace", ares.OWN)
    found = {cell: jct_only(20.0) for cell in [*runs, *own]} | {runs[0]: jct_only(100.0)}
    (only,) = study.cells("newtrace", "pollux")
    found[only] = jct_only(80.0)
    assert (only.trace, len(runs)) == (runs[0].trace, 8)
    assert ares._gain(study, found, "newtrace", "jct_mean").share == pytest.approx(-0.25)
    assert ares._relative_jct(study, found, "newtrace", "pollux") == "+25 %"
    assert "| pollux (first 1 of 8) |" in ares._comparison(study, found, "newtrace")


def test_our_own_variant_is_a_row_but_no_policy_to_beat():
    study = ares.Study(True, ["ares", "lucid"], [])
    assert study.rows == ["ares", "lucid", ares.OWN]
    assert study.cells("philly", ares.OWN)[0].label == ares.OWN
    assert ares.Study(True, ["lucid"], []).rows == ["lucid"]


def test_decisions_are_timed_once(tmp_path):
    options = Options(tmp_path, True, None, tmp_path / "work")
    first = ares._decision_times(options, 64)
    # A round a minute for two hours, and 40 jobs: 20 an hour.
    assert (first["decisions"], first["jobs_per_hour"]) == (120, 20.0)
    # One slow decision can lift the mean above the 99th percentile.
    assert 0 < first["decision_s_mean"] <= first["decision_s_max"] < 60
    assert 0 < first["decision_s_p99"] <= first["decision_s_max"]
    assert ares._decision_times(options, 64) == first


def test_a_plot_is_the_same_bytes_each_time(tmp_path):
    lines = Panel("t", "x", "y", (1.0, 2.0), {"a": (1.0, 3.0)}, band=(1.2, 1.5), log_x=True)
    bars = Panel("t", "", "y", (), {"a": (1.0,), "b": (2.0,)}, bars=True)
    for name in ("one.svg", "two.svg"):
        LinePlot([lines, bars])(tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert "<svg" in (tmp_path / "one.svg").read_text()


def test_arnold_quick(capsys):
    assert main(["arnold", "--quick", "--json", "figures.json"]) == 0
    capsys.readouterr()
    text = Path("docs/reproduction/arnold-quick.md").read_text()
    (figures,) = json.loads(Path("figures.json").read_text())["runs"]
    most = figures["summary"]["greatest_ratio"]
    assert f"| best baseline's score over Arnold's, most | 1.67 | {most:.2f} |" in text
    assert 1.0 < most < 2.0
    assert max(figures["characterisation"]["inside_a_minipod"].values()) <= 0.003
    assert "Inside one minipod: agrees." in text
    assert Path("docs/reproduction/arnold-quick.svg").is_file()
    assert main(["arnold", "--quick", "--out", "again.md"]) == 0
    assert Path("again.md").read_text() == text


def test_arnold_verdicts_follow_the_figures():
    found = {"inside_a_minipod": {"dense": 0.01}, "two_minipods": [], "core_oversubscription": 2.0}
    gains = {"gain": {"pp_aligned": 0.01, "dp_aligned": 0.02}, "communication_share": 0.4}
    found["two_minipods"] = [{"model": model, **gains} for model in arnold.ALIGNED]
    factors = {model: {"pp_aligned": 0.0} for model in arnold.ALIGNED}
    found["core_factors"] = {"1.25": factors, "4.0": factors}
    dense, _, inside = arnold._alignment(found)
    assert "PP alignment is not the better and its gain does not grow" in dense[1]
    assert inside[1] == "Inside one minipod: does not agree."


@needs_data
def test_ares_quick_of_one_policy(capsys):
    argv = ["ares", "--quick", "--data", str(DATA), "--policies", "lucid", "--json", "figures.json"]
    assert main([*argv, "--work", "one"]) == 0
    text = Path("docs/reproduction/ares-quick.md").read_text()
    rows = json.loads(Path("figures.json").read_text())["runs"]
    assert [row["trace"] for row in rows] == [f"{kind} sia 1" for kind in KINDS]
    assert all(row["jobs_finished"] == START_JOBS for row in rows)
    assert f"| lucid | {rows[0]['jct_mean'] / 3600:.2f} |" in text
    assert Path("docs/reproduction/ares-quick-jct.svg").is_file()
    capsys.readouterr()
    assert main([*argv, "--work", "one", "--out", "again.md"]) == 0
    assert "took" not in capsys.readouterr().err
    assert Path("again.md").read_text() == text


@needs_data
def test_a_quick_trace_is_the_start_of_the_whole():
    whole, start = (
        scenario_of(DATA, Cell("newtrace sia 1", None, setting, "ares")) for setting in ("whole", START)
    )
    assert (len(whole.trace), len(start.trace)) == (960, START_JOBS)
    assert start.trace.job_id == whole.trace.job_id[:START_JOBS]
    assert set(whole.trace.gpu_type) == {""}


@needs_data
def test_crius_quick_of_one_baseline(capsys):
    argv = ["crius", "--quick", "--data", str(DATA), "--policies", "fcfs", "--json", "figures.json"]
    assert main(argv) == 0
    assert "fcfs took" in capsys.readouterr().err
    rows = json.loads(Path("figures.json").read_text())["runs"]
    philly = [row for row in rows if row["trace"] == "philly"]
    assert [row["setting"] for row in philly] == list(crius.SETTINGS)
    text = Path("docs/reproduction/crius-quick.md").read_text()
    assert f"| fcfs | fair | {philly[0]['jobs_finished']} |" in text
    assert "-81.3 %" in text
    assert "Ablations" not in text
