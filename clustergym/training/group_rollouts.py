"""Rollouts of the same traces with a masked network, and what each of their steps is credited with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from clustergym.common.arrays import Floats, Ints
from clustergym.envs.vector.groups import groups


@dataclass
class Rollouts:
    """Whole episodes: `size` of each trace, one after the other.

    Attributes
    ----------
    observations, masks, actions, log_probabilities : torch.Tensor, shape (steps, …)
        Observations are of half precision.
    episode : ndarray of int, shape (steps,)
    now_s, paid : ndarray of float, shape (steps,)
        When a step was taken, and the return of its episode up to then.
    end_s, returns : ndarray of float, shape (episodes,)
    """

    observations: torch.Tensor
    masks: torch.Tensor
    actions: torch.Tensor
    log_probabilities: torch.Tensor
    episode: Ints
    now_s: Floats
    paid: Floats
    end_s: Floats
    returns: Floats


def play(
    envs: Any, policy: Any, trace_seeds: Sequence[int], size: int, generator: torch.Generator
) -> Rollouts:
    """Play `size` episodes of each trace with actions drawn by a masked network.

    Parameters
    ----------
    envs : SchedulingVectorEnv
        `len(trace_seeds) * size` environments with flat observations, in `AutoresetMode.NEXT_STEP`.
    policy : EquivariantPolicy
    trace_seeds : sequence of int
    size : int
    generator : torch.Generator
    """
    seen, info = envs.reset(options=groups(trace_seeds, size))
    number = envs.num_envs
    returns, end_s, goes_on = np.zeros(number), np.zeros(number), np.ones(number, dtype=np.bool_)
    # In NextStep mode the action of an environment that is over counts for nothing.
    actions: npt.NDArray[np.int64] = np.zeros(number, dtype=np.int64)
    tensors: list[tuple[torch.Tensor, ...]] = []
    arrays: list[tuple[npt.NDArray[Any], ...]] = []
    while goes_on.any():
        rows = np.flatnonzero(goes_on)
        own, mask = torch.from_numpy(seen[rows]).half(), torch.from_numpy(info["action_mask"][rows] > 0)
        with torch.no_grad():
            logs = torch.log_softmax(policy.logits(own.float(), mask), dim=1)
            drawn = torch.multinomial(logs.exp(), 1, generator=generator)
        tensors.append((own, mask, drawn[:, 0], logs.gather(1, drawn)[:, 0]))
        arrays.append((rows, info["now_s"][rows], returns[rows]))
        actions[rows] = drawn[:, 0].numpy()
        seen, rewards, terminated, truncated, info = envs.step(actions)
        returns[rows] += rewards[rows]
        end_s[rows] = info["now_s"][rows]
        goes_on &= ~(terminated | truncated)
    observations, masks, taken, logs = (torch.cat(part) for part in zip(*tensors, strict=True))
    episode, now_s, paid = (np.concatenate(part) for part in zip(*arrays, strict=True))
    return Rollouts(observations, masks, taken, logs, episode, now_s, paid, end_s, returns)


def compute_credits(rollouts: Rollouts, size: int, baseline: str) -> Floats:
    """Return what each step is credited with in units of the return, shape (steps,).

    Parameters
    ----------
    rollouts : Rollouts
    size : int
        Episodes of a trace.
    baseline : {"group", "group_by_time", "none"}
        `group`: the episode's return less the group's mean, as in group-relative policy optimisation (Shao
        et al., 2024, DeepSeekMath, section 4.1). `group_by_time`: what is still to come less what is still to
        come at that time in the group's mean (Mao et al., Variance Reduction for Reinforcement Learning in
        Input-Driven Environments, ICLR 2019). `none`: what is still to come.
    """
    whole, group = rollouts.returns[rollouts.episode], rollouts.episode // size
    if baseline == "group":
        return np.asarray(whole - rollouts.returns.reshape(-1, size).mean(axis=1)[group])
    found = whole - rollouts.paid
    if baseline == "group_by_time":
        for number in range(len(rollouts.returns) // size):
            own = np.flatnonzero(group == number)
            found[own] -= _still_to_come(rollouts, number * size, size, rollouts.now_s[own])
    return np.asarray(found)


def advantages(rollouts: Rollouts, size: int, baseline: str, scale: str) -> Floats:
    """Return the credits of the steps in standard deviations, shape (steps,).

    Parameters
    ----------
    rollouts, size, baseline
        As of `compute_credits`.
    scale : {"group", "batch"}
        Over the steps of a trace, or over all.
    """
    found, group = compute_credits(rollouts, size, baseline), rollouts.episode // size
    if scale == "batch":
        group = np.zeros_like(group)
    for number in range(int(group.max()) + 1):
        deviation = found[group == number].std()
        found[group == number] /= max(deviation, 1e-8)
    return found


def _still_to_come(rollouts: Rollouts, first: int, size: int, now_s: Floats) -> Floats:
    """Return the mean return to come, over episodes first..first + size, at some times."""
    total = np.zeros(len(now_s))
    for episode in range(first, first + size):
        own = rollouts.episode == episode
        whole = rollouts.returns[episode]
        at_s = np.append(rollouts.now_s[own], rollouts.end_s[episode])
        total += whole - np.interp(now_s, at_s, np.append(rollouts.paid[own], whole))
    return total / size
