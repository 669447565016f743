"""Every placement algorithm, driven through the environment's actions, gets exactly its own score."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.envs.placement.environment import PlacementEnv
from clustergym.scenario.placement_problem import ALGORITHMS, algorithm, score

ALL_SETTINGS = ("i", "ii", "iii")


def drive(env, solve, seed):
    """Solve the episode's instance and play the answer; return the answer and what the steps gave."""
    answer = solve(env.instance, np.random.default_rng(seed))
    steps = [env.step(action) for action in env.list_actions(answer)]
    return answer, steps


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_an_algorithm_gets_its_score(name, data):
    setting = data.draw(st.sampled_from(ALL_SETTINGS))
    unit = data.draw(st.sampled_from(["pp", "dp"]))
    seed = data.draw(st.integers(0, 2**31))
    env = PlacementEnv(setting=setting, unit=unit, alpha=None, on_illegal="raise")
    env.reset(seed=seed)
    answer, steps = drive(env, algorithm(name), seed)
    direct = score(answer, env.instance)
    _, _, terminated, truncated, info = steps[-1]
    assert (terminated, truncated, info["placed"]) == (True, False, True)
    assert len(steps) == env.instance.job.nodes
    assert info["score"] == direct
    assert (env.assignment().counts == answer.counts).all()
    assert sum(step[1] for step in steps) == pytest.approx(-direct)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_an_algorithm_places_nothing_where_the_job_does_not_fit(name):
    env = PlacementEnv(setting="i")
    env.reset(options={"free_nodes": [4, 0, 5]})
    answer, steps = drive(env, algorithm(name), 3)
    assert not answer.feasible
    assert len(steps) == 1
    assert (steps[0][2], steps[0][-1]["shortfall_nodes"]) == (True, answer.shortfall)
    assert (env.assignment().counts == answer.counts).all()


def test_arnold_is_not_beaten_through_the_environment():
    env = PlacementEnv(setting="ii")
    scores = {name: [] for name in ("arnold", "best_fit", "gpu_packing", "random_fit")}
    env.reset(seed=1)
    for seed in range(5):
        env.reset()
        instance = env.instance
        for name, found in scores.items():
            env.reset(options={"instance": instance})
            _, steps = drive(env, algorithm(name), seed)
            found.append(steps[-1][-1]["score"])
    for name, found in scores.items():
        assert np.all(np.array(scores["arnold"]) <= np.array(found)), name
    assert np.mean(scores["random_fit"]) > np.mean(scores["arnold"])
