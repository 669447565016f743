"""The studies of Ares, Arnold and Crius: what they refuse, what they conclude, and short runs of each."""

import json
from pathlib import Path

import pytest
from clustergym.papers.arena_sections import SETTINGS
from clustergym.papers.ares import ares_figures
from clustergym.papers.ares_looks import decision_times
from clustergym.papers.ares_runs import (
    START,
    START_JOBS,
    TRACE_TYPES,
    AresRuns,
    build_run_scenario,
    trace_names,
)
from clustergym.papers.arnold_characterisation import MODELS
from clustergym.papers.claim_files import judge_claims
from clustergym.papers.claims import FAIR, PUBLISHED
from clustergym.papers.reproduce import main
from clustergym.papers.reproduction import Options, RunSpec
from published_data import DATA, needs

from clustergym.papers import ares, ares_runs, arnold

needs_data = needs("sia/profiles")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLUSTERGYM_DATA", raising=False)


def jct_only(jct_s):
    return dict.fromkeys(ares_runs.METRICS, 0.0) | {"jct_mean": jct_s}


def test_half_of_the_traces_of_a_kind_are_published():
    for kind, many in {"philly": 8, "helios": 8, "newtrace": 2}.items():
        names = trace_names(kind, quick=False)
        assert (len(set(names)), sum(" sia " in name for name in names)) == (many, many // 2)
        assert trace_names(kind, quick=True) == [f"{kind} sia 1"]


def test_alpha_is_judged_by_the_mean_of_ratios():
    # Of four traces one takes 90 instead of 100 s at 0.8 and a long one 2,000 instead of 1,000:
    # (0.9 + 2 + 2 x 1) / 4 = 1.225, whatever their lengths.
    study = AresRuns(Path(), False, ["ares"])
    found = {cell: jct_only(100.0) for alpha in study.alphas for cell in study.specs("philly", "ares", alpha)}
    for alpha in study.alphas:
        found[study.specs("philly", "ares", alpha)[1]] = jct_only(2000.0 if alpha == 0.8 else 1000.0)
    found[study.specs("philly", "ares", 0.8)[0]] = jct_only(90.0)
    relative = dict(zip(study.alphas, ares._relative(study, found, "philly"), strict=True))
    assert relative == pytest.approx({alpha: 1.225 if alpha == 0.8 else 1.0 for alpha in study.alphas})


@pytest.mark.parametrize(
    ("pollux_s", "gavel_s", "other", "share"),
    [(160.0, 200.0, "pollux", 0.375), (125.0, 200.0, "pollux", 0.2), (200.0, 80.0, "gavel", -0.25)],
)
def test_a_claim_is_held_against_the_best_other(pollux_s, gavel_s, other, share):
    study = AresRuns(Path(), True, ["ares", "gavel", "pollux"])
    seconds = {"ares": 100.0, "gavel": gavel_s, "pollux": pollux_s}
    found = {cell: jct_only(s) for policy, s in seconds.items() for cell in study.specs("philly", policy)}
    gain, further = study.gains(found, "philly", "jct_mean")
    assert gain.other == other
    assert gain.share == pytest.approx(share)
    assert further.share > gain.share


def test_a_policy_of_fewer_traces_is_held_against_ares_on_those():
    # Pollux is run on the first trace of newTrace: 80 s, where Ares takes 100 s, and 20 s on the other.
    study = AresRuns(Path(), False, ["ares", "pollux"])
    runs = study.specs("newtrace", "ares")
    found = {cell: jct_only(20.0) for cell in runs} | {runs[0]: jct_only(100.0)}
    (only,) = study.specs("newtrace", "pollux")
    found[only] = jct_only(80.0)
    assert (only.trace, len(runs)) == (runs[0].trace, 2)
    (gain,) = study.gains(found, "newtrace", "jct_mean")
    assert gain.share == pytest.approx(-0.25)
    assert ares._relative_jct(study, found, "newtrace", "pollux") == "+25 %"
    assert "| pollux (first 1 of 2) |" in ares._comparison(study, "newtrace").text(found)


class ByPolicy(dict):
    """Every run of a policy takes as long: the first number, on newTrace the second."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def __missing__(self, cell):
        first, second = self.seconds.get(cell.policy, (200.0, 200.0))
        return jct_only(second if cell.trace.startswith("newtrace") else first)


def test_the_claims_follow_the_figures(tmp_path):
    # Ares 100 s, Pollux 140 s: 1 - 100/140 = 28.6 % below, of 30.3 % claimed: reproduced to a tenth. On
    # newTrace Pollux takes 90 s: 11.1 % above. The gain there is 28.6 + 11.1 = 39.7 points less.
    study = AresRuns(tmp_path, True, list(ares_runs.POLICIES))
    found = ByPolicy({"ares": (100.0, 100.0), "pollux": (140.0, 90.0)})
    fairness = {"ares": [0.5, 0.9, 1.0, 1.2], "pollux": [0.5, 1.1, 1.2, 1.3]}
    runs = {name: {"fairness": values, "makespan_s": 100.0} for name, values in fairness.items()}
    timed = [
        {"gpus": gpus, "jobs_most": gpus, "decision_s_mean": s, "decision_s_p99": s, "under_limit": 1.0}
        for gpus, s in ((64, 0.001), (2048, 0.002))
    ]
    figures = ares_figures(study, found, runs, timed)
    claims = {claim.claim: claim for claim in judge_claims("ares", figures)}
    philly, newtrace = (claims[f"{kind}, mean JCT against the best other"] for kind in ("philly", "newtrace"))
    assert (philly.fair, philly.verdict) == (pytest.approx(-28.571, abs=1e-3), "reproduced")
    assert (newtrace.fair, newtrace.verdict) == (pytest.approx(11.111, abs=1e-3), "reversed")
    less = claims["gain in mean JCT on philly less that on newtrace"]
    assert less.fair == pytest.approx(39.683, abs=1e-3)
    assert less.verdict == "larger, as 'newtrace, mean JCT against the best other' is reversed"
    assert newtrace.why.startswith("pollux here. Not known")
    # Three of four jobs are no later than under fair sharing, one of Pollux's: 25 against 75 % late.
    assert claims["jobs faster than under fair sharing"].verdict == "smaller"
    assert claims["unfair fraction there against the best other"].fair == pytest.approx(-200 / 3)
    # With one time for all of them the first is the best.
    assert claims["alpha of least mean JCT"].fair == study.alphas[0]
    # All of the decisions are under 0.06 s, and the paper says the same.
    under = claims["decisions under 0.06 s at 2,048 GPUs"]
    assert (under.paper, under.fair, under.verdict) == (100.0, 100.0, "reproduced")
    assert claims["testbed and simulator differ by less than 5 %"].verdict == "not simulated"


def test_decisions_are_timed_once(tmp_path):
    options = Options(tmp_path, True, None, tmp_path / "work")
    first = decision_times(options, 64)
    # 40 jobs in two hours.
    assert 1 <= first["jobs_most"] <= 40
    assert 0 < first["decision_s_mean"] < 60
    assert first["decision_s_p99"] > 0
    assert decision_times(options, 64) == first


def test_arnold_is_judged_by_its_own_core():
    """The gains of 2.3 and 1.8 % are not reproduced by an oversubscription that the text does not have."""
    models = [model.name for model in MODELS]
    gains = {
        FAIR: {"pp_aligned": 0.023, "dp_aligned": 0.0},
        PUBLISHED: {"pp_aligned": 0.001, "dp_aligned": 0.0005},
    }
    figures = {}
    for setting, gain in gains.items():
        rows = [{"model": name, "layers": layers, "gain": gain} for name in models for layers in (16, 32)]
        figures[setting] = arnold._alignments(rows)
    figures[FAIR]["little_inside"] = False
    rows = {row.claim: row for row in judge_claims("arnold", figures | {"inside": 1.0}) if row.ours}
    dense, moe, none, both, grows, little, depends = rows.values()
    assert (dense.fair, dense.as_published) == (pytest.approx(2.3), pytest.approx(0.1))
    assert [row.main_verdict for row in (dense, moe, none)] == ["smaller", "smaller", "reproduced"]
    # By the text's core DP alignment gains too. The gain stays over the layers, and a minipod matters by 1 %.
    assert both.verdict == "reproduced (fair: reversed)"
    assert (grows.fair, little.verdict, depends.verdict) == (0.0, "reversed", "reversed")
    assert depends.why == "at 64 layers PP for dense; PP for MoE, 8 experts; PP for MoE, 48 experts"


@needs_data
def test_ares_quick_of_one_policy(capsys):
    argv = ["ares", "--quick", "--data", str(DATA), "--policies", "lucid", "--json", "figures.json"]
    assert main([*argv, "--work", "one"]) == 0
    text = Path("outputs/reproduction/quick/ares.md").read_text()
    rows = json.loads(Path("figures.json").read_text())["runs"]
    assert [row["trace"] for row in rows] == [f"{kind} sia 1" for kind in TRACE_TYPES]
    assert all(row["jobs_finished"] == START_JOBS for row in rows)
    assert f"| lucid | {rows[0]['jct_mean'] / 3600:.2f} |" in text
    capsys.readouterr()
    assert main([*argv, "--work", "one", "--out", "again.md"]) == 0
    assert "took" not in capsys.readouterr().err
    assert Path("again.md").read_text() == text


@needs_data
def test_a_quick_trace_is_the_start_of_the_whole():
    whole, start = (
        build_run_scenario(DATA, RunSpec("newtrace sia 1", None, setting, "ares"))
        for setting in ("whole", START)
    )
    assert (len(whole.trace), len(start.trace)) == (960, START_JOBS)
    assert start.trace.job_id == whole.trace.job_id[:START_JOBS]
    assert set(whole.trace.gpu_type) == {""}


@needs_data
@pytest.mark.nightly
def test_crius_quick_of_one_baseline(capsys):
    argv = ["crius", "--quick", "--data", str(DATA), "--policies", "fcfs", "--json", "figures.json"]
    assert main(argv) == 0
    assert "fcfs took" in capsys.readouterr().err
    rows = json.loads(Path("figures.json").read_text())["runs"]
    philly = [row for row in rows if row["trace"] == "philly"]
    assert [row["setting"] for row in philly] == list(SETTINGS)
    text = Path("outputs/reproduction/quick/crius.md").read_text()
    assert f"| fcfs | fair | {philly[0]['jobs_finished']} |" in text
    assert "-81.3 %" in text
    assert "Ablations" not in text
