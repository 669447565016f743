"""A masked network learns from rollouts of the same trace, goes on after a kill, and runs as a policy."""

from __future__ import annotations

import numpy as np
import pytest
from error_lines import error_line

from clustergym.commands import train as train_command
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate
from clustergym.training.network_checkpoints import load

torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
torch.set_num_threads(1)

from clustergym.training import group_updates  # noqa: E402
from clustergym.training.group_rollouts import Rollouts, advantages, play  # noqa: E402
from clustergym.training.group_updates import GroupUpdates, compute_clipped_gain  # noqa: E402
from clustergym.training.masked_group_gradient import MaskedGroupGradient  # noqa: E402
from clustergym.training.network_agent import greedy_figures  # noqa: E402
from clustergym.training.network_agent import play as play_greedily  # noqa: E402
from clustergym.training.split_env import make_compiled_envs, make_split_env, trace_seed  # noqa: E402

ENV = {"id": "ClusterGym/Elastic-16-v1", "information": "data_parallel", "jobs": 5, "rows": 8}
SMALL = [
    "agent=masked_group_pg", "processes=1", "progress=false", "env.jobs=5", "env.rows=8",
    "agent.validation=2", "agent.traces=3", "agent.groups=2", "agent.size=2", "agent.steps=900",
    "agent.validate_every=300", "agent.hidden=[8]", "agent.batch_size=200",
]  # fmt: skip
SCRATCH = "agent.expert=null"


def run_train(folder, *more: str) -> int:
    return train_command.main([*SMALL, f"output={folder}", *more])


def two_episodes() -> Rollouts:
    """Return a trace that is played twice: at 0 s and 10 s, over at 20 s and 30 s."""
    nothing = torch.zeros(4)
    return Rollouts(
        *[nothing] * 4,
        episode=np.array([0, 1, 0, 1]),
        now_s=np.array([0.0, 0.0, 10.0, 10.0]),
        paid=np.array([0.0, 0.0, -2.0, -4.0]),
        end_s=np.array([20.0, 30.0]),
        returns=np.array([-3.0, -9.0]),
    )


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        # The returns' mean is -6.
        ("group", [3.0, -3.0, 3.0, -3.0]),
        # To come at 0 s: -3 and -9, in the mean -6. At 10 s: -1 and -5, in the mean -3.
        ("group_by_time", [3.0, -3.0, 2.0, -2.0]),
        ("none", [-3.0, -9.0, -1.0, -5.0]),
    ],
)
def test_advantages_by_hand(baseline, expected):
    found = advantages(two_episodes(), 2, baseline, "batch")
    assert found == pytest.approx(np.array(expected) / np.std(expected))


def test_what_is_to_come_between_decision_points_is_on_the_line():
    rollouts = two_episodes()
    # The other episode decides at 16 s, where it has paid 6: the first has paid 2 + 1 x 6 / 10 then.
    rollouts.now_s[3], rollouts.paid[3] = 16.0, -6.0
    found = advantages(rollouts, 2, "group_by_time", "batch")
    # At 10 s the second has paid 6 x 10 / 16, and -9 + 3.75 are to come; at 16 s -3 + 2.6 and -9 + 6.
    expected = np.array([3.0, -3.0, -1.0 - (-1.0 - 5.25) / 2, -3.0 - (-0.4 - 3.0) / 2])
    assert found == pytest.approx(expected / expected.std())


def test_each_group_has_a_deviation_of_its_own():
    one = two_episodes()
    both = Rollouts(
        *[torch.zeros(8)] * 4,
        episode=np.concatenate([one.episode, one.episode + 2]),
        now_s=np.tile(one.now_s, 2),
        paid=np.concatenate([one.paid, 10 * one.paid]),
        end_s=np.tile(one.end_s, 2),
        returns=np.concatenate([one.returns, 10 * one.returns]),
    )
    found = advantages(both, 2, "group", "group")
    assert found == pytest.approx(np.tile([1.0, -1.0], 4))
    assert advantages(both, 2, "group", "batch")[4] == pytest.approx(
        10 * advantages(both, 2, "group", "batch")[0]
    )


def test_the_gradient_by_hand():
    # Two actions of probability 1/2. That of the first is drawn once with credit 1 and the second once with
    # credit -2: the gradient of the first logit is (1 x (1 - 1/2) + (-2) x (0 - 1/2)) / 2 = 0.75.
    logits = torch.zeros(2, requires_grad=True)
    logs = torch.log_softmax(logits, dim=0)
    compute_clipped_gain(logs - np.log(0.5), torch.tensor([1.0, -2.0]), 0.1).backward()
    assert logits.grad.tolist() == pytest.approx([0.75, -0.75])


def test_a_ratio_beyond_the_range_gains_no_more():
    log_ratio = torch.tensor([1.2, 0.5, 1.2, 0.5]).log().requires_grad_()
    credits = torch.tensor([1.0, 1.0, -1.0, -1.0])
    # Above the range a good action, and below it a bad one, gain nothing more; the others still change.
    gain = compute_clipped_gain(log_ratio, credits, 0.1)
    assert gain.item() == pytest.approx((1.1 + 0.5 - 1.2 - 0.9) / 4)
    gain.backward()
    assert (log_ratio.grad != 0).tolist() == [False, True, True, False]


