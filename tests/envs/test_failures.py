"""Environments whose nodes fail."""

import logging

import gymnasium
import numpy as np
import pytest

from clustergym.common.errors import InputError
from clustergym.scenario.disturbances.failures import NODE_FAIL
from clustergym.sim.compiled.scenario_arrays import UncoveredError

GIVEN = {"jobs": 30, "failures": "rsc-1", "failure_scale": 3000.0}


def episode(seed, steps=300, **parameters):
    """Play random legal actions; return observed totals and the times of failures."""
    env = gymnasium.make("ClusterGym/Elastic-16-v1", engine="simpy", **{**GIVEN, **parameters}).unwrapped
    _, info = env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        _, _, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        if terminated or truncated:
            break
    return [e.time_s for e in env.log.events if e.event_type == NODE_FAIL]


def test_nodes_fail_otherwise_in_each_drawn_episode_and_alike_again():
    first = episode(1)
    assert len(first) > 2
    assert first == episode(1)
    assert first != episode(2)
    assert episode(1, failures=None, failure_scale=1.0) == []


def test_the_compiled_form_steps_back_or_refuses(caplog, monkeypatch):
    monkeypatch.setattr("clustergym.envs.vector.scenarios._told", set())
    with caplog.at_level(logging.WARNING):
        gymnasium.make("ClusterGym/Elastic-16-v1", **GIVEN).reset(seed=0)
    assert "engine=auto chooses simpy" in caplog.text
    assert "has disturbances, which compiled episodes do not cover" in caplog.text
    with pytest.raises(UncoveredError, match="has disturbances"):
        gymnasium.make("ClusterGym/Elastic-16-v1", engine="compiled", **GIVEN).reset(seed=0)


def test_bad_names_and_scales():
    for given, message in (
        ({"failures": "rsc1"}, r"env\.failures: unknown failures 'rsc1' \(did you mean rsc-1\?\)"),
        ({"failure_scale": 2.0}, r"env\.failure_scale: is given, but no failures"),
        ({"failures": "acme", "failure_scale": 0.0}, r"env\.failure_scale: 0\.0 is not valid"),
    ):
        with pytest.raises(InputError, match=message):
            gymnasium.make("ClusterGym/Elastic-16-v1", **given)
