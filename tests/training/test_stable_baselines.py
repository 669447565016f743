"""PPO learns, is the same again, and its checkpoints are checked."""

import hashlib
import pickle

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium import spaces
from refusals import refused
from trainings import without_times

from clustergym.commands import train as train_command
from clustergym.common.errors import InputError
from clustergym.scenario.registry import make_policy
from clustergym.training import network_agent, network_checkpoints, vector_envs
from clustergym.training.agents import make_agent
from clustergym.training.split_env import SplitEnv, make_split_env, trace_seed

FEW_JOBS = ["env.jobs=6", "env.baseline=fcfs"]
SMALL = [
    "processes=1", "progress=false", "agent.validation=2", "agent.traces=3", "agent.n_envs=2",
    "agent.steps=128", "agent.validate_every=64", "agent.batch_size=16", "agent.hidden=[8]",
    "agent=ppo", "agent.n_steps=32", "agent.n_epochs=2",
]  # fmt: skip


def run_train(folder, *more: str):
    """Train in a folder; return the path of the checkpoint."""
    assert train_command.main([*SMALL, *FEW_JOBS, f"output={folder / 'ppo'}", *more]) == 0
    return folder / "ppo" / "ppo.safetensors"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run_train(tmp_path_factory.mktemp("trained"))


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(trained, tmp_path):
    again, other = run_train(tmp_path), run_train(tmp_path / "other", "seed=1")
    assert again.read_bytes() == trained.read_bytes() != other.read_bytes()
    assert without_times(again.with_suffix(".yaml")) == without_times(trained.with_suffix(".yaml"))


def test_a_checkpoint_plays_as_it_did_in_training(trained):
    loaded = network_checkpoints.load(str(trained))
    curves = loaded.about["curves"]
    env = make_split_env(loaded.about["traces"]["env"], "dev", 2)
    figures = network_agent.greedy_figures(loaded.policy, env, 2)
    assert figures["dev_return"] == curves["best"] == max(row["dev_return"] for row in curves["segments"])
    assert [row["steps"] for row in curves["segments"]] == [64, 128]


def test_other_discrete_environments_train_too(tmp_path):
    """Placement has no traces: its splits differ in the seed of `reset`."""
    words = [*SMALL, "env=placement-small", "~env.baseline", f"output={tmp_path / 'p'}"]
    assert train_command.main(words) == 0
    path = str(tmp_path / "p" / "p.safetensors")
    assert network_checkpoints.load(path).about["environment"] == "ClusterGym/Placement-small-v0"
    with pytest.raises(InputError, match="schedules no jobs"):
        make_policy({"name": "learned", "checkpoint": path})


class Guess(gymnasium.Env):
    """Twenty steps; the observation says which of two actions has the reward 1."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (2,), np.float32), spaces.Discrete(2)
    reward = staticmethod(float)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 20
        return self._next(), {}

    def _next(self):
        self.right = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.right]

    def step(self, action):
        won, self.left = int(action) == self.right, self.left - 1
        return self._next(), self.reward(won), self.left == 0, False, {}


def test_what_can_be_learned_is_learned(tmp_path, monkeypatch):
    # A guess at random is right in 10 of 20 steps.
    monkeypatch.setattr(network_agent, "make_split_env", lambda _, *more: SplitEnv(Guess(), *more))
    monkeypatch.setattr(vector_envs, "split_vec_env", lambda *_: None)
    monkeypatch.setattr(network_checkpoints, "describe_env", lambda env: {})
    given = {"steps": 1500, "validate_every": 500, "validation": 3, "n_envs": 2, "hidden": [16]}
    given |= {"n_steps": 128, "batch_size": 64, "learning_rate": 3e-3, "reward_scale": 1.0}
    made = make_agent({"name": "ppo", **given})
    trained = made.train(0, 1, tmp_path / "state.json", lambda *_: None)
    assert trained.curves["best"] == 20.0


def test_a_reward_that_is_no_number_is_an_input_error(monkeypatch):
    monkeypatch.setattr(Guess, "reward", staticmethod(lambda _: float("nan")))
    env = SplitEnv(Guess(), "train", 3)
    env.reset(seed=0)
    with pytest.raises(InputError, match="the reward is nan"):
        env.step(0)


def test_splits_share_no_trace():
    assert [trace_seed("train", 2), trace_seed("dev", 2), trace_seed("test", 2)] == [6, 7, 8]
    env = {"id": "ClusterGym/Priority-16-v0", "jobs": 3}
    names = {}
    for split in ("train", "dev", "test"):
        made = make_split_env(env, split, 4)
        names[split] = set()
        for seed in range(6):
            made.reset(seed=seed)
            names[split].add(made.unwrapped.scenario.sha256)
    assert len(set.union(*names.values())) == sum(len(one) for one in names.values()) > 6


def copied(source, folder, **changes):
    """Copy a checkpoint, with changes in its YAML."""
    folder.mkdir()
    about = yaml.safe_load(source.with_suffix(".yaml").read_text()) | changes
    (folder / "x.yaml").write_text(yaml.safe_dump(about, sort_keys=False))
    (folder / "x.safetensors").write_bytes(source.read_bytes())
    return folder / "x.safetensors"


@refused("network-files")
def test_a_checkpoint_that_does_not_fit_is_refused(given, said, trained, tmp_path):
    path = copied(trained, tmp_path / "x", **given)
    with said.of_error(tmp_path):
        network_checkpoints.load(str(path))


class Evil:
    """Would run on unpickling."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize("data", [b"", b"junk" * 9, pickle.dumps(Evil()), b"\xff" * 8])
def test_a_file_that_is_no_checkpoint_is_refused(trained, tmp_path, data):
    path = copied(trained, tmp_path / "x", sha256=hashlib.sha256(data).hexdigest())
    path.write_bytes(data)
    with pytest.raises(InputError, match="is not a safetensors file"):
        network_checkpoints.load(str(path))
    (tmp_path / "x" / "x.yaml").write_bytes(data)
    with pytest.raises(InputError):
        network_checkpoints.load(str(path))
