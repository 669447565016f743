"""Checkpoints of networks, and a policy that sees observations and takes a network's greedy actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.agents.checkpoints import NETWORK_SCHEMA, CheckpointContent, Tensors, read, write
from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import install_line
from clustergym.envs.actions import EditActions
from clustergym.envs.auction_actions import make_actions
from clustergym.envs.observations import FEATURES, JOB_FEATURES, OPTION_FEATURES, QUEUE_FEATURES, times_known
from clustergym.envs.registration import make_env
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.scenario.policy import Decision, InformationClass, Setting, View
from clustergym.trace.trace import Trace

AGENTS = ("ppo", "maskable_ppo", "job_credit")
COLUMNS = {"jobs": list(JOB_FEATURES), "options": list(OPTION_FEATURES), "queue": list(QUEUE_FEATURES)}
"""Names of the columns that networks are trained on; a checkpoint of other columns is refused."""


@dataclass(frozen=True, eq=False)
class NetworkCheckpoint:
    """A trained network, the environment it was trained in, and what its YAML file says.

    Attributes
    ----------
    agent : str
    policy : torch.nn.Module
        Policy of Stable-Baselines3, ready to predict.
    env : gymnasium.Env
        The environment it was trained in, with flat observations.
    information_class : InformationClass
    sha256 : str
        Digest of the weights file.
    about : mapping
        All that the YAML says.
    """

    agent: str
    policy: Any
    env: Any
    information_class: InformationClass
    sha256: str
    about: Mapping[str, Any]


def describe_env(env: Any) -> dict[str, Any]:
    """Return what a network depends on of its environment: id, sizes and, in scheduling, layout and types."""
    core = env.unwrapped
    described: dict[str, Any] = {
        "environment": core.spec.id,
        "observation": int(np.prod(env.observation_space.shape)),
        "actions": int(getattr(env.action_space, "n", 0) or np.prod(env.action_space.shape)),
    }
    if isinstance(core, SchedulingEnv):
        setting, layout = core.features.setting, core.features.layout
        described |= {
            "layout": {name: list(shape) for name, shape in layout.items()},
            "columns": {name: COLUMNS[name] for name in layout if name in COLUMNS},
            "gpu_types": list(setting.gpu_types),
            "counts": setting.counts.tolist(),
        }
    return described


def save(
    path: Path,
    agent: str,
    tensors: Tensors,
    described: Mapping[str, Any],
    information: InformationClass,
    about: Mapping[str, Any],
) -> None:
    """Write a network's tensors to `path`, and their description to a YAML file of the same name."""
    packable = {name: np.ascontiguousarray(value) for name, value in sorted(tensors.items())}
    write(path, packable, {"schema": NETWORK_SCHEMA, "agent": agent, **described}, information, about)


def load(name: str) -> NetworkCheckpoint:
    """Read a checkpoint by path or name, and build its network."""
    stored = read(name, NETWORK_SCHEMA)
    about = stored.about
    _check(stored.yaml, about)
    env = _env(stored.yaml, about)
    policy = _network(stored, env)
    return NetworkCheckpoint(about["agent"], policy, env, stored.information_class, stored.sha256, about)


def _bad(path: Path, key: str | None, message: str, remedy: str) -> InputError:
    return InputError(message, file=path, field=key, remedy=remedy)


def _check(file: Path, about: Mapping[str, Any]) -> None:
    """Raise an InputError unless the YAML says what a network is built from."""
    agent = about.get("agent")
    if agent not in AGENTS:
        raise _bad(file, "agent", f"unknown agent {agent!r}", nearest(str(agent), AGENTS))
    for key, expected_type in (("hidden", list), ("traces", dict)):
        if not isinstance(about.get(key), expected_type):
            raise _bad(file, key, "is missing", "the file is damaged")
    hidden = about["hidden"]
    if not hidden or not all(type(width) is int and 0 < width <= 4096 for width in hidden):
        raise _bad(file, "hidden", f"{hidden} are no widths", "the file is damaged")


def _env(file: Path, about: Mapping[str, Any]) -> Any:
    """Make the environment that a checkpoint was trained in; refuse the checkpoint if that has changed."""
    mapping = about["traces"].get("env")
    if not isinstance(mapping, dict) or not all(isinstance(key, str) for key in mapping):
        raise _bad(file, "traces.env", "is missing", "the file is damaged")
    # Rewards are not needed here, and their baseline may be a policy that is not there any more.
    plain = {key: value for key, value in mapping.items() if key != "baseline"}
    try:
        env = make_env({**plain, "observation": "flat"})
    except InputError as error:
        raise _bad(file, "traces.env", str(error), "train it anew") from error
    for key, here in describe_env(env).items():
        if about.get(key) != here:
            there = f"another version of {mapping['id']}, which has {_short(here)}"
            raise _bad(file, key, f"{_short(about.get(key))} is of {there}", "train it anew")
    return env


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else f"{text[:77]}…"


