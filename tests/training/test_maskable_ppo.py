"""Imitation takes any order of edits, the network treats rows alike, and PPO keeps only what is better."""

import gymnasium
import numpy as np
import pytest

from clustergym.commands import train as train_command
from clustergym.common.errors import InputError
from clustergym.scenario.registry import make_placer, make_policy, parse_policy
from clustergym.sim.drive import simulate
from clustergym.training import network_checkpoints
from clustergym.training.agents import make_agent
from clustergym.training.imitating_agent import (
    Demonstrations,
    MaskablePpo,
    acceptable_actions,
    as_expert,
    as_learner,
    demonstrate,
    fit,
    set_loss,
    targets,
)
from clustergym.training.network_agent import greedy_figures, play
from clustergym.training.network_checkpoints import build_policy, load
from clustergym.training.split_env import make_split_env

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

ENV = {
    "id": "ClusterGym/Elastic-16-v1",
    "jobs": 8,
    "rows": 10,
    "loads": (1.5,),
    "mask_stop_while_idle": False,
}
EXPERT = "hesrpt round_s=300"


def env_of(**more):
    return make_split_env({**ENV, **more}, "train", 4)


def test_set_loss_by_hand():
    # Probabilities 1/2, 1/4, 1/4 and an illegal action. Acceptable: the last two, together 1/2: -log(1/2).
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.5, 0.25, 0.25, 0.0]]))
    acceptable = torch.tensor([[False, True, True, False], [True, True, True, False]])
    assert float(set_loss(logits, acceptable)) == pytest.approx((np.log(2.0) + 0.0) / 2)


@pytest.mark.parametrize("expert", [EXPERT, "srtf elastic=true", "fcfs", "ares work_conserving=true"])
@pytest.mark.parametrize("seed", [0, 1])
def test_acceptable_edits_in_any_order_are_the_experts_schedule(expert, seed):
    # The episode of the edits in a random order is the expert's own episode in the simulator.
    policy = parse_policy(expert, "expert")
    env = env_of(information=policy.information_class.value, round_s=policy.round_s)
    kept = Demonstrations(int(env.action_space.n))
    demonstrate(env, policy, seed, as_expert(np.random.default_rng(seed)), kept)
    scenario = env.unwrapped.scenario
    run = simulate(scenario, parse_policy(expert, "expert"), make_placer({"name": "buddy"}), 0)
    assert env.unwrapped.log.digest == run.simulation.log.digest
    observations, legal, acceptable = kept.batch(np.arange(len(kept)))
    assert observations.shape == (len(kept), *env.observation_space.shape)
    assert (legal | ~acceptable).all()
    assert acceptable.any(axis=1).all()
    assert acceptable[:, :-1].any(axis=1).sum() < len(kept)


def test_after_a_wrong_edit_what_can_still_be_done_is_acceptable():
    env = env_of(rows=20)
    env.reset(options={"index": 0})
    core, expert = env.unwrapped, parse_policy(EXPERT, "expert")
    expert.reset(core.setting, np.random.default_rng(0))
    kind, gpus = targets(core.view, expert.schedule(core.view))
    [first] = np.flatnonzero(acceptable_actions(core.actions, kind, gpus))
    others = np.flatnonzero(core.action_masks() & (np.arange(core.actions.number) != first))
    core.step(np.int64(others[0]))
    # One job is there; it was assigned otherwise, and is not assigned again: stopping is left.
    assert np.flatnonzero(acceptable_actions(core.actions, kind, gpus)).tolist() == [core.actions.stop]


def observed(env, number: int):
    """Return observations and masks of random play."""
    rng, rows = np.random.default_rng(3), []
    observation, info = env.reset(seed=1)
    while len(rows) < number:
        rows.append((observation, info["action_mask"].astype(bool)))
        action = rng.choice(np.flatnonzero(info["action_mask"]))
        observation, _, terminated, truncated, info = env.step(np.int64(action))
        if terminated or truncated:
            observation, info = env.reset()
    return [torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True)]


def test_exchanged_rows_exchange_logits():
    env = env_of()
    policy = build_policy("maskable_ppo", env, (16, 16))
    flat, _ = observed(env, 40)
    features, actions = env.unwrapped.features, env.unwrapped.actions
    order = np.random.default_rng(0).permutation(actions.rows)
    shuffled = flat.clone()
    for name in ("jobs", "options"):
        part = features.parts[name]
        rows = flat[:, part].reshape(len(flat), actions.rows, -1)
        shuffled[:, part] = rows[:, order].reshape(len(flat), -1)
    heads = policy.mlp_extractor
    before, after = heads.forward_actor(flat), heads.forward_actor(shuffled)
    table = before[:, :-1].reshape(len(flat), actions.rows, actions.width)
    assert torch.allclose(table[:, order].flatten(1), after[:, :-1], atol=1e-6)
    assert torch.allclose(before[:, -1], after[:, -1], atol=1e-6)
    assert torch.allclose(heads.forward_critic(flat), heads.forward_critic(shuffled), atol=1e-6)
    assert table.std() > 0


def test_critic_and_actor_share_nothing():
    env = env_of()
    policy = build_policy("maskable_ppo", env, (8,))
    flat, _ = observed(env, 5)
    policy.value_net(policy.mlp_extractor.forward_critic(flat)).sum().backward()
    assert all(parameter.grad is None for parameter in policy.actor_parameters())


