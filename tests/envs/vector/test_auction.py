"""A trained auction is an agent of the environment of scores: same digest as the policy `learned`."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from clustergym.policies.learned import Learned

import clustergym  # noqa: F401  registers the environments
from clustergym.agents import auction, auction_features
from clustergym.agents.auction_checkpoints import load
from clustergym.common.errors import InputError
from clustergym.scenario.registry import make_placer
from clustergym.sim.drive import simulate

ID = "ClusterGym/Auction-16-v1"
DRAWN: dict[str, Any] = {"jobs": 30, "rows": 30, "rule": "ares", "information": "data_parallel"}


def digest_of_policy(env: gymnasium.Env[Any, Any], checkpoint: str, round_s: float | None) -> str:
    """Return the digest of the policy in the engine, on the scenario of the environment's episode."""
    policy, placer = Learned(checkpoint, round_s), make_placer({"name": "buddy"})
    return simulate(env.unwrapped.scenario, policy, placer).simulation.log.digest


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize(
    ("checkpoint", "round_s", "costs"),
    [("elastic", 300.0, "profiled-free"), ("fair", None, "profiled-free"), ("elastic", None, "default")],
)
def test_weights_play_as_the_policy(engine: str, checkpoint: str, round_s: float | None, costs: str) -> None:
    # Three rows only: jobs without a row take part in an auction by weights.
    given = {**DRAWN, "rows": 3, "round_s": round_s, "engine": engine, "costs": costs}
    env = gymnasium.make(ID, actions="weights", features="jobs", **given)
    env.reset(seed=5)
    weights, over, info = load(checkpoint).weights, False, {}
    while not over:
        _, _, terminated, truncated, info = env.step(weights)
        over = terminated or truncated
    assert info["digest"] == digest_of_policy(env, checkpoint, round_s)


@pytest.mark.parametrize("costs", ["profiled-free", "default"])
def test_scores_of_a_trained_auction_play_as_the_policy(costs: str) -> None:
    # Only order and sign of scores count, so ranks stand for them; scores are computed from the observation.
    # Its features are float32 and the policy's are float64: equal digests show that no two moves of this
    # episode are closer than that.
    env = gymnasium.make(ID, **DRAWN, costs=costs)
    observation, info = env.reset(seed=5)
    weights, over = load("elastic").weights, False
    while not over:
        moves = observation["scored_moves"].reshape(-1, auction_features.COUNT).astype(np.float64)
        scores = np.where(info["action_mask"], moves @ weights, 0.0)
        high = np.searchsorted(np.unique(scores[scores > 0]), scores) + 1.0
        low = np.searchsorted(np.unique(-scores[scores <= 0]), -scores) + 0.0
        action = np.where(scores > 0, high, -low) / (len(scores) + 1)
        observation, _, terminated, truncated, info = env.step(action.astype(np.float32))
        over = terminated or truncated
    assert info["digest"] == digest_of_policy(env, "elastic", 300.0)


def test_the_mask_and_the_features_name_the_same_moves() -> None:
    env = gymnasium.make(ID, **DRAWN)
    observation, info = env.reset(seed=1)
    moves = env.unwrapped.features.unpack(observation)["scored_moves"]
    # Every move is either a start or a doubling, and each job starts with its least count.
    assert moves[..., :2].sum(axis=-1).ravel().tolist() == info["action_mask"].tolist()
    starts = moves[..., auction_features.NAMES.index("start")]
    assert set(starts.sum(axis=-1).ravel().tolist()) <= {0.0, 1.0}
    assert info["action_mask"].sum() > 1


@pytest.mark.parametrize(
    ("action", "word"),
    [
        (0, "shape"),
        (np.zeros(3), "shape"),
        (np.full(30 * 2 * 4, np.nan), "nan"),
        (np.full(30 * 2 * 4, 1.5), "from -1 to 1"),
        (np.full(30 * 2 * 4, "x"), "type"),
    ],
)
@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_what_is_no_action_is_one_line(action: Any, word: str, engine: str) -> None:
    env = gymnasium.make(ID, engine=engine, disable_env_checker=True, **DRAWN)
    env.reset(seed=1)
    assert env.action_space.shape == (30 * 2 * 4,)
    with pytest.raises(InputError, match=word) as error:
        env.step(action)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"information": "none"}, "env.information"),
        ({"actions": "edit"}, "env.features"),
    ],
)
def test_parameters_that_do_not_go_together(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        gymnasium.make(ID, **given)


@pytest.mark.parametrize("engine", ["compiled", "auto", "simpy"])
def test_jobs_of_unknown_speed_are_refused(engine: str) -> None:
    # Models of Arena do not all fit with pure data parallelism.
    with pytest.raises(InputError, match="without times"):
        gymnasium.make(ID, jobs=60, information="data_parallel", engine=engine)


def test_scores_by_hand() -> None:
    # Two jobs on four GPUs of one type, counts 1, 2, 4. Job 0 scores 0.5 to start and 0.2 to double; job 1
    # starts with 0.1, and its doubling scores 0: 0 takes 1, 2 and then 4 GPUs unless its last doubling is
    # not above 0; with 2 GPUs it leaves 1 to job 1.
    time_s = np.array([[[10.0, 5.0, 2.5]]] * 2)
    none, zero = np.full(2, -1), np.zeros(2)
    bids = auction.Bids(np.ones(2), time_s, np.zeros((2, 1, 3)), none, none, zero, zero, zero, zero * np.nan)
    counts, available = np.array([1, 2, 4]), np.array([4])
    scores = np.array([[[0.5, 0.2, 0.2]], [[0.1, 0.0, 0.0]]])
    kind, level = auction.decide_by_scores(scores, available, counts, bids)
    assert (kind.tolist(), level.tolist()) == ([0, -1], [2, -1])
    scores[0, 0, 2] = -0.1
    kind, level = auction.decide_by_scores(scores, available, counts, bids)
    assert (kind.tolist(), level.tolist()) == ([0, 0], [1, 0])


def test_make_vec_draws_actions() -> None:
    envs = gymnasium.make_vec(ID, num_envs=3, **{**DRAWN, "jobs": 6})
    envs.reset(seed=2)
    actions = envs.sample_actions()
    assert (actions.shape, envs.action_space.contains(actions.astype(np.float32))) == ((3, 240), True)
    assert actions.min() < -0.9
    assert actions.max() > 0.9
    for _ in range(20):
        _, rewards, _, _, _ = envs.step(envs.sample_actions())
    assert np.isfinite(rewards).all()
