"""Networks of the agents of Stable-Baselines3, built by name. Importing this imports PyTorch."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.dqn.policies import DQNPolicy

from clustergym.learn.equivariant import EquivariantPolicy, shapes_of


def build_policy(agent: str, env: Any, hidden: tuple[int, ...]) -> Any:
    """Return the untrained network of an agent in an environment with flat observations.

    Parameters
    ----------
    agent : {"ppo", "dqn", "maskable_ppo"}
    env : gymnasium.Env
    hidden : tuple of int
        Widths of the hidden layers.
    """
    classes = {"ppo": ActorCriticPolicy, "dqn": DQNPolicy, "maskable_ppo": EquivariantPolicy}
    more: dict[str, Any] = {"net_arch": list(hidden)}
    if agent == "maskable_ppo":
        more = {"hidden": hidden, "shapes": shapes_of(env)}
    return classes[agent](env.observation_space, env.action_space, _no_schedule, **more)


def _no_schedule(_: float) -> float:
    return 0.0
