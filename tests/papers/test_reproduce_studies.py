"""The studies of Ares, Arnold and Crius: what they refuse, what they conclude, and short runs of each."""

import json
from pathlib import Path

import pytest
from clustergym.papers.arena_sections import SETTINGS
from clustergym.papers.ares import ares_figures
from clustergym.papers.ares_causes import Causes, decision_times
from clustergym.papers.ares_runs import (
    OWN,
    START,
    START_JOBS,
    TRACE_TYPES,
    AresRuns,
    bent,
    build_run_scenario,
    compute_offered_load,
    request_efficiency,
    trace_names,
)
from clustergym.papers.arnold_ablation import EVEN_CORE
from clustergym.papers.arnold_characterisation import MODELS
from clustergym.papers.claim_files import judge_claims
from clustergym.papers.claims import FAIR, PUBLISHED
from clustergym.papers.page import Panel, panel_plot
from clustergym.papers.reproduce import main
from clustergym.papers.reproduction import Options, RunSpec
from published_data import DATA, needs
from scenarios import Job, small_scenario

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
    own = study.specs("newtrace", OWN)
    found = {cell: jct_only(20.0) for cell in [*runs, *own]} | {runs[0]: jct_only(100.0)}
    (only,) = study.specs("newtrace", "pollux")
    found[only] = jct_only(80.0)
    assert (only.trace, len(runs)) == (runs[0].trace, 2)
    (gain,) = study.gains(found, "newtrace", "jct_mean")
    assert gain.share == pytest.approx(-0.25)
    assert ares._relative_jct(study, found, "newtrace", "pollux") == "+25 %"
    assert "| pollux (first 1 of 2) |" in ares._comparison(study, "newtrace").text(found)


def test_our_own_variant_is_a_row_but_no_policy_to_beat():
    study = AresRuns(Path(), True, ["ares", "lucid"])
    assert study.rows == ["ares", "lucid", OWN]
    assert study.specs("philly", OWN)[0].label == OWN
    assert AresRuns(Path(), True, ["lucid"]).rows == ["lucid"]


def test_efficiencies_are_bent_at_the_same_gpu_time_and_load():
    # a on 1, 2, 4 GPUs: 8, 5, 4 s, so efficiencies 1, .8, .5. To the power .5 on 4: .7071, so 8 / (4 x
    # .7071) = 2.8284 s. It asks for 4: its 1,000 iterations of 4 s, 16,000 GPU s, become 1,414 of 2.8284 s.
    times = {"m": {"X": {1: 8.0, 2: 5.0, 4: 4.0}}}
    jobs = [Job("a", 0, 1000, gpus=4), Job("b", 1000, 500, gpus=1)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times)
    # a 16,000 and b 4,000 GPU s on 4 GPUs in 1,000 s: a load of 5.
    assert compute_offered_load(scenario) == pytest.approx(5.0)
    assert request_efficiency(scenario) == pytest.approx(0.75)
    changed = bent(scenario, 0.5, 2.0)
    assert changed.tables.execution[0, 0, :, 0] == pytest.approx([8.0, 4 / 0.8**0.5, 2.8284], rel=1e-4)
    assert changed.trace.iterations.tolist() == [1414, 500]
    assert changed.trace.submit_s.tolist() == pytest.approx([0.0, 2500.0])
    assert compute_offered_load(changed) == pytest.approx(2.0, rel=1e-3)
    same = bent(scenario, 1.0, 5.0)
    assert same.sha256 == scenario.sha256


