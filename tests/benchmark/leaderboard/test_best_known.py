"""The search in hindsight, and what it writes."""

import numpy as np
import pytest
import yaml
from boards import flags, kinds
from error_lines import error_line
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_quotas import with_quotas
from random_scenarios import random_scenarios
from scenarios import Job, small_scenario

from clustergym.agents import auction_features as features
from clustergym.agents.auction_checkpoints import load
from clustergym.agents.plan import NAME, Plan, PlanPolicy
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_replay import FlagReason
from clustergym.benchmark.leaderboard.entry import read_entry, read_results
from clustergym.benchmark.leaderboard.score import standings
from clustergym.commands.leaderboard import main
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import simulate
from clustergym.training.auction_evolution import start
from clustergym.training.distribution import Distribution, draw_scenario
from clustergym.training.hindsight import GOALS, STARTS, Proposals, _deadlines_missed, _near, search
from clustergym.training.simulated_episodes import AuctionEpisode, plan_episodes

MOVES = Costs(search="proxy", profile={})


def best_known(root, *words) -> int:
    return main(["--root", str(root), "best-known", "small", "--workers", "1", *words])


def values(root, name=NAME) -> list[float]:
    return [row.metrics["jct_mean"] for row in read_results(root / "small" / name)]


def jct_s(scenario: Scenario, plan: Plan) -> np.ndarray:
    """Return the JCTs of a plan in the engine."""
    simulation = simulate(scenario, PlanPolicy(plan), make_placer({"name": "buddy"})).simulation
    found = np.full(len(scenario.trace), np.nan)
    for event in simulation.log.events:
        if event.event_type.value == "complete":
            found[event.job] = event.time_s - scenario.trace.submit_s[event.job]
    return found


def test_a_bias_moves_starts_and_doublings_by_hand():
    # One GPU, 10 s an iteration, no weights: of equal scores the first job's start is made, a runs for
    # 100 s and b, of one iteration, ends 10 s later. With a bias for b it starts first.
    scenario = small_scenario([Job("a", 0.0, 10), Job("b", 0.0, 1)], {"X": (1, 1)}, {"m": {"X": {1: 10.0}}})
    none, bias = np.zeros(features.COUNT), np.zeros((2, 1, 2))
    episode = AuctionEpisode.from_scenario(scenario, InformationClass.CLAIRVOYANT)
    assert episode.run(none, bias).tolist() == [100.0, 110.0]
    bias[1, 0, 0] = 1.0
    assert episode.run(none, bias).tolist() == [110.0, 10.0]
    assert jct_s(scenario, Plan(none, bias)).tolist() == [110.0, 10.0]
    # Two GPUs, twice as fast on both: a doubling must score above 0.
    scenario = small_scenario([Job("a", 0.0, 10)], {"X": (1, 2)}, {"m": {"X": {1: 10.0, 2: 5.0}}})
    episode, bias = AuctionEpisode.from_scenario(scenario, InformationClass.CLAIRVOYANT), np.zeros((1, 1, 2))
    assert episode.run(none, bias).tolist() == [100.0]
    bias[0, 0, 1] = 1.0
    assert episode.run(none, bias).tolist() == [50.0]


def test_a_job_that_is_kept_off_a_type_waits_for_another():
    # A job takes 100 s on X and 10 s on Y, of one GPU each, and is submitted while another, which runs on Y
    # alone, has 20 s to go. Kept off X it waits for Y: 20 + 10 s instead of 100 s.
    times = {"m": {"X": {1: 10.0}, "Y": {1: 1.0}}, "y": {"Y": {1: 1.0}}}
    jobs = [Job("first", 0.0, 20, family="y"), Job("second", 0.0, 10, family="m")]
    scenario = small_scenario(
        jobs, {"X": (1, 1), "Y": (1, 1)}, times, checkpoint_s={"m": 1000.0}, costs=MOVES
    )
    none, bias = np.zeros(features.COUNT), np.zeros((2, 2, 2))
    episode = AuctionEpisode.from_scenario(scenario, InformationClass.CLAIRVOYANT)
    assert episode.run(none, bias).tolist() == [20.0, 100.0]
    bias[1, 0, 0] = -np.inf
    assert episode.run(none, bias).tolist() == [20.0, 30.0]
    assert jct_s(scenario, Plan(none, bias)).tolist() == [20.0, 30.0]


def test_a_search_leaves_each_job_a_type_it_can_run_on():
    fits = np.array([[True, True], [False, True]])
    rng, plan = np.random.default_rng(0), Plan(np.zeros(features.COUNT), np.zeros((2, 2, 2)))
    kept_off = set()
    for _ in range(200):
        plan = _near(plan, fits, Proposals(types=0.5), rng)
        off = np.isneginf(plan.bias[:, :, 0])
        assert (fits & ~off).any(axis=1).all()
        kept_off |= {(job, kind) for job, kind in np.argwhere(off).tolist()}
    assert kept_off == {(0, 0), (0, 1)}


@settings(max_examples=25, deadline=None)
@given(scenario=random_scenarios(), seed=st.integers(0, 2**20))
def test_a_plan_is_carried_out_in_the_engine_as_in_the_search(scenario, seed):
    rng = np.random.default_rng(seed)
    bias = rng.normal(size=(len(scenario.trace), len(scenario.cluster.gpu_types), 2))
    plan = Plan(start() + rng.normal(size=features.COUNT) / 3, bias)
    played = AuctionEpisode.from_scenario(scenario, InformationClass.CLAIRVOYANT).run(*plan)
    assert played.tolist() == pytest.approx(jct_s(scenario, plan).tolist(), abs=1e-6)