def test_imitation_learns_the_experts_choices():
    env, rng = env_of(jobs=5), np.random.default_rng(0)
    torch.manual_seed(0)
    policy, kept = build_policy("maskable_ppo", env, (32, 32)), Demonstrations(int(env.action_space.n))
    optimizer = torch.optim.Adam(policy.actor_parameters(), lr=3e-3)
    for index in range(3):
        demonstrate(env, parse_policy("fcfs", "expert"), index, as_expert(rng), kept)
    untrained, _ = fit(policy, kept, 1, 10_000, optimizer, rng)
    loss, agreement = fit(policy, kept, 12, 32, optimizer, rng)
    assert loss < untrained / 4
    assert agreement > 0.9
    before = len(kept)
    demonstrate(env, parse_policy("fcfs", "expert"), 0, as_learner(policy), kept)
    assert len(kept) > before


SMALL = [
    "agent=maskable_ppo", "processes=1", "progress=false", "env.jobs=5", "env.rows=8", "env.baseline=null",
    "agent.expert=hesrpt", "agent.validation=2", "agent.traces=3", "agent.n_envs=2", "agent.steps=128",
    "agent.validate_every=64", "agent.n_steps=32", "agent.batch_size=16", "agent.hidden=[8]",
    "agent.imitation_rounds=2", "agent.imitation_traces=2", "agent.imitation_epochs=2",
    "agent.critic_segments=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "m"
    assert train_command.main([*SMALL, f"output={folder}"]) == 0
    return folder / "m.safetensors"


def test_the_best_network_on_validation_is_kept(trained):
    curves = load(str(trained)).about["curves"]
    rows = [row["dev_return"] for row in (*curves["imitation"], *curves["segments"])]
    assert len(rows) == 4
    assert curves["best"] == max(rows)
    assert curves["imitator"] == max(rows[:2])
    assert curves["expert"]["dev_jct_h"] > 0
    # The critic alone learns in the first segment: the greedy policy is the imitator.
    assert rows[2] == curves["imitator"]


def test_no_steps_give_the_imitator(trained, tmp_path):
    assert train_command.main([*SMALL, "agent.steps=0", f"output={tmp_path / 'i'}"]) == 0
    curves = load(str(tmp_path / "i" / "i.safetensors")).about["curves"]
    whole = load(str(trained)).about["curves"]
    assert curves["segments"] == []
    assert (curves["imitation"], curves["best"]) == (whole["imitation"], whole["imitator"])


def test_sharpened_logits_keep_the_greedy_action():
    env = env_of()
    policy = build_policy("maskable_ppo", env, (8,))
    flat, masks = observed(env, 5)
    before = policy.logits(flat, masks)
    policy.sharpen(0.25)
    after = policy.logits(flat, masks)
    assert torch.allclose(after[masks], 4 * before[masks], rtol=1e-5)
    assert torch.equal(after.argmax(1), before.argmax(1))


def test_a_checkpoint_plays_as_it_did_in_training(trained):
    loaded = load(str(trained))
    env = make_split_env(loaded.about["traces"]["env"], "dev", 2)
    assert greedy_figures(loaded.policy, env, 2)["dev_return"] == loaded.about["curves"]["best"]


def test_a_checkpoint_runs_as_a_policy_to_the_same_digest(trained):
    loaded = load(str(trained))
    env = make_split_env(loaded.about["traces"]["env"], "test", 2)
    for index in range(2):
        play(loaded.policy, env, index)
        policy = make_policy({"name": "learned", "checkpoint": str(trained)})
        assert (policy.round_s, policy.information_class) == (300.0, "data_parallel")
        run = simulate(env.unwrapped.scenario, policy, make_placer({"name": "buddy"}), 0)
        assert run.simulation.log.digest == env.unwrapped.log.digest


def test_another_cluster_is_refused(trained):
    policy = make_policy({"name": "learned", "checkpoint": str(trained)})
    env = make_split_env({"id": "ClusterGym/Elastic-64-v1", "jobs": 2}, "dev", 1)
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"was trained for .*cluster=arena-16"):
        simulate(env.unwrapped.scenario, policy, make_placer({"name": "buddy"}), 0)


def test_a_checkpoint_of_renamed_columns_is_refused(trained, monkeypatch):
    renamed = {**network_checkpoints.COLUMNS, "jobs": ["here", *network_checkpoints.COLUMNS["jobs"][1:]]}
    monkeypatch.setattr(network_checkpoints, "COLUMNS", renamed)
    with pytest.raises(InputError, match=r"columns.*another version of ClusterGym/Elastic-16-v1"):
        load(str(trained))


def test_the_committed_one_is_better_than_its_imitator():
    loaded = load("elastic-16")
    curves = loaded.about["curves"]
    assert loaded.about["trained_on_test"] is False
    imitator = min(row["dev_jct_h"] for row in curves["imitation"])
    assert min(row["dev_jct_h"] for row in curves["segments"]) < 0.99 * imitator
    policy = make_policy({"name": "learned", "checkpoint": "elastic-16"})
    assert policy.fingerprint() == loaded.sha256


def test_the_committed_one_plays_at_the_defaults_of_its_id():
    loaded = load("elastic-16")
    env = gymnasium.make(loaded.about["environment"], observation="flat", engine="simpy", jobs=8)
    assert env.spec.id == "ClusterGym/Elastic-16-v1"
    assert env.observation_space.shape == (loaded.about["observation"],)
    seen, info = env.reset(options={"trace_seed": 2})
    over, total = False, 0.0
    while not over:
        # The default mask forbids stopping while idle GPUs could start a job, which training allowed.
        action, _ = loaded.policy.predict(seen, action_masks=info["action_mask"], deterministic=True)
        seen, reward, terminated, truncated, info = env.step(np.int64(action))
        over, total = terminated or truncated, total + reward
    assert info["metrics"]["jobs_finished"] == 8
    assert total == pytest.approx(-info["metrics"]["jct_mean"] / 3600)


def test_agent_is_found_by_name():
    assert make_agent({"name": "maskable_ppo", "expert": "fcfs"}) == MaskablePpo(expert="fcfs")


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
