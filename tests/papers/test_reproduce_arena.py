"""What Arena's and Crius's pages are made of: padded JCTs, details of runs, changed settings, claims."""

import numpy as np
import pytest
from clustergym.papers.arena_figures import BASELINES, arena_figures, compare
from clustergym.papers.arena_scenarios import CHANGES, ROUND_S, make_run
from clustergym.papers.claim_files import judge_claims
from clustergym.papers.claims import FAIR, NOT_RUN, NOT_SIMULATED
from clustergym.papers.reproduction import compute_padded_jct, summarise_run
from scenarios import Job, small_scenario

from clustergym.papers import arena_sections, crius
from clustergym.results.measured_run import simulate
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import InformationClass

TIMES = {"m": {"X": {1: 10.0, 2: 6.0, 4: 5.0}}}


def jcts(*seconds):
    """Return the figures of a run whose finished jobs took so long."""
    mean = sum(seconds) / len(seconds) if seconds else None
    return {"jobs_finished": len(seconds), "jct_mean": mean, "jct_max": max(seconds, default=None)}


def test_lists_are_padded_to_the_reference_with_the_greatest_jct_of_all():
    # The greatest is slow's 40. slow: 40, 40, 40; some: (4 + 6 + 40) / 3; none: 40. more has 4 jobs: 7.
    runs = {"reference": jcts(10, 20, 30), "slow": jcts(40), "some": jcts(4, 6), "none": jcts()}
    runs["more"] = jcts(7, 7, 7, 7)
    found = compute_padded_jct(runs, "reference")
    assert found == pytest.approx({"reference": 20, "slow": 40, "some": 50 / 3, "none": 40, "more": 7})
    assert compute_padded_jct(runs, "none") == {}


def test_details_of_a_run():
    # a: 10 iterations of 10 s on 1 GPU; b waits for it and takes as long; 32 samples an iteration.
    jobs = [Job("a", 0, 10, priority=1), Job("b", 0, 10)]
    details = summarise_run(simulate(small_scenario(jobs, {"X": (1, 1)}, TIMES), "fcfs"))
    assert details["jct_max"] == 200.0
    assert details["gpu_s_per_sample"] == pytest.approx({"m- 32": 10 / 32})
    assert details["by_priority"] == {
        "0": {"jobs": 1, "jct_mean_so_far": 200.0, "queue_max": 100.0},
        "1": {"jobs": 1, "jct_mean_so_far": 100.0, "queue_max": 0.0},
    }


@pytest.fixture
def scenario():
    jobs = [Job("a", 100, 10, deadline_s=130), Job("b", 300, 20, deadline_s=400)]
    return small_scenario(jobs, {"X": (1, 4)}, TIMES)


@pytest.mark.parametrize(
    ("change", "value", "column", "expected"),
    [
        ("deadlines-x", 5.0, "deadline_s", [250, 800]),
        ("lifespan-x", 0.25, "iterations", [2, 5]),
        ("lifespan-x", 0.01, "iterations", [1, 1]),
        ("density-x", 2.0, "submit_s", [50, 150]),
    ],
)
def test_changes_of_a_trace(scenario, change, value, column, expected):
    assert getattr(CHANGES[change](scenario, value).trace, column).tolist() == expected


def test_lateness_is_drawn_by_seed(scenario):
    late = [CHANGES["jitter"](scenario, seed).trace.submit_s for seed in (0.0, 0.0, 1.0)]
    assert (late[0] == late[1]).all()
    assert (late[0] != late[2]).any()
    assert ((late[0] - np.array([100, 300]) >= 0) & (late[0] <= 300 + ROUND_S)).all()


@pytest.mark.parametrize(("precise", "expected"), [(1, [10, 5, 2.5]), (2, [10, 6, 3]), (3, [10, 6, 5])])
def test_the_knob_of_precise_data(scenario, precise, expected):
    # 10 s on 1 GPU, 6 on 2, 5 on 4; beyond what is precise, half the time on twice the GPUs.
    knob = CHANGES["precise"](scenario, float(precise))
    known = knob.known_times(InformationClass.BOOTSTRAP)
    assert known[0, 0].tolist() == pytest.approx(expected)
    assert np.array_equal(
        knob.known_times(InformationClass.PROFILED), scenario.known_times(InformationClass.PROFILED)
    )