@pytest.mark.parametrize("metric", GOALS)
def test_a_search_is_never_worse_than_its_starts_and_repeats_itself(metric):
    drawn = Distribution(
        origin="synthetic", jobs=(30, 40), gpus=16, load=(3.0, 3.0), deadline_slack=(0.5, 1.5)
    )
    scenario = draw_scenario(drawn, "train", 5, 0)
    names = ["aab"[row % 3] for row in range(len(scenario.trace))]
    scenario = with_quotas(scenario, {"a": 4, "b": 8}, names)
    evaluations = 120 if GOALS[metric].weighed else 60
    plans = [search(scenario, metric, evaluations, [7, cell]) for cell in (0, 0, 1)]
    assert all(np.array_equal(one, other) for one, other in zip(plans[0], plans[1], strict=True))
    assert not np.array_equal(plans[0].bias, plans[2].bias)
    jct_s_of, judged = plan_episodes(scenario), GOALS[metric].judge(scenario)
    none = np.zeros_like(plans[0].bias)
    starts = [Plan(load(name).weights, none) for name in STARTS]
    found = [judged(jct_s_of(plan)) for plan in [*plans, *starts]]
    assert found[0] < min(found[3:])


def test_deadlines_count_before_lateness():
    from clustergym.envs.scheduling_costs import ReferenceCostTimes

    # Due after 100 s: one job of three is late by 600 s, which counts 1 + 0.5 / 3 of three; two that are
    # late by next to nothing are worse, and on time is 0.
    yardsticks = ReferenceCostTimes(np.zeros(3), np.full(3, 100.0), np.zeros(3), np.zeros(3))
    value = _deadlines_missed
    assert value(np.array([100.0, 50.0, 700.0]), yardsticks) == pytest.approx((1 + 0.5 / 3) / 3)
    assert value(np.array([101.0, 101.0, 100.0]), yardsticks) > 2 / 3
    assert value(np.full(3, 100.0), yardsticks) == 0.0


def test_the_entry_is_checked_by_replay_and_stands_outside_all_divisions(root, capsys):
    assert best_known(root, "--evaluations", "40", "--seed", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["philly-5", "philly-6"]
    assert all("best entry short" in line for line in lines[:2])
    assert flags(root, NAME) == []
    assert flags(root, NAME, strict=2) == []
    board = load_board("small", root)
    entry = read_entry(board.folder / NAME, board)
    budget = {"evaluations": 40, "seed": 3, "types": 0.4, "weights": 0.2, "step": 0.05}
    assert entry.policy.parameters == {"philly-5": budget, "philly-6": budget}
    assert entry.hindsight
    assert entry.command.endswith(
        "best-known small --evaluations 40 --seed 3 --types 0.4 --weights 0.2 --step 0.05"
    )
    # srtf does not scale jobs; the auction does.
    assert all(mine < other for mine, other in zip(values(root), values(root, "short"), strict=True))
    assert [one.name for one in standings(board)] == ["short", "first"]
    assert main(["--root", str(root), "render", "small"]) == 0
    for page in ("README.md", "index.html"):
        text = (root / "small" / page).read_text()
        assert "found in hindsight: mean jct_mean" in text
        assert "40 episodes of each cell" in text


def test_a_cell_keeps_its_schedule_until_a_better_one_is_found(root, capsys):
    assert best_known(root, "--evaluations", "1", "--cells", "philly-6") == 0
    assert kinds(root, NAME) == {FlagReason.MISSING_CELL}
    first = values(root)
    assert best_known(root, "--evaluations", "60", "--cells", "philly") == 0
    assert kinds(root, NAME) == set()
    before = values(root)
    assert before[1] < first[0]
    log = (root / "small" / NAME / "decisions.jsonl.gz").read_bytes()
    capsys.readouterr()
    assert best_known(root, "--evaluations", "1") == 0
    assert "kept" in capsys.readouterr().out
    assert values(root) == before
    assert (root / "small" / NAME / "decisions.jsonl.gz").read_bytes() == log
    parameters = yaml.safe_load((root / "small" / NAME / "entry.yaml").read_text())["policy"]["parameters"]
    assert {budget["evaluations"] for budget in parameters.values()} == {60}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cells", "philly-7"], "'philly-7' is no cell of small (did you mean philly-"),
        (["--evaluations", "0"], "give at least 1"),
        (["--seed", "-1"], "a seed from 0"),
        (["--types", "1.5"], "--types: 1.5"),
        (["--workers", "0"], "give at least 1"),
    ],
)
def test_bad_options_are_one_line(root, capsys, words, said):
    assert main(["--root", str(root), "best-known", "small", *words]) == 2
    assert said in error_line(capsys)
    assert not (root / "small" / NAME).exists()


def test_other_boards_and_folders_are_refused(root, placers, capsys):
    assert main(["--root", str(placers), "best-known", "placers"]) == 2
    assert "plans schedules for jct_mean, ftf_mean, tenant_ftf_mean, deadline_satisfaction" in error_line(
        capsys
    )
    path = root / "small" / "board.yaml"
    text = path.read_text()
    path.write_text(text.replace("metric: jct_mean", "metric: makespan"))
    assert best_known(root) == 2
    assert "plans schedules for" in error_line(capsys)
    path.write_text(text)
    (root / "small" / "short").rename(root / "small" / NAME)
    assert best_known(root) == 2
    assert "is not of a search in hindsight (remove the folder)" in error_line(capsys)
