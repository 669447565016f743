"""The policy gradient with group baselines learns, goes on after a kill, and imitates an expert's moves."""

from __future__ import annotations

import numpy as np
import pytest
from error_lines import error_line

from clustergym.agents import auction_features as features
from clustergym.agents.auction_checkpoints import load
from clustergym.commands import train as train_command
from clustergym.scenario.policy import InformationClass
from clustergym.training import group_gradient
from clustergym.training.auction_evolution import start
from clustergym.training.group_gradient import logistic

SMALL = [
    "agent=group_pg", "processes=1", "progress=false", "env.jobs=10", "agent.traces=8", "agent.groups=2",
    "agent.size=4", "agent.updates=4", "agent.validate_every=2", "agent.validation=4",
    "agent.expert_traces=2",
]  # fmt: skip


def run_train(folder, *more: str) -> int:
    return train_command.main([*SMALL, f"output={folder}", *more])


def test_the_same_seed_gives_the_same_auction_and_a_killed_one_goes_on(tmp_path, monkeypatch):
    assert run_train(tmp_path / "a") == 0
    played, plain = [], group_gradient.play

    def dies(*given):
        played.append(given)
        if len(played) == 5:  # validation, two updates, validation; in the third update
            raise KeyboardInterrupt
        return plain(*given)

    with monkeypatch.context() as patched:
        patched.setattr(group_gradient, "play", dies)
        assert run_train(tmp_path / "b") == 130
    assert run_train(tmp_path / "b") == 0
    a, b = (tmp_path / name / f"{name}.safetensors" for name in "ab")
    assert a.read_bytes() == b.read_bytes()
    found = load(str(a))
    assert (found.information_class, found.weights.shape) == (
        InformationClass.DATA_PARALLEL,
        (features.COUNT,),
    )
    assert found.about["agent"] == "group_pg"
    rows = found.about["curves"]["updates"]
    assert [row["update"] for row in rows if "dev_jct_h" in row] == [0, 2, 4]


def test_a_state_of_another_training_is_refused(tmp_path, capsys):
    assert run_train(tmp_path / "a", "agent.updates=2") == 0
    capsys.readouterr()  # It may have said that it compiles.
    assert run_train(tmp_path / "a", "agent.updates=2", "agent.sigma=0.3") == 2
    assert "other parameters" in error_line(capsys)
    (tmp_path / "a" / "state.json").write_text("[]")
    assert run_train(tmp_path / "a") == 2
    assert "is not a state" in error_line(capsys)


class Bandits:
    """Environments of two decisions; the reward is minus the square of the distance to weights of 1."""

    num_envs = 64

    def reset(self, options):
        self.at = 0

    def step(self, weights):
        self.at += 1
        over = np.full(self.num_envs, self.at == 2)
        return None, -((weights - 1.0) ** 2).sum(axis=1), over, np.zeros_like(over), {}


@pytest.mark.parametrize("hold", [0, 1])
def test_the_gradient_points_to_better_weights(hold):
    # From 0 the gradient of -(w - 1)^2 is the same in every entry, and positive.
    rng = np.random.default_rng(0)
    gradients = []
    for _ in range(40):
        returns, noise, steps = group_gradient.play(Bandits(), np.zeros(3), {}, 0.1, hold, rng)
        assert steps == 128
        relative = group_gradient.relative_to_group(returns, 8)
        gradients.append((relative[:, None] * noise).mean(axis=0))
    mean = np.mean(gradients, axis=0)
    assert (mean > 0.2).all()
    # Noise has variance 1 whether weights are held or drawn anew.
    assert np.var(noise) == pytest.approx(1.0, abs=0.3)


def test_imitation_by_hand():
    # One feature of 1; three moves are made and one is not. With the ridge of 1 the gradient is 0 where
    # 3 - 4 p = w, p = 1 / (1 + exp(-w)): w = 0.5052 (without it, p = 3 / 4).
    weights = logistic(np.ones((4, 1)), np.array([True, True, True, False]))
    assert 3 - 4 / (1 + np.exp(-weights[0])) == pytest.approx(weights[0])
    assert weights[0] == pytest.approx(0.5052, abs=1e-4)


def test_an_imitator_begins_from_the_expert(tmp_path, capsys):
    more = ["agent.expert='ares work_conserving=true'", "agent.updates=1", "agent.sigma=1e-9"]
    assert run_train(tmp_path / "a", *more, "agent.learning_rate=1e-9") == 0
    learned = load(str(tmp_path / "a" / "a.safetensors")).weights
    assert np.abs(learned - start()).max() > 0.1
    capsys.readouterr()
    assert run_train(tmp_path / "b", "agent.expert=hesrpt") == 2
    assert "profiled" in error_line(capsys)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["agent.groups=9"], "agent.groups"),
        (["env.trace=philly-like-244"], "env.trace"),
        (["env.engine=simpy"], "env"),
        (["agent.initial=nowhere"], "checkpoint"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, words, field):
    assert run_train(tmp_path / "a", *words) == 2
    assert field in error_line(capsys)
