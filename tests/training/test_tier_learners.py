"""Learners of benchmarks/tiers.py: CMA-ES over linear scores, and Decima's network and baseline."""

import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from clustergym.common.errors import InputError
from clustergym.envs.episodes import trace_seed
from clustergym.envs.registration import register_envs

torch = pytest.importorskip("torch")
pytest.importorskip("cma", reason="cma is not installed")
pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
pytestmark = pytest.mark.compiled
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from decima import DecimaLearner, DecimaNetwork, Episodes, Reinforce, baselines  # noqa: E402
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


def test_the_baseline_is_the_mean_return_at_the_same_time():
    # The first rollout acts at 0 s, twice at 10 s, and ends at 20 s; the second at 0 and 30 s, to 40 s.
    times = [np.array([0.0, 10.0, 10.0]), np.array([0.0, 30.0])]
    to_come = [np.array([-6.0, -4.0, -4.0]), np.array([-9.0, -3.0])]
    first, second = baselines(times, to_come, [20.0, 40.0])
    # At 10 s the second has -7 to come, between -9 at 0 s and -3 at 30 s; at 30 s the first is over.
    assert first == pytest.approx([-7.5, -5.5, -5.5])
    assert second == pytest.approx([-7.5, -1.5])


def test_advantages_of_a_group_are_of_its_own_trace():
    # Environments 0 and 1 share a trace, 2 and 3 another one, of twice the cost.
    of = np.array([0, 1, 2, 3, 0, 1])
    times, rewards = np.array([0.0, 0, 0, 0, 10, 10]), np.array([-1.0, -2, -8, -6, -3, -6])
    episodes = Episodes(None, None, of, times, rewards, np.array([20.0, 20, 5, 5]))
    assert episodes.advantages(2) == pytest.approx([2.0, -2.0, -1.0, 1.0, 1.5, -1.5])


@pytest.mark.parametrize("name", ["Burst-16-v0", "Priority-16-v0"])
def test_decimas_scores_of_exchanged_rows_are_exchanged(name):
    envs = make_envs(name, 3)
    seen, _ = begin(envs, 6)
    torch.manual_seed(0)
    network = DecimaNetwork(envs.single.features, envs.single_action_space)
    torch.nn.init.normal_(network.score[-1].weight)
    torch.nn.init.normal_(network.stop[-1].weight)
    other, order = exchange(envs.single.features, seen)
    found = []
    with torch.no_grad():
        for one in (seen, other):
            rows = network.read_rows(one)
            head, _, stop = network(rows)
            found.append((rows.spread(head).numpy(), stop.numpy()))
    assert found[1][0] == pytest.approx(found[0][0][:, order], abs=1e-5)
    assert found[1][1] == pytest.approx(found[0][1], abs=1e-5)
    assert np.abs(found[0][0][:, 0] - found[0][0][:, 1]).max() > 1e-3


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


@pytest.mark.parametrize("name", ["Burst-16-v0", "Priority-16-v0"])
def test_decimas_update_makes_rollouts_that_were_better_more_likely(name):
    envs = make_envs(name, 4, split="train", jobs=3)
    learner = DecimaLearner(envs, Reinforce(rollouts=2, ent_coef=0.0, learning_rate=1e-3), 0)
    episodes = learner.collect()
    assert learner.num_timesteps == 4 * np.bincount(episodes.of).max()
    gain = torch.from_numpy(episodes.advantages(2))
    rows = learner.policy.scale(episodes.rows)

    def weighted() -> float:
        with torch.no_grad():
            return float((gain * learner._log_probs(rows, episodes.choices)[0]).mean())

    before = weighted()
    learner.update(episodes, 1.0)
    assert weighted() > before


def test_rollouts_that_cannot_be_grouped_are_refused():
    with pytest.raises(InputError, match=r"num_envs: 3 cannot be grouped.*multiple of rollouts=2"):
        DecimaLearner(make_envs("Burst-16-v0", 3), Reinforce(rollouts=2), 0)


def test_gradients_that_are_no_numbers_are_refused():
    learner = DecimaLearner(make_envs("Burst-16-v0", 2, split="train", jobs=2), Reinforce(rollouts=2), 0)
    episodes = learner.collect()
    with torch.no_grad():
        learner.policy.score[-1].weight.fill_(float("inf"))
    with pytest.raises(InputError, match=r"learning_rate: makes gradients too large.*give a lower one"):
        learner.update(episodes, 1.0)
