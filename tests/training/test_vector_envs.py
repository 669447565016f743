"""The adapter of vector environments to Stable-Baselines3."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import clustergym
from clustergym.common.errors import InputError
from clustergym.envs.vector.environment import SchedulingVectorEnv
from clustergym.training.split_env import make_split_env
from clustergym.training.vector_envs import SchedulingVecEnv, split_vec_env

SMALL: dict[str, Any] = {"id": "ClusterGym/Elastic-16-v1", "jobs": 6, "rows": 6, "round_s": 900.0}


def drawn(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.array([int(rng.choice(np.flatnonzero(mask))) for mask in masks])


@pytest.mark.parametrize("changes", [{}, {"baseline": "srtf"}, {"horizon_s": 30000.0}], ids=str)
def test_it_steps_as_single_environments_in_a_split_do(changes: dict[str, Any]) -> None:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    given = {**SMALL, **changes}
    mine = split_vec_env(given, 3, "train", 8, 10.0)
    single = partial(make_split_env, {**given, "engine": "simpy"}, "train", 8, 10.0)
    other = DummyVecEnv([lambda: Monitor(single())] * 3)
    mine.seed(3)
    other.seed(3)
    np.testing.assert_array_equal(mine.reset(), other.reset())
    rng, ends = np.random.default_rng(0), 0
    for _ in range(400):
        masks = np.stack(mine.env_method("action_masks"))
        np.testing.assert_array_equal(masks, np.stack(other.env_method("action_masks")))
        actions = drawn(masks, rng)
        got, expected = mine.step(actions), other.step(actions)
        for at in range(3):
            np.testing.assert_array_equal(got[at], expected[at])
            assert got[at].dtype == expected[at].dtype
        for row in np.flatnonzero(got[2]):
            info, whole = got[3][row], expected[3][row]
            np.testing.assert_array_equal(info["terminal_observation"], whole["terminal_observation"])
            assert info["TimeLimit.truncated"] == whole["TimeLimit.truncated"]
            assert info["episode"]["l"] == whole["episode"]["l"]
            assert info["episode"]["r"] == pytest.approx(whole["episode"]["r"], abs=1e-6)
        ends += int(got[2].sum())
    assert ends > 2
    mine.close()


def test_masked_ppo_takes_its_masks() -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    # An illegal action would raise.
    given = {key: value for key, value in SMALL.items() if key != "id"}
    made = gymnasium.make_vec(
        SMALL["id"], 2, observation="flat", autoreset_mode="Disabled", on_illegal="raise", **given
    )
    agent = contrib.MaskablePPO(
        "MlpPolicy", SchedulingVecEnv(made), n_steps=64, batch_size=64, seed=0, device="cpu"
    )
    agent.learn(256)
    assert agent.num_timesteps == 256


def test_pytorch_has_one_thread_unless_one_says_more(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from clustergym.training.network_checkpoints import build_policy

    def make() -> SchedulingVecEnv:
        given = {"jobs": 4, "rows": 4, "observation": "flat", "autoreset_mode": "Disabled"}
        return SchedulingVecEnv(gymnasium.make_vec(SMALL["id"], 1, **given))

    before = torch.get_num_threads()
    for name, threads in (("1", 2), (None, 1)):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if name:
            monkeypatch.setenv("OMP_NUM_THREADS", name)
        torch.set_num_threads(2)
        make()
        assert torch.get_num_threads() == threads
    torch.set_num_threads(2)
    build_policy("ppo", make_split_env(SMALL, "dev", 1), (8,))
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_the_reference_beside_dev_is_hesrpt_on_the_same_traces() -> None:
    from clustergym.training.network_agent import reference_figures

    env, hours = make_split_env(SMALL, "dev", 2), []
    figures = reference_figures(env, 2)
    for index in range(2):
        env.reset(options={"index": index})
        hours.append(clustergym.simulate(env.unwrapped.scenario, "hesrpt").jobs.jct_s.mean() / 3600)
    assert figures == {"hesrpt_jct_h": pytest.approx(np.mean(hours))}
    # Of deadlines a mean JCT says nothing.
    assert (
        reference_figures(make_split_env({"id": "ClusterGym/Deadline-16-v1", "jobs": 4}, "dev", 1), 1) == {}
    )


def test_what_has_no_compiled_form_is_left_to_single_environments() -> None:
    assert split_vec_env({**SMALL, "engine": "simpy"}, 2, "train", 8) is None
    assert split_vec_env({**SMALL, "placer": "minipod"}, 2, "train", 8) is None


def test_a_vector_environment_that_begins_episodes_itself_is_refused() -> None:
    made = gymnasium.make_vec(SMALL["id"], 1, jobs=6)
    assert isinstance(made, SchedulingVectorEnv)
    with pytest.raises(InputError, match="autoreset_mode"):
        SchedulingVecEnv(made)
