"""Who plays an environment: a policy through its actions, or chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError
from clustergym.envs.actions import EditActions
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.results.metrics.metrics import Metrics
from clustergym.scenario.policy import Decision, Policy, View
from clustergym.scenario.registry import make_policy


@dataclass(frozen=True)
class Drive:
    """The outcome of an episode in which a policy chose the actions: metrics, reward, and counts of steps.

    Attributes
    ----------
    digest : str
        Of the event log; with a row for every job that of `clustergym.simulate`.
    metrics : dict
    total_reward : float
    steps, decisions : int
        Actions, and decision points.
    lost : int
        Changes of an allotment that no action could make, as the job had no row.
    """

    digest: str
    metrics: Metrics
    total_reward: float
    steps: int
    decisions: int
    lost: int


def driving_parameters(policy: Policy | str) -> dict[str, Any]:
    """Return environment parameters for a policy: what it knows, when it decides, no forced use of GPUs."""
    policy = _make_policy(policy)
    known = {"information": policy.information_class.value, "round_s": policy.round_s}
    return {**known, "mask_stop_while_idle": False}


def drive(
    env: gymnasium.Env[Any, Any],
    policy: Policy | str,
    *,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
) -> Drive:
    """Run an episode of an environment in which a policy decides; its decisions are translated into actions.

    Parameters
    ----------
    env : gymnasium.Env
        With actions that edit, made with `driving_parameters(policy)`; may be wrapped.
    policy : Policy or str
        By itself, or by name.
    seed, options
        Of `reset`; `options["run_seed"]` seeds the policy's stream as well.

    Raises
    ------
    InputError
        If the environment's information or rounds are not the policy's, it forbids to leave GPUs idle, or its
        actions cannot drop jobs and the policy does.
    """
    core, policy = env.unwrapped, _make_policy(policy)
    if not isinstance(core, SchedulingEnv) or not isinstance(core.actions, EditActions):
        raise InputError("has no edits to drive", field="env", remedy="give actions=edit, admit or drop")
    _check(core, policy)
    env.reset(seed=seed, options=options)
    run_seed = int((options or {}).get("run_seed", 0))
    policy.check(core.known_trace, core.setting)
    policy.reset(core.setting, random_streams.POLICY.generator(run_seed))
    total, steps, decisions, lost = 0.0, 0, 0, 0
    info: dict[str, Any] = {}
    while (view := core.view) is not None:
        decision, actions = policy.schedule(view), core.actions
        if len(decision.drop) and not actions.rejects:
            message, remedy = "drops jobs, and no action does", "make with actions=drop"
            raise InputError(message, field="policy", remedy=remedy)
        made, left_out = edits(actions, view, decision)
        for action in made:
            env.step(np.int64(action))
        steps, decisions, lost = steps + len(made) + 1, decisions + 1, lost + left_out
        _, reward, _, _, info = env.step(np.int64(actions.stop))
        total += float(reward)
    return Drive(info["digest"], info["metrics"], total, steps, decisions, lost)


def edits(actions: EditActions, view: View, decision: Decision) -> tuple[list[int], int]:
    """Return the actions that carry out a decision, and the number of its changes that no action can make.

    Preemptions come first, then assignments, those that fit as they are; a running job whose new
    allotment must wait for GPUs that another such job holds is preempted before. What concerns a
    job without a row is left out, and what then does not fit is as well.

    Returns
    -------
    list of int
        Actions, legal in this order at the beginning of the decision point.
    int
        Changes that are left out.
    """
    row_of = {int(at): row for row, at in enumerate(actions.shown)}
    target_type, target = targets(view, decision)
    dropped = set(np.searchsorted(view.job, decision.drop).tolist())
    changed = np.flatnonzero((target != view.gpus) | (target_type != view.gpu_type)).tolist()
    plan = _Edits(actions, view)
    lost = len([job for job in {*changed, *dropped} if job not in row_of])
    for job in sorted(dropped & set(row_of)):
        plan.leave(job, actions.rejection(row_of[job]))
    # Preemptions free GPUs and are always legal, so they come before every assignment.
    for job in changed:
        if target[job] == 0 and job in row_of and job not in dropped:
            plan.leave(job, actions.index(row_of[job], 0, 0))
    wanted = {
        job: (int(target_type[job]), int(target[job])) for job in changed if target[job] and job in row_of
    }
    while wanted:
        for job in [job for job in wanted if plan.fits(job, *wanted[job])]:
            # Again: an assignment of this pass may have taken the GPUs.
            if plan.fits(job, *wanted[job]):
                gpu_type, gpus = wanted.pop(job)
                plan.assign(job, gpu_type, gpus, actions.index(row_of[job], gpu_type, gpus))
        if any(plan.fits(job, *wanted[job]) for job in wanted):
            continue
        # All that are left wait for GPUs of each other: one of them has to give up its own first.
        holder = next((job for job in wanted if plan.held[job]), None)
        if holder is None:
            break
        plan.leave(holder, actions.index(row_of[holder], 0, 0))
    return plan.made, lost + len(wanted)


def targets(view: View, decision: Decision) -> tuple[Ints, Ints]:
    """Return each job's GPU type (-1: none) and number of GPUs after a decision, shape (n,) each."""
    gpu_type, gpus = np.full(len(view), -1, dtype=np.int64), np.zeros(len(view), dtype=np.int64)
    at = np.searchsorted(view.job, decision.job)
    gpu_type[at], gpus[at] = decision.gpu_type, decision.gpus
    return gpu_type, gpus


class _Edits:
    """The actions chosen so far that carry out a decision, and the GPUs that they leave free."""

    def __init__(self, actions: EditActions, view: View) -> None:
        self.free = view.free.copy()
        self.held, self.gpu_type = view.gpus.copy(), view.gpu_type.copy()
        self.made: list[int] = []

    def leave(self, job: int, action: int) -> None:
        self.assign(job, -1, 0, action)

    def fits(self, job: int, gpu_type: int, gpus: int) -> bool:
        own = self.held[job] if self.gpu_type[job] == gpu_type else 0
        return bool(gpus <= self.free[gpu_type] + own)

    def assign(self, job: int, gpu_type: int, gpus: int, action: int) -> None:
        if self.held[job]:
            self.free[self.gpu_type[job]] += self.held[job]
        self.held[job], self.gpu_type[job] = gpus, gpu_type
        if gpus:
            self.free[gpu_type] -= gpus
        self.made.append(action)


def _check(core: SchedulingEnv, policy: Policy) -> None:
    for name, wanted in driving_parameters(policy).items():
        given = getattr(core.parameters, name)
        if given != wanted:
            raise InputError(
                f"is {given}, policy {policy.name} has {wanted}",
                field=f"env.{name}",
                remedy="make with **driving_parameters(policy)",
            )


def _make_policy(policy: Policy | str) -> Policy:
    return make_policy({"name": policy}) if isinstance(policy, str) else policy


def random_action(env: gymnasium.Env[Any, Any], info: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """Return a legal action of an environment, chosen at random with equal probabilities.

    Where an action is a vector, its numbers are between -1 and 1.

    Parameters
    ----------
    info : mapping
        As `step` and `reset` return it.
    """
    if isinstance(env.action_space, Box):
        return rng.uniform(-1.0, 1.0, env.action_space.shape)
    legal = np.flatnonzero(info["action_mask"])
    return int(legal[int(rng.random() * len(legal))])
