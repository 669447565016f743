"""The committed network `elastic-16` treats rows alike, and runs as a policy to the episode's own digest."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from clustergym.common.errors import InputError
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate
from clustergym.training import network_checkpoints
from clustergym.training.network_agent import play
from clustergym.training.network_checkpoints import load
from clustergym.training.split_env import make_split_env

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def loaded():
    return load("elastic-16")


def test_exchanged_rows_exchange_logits(loaded):
    env = make_split_env({**loaded.about["traces"]["env"], "jobs": 8}, "train", 4)
    rng, rows = np.random.default_rng(3), []
    observation, info = env.reset(seed=1)
    while len(rows) < 40:
        rows.append(observation)
        observation, *_, info = env.step(np.int64(rng.choice(np.flatnonzero(info["action_mask"]))))
    flat = torch.from_numpy(np.stack(rows))
    features, actions = env.unwrapped.features, env.unwrapped.actions
    order = np.random.default_rng(0).permutation(actions.rows)
    shuffled = flat.clone()
    for name in ("jobs", "options"):
        part = features.parts[name]
        shuffled[:, part] = flat[:, part].reshape(len(flat), actions.rows, -1)[:, order].flatten(1)
    with torch.no_grad():
        before, after = (loaded.policy.mlp_extractor(seen) for seen in (flat, shuffled))
    table = before[:, :-1].reshape(len(flat), actions.rows, actions.width)
    assert torch.allclose(table[:, order].flatten(1), after[:, :-1], atol=1e-4)
    assert torch.allclose(before[:, -1], after[:, -1], atol=1e-4)
    assert table.std() > 0


def test_a_checkpoint_runs_as_a_policy_to_the_same_digest(loaded):
    env = make_split_env({**loaded.about["traces"]["env"], "jobs": 8}, "test", 2)
    for index in range(2):
        play(loaded.policy, env, index)
        policy = make_policy({"name": "learned", "checkpoint": "elastic-16"})
        assert (policy.round_s, policy.information_class) == (300.0, "data_parallel")
        assert policy.fingerprint() == loaded.sha256
        run = simulate(env.unwrapped.scenario, policy, make_placer({"name": "buddy"}), 0)
        assert run.simulation.log.digest == env.unwrapped.log.digest


def test_another_cluster_is_refused():
    policy = make_policy({"name": "learned", "checkpoint": "elastic-16"})
    env = make_split_env({"id": "ClusterGym/Elastic-64-v1", "jobs": 2}, "dev", 1)
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"was trained for .*cluster=arena-16"):
        simulate(env.unwrapped.scenario, policy, make_placer({"name": "buddy"}), 0)


def test_a_checkpoint_of_renamed_columns_is_refused(monkeypatch):
    renamed = {**network_checkpoints.COLUMNS, "jobs": ["here", *network_checkpoints.COLUMNS["jobs"][1:]]}
    monkeypatch.setattr(network_checkpoints, "COLUMNS", renamed)
    with pytest.raises(InputError, match=r"columns.*another version of ClusterGym/Elastic-16-v1"):
        load("elastic-16")


def test_plain_masked_ppo_takes_the_masks_and_never_acts_against_them():
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    from sb3_contrib.common.maskable.evaluation import evaluate_policy
    from sb3_contrib.common.wrappers import ActionMasker
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    def made():
        # An illegal action would raise.
        env = gymnasium.make(
            "ClusterGym/Elastic-16-v1", jobs=4, rows=6, observation="flat", on_illegal="raise"
        )
        return ActionMasker(Monitor(env), lambda wrapped: wrapped.unwrapped.action_masks())

    vector = DummyVecEnv([made, made])
    agent = contrib.MaskablePPO("MlpPolicy", vector, n_steps=64, batch_size=64, seed=0, device="cpu")
    agent.learn(256)
    assert agent.num_timesteps == 256
    assert np.isfinite(evaluate_policy(agent, vector, n_eval_episodes=2, deterministic=False)[0])
    observation = vector.reset()
    actions, _ = agent.predict(observation, action_masks=np.stack(vector.env_method("action_masks")))
    assert all(
        mask[action] == 1 for mask, action in zip(vector.env_method("action_masks"), actions, strict=True)
    )
