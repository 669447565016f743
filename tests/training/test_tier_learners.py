"""A learner of benchmarks/tiers.py: CMA-ES over linear scores."""

import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from clustergym.envs.episodes import trace_seed
from clustergym.envs.registration import register_envs

pytest.importorskip("torch")
pytest.importorskip("cma", reason="cma is not installed")
pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
pytestmark = pytest.mark.compiled
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from linear_scores import Evolution, LinearSearch, make_scores  # noqa: E402


def make_envs(name: str, number: int, **parameters):
    register_envs()
    parameters = {"jobs": 6, "loads": (4.0,), **parameters}
    return gymnasium.make_vec(
        f"ClusterGym/{name}", num_envs=number, observation="flat", autoreset_mode="Disabled", **parameters
    )


def exchange(features, observations):
    """Exchange the first two rows of every table of rows; those of other tables stay."""
    tables = features.unpack(observations.copy())
    rows = tables["jobs"].shape[1]
    order = np.array([1, 0, *range(2, rows)])
    parts = [part[:, order] if part.shape[1] == rows else part for part in tables.values()]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1), order


def begin(envs, rounds: int):
    """Return observations and masks after some rounds of random play, at which two jobs have a row."""
    seen, _ = envs.reset(seed=3)
    for _ in range(rounds):
        seen, *_ = envs.step(envs.sample_actions())
    assert (envs.single.features.unpack(seen)["jobs"][:, :2, 0] > 0).all()
    return seen, envs.action_masks()


@pytest.mark.parametrize("name", ["Burst-16-v0", "Priority-16-v0"])
def test_linear_scores_of_exchanged_rows_are_exchanged(name):
    envs = make_envs(name, 3)
    scores = make_scores(envs, 0)
    seen, masks = begin(envs, 6)
    weights = np.random.default_rng(0).normal(size=(3, scores.number))
    other, order = exchange(envs.single.features, seen)
    play = (lambda one: scores.score(one, weights)[:, :-1]) if name == "Burst-16-v0" else None
    play = play or (lambda one: scores.decide(one, masks, weights))
    first, second = (play(one).reshape(3, len(order), -1) for one in (seen, other))
    assert second == pytest.approx(first[:, order], abs=1e-9)
    assert np.isfinite(first[:, :2]).all()
    assert (first[:, 0] != first[:, 1]).any()


def test_the_best_legal_edit_is_played_and_of_equal_ones_stop():
    envs = make_envs("Burst-16-v0", 2)
    scores = make_scores(envs, 0)
    seen, masks = begin(envs, 6)
    weights = np.zeros((2, scores.number))
    assert scores.decide(seen, np.ones_like(masks), weights).tolist() == [masks.shape[1] - 1] * 2
    masks[:, -1] = 0
    assert scores.decide(seen, masks, weights).tolist() == masks.argmax(1).tolist()
    # With a bias for stopping below 0 an edit of those that are legal.
    masks[:, -1], weights[:, -1] = 1, -1.0
    assert scores.decide(seen, masks, weights).tolist() == masks.argmax(1).tolist()


def test_candidates_play_all_traces_whatever_the_number_of_environments():
    seeds, found = [trace_seed("train", at) for at in (0, 4, 7)], []
    for number in (2, 6, 7):
        envs = make_envs("Priority-16-v0", number, split="train")
        search = LinearSearch(envs, Evolution(), 0)
        # The scale of the scores is of random play, which differs between numbers of environments.
        search.scores.decide = lambda seen, masks, weights: np.tile(weights[:, :1], masks.shape[1])
        found.append(search.play(np.array([[0.5], [-0.5]]), seeds))
        envs.close()
    assert found[0].tolist() == found[1].tolist() == found[2].tolist()
    # With priorities below 0 no job gets more GPUs than it began with.
    assert (found[0][1] > found[0][0]).all()


def test_a_search_goes_towards_the_better_candidates():
    envs = make_envs("Burst-16-v0", 4, split="train")
    search, found = LinearSearch(envs, Evolution(population=8, traces=2, among=5), 0), []

    def play(candidates, seeds):
        search.num_timesteps += 10
        costs = ((candidates - 1.0) ** 2).sum(1)
        found.append((costs.mean(), seeds))
        return np.stack([costs, costs], axis=1)

    search.play = play
    search.learn(1_000, 1_000)
    assert len(found) == 100
    assert found[-1][0] < 0.5 * found[0][0]
    drawn = [seeds for _, seeds in found]
    assert all(len(set(seeds)) == 2 for seeds in drawn)
    assert {one for seeds in drawn for one in seeds} == {trace_seed("train", at) for at in range(5)}
