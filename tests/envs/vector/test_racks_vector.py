"""Rack environments: what is cut off costs; planners play by its rules."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import clustergym  # noqa: F401  registers the environments
from clustergym.common.errors import InputError
from clustergym.envs.episodes import trace_seed
from clustergym.envs.racks.environment import RackEnv
from clustergym.envs.racks.gangs import Gangs, RackParameters, episode_gangs
from clustergym.envs.racks.planning import BEST_FIT, HINDSIGHT, RackPlanner

RNG = np.random.default_rng(0)


def test_an_episode_of_more_gangs_than_the_parameters_say_has_room() -> None:
    envs = gymnasium.make_vec("ClusterGym/Rack-576-v0", num_envs=2, jobs=2)
    gangs = Gangs(np.arange(5.0), np.full(5, 60.0), np.ones(5, np.int64), np.ones(5, np.int64))
    envs.reset(options={"gangs": gangs})
    for _ in range(4):
        assert not envs.step(np.zeros(2, np.int64))[2].any()
    assert envs.step(np.zeros(2, np.int64))[2].all()


def test_illegal_actions_to_the_end_cost_more_than_any_play() -> None:
    """Two gangs of 2 trays for 100 s and 300 s, both at 0 s; nothing is ever placed: 400 s each for both."""
    gangs = Gangs(np.zeros(2), np.array([100.0, 300.0]), np.full(2, 2), np.ones(2, np.int64))
    env = RackEnv(racks=1, trays=4, gang_trays=4, on_illegal="noop", max_steps=3)
    env.reset(options={"gangs": gangs})
    steps = [env.step(1) for _ in range(3)]
    assert [step[1] for step in steps] == [0.0, 0.0, pytest.approx(-400 / 3600)]
    assert steps[-1][2:4] == (False, True)


def test_what_gangs_tell_is_shown_and_how_long_they_run_is_not() -> None:
    """Two gangs of two and three trays come at 0 s, one of four at 3,600 s; there are six trays."""
    told_s = np.array([3.0, 4.0, 6.0]) * 3600
    one = np.ones(3, np.int64)
    gangs = Gangs(np.array([0.0, 0.0, 3600.0]), np.full(3, 9000.0), np.array([2, 3, 4]), one, told_s)
    env, seen = RackEnv(racks=1, trays=6, gang_trays=6, jobs=3, told_error=0.3), []
    for duration_s in (11700.0, 9000.0):
        env.reset(options={"gangs": gangs._replace(duration_s=np.full(3, duration_s))})
        seen.append(env.step(0)[0])
    assert all((seen[0][name] == part).all() for name, part in seen[1].items())
    # The second is offered: 3 of 6 trays, one segment of 4, x / (2 + x) for 4 h. The first runs: 2 of 6
    # trays, just begun, 3 h left as told.
    assert seen[1]["window"].tolist() == pytest.approx([0.5, 0.25, 4 / 6, 0.0, 1.0] + [0.0] * 35)
    assert seen[1]["running"].tolist() == pytest.approx([2 / 6, 0.0, 3 / 5] + [0.0] * 15)
    # At 2.5 h both have ended, and the third is offered: it told 6 h and has waited 1.5 h.
    assert env.step(0)[0]["window"][:5].tolist() == pytest.approx([4 / 6, 0.25, 6 / 8, 1.5 / 2.5, 1.0])


def test_splits_share_no_episode_and_a_seed_is_one() -> None:
    drawn = {}
    for split in ("train", "dev", "test"):
        env = RackEnv(told_error=0.3, split=split)
        starts = {env.reset(seed=seed)[0]["window"][2].item() for seed in range(20)}
        own = RackParameters(told_error=0.3)
        if split != "train":
            known = {
                (episode_gangs(own, {"trace_seed": trace_seed(split, at)}, RNG).told_s[0] / 3600).item()
                for at in range(100)
            }
            assert starts <= {np.float32(hours / (2 + hours)).item() for hours in known}
        drawn[split] = starts
    assert not drawn["train"] & drawn["dev"]
    assert not drawn["dev"] & drawn["test"]
    with pytest.raises(InputError, match=r"options\.trace_seed"):
        env.reset(options={"trace_seed": -1})


def test_a_planner_plays_by_the_rules_of_the_environment() -> None:
    """Best fit without moves, in the planner and by hand in the environment, costs the same."""
    parameters, weights = RackParameters(racks=3, jobs=25, told_error=0.3), BEST_FIT.copy()
    weights[19] = -1000.0
    env = RackEnv(racks=3, jobs=25, told_error=0.3)
    for seed in range(3):
        gangs = episode_gangs(parameters, {"trace_seed": seed}, RNG)
        env.reset(options={"gangs": gangs})
        state = env.state
        while not state.over:
            racks = [rack for rack in range(3) if state.has_room(rack)]
            env.step(min(racks, key=lambda rack: (state.free[rack], rack)) if racks else 6)
        played = RackPlanner(parameters, weights).play(gangs, RNG)
        assert played == pytest.approx((state.waiting_cost, state.moved_cost))


def test_hindsight_costs_less_than_the_rule_it_plays_on_with() -> None:
    parameters = RackParameters(jobs=40, told_error=0.3, load=1.5)
    drawn = [episode_gangs(parameters, {"trace_seed": seed}, RNG) for seed in range(3)]
    rule, known = RackPlanner(parameters, BEST_FIT), RackPlanner(parameters, BEST_FIT, HINDSIGHT)
    costs = [[sum(planner.play(gangs, RNG)) for gangs in drawn] for planner in (rule, known)]
    assert all(ahead <= own for own, ahead in zip(*costs, strict=True))
    assert sum(costs[1]) < 0.98 * sum(costs[0])
