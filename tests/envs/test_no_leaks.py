"""What an agent may use depends on nothing that is hidden from it, and on nothing that is still to happen."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from same_values import assert_same
from scheduling_episodes import drawn

from clustergym.envs.families import (
    AuctionEnv,
    DeadlineEnv,
    ElasticEnv,
    FairEnv,
    KnobsEnv,
    PriorityEnv,
    TenantsEnv,
)
from clustergym.envs.sharing.streams import draw_stream as drawn_stream
from clustergym.envs.vector.environment import make_vector
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario

ONE: dict[str, Any] = {"cluster": "ares-16", "jobs": 12, "rows": 5, "traces": 4}
TWO: dict[str, Any] = {"cluster": "arena-16", "jobs": 12, "rows": 5, "traces": 4}
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "Elastic": (ElasticEnv, TWO),
    "Fair": (FairEnv, ONE),
    "Deadline": (DeadlineEnv, TWO),
    "Auction": (AuctionEnv, TWO),
    "Priority": (PriorityEnv, TWO),
    # With the default `hold` an episode is one step.
    "Knobs": (KnobsEnv, {**TWO, "hold": 1, "baseline": None}),
    "Tenants": (TenantsEnv, {**ONE, "queues": "philly-16"}),
}
ENGINES = ("simpy", "compiled", "vector")
TOLD = {
    "Auction": (InformationClass.PROFILED, InformationClass.BOOTSTRAP),
    "Priority": (InformationClass.PROFILED,),
    "Knobs": (InformationClass.PROFILED,),
}
"""Classes that a family can be played with; all others with any."""
CASES = [
    (family, engine, information)
    for family in FAMILIES
    for engine in ENGINES
    for information in TOLD.get(family, tuple(InformationClass))
    # What a vector environment steps is what a compiled single one does: a few of its cases will do.
    if engine != "vector" or information in ("none", "profiled", "clairvoyant")
]
TABLES = ("execution", "profiled", "data_parallel")
"""Tables of iteration times: that of running jobs, and those of the classes that are told estimates."""


def made(family: str, engine: str, **parameters: Any) -> Any:
    """Make a family's environment, or a vector environment of one of it."""
    made_by, usual = FAMILIES[family]
    if engine == "vector":
        return make_vector(made_by, 1, engine="compiled", **{**usual, **parameters})
    return made_by(engine=engine, **{**usual, **parameters})


