"""The commands that measure what is reached in tiers, and what agents learn in them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import clustergym
from clustergym.envs.registration import make_env
from clustergym.scenario.registry import parse_policy

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
pytestmark = pytest.mark.compiled
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tiers(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import tiers

    monkeypatch.setattr(tiers, "TRACES", 3)
    monkeypatch.setattr(tiers.Judge.__init__, "__defaults__", (3,))
    yield tiers
    for name in ("tiers", "tier_table", "linear_scores"):
        sys.modules.pop(name, None)


def test_a_row_of_the_table(tiers, capsys, tmp_path):
    import tier_table

    path = tmp_path / "rows.json"
    assert tier_table.main(["knobs-16", "priority-16", "--traces", "3", "--json", str(path)]) == 0
    knobs, priority = json.loads(path.read_text(encoding="utf-8"))
    # An action of the one is an episode, and one of the other a decision point.
    assert (knobs["steps"], knobs["moves_share"]) == (1.0, 1.0)
    assert priority["steps"] == priority["decisions"] > 50
    env = make_env({"id": "ClusterGym/Knobs-16-v0"}).unwrapped
    rng, policy = np.random.default_rng(0), parse_policy("hesrpt round_s=300", "policy")
    scenarios = [env.episodes.choose({"trace_seed": 3 * at + 2}, rng) for at in range(3)]
    expected = np.mean([clustergym.simulate(one, policy).metrics["jct_mean"] for one in scenarios])
    assert knobs["heuristics_s"]["hesrpt"] == pytest.approx(expected)
    assert knobs["best_known_s"] == priority["best_known_s"] < knobs["random_s"]
    assert f"| {knobs['best_known_s'] / 3600:.3f} |" in capsys.readouterr().out


def test_without_draws_nothing_is_left_over_the_best_known_but_in_hindsight(tiers, tmp_path, monkeypatch):
    import tier_table

    monkeypatch.setattr(tier_table, "DRAWS", 0)
    monkeypatch.setattr(tier_table, "GENERATIONS", 2)
    path = tmp_path / "left.json"
    assert tier_table.main(["burst-16", "--left", "--traces", "2", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text(encoding="utf-8"))
    assert row["look_ahead"] == [1.0, 1.0, 1.0]
    assert row["hindsight"][0] < 1.0


def test_a_training_of_seeds_goes_on(tiers, tmp_path, capsys):
    words = ["knobs-16", "--env", "jobs=6", "--steps", "128", "--json"]
    for name, seeds in (("a", ("1", "2")), ("b", ("2",))):
        for number in seeds:
            assert tiers.main([*words, str(tmp_path / name), "--seeds", number]) == 0
    a, b = (json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in "ab")
    tested = [[row["test"] for row in found["seeds"]] for found in (a, b)]
    assert tested[0] == tested[1]
    assert len(tested[0]) == 2
    assert a["over_hesrpt"] == b["over_hesrpt"]
    assert a["over_hesrpt"][0] == pytest.approx(np.mean(tested[0]))
    capsys.readouterr()
    assert tiers.main([*words, str(tmp_path / "a"), "--learner", "by_job"]) == 2
    assert "is of another training" in capsys.readouterr().err


def test_training_traces_are_not_those_measured_on(tiers, tmp_path):
    path = tmp_path / "a"
    words = ["knobs-16", "--steps", "128", "--seeds", "1", "--json", str(path)]
    assert tiers.main([*words, "--env", "traces=5"]) == 0
    (row,) = json.loads(path.read_text(encoding="utf-8"))["seeds"]
    assert len(row["test"]) == 3


def test_sac_of_edits_is_refused_and_of_numbers_is_not(tiers, tmp_path, capsys):
    path = tmp_path / "a"
    words = ["knobs-16", "--learner", "sac", "--seeds", "1", "--steps", "110", "--json", str(path)]
    assert tiers.main(words) == 0
    curve = json.loads(path.read_text(encoding="utf-8"))["seeds"][0]["curve"]
    assert (curve[0][1], curve[-1][1]) == (0, 110)
    # It learns from the hundredth step on.
    assert curve[0][2] != curve[-1][2]
    assert tiers.main(["burst-16", "--learner", "sac"]) == 2
    assert "not edits (give stock)" in capsys.readouterr().err


def test_a_learner_of_shared_traces_trains_until_the_steps_are_taken(tiers, tmp_path):
    pytest.importorskip("cma", reason="cma is not installed")
    path = tmp_path / "a"
    settings = ["population=4", "traces=2", "num_envs=4"]
    words = ["burst-16", "--learner", "cma", "--seeds", "2", "--steps", "100", "--env", "jobs=3"]
    assert tiers.main([*words, "--set", *settings, "--json", str(path)]) == 0
    first, second = json.loads(path.read_text(encoding="utf-8"))["seeds"]
    for row in (first, second):
        assert (row["curve"][0][1], len(row["test"])) == (0, 3)
        assert row["curve"][-1][1] >= 100
    assert first["curve"] != second["curve"]


def test_weights_to_begin_with_are_for_ppo_whose_actions_are_weights(tiers, tmp_path, capsys):
    words = ["knobs-16", "--start", "elastic", "--steps", "8", "--seeds", "1"]
    words += ["--set", "num_envs=2", "n_steps=2", "batch_size=4", "n_epochs=1"]
    weights = ["--env", "jobs=6", "actions=weights"]
    assert tiers.main([*words, *weights]) == 0
    assert "over elastic: " in capsys.readouterr().out
    for others in (["--env", "jobs=6"], [*weights, "--learner", "sac"], [*weights, "--learner", "by_job"]):
        assert tiers.main([*words, *others]) == 2
        assert "--start: is for stock PPO whose actions are weights" in capsys.readouterr().err


def test_an_unknown_tier_is_one_line(tiers, capsys):
    assert tiers.main(["knobs-17"]) == 2
    assert "knobs-16" in capsys.readouterr().err


@pytest.mark.parametrize("learner", ["stock", "by_job", "cma"])
def test_an_unknown_setting_is_one_line(tiers, capsys, learner):
    assert tiers.main(["priority-16", "--learner", learner, "--seeds", "1", "--set", "no_setting=1"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: --set: unknown setting 'no_setting'")
