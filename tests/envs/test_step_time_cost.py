"""The predicted step time as a reward."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.envs.placement.environment import PlacementEnv
from clustergym.envs.placement.step_time import PretrainingModel, Tiers, predict
from clustergym.scenario.placement_problem import cells

FIELDS = {"hidden": 4096, "layers": 32, "heads": 32}
MODEL = PretrainingModel("model", **FIELDS)


def make(setting, **parameters):
    """Reward the predicted step time alone, with a core slower by four."""
    return PlacementEnv(
        setting=setting, reward={"step_time": 1.0}, model=FIELDS, core_oversubscription=4.0, **parameters
    )


def step_s(env, matrix):
    return predict(matrix, env.problem.job, MODEL, Tiers.from_cluster(env.problem.cluster)).total_s


def test_by_hand():
    env = make("i")
    env.reset(options={"free_nodes": [6, 6, 0]})
    # Three whole groups of two nodes in minipod 0, and three in minipod 1: the fourth is the first
    # elsewhere, so all DP groups cross the core from there on and no PP group does.
    rewards = [env.step(minipod)[1] for minipod in [0] * 6 + [1] * 6]
    inside, apart = np.zeros((6, 2), dtype=np.int64), np.repeat([[0, 0], [1, 1]], 3, axis=0)
    slower = step_s(env, apart) / step_s(env, inside) - 1
    assert slower > 0.001
    assert rewards == pytest.approx([0.0] * 7 + [-slower] + [0.0] * 4)


def test_a_split_pp_group_costs_as_it_ends():
    env = make("i")
    env.reset(options={"free_nodes": [6, 6, 0]})
    rewards = [env.step(minipod)[1] for minipod in (0, 1, 0, 1)]
    split = np.repeat([[0, 1]], 6, axis=0)
    slower = step_s(env, split) / step_s(env, np.zeros_like(split)) - 1
    assert slower > 0.001
    assert rewards == pytest.approx([0.0, -slower, 0.0, 0.0])


@given(
    st.sampled_from(["i", "ii"]),
    st.sampled_from(["pp", "dp"]),
    st.sampled_from(["node", "group"]),
    st.integers(0, 10**6),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_return_is_the_predicted_step_time(setting, unit, step, seed):
    env = make(setting, unit=unit, step=step)
    _, info = env.reset(seed=seed)
    rng, rewards, over = np.random.default_rng(seed), [], False
    while not over:
        _, reward, over, _, info = env.step(rng.choice(np.flatnonzero(info["action_mask"])))
        rewards.append(reward)
    job = env.problem.job
    inside = step_s(env, np.zeros((job.rows, job.columns), dtype=np.int64))
    whole = step_s(env, cells(env.assignment(), job, unit))
    assert sum(rewards) == pytest.approx(1 - whole / inside)
    assert max(rewards) <= 1e-12


def test_a_term_of_weight_one_among_others():
    both = PlacementEnv(setting="i", reward={"spread": 1.0, "step_time": 100.0}, model=FIELDS)
    both.reset(options={"free_nodes": [6, 6, 0]})
    steps = [both.step(minipod) for minipod in (0, 1)]
    terms = steps[-1][-1]["rewards"]
    assert set(terms) == {"spread", "step_time"}
    assert steps[-1][1] == pytest.approx(terms["spread"] + 100 * terms["step_time"])