def test_the_map_names_who_is_first(tmp_path):
    causes = Causes(AresRuns(tmp_path, True, []))
    seconds = dict(zip(causes.point("philly sia 1", 1.0, 1.0), (100.0, 90.0, 80.0), strict=True))
    for power, load in ((1.0, 2.0), (0.25, 1.0), (0.25, 2.0)):
        seconds |= dict(zip(causes.point("philly sia 1", power, load), (100.0, 145.0, 103.0), strict=True))
    found = {cell: jct_only(s) for cell, s in seconds.items()}
    assert causes.compute_ratios(found, 1.0, 1.0) == pytest.approx([1.0, 0.9, 0.8])
    assert "| 1 | 1 | 0.90 | 0.80 | pollux | work-conserving form |" in causes.map().text(found)
    assert "| 0.25 | 2 | 1.45 | 1.03 | ares | ares |" in causes.map().text(found)


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
    figures = ares_figures(Causes(study), found, runs, timed, 0.8)
    claims = {claim.claim: claim for claim in judge_claims("ares", figures)}
    philly, newtrace = (claims[f"{kind}, mean JCT against the best other"] for kind in ("philly", "newtrace"))
    assert (philly.fair, philly.verdict) == (pytest.approx(-28.571, abs=1e-3), "reproduced")
    assert (newtrace.fair, newtrace.verdict) == (pytest.approx(11.111, abs=1e-3), "reversed")
    less = claims["gain in mean JCT on philly less that on newtrace"]
    assert less.fair == pytest.approx(39.683, abs=1e-3)
    assert less.verdict == "larger, as 'newtrace, mean JCT against the best other' is reversed"
    assert "with the request as Pollux's floor -29 %" in philly.why
    assert newtrace.why.startswith("pollux here. Not known")
    # Three of four jobs are no later than under fair sharing, one of Pollux's: 25 against 75 % late.
    assert claims["jobs faster than under fair sharing"].verdict == "smaller"
    assert claims["unfair fraction there against the best other"].fair == pytest.approx(-200 / 3)
    assert claims["alpha of least mean JCT"].verdict == "reproduced"
    # All of the decisions are under 0.06 s, and the paper says the same.
    under = claims["decisions under 0.06 s at 2,048 GPUs"]
    assert (under.paper, under.fair, under.verdict) == (100.0, 100.0, "reproduced")
    assert claims["testbed and simulator differ by less than 5 %"].verdict == "not simulated"


def test_decisions_are_timed_once(tmp_path):
    options = Options(tmp_path, True, None, tmp_path / "work")
    first = decision_times(options, 64)
    # A round a minute for two hours, and 40 jobs: 20 an hour.
    assert (first["decisions"], first["jobs_per_hour"]) == (120, 20.0)
    # One slow decision can lift the mean above the 99th percentile.
    assert 0 < first["decision_s_mean"] <= first["decision_s_max"] < 60
    assert 0 < first["decision_s_p99"] <= first["decision_s_max"]
    assert decision_times(options, 64) == first


def test_a_plot_is_the_same_bytes_each_time(tmp_path):
    lines = Panel("t", "x", "y", (1.0, 2.0), {"a": (1.0, 3.0)}, band=(1.2, 1.5), log_x=True)
    bars = Panel("t", "", "y", (), {"a": (1.0,), "b": (2.0,)})
    for name in ("one.svg", "two.svg"):
        panel_plot([lines, bars])(tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert "<svg" in (tmp_path / "one.svg").read_text()


def test_arnold_is_judged_by_its_own_core():
    """The gains of 2.3 and 1.8 % are not reproduced by an oversubscription that the text does not have."""
    aligned = {"DP": {"pp_aligned": 0.01, "dp_aligned": 0.02}, "PP": {"pp_aligned": 0.023, "dp_aligned": 0.0}}
    models = [model.name for model in MODELS]
    found = {
        "two_minipods": [
            {"model": name, "layers": 16, "gain": aligned["PP"]} for name in models for _ in range(2)
        ],
        "core_factors": {
            "1.0": {name: aligned["PP"] for name in models},
            "1.5": {name: aligned["DP"] for name in models},
        },
        "inside_a_minipod": {"dense": 0.01},
    }
    even = {"rule": EVEN_CORE, "pp_aligned": 0.001, "dp_aligned": 0.0005}
    rules = (even, even | {"rule": "static routes, 1:1"})
    ablation = {"two_minipods": [one | {"model": name} for one in rules for name in models[:2]]}
    figures = arnold.compare_alignments(found, ablation)
    inside = arnold._statements(found)
    for setting in (FAIR, PUBLISHED):
        figures[setting] |= inside[setting]
    rows = {row.claim: row for row in judge_claims("arnold", inside | figures) if row.ours}
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
    assert Path("outputs/reproduction/quick/ares-jct.svg").is_file()
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
