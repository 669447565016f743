"""What is read from a compiled episode is what the SimPy engine has, and the episode stays compiled."""

import copy
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import pytest
from same_values import assert_same
from scheduling_episodes import drawn

import clustergym  # noqa: F401  registers the environments
from clustergym.common.errors import InputError
from clustergym.envs.actions import EditActions
from clustergym.envs.families import AuctionEnv, DeadlineEnv, ElasticEnv, FairEnv
from clustergym.scenario.policy import InformationError

SMALL: dict[str, Any] = {"cluster": "arena-16", "jobs": 10, "rows": 5}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "edits": (ElasticEnv, {**SMALL, "mask_stop_while_idle": False}),
    "profiles": (ElasticEnv, {**SMALL, "costs": "default", "round_s": None}),
    "no times": (ElasticEnv, {**SMALL, "information": "none"}),
    "rejections": (DeadlineEnv, SMALL),
    "auction": (AuctionEnv, SMALL),
}
EDITED = ("target_type", "target_gpus", "free", "assigned", "preempted", "rejected", "undecided", "shown")


def shown(view: Any) -> dict[str, Any]:
    """Return all that a View says."""
    asked = ("costs", "times", "batches", "pairs")
    others = ("setting", "where", "stops", *asked)
    found = {f.name: getattr(view, f.name) for f in fields(view) if f.name not in others}
    for name in asked:
        try:
            found[name] = getattr(view, name)()
        except InformationError as error:
            found[name] = str(error)
    found["stop_costs"] = vars(view.stop_costs())
    setting = {f.name: getattr(view.setting, f.name) for f in fields(view.setting)}
    return {**found, **{f"setting.{name}": value for name, value in setting.items()}}


@pytest.mark.parametrize("case", CASES)
def test_views_and_actions_are_those_of_the_simpy_engine(case):
    made_by, parameters = CASES[case]
    compiled, simpy = (made_by(engine=engine, **parameters) for engine in ("compiled", "simpy"))
    _, info = compiled.reset(seed=3)
    simpy.reset(seed=3)
    rng, over, kept = np.random.default_rng(0), False, []
    for _ in range(150):
        assert_same(shown(compiled.view), shown(simpy.view), "view")
        kept.append((compiled.view, shown(compiled.view)))
        assert_same(compiled.actions.mask(), simpy.actions.mask(), "mask")
        if isinstance(compiled.actions, EditActions):
            edited = [{name: getattr(env.actions, name) for name in EDITED} for env in (compiled, simpy)]
            assert_same(*edited, "actions")
        else:
            assert_same(compiled.actions.described, simpy.actions.described, "moves")
        action = drawn(compiled, info["action_mask"], rng)
        *_, terminated, truncated, info = compiled.step(action)
        simpy.step(action)
        assert compiled.log.digest == simpy.log.digest
        over = terminated or truncated
        if over:
            break
        assert_same(compiled.metrics(), simpy.metrics(), "metrics")
    assert compiled.episode.engine == "compiled"
    if over:
        assert (compiled.view, simpy.view) == (None, None)
    for view, then in kept:
        assert_same(shown(view), then, "an old view")


def test_what_a_compiled_episode_lacks_is_refused_in_one_line():
    env = gymnasium.make("ClusterGym/Elastic-16-v1", jobs=4).unwrapped
    env.reset(seed=0)
    line = r"^env\.engine: a compiled episode has no Simulation.*engine='simpy'"
    with pytest.raises(InputError, match=line):
        _ = env.simulation
    assert env.episode.engine == "compiled"


def test_pictures_are_of_the_simpy_engine_from_the_start():
    env = ElasticEnv(render_mode="ansi", **SMALL)
    env.reset(seed=0)
    assert env.episode.engine == "simpy"
    assert "0.00 h" in env.render() or "h:" in env.render()
    with pytest.raises(InputError, match="compiled episodes draw no pictures"):
        ElasticEnv(render_mode="ansi", engine="compiled", **SMALL)


def test_a_copy_stays_compiled():
    env = FairEnv(cluster="ares-16", jobs=6, rows=6)
    _, info = env.reset(seed=1)
    for _ in range(30):
        *_, info = env.step(int(np.flatnonzero(info["action_mask"])[0]))
    other = copy.deepcopy(env)
    assert other.episode.engine == "compiled"
    assert_same(shown(other.view), shown(env.view), "view")
    action = int(np.flatnonzero(info["action_mask"])[0])
    assert_same(other.step(action), env.step(action), "step")