def test_profiling_of_whole_plans(scenario):
    assert scenario.costs.profile == {}
    longer = CHANGES["full-profiling"](scenario, 1.0).costs.profile["profiled"].seconds
    assert longer == pytest.approx(18.1 * Costs().profile["profiled"].seconds)


def test_each_ablation_is_run_in_its_setting():
    runs = arena_sections.ablations(664).runs
    assert {spec.setting.partition(";")[0] == setting for (_, setting), spec in runs.items()} == {True}
    assert runs["without pruning: full search", FAIR].setting == f"{FAIR}; full-search"
    assert len({repr(spec) for spec in runs.values()}) == len(runs)


@pytest.mark.parametrize(
    ("paper", "figures"),
    [("arena", arena_figures({}, 664)), ("crius", crius.crius_figures({}, [664, 2000]))],
    ids=["arena", "crius"],
)
def test_claims_without_runs_say_so(paper, figures):
    rows = judge_claims(paper, figures)
    assert {row.verdict for row in rows} == {NOT_RUN, NOT_SIMULATED}
    assert all(row.why for row in rows if row.verdict == NOT_SIMULATED)
    assert len({(row.claim, row.source) for row in rows}) == len(rows)


def test_claims_on_deadlines():
    # arena meets 0.6 and elasticflow 0.3: 2 times, where the paper has 1.69. Padded: 10 against (5 + 10) / 2.
    names = ("deadline_satisfaction", "throughput_mean", "throughput_peak")
    figures = {
        "elasticflow": dict(zip(names, (0.3, 10.0, 20.0), strict=True)) | jcts(5),
        "arena": dict(zip(names, (0.6, 13.6, 10.0), strict=True)) | jcts(10, 10),
    }
    runs = arena_sections.deadlines().runs
    found = {spec: figures[name] for (name, setting), spec in runs.items() if setting == FAIR}
    judged = judge_claims("arena", arena_figures(found, 664))
    rows = [row for row in judged if row.source.startswith("section 5.6")]
    assert [row.fair for row in rows] == pytest.approx([2.0, 1.36, 0.5, 100 / 3])
    assert [row.as_published for row in rows] == [None] * 4
    assert [row.verdict for row in rows] == ["larger", "smaller", "reversed", "reversed"]


def test_runs_are_compared_with_each_other():
    # arena 100 s; fcfs 400 s, sia 80 s: -75 % at best, and 25 % above sia.
    figures = {"arena": 100.0, "fcfs": 400.0, "elasticflow-ls": 125.0, "gavel": 200.0, "sia": 80.0}
    specs = {name: make_run("testbed-a", None, FAIR, name) for name in ("arena", *BASELINES)}
    found = {specs[name]: {"jct_mean": jct, "throughput_mean": 1.0} for name, jct in figures.items()}
    seen = compare(found, specs)
    assert seen["greatest"]["jct_mean"] == pytest.approx(-75.0)
    against = [seen["change"]["arena"][name]["jct_mean"] for name in BASELINES]
    assert against == pytest.approx([-75.0, -20.0, -50.0, 25.0])
    assert seen["times"]["sia"]["arena"]["jct_mean"] == 0.8
    assert seen["greatest"]["throughput_mean"] == 1.0
    # Without one of them the greatest gain is not known, nor are figures that the runs lack.
    del found[specs["sia"]]
    assert compare(found, specs)["greatest"]["jct_mean"] is None
    assert compare(found, specs)["change"]["arena"]["fcfs"] == seen["change"]["arena"]["fcfs"]
    assert seen["greatest"]["queue_mean"] is None


def test_a_job_class_that_only_one_policy_ran_is_left_out():
    ours = {"m-1 32": 1.0, "m-2 32": 2.0, "k-1 8": 4.0}
    theirs = {"m-1 32": 3.0, "m-2 32": 2.0, "other-1 8": 9.0}
    cells = arena_sections.CLASS_RUNS
    found = {cells["arena"]: {"gpu_s_per_sample": ours}, cells["sia"]: {"gpu_s_per_sample": theirs}}
    assert arena_sections.gpu_time(found, "sia") == {"all": 2.0, "m": 2.0}