def test_rollouts_of_a_group_are_of_one_trace_and_whole():
    agent = MaskedGroupGradient(env=ENV, groups=2, size=2, traces=3, expert=None, hidden=(8,))
    with agent.envs(1) as envs:
        model = agent.model(envs, 0)
        model.seed(3)
        seeds = [trace_seed("train", 0), trace_seed("train", 1)]
        found = play(envs, model.policy, seeds, 2, torch.Generator().manual_seed(3))
    legal = found.masks.gather(1, found.actions[:, None])
    assert legal.all()
    assert sorted(set(found.episode.tolist())) == [0, 1, 2, 3]
    first = [found.observations[torch.from_numpy(found.episode == at)][0] for at in range(4)]
    assert torch.equal(first[0], first[1])
    assert torch.equal(first[2], first[3])
    assert not torch.equal(first[0], first[2])
    # The return is minus the mean JCT in hours, which single environments give for the same actions.
    env = make_split_env(ENV, "train", 3)
    for episode in (1, 2):
        env.reset(options={"index": episode // 2})
        total = sum(env.step(np.int64(action))[1] for action in found.actions[found.episode == episode])
        assert total == pytest.approx(found.returns[episode])


def test_a_killed_training_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    assert run_train(tmp_path / "a", SCRATCH, "processes=0") == 0
    learned, plain = [], GroupUpdates.learn

    def dies(self, steps):
        learned.append(steps)
        if len(learned) == 2:
            raise KeyboardInterrupt
        return plain(self, steps)

    with monkeypatch.context() as patched:
        patched.setattr(group_updates.GroupUpdates, "learn", dies)
        assert run_train(tmp_path / "b", SCRATCH) == 130
    assert run_train(tmp_path / "b", SCRATCH) == 0
    a, b = (tmp_path / name / f"{name}.safetensors" for name in "ab")
    assert a.read_bytes() == b.read_bytes()
    found = load(str(a)).about["curves"]
    assert len(found["segments"]) > 1
    assert found["best"] == max(row["dev_return"] for row in (found["start"], *found["segments"]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "m"
    more = ["agent.expert=hesrpt", "env.information=profiled", "agent.imitation_rounds=1"]
    more += ["agent.imitation_traces=2", "agent.imitation_epochs=2", "agent.steps=300"]
    assert run_train(folder, *more) == 0
    return folder / "m.safetensors"


def test_a_checkpoint_runs_as_a_policy_to_the_same_digest(trained):
    loaded = load(str(trained))
    assert (loaded.agent, len(loaded.about["curves"]["imitation"])) == ("masked_group_pg", 1)
    env = make_split_env(loaded.about["traces"]["env"], "dev", 2)
    assert greedy_figures(loaded.policy, env, 2)["dev_return"] == loaded.about["curves"]["best"]
    play_greedily(loaded.policy, env, 0)
    policy = make_policy({"name": "learned", "checkpoint": str(trained)})
    run = simulate(env.unwrapped.scenario, policy, make_placer({"name": "buddy"}), 0)
    assert run.simulation.log.digest == env.unwrapped.log.digest


def test_it_goes_on_from_a_checkpoint(trained, tmp_path, capsys):
    more = [SCRATCH, f"agent.initial={trained}", "env.information=profiled", "agent.steps=1"]
    assert run_train(tmp_path / "a", *more) == 0
    start = load(str(tmp_path / "a" / "a.safetensors")).about["curves"]["start"]
    assert start["dev_return"] == load(str(trained)).about["curves"]["best"]
    capsys.readouterr()
    assert run_train(tmp_path / "b", *more, "agent.hidden=[4]") == 2
    assert "has another network" in error_line(capsys)


def test_it_learns_which_of_two_actions_is_better():
    # A group of 64 one-step rollouts; what a rollout pays is how far its action is from the last one.
    agent = MaskedGroupGradient(env=ENV, groups=1, size=64, traces=1, expert=None, hidden=(8,))
    envs = make_compiled_envs(ENV, 1)
    model = agent.model(envs, 0)
    seen, info = envs.reset(seed=0)
    legal = np.flatnonzero(info["action_mask"][0])
    observation, mask = torch.from_numpy(seen), torch.from_numpy(info["action_mask"] > 0)

    def probability() -> float:
        with torch.no_grad():
            return float(torch.softmax(model.policy.logits(observation, mask), dim=1)[0, legal[0]])

    before = probability()
    drawn = torch.from_numpy(np.resize(legal, 64))
    rollouts = Rollouts(
        observation.repeat(64, 1).half(), mask.repeat(64, 1), drawn, torch.full((64,), -np.log(len(legal))),
        np.arange(64), np.zeros(64), np.zeros(64), np.ones(64), (drawn == legal[0]).numpy() * 1.0,
    )  # fmt: skip
    agent.target_kl = 10.0
    for _ in range(5):
        model._step(rollouts, torch.from_numpy(advantages(rollouts, 64, "group", "group")).float())
    envs.close()
    assert probability() > before


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["agent.groups=4"], "agent.groups"),
        (["env=meta-16", "~env.rows"], "has no rows of jobs with masked edits"),
        (["env.engine=simpy"], "compiled simulation"),
        (["agent.baseline=critic"], "agent.baseline"),
        (["agent.initial=nowhere"], "agent.expert=null"),
        ([SCRATCH, "agent.initial=nowhere"], "checkpoint"),
        ([SCRATCH, "agent.initial=elastic"], "elastic"),
        (["env.information=none"], "agent.expert"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, words, field):
    assert run_train(tmp_path / "a", *words) == 2
    assert field in error_line(capsys)
