"""`agent=ppo`: proximal policy optimisation of Stable-Baselines3, unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.parameter_types import AtLeastTwo, PositiveInt
from clustergym.envs.actions import MetaActions
from clustergym.training.split_env import SplitEnv
from clustergym.training.stable_baselines import StableBaselinesAgent


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
