"""`agent=ppo` and `agent=dqn`: the algorithms of Stable-Baselines3, unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.parameter_types import AtLeastTwo, Fraction, NonNegativeInt, PositiveInt
from clustergym.envs.actions import MetaActions
from clustergym.training.split_env import SplitEnv
from clustergym.training.stable_baselines import StableBaselinesAgent

LARGEST_REPLAY_BYTES = 2**29


@dataclass
class Ppo(StableBaselinesAgent):
    """Proximal policy optimisation (Schulman et al., 2017) with two separate networks.

    Parameters
    ----------
    n_steps, n_epochs : int
        Steps of each environment between updates; passes over them.
    gae_lambda, clip_range, ent_coef : float
    """

    n_steps: AtLeastTwo = 1250
    n_epochs: PositiveInt = 10
    gae_lambda: float = 0.98
    clip_range: float = 0.2
    ent_coef: float = 0.003

    name = "ppo"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_whole_batches(self.n_steps)

    def check_env(self, env: SplitEnv) -> None:
        """Refuse environments that raise on illegal actions."""
        _require_forgiving(env)

    def model(self, envs: Any, seed: int) -> Any:
        """Return Stable-Baselines3's PPO."""
        from stable_baselines3 import PPO

        given = {"policy_kwargs": {"net_arch": list(self.hidden)}, **self.algorithm()}
        return PPO("MlpPolicy", envs, seed=seed, **given)

    def algorithm(self) -> dict[str, Any]:
        """Return the parameters that Stable-Baselines3 and sb3-contrib both take."""
        names = ["n_steps", "n_epochs", "batch_size", "learning_rate", "gamma", "gae_lambda"]
        names += ["clip_range", "ent_coef"]
        return {"device": "cpu", **{name: getattr(self, name) for name in names}}


@dataclass
class Dqn(StableBaselinesAgent):
    """Deep Q-learning (Mnih et al., 2015), for environments without illegal actions: it ignores masks.

    Parameters
    ----------
    replay : int
        Steps that the replay buffer holds.
    learning_starts, train_every, gradient_steps, target_every : int
        In steps of each environment, but for `learning_starts` and `target_every`, which count all.
    exploration : float
        Share of the training over which random actions become few.
    exploration_end : float
        Share of random actions then.
    """

    gamma: float = 0.99
    replay: PositiveInt = 50_000
    learning_starts: NonNegativeInt = 2_000
    train_every: PositiveInt = 4
    gradient_steps: PositiveInt = 4
    target_every: PositiveInt = 2_000
    exploration: Fraction = 0.4
    exploration_end: Fraction = 0.05

    name = "dqn"

    def check_env(self, env: SplitEnv) -> None:
        """Refuse environments with illegal actions or vectors, and a replay too large for memory."""
        _require_forgiving(env)
        if not hasattr(env.action_space, "n"):
            message, remedy = "takes vectors as actions", "choose agent=ppo or agent=group_pg"
            raise InputError(message, field="env", remedy=remedy)
        shape = env.observation_space.shape or ()
        if 8 * self.replay * int(shape[0]) > LARGEST_REPLAY_BYTES:
            raise InputError(
                f"{self.replay} steps of {shape[0]} numbers are more than 512 MiB",
                field="agent.replay",
                remedy=f"give at most {LARGEST_REPLAY_BYTES // (8 * int(shape[0]))}",
            )

    def model(self, envs: Any, seed: int) -> Any:
        """Return Stable-Baselines3's DQN."""
        from stable_baselines3 import DQN

        return DQN(
            "MlpPolicy",
            envs,
            seed=seed,
            buffer_size=self.replay,
            learning_starts=self.learning_starts,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            gamma=self.gamma,
            train_freq=self.train_every,
            gradient_steps=self.gradient_steps,
            target_update_interval=self.target_every,
            exploration_fraction=self.exploration,
            exploration_final_eps=self.exploration_end,
            policy_kwargs={"net_arch": list(self.hidden)},
            device="cpu",
        )


def _require_forgiving(env: SplitEnv) -> None:
    """Refuse environments in which an illegal action, which the agent may choose, ends the training."""
    core = env.unwrapped
    raises = getattr(getattr(core, "parameters", None), "on_illegal", None) == "raise"
    if raises and not isinstance(getattr(core, "actions", None), MetaActions):
        raise InputError(
            "the agent knows no masks, and illegal actions are to raise",
            field="env.on_illegal",
            remedy="leave it out, or give agent=maskable_ppo",
        )