def build_policy(agent: str, env: Any, hidden: Sequence[int]) -> Any:
    """Build the untrained network of a type of agent, for an environment with flat observations.

    Parameters
    ----------
    agent : {"ppo", "maskable_ppo", "job_credit"}
    env : gymnasium.Env
    hidden : sequence of int
        Widths of the hidden layers.
    """
    import torch
    from stable_baselines3.common.policies import ActorCriticPolicy

    from clustergym.training.equivariant import EquivariantPolicy, find_shapes
    from clustergym.training.row_network import RowNetwork

    # A network this small takes many times the processor time on several threads, which wait for each other.
    torch.set_num_threads(1)
    spaces = (env.observation_space, env.action_space, lambda _: 0.0)
    if agent == "job_credit":
        return RowNetwork(env.unwrapped.features, env.action_space, hidden)
    if agent == "maskable_ppo":
        size = int(np.prod(env.observation_space.shape))
        return EquivariantPolicy(size, find_shapes(env), tuple(hidden))
    return ActorCriticPolicy(*spaces, net_arch=list(hidden))


def _network(stored: CheckpointContent, env: Any) -> Any:
    """Build the network and load the tensors, whose names and shapes must be the network's."""
    try:
        policy = build_policy(stored.about["agent"], env, stored.about["hidden"])
    except ImportError as error:
        remedy = install_line("rl")
        raise _bad(stored.path, None, f"needs {error.name or 'PyTorch'} to be used", remedy) from error
    # Names and shapes before values: PyTorch would say this in a page of text.
    wanted = {name: tuple(value.shape) for name, value in policy.state_dict().items()}
    given = {name: value.shape for name, value in stored.tensors.items()}
    for name in sorted(wanted.keys() | given.keys()):
        if wanted.get(name) != given.get(name):
            message = f"shape {given.get(name, 'missing')}, the network has {wanted.get(name, 'none')}"
            raise _bad(stored.path, name, message, "train it anew")
    import torch

    policy.load_state_dict(
        {name: torch.from_numpy(np.array(value)) for name, value in stored.tensors.items()}
    )
    policy.train(False)
    return policy


class NetworkPlayer:
    """Makes a scheduling policy's decisions with a trained network.

    It needs nothing but Views: the jobs that have left are those that an earlier one showed.

    Parameters
    ----------
    checkpoint : NetworkCheckpoint
    """

    def __init__(self, checkpoint: NetworkCheckpoint) -> None:
        core = checkpoint.env.unwrapped
        if not isinstance(core, SchedulingEnv):
            raise InputError(
                f"is of {checkpoint.about['environment']}, which schedules no jobs",
                field="policy.checkpoint",
                remedy="give one of Elastic, Fair, Deadline or Priority",
            )
        self.information_class: InformationClass = core.parameters.information_class
        self.round_s = core.parameters.round_s
        self._parameters = core.parameters
        self._trained = core.features.setting
        self._checkpoint = checkpoint
        self._known = times_known(self.information_class)

    def check(self, trace: Trace, setting: Setting) -> None:
        """Raise an InputError if the cluster's GPU types, GPUs or counts differ from the training's."""
        trained, message = self._trained, ""
        if setting.gpu_types != trained.gpu_types or not np.array_equal(setting.counts, trained.counts):
            message = (
                f"was trained for {', '.join(trained.gpu_types)} and {len(trained.counts)} counts, the "
                f"cluster has {', '.join(setting.gpu_types)} and {len(setting.counts)}"
            )
        # A network sees shares of GPUs: that of a larger cluster would look like what it knows, and is not.
        elif not np.array_equal(setting.capacity, trained.capacity):
            there, here = trained.capacity.tolist(), setting.capacity.tolist()
            message = f"was trained for {there} GPUs, the cluster has {here}"
        if message:
            remedy = f"give cluster={self._parameters.cluster}, or train it there"
            raise InputError(message, field="policy.checkpoint", remedy=remedy)
        self._trace = trace

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Prepare for a new run."""
        self._met: set[int] = set()
        self._actions = make_actions(self._parameters, setting)
        self._features = FEATURES[self._parameters.features](setting, self._parameters.rows)
        self._actions.reset(self._trace)

    def schedule(self, view: View) -> Decision:
        """Return the decision that the network's most probable actions lead to."""
        actions, features = self._actions, self._features
        # How many have left is not in a View; a policy counts the jobs that it has met and sees no more.
        self._met.update(view.job.tolist())
        actions.begin(view)
        features.begin(view, actions, len(self._met) - len(view), self._known)
        while True:
            action = self._choose(features.values())
            decision = actions.act(action)
            if decision is not None:
                return decision
            features.update_edited(actions, action)

    def _choose(self, observation: Any) -> Any:
        """Return the greedy action, or stop where it is illegal (in training it changes nothing)."""
        if hasattr(self._checkpoint.policy, "greedy_masked"):
            return self._checkpoint.policy.greedy_masked(observation, self._actions.mask())
        found = self._checkpoint.policy.predict(observation, deterministic=True)[0]
        action = found if found.ndim else int(found)
        if not self._actions.legal(action):
            assert isinstance(self._actions, EditActions)
            return self._actions.stop
        return action
