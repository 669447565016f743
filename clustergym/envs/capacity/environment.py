"""The environment `ClusterGym/Capacity-16-v0`: an agent rents GPUs for a cluster, hour by hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from clustergym.common.arrays import Bools, Floats
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import PositiveFloat
from clustergym.common.parameters import Parameters, build_from_keywords
from clustergym.envs.capacity import world as worlds
from clustergym.envs.capacity.rules import REACTIVE, fill, list_used
from clustergym.envs.capacity.world import FEATURES, HOURS
from clustergym.envs.rendering import check_mode

Observations = npt.NDArray[np.float32]
PAST_H = 24
"""Hours that the variant `history` shows."""
LIMIT = 20.0
"""Of each number observed."""
REWARD_USD = 20.0
"""USD for each 16 GPUs of the size by which a reward is divided."""
NAMES = ("delay", "late", "rent", "left")


@dataclass(frozen=True)
class CapacityParameters(Parameters):
    """The parameters of `CapacityEnv`."""

    config_key = "env"

    gpus: Literal[16, 64] = 16
    """Size: half of these GPUs are one's own; up to four times as many contracts, and on-demand GPUs, can be
    rented."""
    split: Literal["train", "dev", "test"] = "train"
    """Days of arrivals from which episodes are drawn."""
    residual: bool = False
    """Whether actions add to the targets of the reactive rule."""
    reach: PositiveFloat = 1.0
    """How many times the size an action of 1 adds, if `residual`."""
    observation: Literal["flat", "history"] = "flat"
    """`history`: the raw counts and prices of the last 24 hours instead of arrivals and prices of now."""


class CapacityEnv(gymnasium.Env[Observations, npt.NDArray[np.float32]]):
    """An environment whose agent rents GPUs for a cluster, hour by hour, at prices that move.

    ## Description

    Half of the GPUs are one's own. Others are rented: contracts, each for a GPU for six hours that begin two
    hours after the order, at the price of the order; and on-demand GPUs, at once, for an hour, at the hour's
    price. Jobs are scheduled by a fixed rule: shortest time left first, each on at most the GPUs that it
    asks for, and on the largest power of two that is left. Speeds are in proportion to GPUs, restarts free.

    Each of an episode's three days is one of Philly's (the hourly counts of `split`'s days), or drawn of the
    hours of Helios with a hidden factor of the day (0.4, 1 or 1.8) and bursts. Jobs come as a Poisson process
    of that rate; work is log-normal. Contracts cost 0.55 USD a GPU-hour with a daily wave, on-demand GPUs
    1.3, and three times that in spells of 2.5 hours. Prices are assumed, and all of the model is in
    `clustergym.envs.capacity.world`.

    | id | GPUs of its own | rented at most |
    |---|---|---|
    | `ClusterGym/Capacity-16-v0` | 8 | 64 and 64 |
    | `ClusterGym/Capacity-64-v0` | 32 | 256 and 256 |

    ## Action Space

    `Box(-1, 1, (2,))`: targets of contracts, held and ordered together, and of on-demand GPUs. -1 is none,
    1 the most; with `residual=True` they are the reactive rule's plus `reach` times the size for each unit.
    Contracts are never given back before their term. Every action is legal.

    ## Observation Space

    `Box(-20, 20, (20,), float32)`; counts and work are for each GPU of the size.

    | Numbers | Meaning |
    |---|---|
    | `waiting`, `work`, `asked`, `due` | waiting jobs; GPU-hours left; GPUs asked for; jobs due in an hour |
    | `usable` | GPUs of one's own and of contracts |
    | `contract_price`, `on_demand_price` | logarithm of the price over its mean |
    | `sin_day`, `cos_day`, `sin_half`, `cos_half` | time of the day, with two harmonics |
    | `arrivals_1h`, `arrivals_6h`, `work_1h` | jobs of the last hours over the usual; their work |
    | `held`, `ordered`, `ending_2h`, `ending_4h` | contracts; those that end within hours |
    | `hired`, `running` | on-demand GPUs of the hour before; jobs that run |

    With `observation="history"` the two prices and three arrivals are replaced by the jobs, work and both
    prices of each of the last 24 hours, `Box(-20, 20, (111,), float32)`.

    ## Rewards

    What the hour costs by the reactive rule on the same trace, minus what it costs, divided by 20 USD for
    each 16 GPUs: 2 USD an hour for each job in the system, 3 USD for a job not done within twice its ideal
    time (at least half an hour), and the rent. Jobs left at the end are charged for as if they ran on at
    once, on on-demand GPUs. `info["rewards"]` has minus each cost in USD.

    ## Illegal Actions

    There are none: actions beyond the space are cut to it.

    ## Starting State

    Midnight, no jobs, nothing rented.

    ## Episode End

    - Termination: after 72 hours.
    - Truncation: never.

    ## Arguments

    Parameters
    ----------
    render_mode : {"ansi", "rgb_array"}, optional
    **parameters
        Fields of `CapacityParameters`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **parameters: Any) -> None:
        self.render_mode = check_mode(render_mode, self.metadata["render_modes"])
        self.parameters: CapacityParameters = build_from_keywords(CapacityParameters, parameters, "env")
        self.observation_space = spaces.Box(-LIMIT, LIMIT, (count_numbers(self.parameters),), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._episodes: CapacityRows | None = None
        self._over = True

    def as_observation(self, flat: Observations) -> Observations:
        """Return an observation as it is: it has one form."""
        return flat

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin an episode, and return its first observation and info."""
        super().reset(seed=seed)
        if self._episodes is None:
            self._episodes = CapacityRows(self.parameters, 1)
        self._episodes.begin([0], [self.np_random])
        self._over = False
        return self._episodes.observe()[0], self._make_info()

    def step(self, action: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Rent for an hour, and simulate it."""
        if self._episodes is None or self._over:
            raise ResetNeeded("the episode is over, or none has begun: call reset() first")
        taken = check_targets(np.asarray(action)[None], 1)
        self._episodes.take(taken, np.zeros(1, dtype=np.bool_))
        self._over = bool(self._episodes.over[0])
        reward = float(self._episodes.rewards[0])
        return self._episodes.observe()[0], reward, self._over, False, self._make_info()

    def _make_info(self) -> dict[str, Any]:
        assert self._episodes is not None
        columns = {name: value[0].item() for name, value in self._episodes.get_columns().items()}
        terms = -self._episodes.world.cost[0]
        return {**columns, "rewards": dict(zip(NAMES, terms.tolist(), strict=True))}

    def render(self) -> Any:
        """Return the state as text or a picture (height, width, 3); None without a render mode."""
        if self.render_mode is None or self._episodes is None:
            return None
        from clustergym.envs.capacity.picture import as_pixels, as_text

        return (as_text if self.render_mode == "ansi" else as_pixels)(self._episodes.world)


def count_numbers(parameters: CapacityParameters) -> int:
    """Return how many numbers an observation has."""
    return FEATURES if parameters.observation == "flat" else FEATURES - 5 + 4 * PAST_H


def check_targets(actions: npt.ArrayLike, size: int) -> Floats:
    """Return the actions, cut to the space; raise an InputError for another shape or what is no number."""
    taken = np.asarray(actions, dtype=np.float64)
    if taken.shape != (size, 2) or not np.isfinite(taken).all():
        message = f"have shape {taken.shape}, or are not finite"
        raise InputError(message, field="actions", remedy=f"give {size} x 2 numbers from -1 to 1")
    return taken.clip(-1.0, 1.0)


class CapacityRows:
    """Episodes in the rows of one `World`, stepped together by compiled calls.

    Attributes
    ----------
    world : World
    rewards : ndarray of float, shape (rows,)
    over : ndarray of bool, shape (rows,)
    """

    def __init__(self, parameters: CapacityParameters, size: int) -> None:
        self.parameters, self.world = parameters, worlds.make_world(size, parameters.gpus)
        self.rule = fill(list_used("reactive"), np.array(REACTIVE[parameters.gpus]))
        self._profiles = worlds.day_profiles(parameters.split)
        self.rewards, self.over = np.zeros(size), np.zeros(size, dtype=np.bool_)
        self._seen = np.zeros((size, FEATURES))
        self._last_cost = np.zeros(size)

    def begin(self, rows: Any, rngs: Any) -> None:
        """Draw an episode in some rows."""
        for row in rows:
            worlds.begin_episode(rngs[row], self._profiles, self.world, row, self.rule)
            self.over[row] = False
            self.rewards[row] = self._last_cost[row] = 0.0
            worlds.observe_rows(self.world, row, row + 1, self._seen)

    def take(self, taken: Floats, skipped: Bools) -> None:
        """Apply the actions in the rows that are not skipped."""
        given = self.parameters
        scale = given.reach * given.gpus if given.residual else 2.0 * given.gpus
        # Without the rule's weights -1 is no GPU and 1 the most, four times the size.
        base = self.rule if given.residual else np.zeros_like(self.rule)
        shift = 0.0 if given.residual else scale
        worlds.step_rows(
            self.world, taken * scale + shift, base, skipped, self._seen, self.rewards, self._last_cost
        )
        self.rewards /= REWARD_USD * given.gpus / 16
        self.over = self.world.state[:, worlds.HOUR] == HOURS

    def observe(self) -> Observations:
        """Return the observations, a new array."""
        if self.parameters.observation == "flat":
            return self._seen.clip(-LIMIT, LIMIT).astype(np.float32)
        size = len(self._seen)
        found = np.zeros((size, count_numbers(self.parameters)))
        kept = [at for at in range(FEATURES) if not 5 <= at < 7 and not 11 <= at < 14]
        found[:, : len(kept)] = self._seen[:, kept]
        worlds.show_past(self.world, found, len(kept), PAST_H)
        return found.clip(-LIMIT, LIMIT).astype(np.float32)

    def get_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return what infos say of each row, new arrays."""
        state = self.world.state
        hour, jobs = state[:, worlds.HOUR].copy(), state[:, worlds.JOBS].copy()
        return {"hour": hour, "jobs": jobs, "cost": self._last_cost.copy()}
