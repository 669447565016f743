"""What goes wrong in a training is one line, and what was saved is not lost."""

import contextlib
import os
import resource
import signal
import time
import warnings

import gymnasium
import numpy as np
import pytest
from error_lines import error_line
from refusals import refused

from clustergym.commands import train as train_command
from clustergym.training import auction_evolution, stable_baselines
from clustergym.training.split_env import SplitEnv

ES = [
    "agent=auction_es", "processes=1", "progress=false", "agent.population=4", "agent.episodes=6",
    "agent.validation=3", "agent.generations=6", "agent.validate_every=3", "agent.scenarios.jobs=[20,30]",
    "agent.scenarios.origin=synthetic", "agent.scenarios.gpus=16", "agent.scenarios.types=[2]",
]  # fmt: skip
PPO = [
    "agent=ppo", "processes=1", "progress=false", "agent.validation=1", "agent.traces=2", "agent.n_envs=2",
    "agent.steps=192", "agent.validate_every=64", "agent.batch_size=16", "agent.hidden=[8]",
    "agent.n_steps=16", "agent.n_epochs=1", "env.jobs=5", "env.baseline=fcfs",
]  # fmt: skip
WORDS = {"auction_es": ES, "ppo": PPO}


def run_train(folder, agent: str, *more: str) -> int:
    return train_command.main([*WORDS[agent], f"output={folder}", *more])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder of one undisturbed training of each agent."""
    folder = tmp_path_factory.mktemp("whole")
    for agent in WORDS:
        assert run_train(folder / agent, agent) == 0
    return folder


def started(work) -> int:
    """Do some work in a copy of this process, quietly; return its id."""
    with warnings.catch_warnings():
        # The copy has one thread only, and needs no others.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process:
        return process
    status = 1
    with contextlib.suppress(BaseException):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        status = work()
    os._exit(status)


def test_killed_at_random_moments_it_ends_in_the_same_bytes(whole, tmp_path):
    folder, there, rng = tmp_path / "auction_es", whole / "auction_es", np.random.default_rng(8)
    for _ in range(5):
        process = started(lambda: run_train(folder, "auction_es"))
        time.sleep(float(rng.uniform(0.05, 1.0)))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    assert run_train(folder, "auction_es") == 0
    for name in ("auction_es.safetensors", "state.json"):
        assert (folder / name).read_bytes() == (there / name).read_bytes()
    assert sorted(p.name for p in folder.iterdir() if not p.name.endswith(".tmp")) == sorted(
        p.name for p in there.iterdir()
    )


def test_a_full_disk_is_one_line_and_leaves_no_half_file(whole, tmp_path, capfd):
    folder, name = tmp_path / "auction_es", "auction_es.safetensors"
    limit = (whole / "auction_es" / "state.json").stat().st_size - 1

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return run_train(folder, "auction_es")

    assert os.waitstatus_to_exitcode(os.waitpid(started(limited), 0)[1]) == 2
    assert not list(folder.glob(".*"))
    assert not (folder / name).exists()
    # With room again it goes on.
    assert run_train(folder, "auction_es") == 0
    assert (folder / name).read_bytes() == (whole / "auction_es" / name).read_bytes()


def test_a_failing_write_names_the_file(whole, tmp_path, monkeypatch, capsys):
    def fails(self, path, trained, about):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("clustergym.training.agents.Agent.save", fails)
    assert run_train(tmp_path / "ppo", "ppo") == 2
    line = error_line(capsys)
    assert "ppo.safetensors: cannot be written: No space left on device" in line


def test_a_folder_of_another_training_is_one_line(whole, capsys):
    assert run_train(whole / "auction_es", "auction_es", "seed=5") == 2
    assert "is of a training with other parameters" in error_line(capsys)


def test_a_reward_too_large_is_one_line(tmp_path, capfd):
    assert run_train(tmp_path / "a", "ppo", "env.reward={jobs_in_system: 1e308}") == 2
    assert "env.reward: the reward is " in error_line(capfd)


def test_a_network_that_is_no_numbers_is_one_line(tmp_path, capsys, monkeypatch):
    def spoils(self, model, seed):
        next(model.policy.parameters()).data.fill_(float("nan"))

    monkeypatch.setattr(stable_baselines.Ppo, "begin", spoils)
    plain = [word for word in PPO[1:] if not word.startswith("agent.n_")]
    words = ["agent=ppo", *plain, "agent.n_steps=16", "agent.n_envs=1", f"output={tmp_path / 'a'}"]
    assert train_command.main(words) == 2
    assert "agent.learning_rate: the network has values that are no numbers" in error_line(capsys)


UNLIKE_JOB_CREDIT = ("agent.n_epochs", "agent.hidden", "env.baseline")
FEW = {
    "agent=job_credit": [
        *(word for word in PPO[1:] if word.partition("=")[0] not in UNLIKE_JOB_CREDIT),
        "agent.hidden=[8,8]",
    ],
    "agent=auction_es": ES[1:],
    "agent=ppo": PPO[1:],
}


@refused("train", words=True)
def test_mistakes_are_one_line(given, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = {word.partition("=")[0].lstrip("~") for word in given}
    few = [word for word in FEW.get(given[0], ()) if word.partition("=")[0] not in keys]
    output = [] if "output" in keys else ["output=a"]
    assert train_command.main([given[0], *few, *output, *given[1:]]) == 2
    said.check(error_line(capsys))
    assert list(tmp_path.iterdir()) == []


def test_a_reward_is_checked_after_scaling():
    class One:
        def __init__(self, reward):
            self.reward = reward

        def step(self, action):
            return 0, self.reward, False, False, {}

    env = SplitEnv.__new__(SplitEnv)
    env.reward_scale = 10.0
    for reward, good in ((1e10, True), (1e11, False), (float("nan"), False), (-float("inf"), False)):
        env.env = One(reward)
        if good:
            assert env.step(0)[1] == 10 * reward
        else:
            with pytest.raises(ValueError, match="the reward is"):
                env.step(0)


def test_without_a_seed_an_environment_is_as_with_seed_0():
    class Listing(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Discrete(2)

        def __init__(self):
            self.seeds = []

        def reset(self, *, seed=None, options=None):
            self.seeds.append(seed)
            return 0, {}

    drawn = []
    for seed in (None, 0, 1):
        env = SplitEnv(Listing(), "train", 1000)
        env.reset(seed=seed)
        env.reset()
        drawn.append(env.unwrapped.seeds)
    assert drawn[0] == drawn[1] != drawn[2]


def test_an_objective_that_is_no_number_is_one_line(tmp_path, capsys, monkeypatch):
    def objectives(scenarios, split, seed, known, goal, weights, index):
        return np.full(len(weights), np.nan)

    monkeypatch.setattr(auction_evolution, "objectives", objectives)
    words = ["progress=false", "processes=1", f"output={tmp_path / 'a'}", "agent.scenarios.origin=synthetic"]
    assert train_command.main([*words, "agent.population=4", "agent.episodes=1", "agent.validation=1"]) == 2
    told = "objective: is not a finite number (the training scenarios are broken)"
    assert told in error_line(capsys)


def test_memory_that_runs_out_is_one_line(tmp_path, capsys):
    # A layer of 300,000 by 300,000 weights has 360 GB.
    assert run_train(tmp_path / "ppo", "ppo", "agent.hidden=[300000,300000]") == 2
    assert "out of memory: " in error_line(capsys)
    assert not (tmp_path / "ppo").exists()