def may_use(env: Any, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
    """Return what an agent may use: all but rewards, which are for learning."""
    kept = {name: value for name, value in info.items() if "rewards" not in name and name != "_rewards"}
    terms = getattr(env, "single", env).parameters.reward
    return {
        "observation": observation,
        **{name: kept[name] for name in kept if name.lstrip("_") not in terms},
    }


def stepped(env: Any, action: Any) -> tuple[dict[str, Any], bool]:
    """Take an action; return what an agent may use then, and whether the episode is over."""
    vector = hasattr(env, "num_envs")
    observation, _, terminated, truncated, info = env.step(np.asarray(action)[None] if vector else action)
    return may_use(env, observation, info), bool(np.any(terminated) or np.any(truncated))


def mask_of(seen: dict[str, Any]) -> Any:
    """Return the mask of the only environment."""
    return np.atleast_2d(seen["action_mask"])[0]


def scenario_of(env: Any, data: Any) -> Scenario:
    """Draw a scenario of an environment."""
    return env.episodes.choose({"trace_seed": data.draw(st.integers(0, 3))}, np.random.default_rng(0))


def with_other_future(scenario: Scenario, at_s: float, fewer: int) -> Scenario:
    """Return the scenario with other jobs after a time: later, longer and larger or smaller, and fewer."""
    trace = scenario.trace.take(np.arange(len(scenario.trace) - fewer))
    later = trace.submit_s > at_s
    changed = replace(
        trace,
        submit_s=np.where(later, trace.submit_s + 777.0, trace.submit_s),
        iterations=np.where(later, trace.iterations * 37 + 1, trace.iterations),
        gpus=np.where(later, np.where(trace.gpus > 1, 1, 2), trace.gpus),
    )
    tenants = scenario.tenants
    if tenants is not None:
        tenants = replace(tenants, leaf=tenants.leaf[: len(trace)])
    return replace(scenario, trace=changed, tenants=tenants)


def with_other_times(scenario: Scenario, information: InformationClass, factor: float) -> Scenario:
    """Return the scenario with other iteration times, where an information class is not told of them."""
    told = {"profiled": "profiled", "data_parallel": "data_parallel", "none": ""}.get(
        information, "execution"
    )
    hidden = {name: getattr(scenario.tables, name) * factor for name in TABLES if name != told}
    return replace(scenario, tables=replace(scenario.tables, **hidden))


def test_every_family_is_tried():
    """In Placement there is nothing to come, and nothing hidden: one job, on nodes that are all shown.

    Capacity has its own (test_capacity.py).
    """
    names = {row.entry_point.rpartition(":")[2] for row in ENVIRONMENTS}
    assert names == {f"{family}Env" for family in (*FAMILIES, "Placement", "Sharing", "Rack", "Capacity")}


@pytest.mark.parametrize(("family", "engine", "information"), CASES)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_jobs_still_to_come_change_nothing(family, engine, information, data):
    mine, other = (made(family, engine, information=information) for _ in range(2))
    scenario = scenario_of(getattr(mine, "single", mine), data)
    at_s = float(scenario.trace.submit_s[data.draw(st.integers(1, 8))])
    changed = with_other_future(scenario, at_s, data.draw(st.integers(0, 2)))
    first = float(changed.trace.submit_s[changed.trace.submit_s > at_s].min(initial=np.inf))
    first = min(first, float(scenario.trace.submit_s[scenario.trace.submit_s > at_s].min()))
    seen = may_use(mine, *mine.reset(seed=1, options={"scenario": scenario}))
    assert_same(seen, may_use(other, *other.reset(seed=1, options={"scenario": changed})), "reset")
    rng, space = np.random.default_rng(0), getattr(mine, "single", mine)
    for at in range(60):
        action = drawn(space, mask_of(seen), rng)
        (seen, over), (then, _) = stepped(mine, action), stepped(other, action)
        if over or float(np.max(seen["now_s"])) >= first or float(np.max(then["now_s"])) >= first:
            break
        assert_same(seen, then, f"step {at}")


@pytest.mark.parametrize(("family", "engine", "information"), CASES)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_times_that_the_class_does_not_tell_change_nothing(family, engine, information, data):
    """Until a job runs, which shows how fast it is: the jobs only wait and are edited, the clock goes on."""
    edits = family not in ("Auction", "Priority", "Knobs")
    given_too = {"mask_stop_while_idle": False} if edits else {}
    mine, other = (made(family, engine, information=information, **given_too) for _ in range(2))
    single = getattr(mine, "single", mine)
    scenario = scenario_of(single, data)
    close = replace(scenario.trace, submit_s=np.linspace(1.0, 900.0 if edits else 50.0, len(scenario.trace)))
    scenario = replace(scenario, trace=close)
    changed = with_other_times(scenario, information, data.draw(st.sampled_from([0.25, 3.0])))
    seen = may_use(mine, *mine.reset(seed=1, options={"scenario": scenario}))
    assert_same(seen, may_use(other, *other.reset(seed=1, options={"scenario": changed})), "reset")
    stop, rng = len(mask_of(seen)) - 1, np.random.default_rng(0)
    for at in range(12 if edits else 0):
        legal = np.flatnonzero(mask_of(seen))
        action = stop if at < 6 else int(rng.choice(legal[legal != stop])) if (legal != stop).any() else None
        if action is None:
            break
        (seen, _), (then, _) = stepped(mine, action), stepped(other, action)
        assert_same(seen, then, f"step {at}")


@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_requests_still_to_come_change_nothing(data):
    mine, other = (gymnasium.make("ClusterGym/Sharing-small-v1").unwrapped for _ in range(2))
    stream = drawn_stream(mine.source, 1.3, np.random.default_rng(data.draw(st.integers(0, 9))))
    number, at = len(stream.arrivals), data.draw(st.integers(1, 40))
    arrivals = np.append(stream.arrivals, stream.arrivals[:7])
    arrivals[at:] = arrivals[at:][::-1]
    _, info = first = mine.reset(seed=1, options={"stream": stream})
    changed = stream._replace(arrivals=arrivals)
    assert_same(first[0], other.reset(seed=1, options={"stream": changed})[0], "reset")
    rng = np.random.default_rng(0)
    for step in range(number):
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
        (seen, *_, info), (then, *_, told) = mine.step(action), other.step(action)
        if info["arrival"] >= at or told["arrival"] >= at:
            break
        hide = {"rewards": 0}
        assert_same((seen, {**info, **hide}), (then, {**told, **hide}), f"step {step}")
