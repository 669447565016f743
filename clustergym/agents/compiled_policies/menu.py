"""The policies that are compiled, and what each decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from clustergym.agents import auction_episode
from clustergym.agents.compiled_policies import ares, hesrpt, las, optimus, queues, srtf
from clustergym.agents.compiled_policies.memory import Memory, select_memory
from clustergym.agents.compiled_policies.queues import CLUSTER, NOTHING, TYPES
from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.policy import InformationClass, Policy
from clustergym.sim import columns as c
from clustergym.sim.compiled.batch import select_episode
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_inline, compile_part, entry_in_place
from clustergym.sim.compiled.scenario_arrays import UncoveredError

FCFS, LAS, SRTF, SRTF_ELASTIC, ARES, ARES_CONSERVING, HESRPT, OPTIMUS, LEARNED = range(9)
MOST_PARAMETERS = 3


class Menu(NamedTuple):
    """The policies of a menu.

    Attributes
    ----------
    code : ndarray of int, shape (P,)
        FCFS, LAS, …
    parameter : ndarray of float, shape (P, MOST_PARAMETERS)
        Those that the policy's `decide` takes, in its order.
    weights : ndarray of float, shape (P, W)
        Of the learned auctions.
    weight_count : ndarray of int, shape (P,)
    """

    code: Ints
    parameter: Floats
    weights: Floats
    weight_count: Ints


Entry = tuple[int, tuple[float, ...]]
"""The code of a policy, and its parameters."""


def _fcfs(own: dict[str, object]) -> Entry:
    blocks = {"cluster": CLUSTER, "gpu_type": TYPES}[str(own["queue"])]
    return FCFS, (blocks if own["backfill"] == "none" else NOTHING,)


def _srtf(own: dict[str, object]) -> Entry:
    return (SRTF_ELASTIC, (_number(own["hysteresis"]),)) if own["elastic"] else (SRTF, ())


def _ares(own: dict[str, object]) -> Entry:
    given, conserving = own["hysteresis"], bool(own["work_conserving"])
    default = 4.0 if conserving else 0.0
    hysteresis = default if given is None else _number(given)
    alpha = _number(own["alpha"])
    if conserving:
        return ARES_CONSERVING, (alpha, hysteresis)
    return ARES, (alpha, _number(own["unknown_pool"]), hysteresis)


COMPILED: dict[str, Callable[[dict[str, object]], Entry]] = {
    "fcfs": _fcfs,
    "las": lambda own: (LAS, ()),
    "srtf": _srtf,
    "ares": _ares,
    "hesrpt": lambda own: (HESRPT, (float(bool(own["leftover"])), _number(own["hysteresis"]))),
    "optimus": lambda own: (OPTIMUS, (_number(own["hysteresis"]), _number(own["turn_restarts"]))),
    "learned": lambda own: (LEARNED, ()),
}
"""Name of a policy that is compiled -> what its parameters, by name, come to."""
UNCOVERED = {
    ("fcfs", "backfill"): ("easy", "conservative"),
    ("fcfs", "any_type"): ("random", "last"),
}
"""(Policy, parameter) -> values that are not compiled."""
WITHOUT_TIMES = (FCFS, LAS)
"""Policies that need no iteration times."""


def _number(value: object) -> float:
    return float(value)  # type: ignore[arg-type]


def compile_menu(policies: Sequence[Policy], information: InformationClass) -> Menu:
    """Return policies as compiled ones.

    Raises
    ------
    UncoveredError
        If one is not compiled, or not with its parameters.
    """
    parameter, codes = np.zeros((len(policies), MOST_PARAMETERS)), []
    weights = [_weights(policy) for policy in policies]
    counts = np.array([len(own) for own in weights], dtype=np.int64)
    padded = np.zeros((len(policies), int(counts.max())))
    for at, policy in enumerate(policies):
        code, own = _entry(policy)
        if information is InformationClass.NONE and code not in WITHOUT_TIMES:
            raise _make_uncovered_error(f"policy {policy.name} without iteration times")
        codes.append(code)
        parameter[at, : len(own)], padded[at, : counts[at]] = own, weights[at]
    return Menu(np.array(codes, dtype=np.int64), parameter, padded, counts)


def _weights(policy: Policy) -> Floats:
    """Return the weights of a learned auction; other policies have none."""
    weights: Floats | None = getattr(policy, "auction_weights", None)
    return np.zeros(0) if weights is None else weights


def _entry(policy: Policy) -> Entry:
    published = type(policy).__module__ == f"clustergym.policies.{policy.name}"
    if not published or policy.name not in COMPILED:
        raise _make_uncovered_error(f"policy {policy.name}")
    own = {field.name: getattr(policy, field.name) for field in fields(policy)}  # type: ignore[arg-type]
    for (name, parameter), values in UNCOVERED.items():
        if name == policy.name and own[parameter] in values:
            raise _make_uncovered_error(f"policy {policy.name} {parameter}={own[parameter]}")
    if policy.name == "learned" and not len(_weights(policy)):
        what = f"checkpoint={own['checkpoint']} rollout={own['rollout']}"
        raise _make_uncovered_error(f"policy learned {what}, which is more than an auction by known times,")
    return COMPILED[policy.name](own)


def _make_uncovered_error(what: str) -> UncoveredError:
    message, remedy = f"{what} is not compiled", "give engine='simpy'"
    return UncoveredError(message, field="env.policies", remedy=remedy)


@compile_part
def _make_fit(episode: Episode) -> None:
    """Let jobs wait that do not fit in memory where a policy has put them."""
    for at in range(episode.clock[c.IN_VIEW]):
        job = episode.job[episode.in_view[at]]
        gpu_type, level = job[c.TARGET_TYPE], job[c.TARGET_LEVEL]
        if gpu_type != c.NONE and not episode.feasible[job[c.CLASS], gpu_type, level]:
            job[c.TARGET_TYPE] = job[c.TARGET_LEVEL] = c.NONE


@compile_inline
def _decide(
    episode: Episode, cluster: ClusterArrays, memory: Memory, code: int, parameter: Floats, weights: Floats
) -> None:
    """Let a policy decide in one episode."""
    if code == FCFS:
        queues.decide(episode, cluster, int(parameter[0]))
    elif code == LAS:
        las.decide(episode, cluster)
    elif code == SRTF:
        srtf.decide(episode, cluster)
    elif code == SRTF_ELASTIC:
        srtf.decide_elastic(episode, cluster, parameter[0])
    elif code == ARES:
        ares.decide(episode, cluster, memory, parameter[0], parameter[1], parameter[2])
    elif code == ARES_CONSERVING:
        ares.decide_conserving(episode, cluster, memory, parameter[0], parameter[1])
    elif code == HESRPT:
        hesrpt.decide(episode, cluster, memory, parameter[0] > 0.0, parameter[1])
    elif code == LEARNED:
        auction_episode.decide(episode, cluster, weights)
    else:
        optimus.decide(episode, cluster, memory, parameter[0], parameter[1])


@entry_in_place
def decide(
    episodes: Episode,
    cluster: ClusterArrays,
    menu: Menu,
    memories: Memory,
    actions: Ints,
    first: int,
    last: int,
) -> None:
    """Let a policy decide in each of the episodes first..last: write each job's target.

    A job that does not fit in memory where the policy puts it waits.

    Parameters
    ----------
    actions : ndarray of int, shape (E,)
        Policies of the menu; nothing is decided where one is below 0.
    """
    for at in range(first, last):
        nth = actions[at]
        if nth < 0:
            continue
        episode, memory = select_episode(episodes, at), select_memory(memories, at, nth)
        weights = menu.weights[nth, : menu.weight_count[nth]]
        _decide(episode, cluster, memory, menu.code[nth], menu.parameter[nth], weights)
        _make_fit(episode)
