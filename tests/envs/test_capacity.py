"""The world of Capacity: its hours by hand, against the SimPy engine, and its two forms."""

from __future__ import annotations

from dataclasses import replace

import clustergym.policies.renting as renting
import gymnasium
import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from gymnasium.utils.env_checker import check_env
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.envs.capacity import planning
from clustergym.envs.capacity import world as worlds
from clustergym.envs.capacity.rules import REACTIVE, fill, list_used
from clustergym.results.metrics.capacity import read_leases
from clustergym.scenario.disturbances.capacity import Capacity, Product
from clustergym.scenario.market import HOUR, accrue, find_value
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

NAME = "ClusterGym/Capacity-16-v0"


def by_hand(jobs, prices=(1.0, 3.0)):
    """Return a world of one episode on 4 GPUs, 2 of one's own, with jobs (hour, GPU-hours, GPUs)."""
    world = worlds.make_world(1, 4)
    for row, (at, work, gpus) in enumerate(jobs):
        world.at[0, row], world.work[0, row], world.gpus[0, row] = at, work, gpus
    submitted = [at for at, _, _ in jobs]
    world.first[0] = np.searchsorted(submitted, np.arange(worlds.HOURS + 1))
    world.prices[0] = prices
    return world


def test_the_hours_of_an_episode_by_hand():
    # a (3 GPU-hours, 2 GPUs) has both own GPUs until b (0.5, 1) comes at 0.5 with less time left: b has one
    # of them and a the other until 1.0, when b ends and a has 3 - 1 - 0.5 = 1.5 left: 2 (0.5 + 2 x 0.5) = 3.
    world = by_hand([(0.0, 3.0, 2), (0.5, 0.5, 1)])
    seen = np.zeros(worlds.FEATURES)
    assert worlds.run_hour(world, 0, 1, 0) == pytest.approx(3.0)
    # b, which ends right now, is before it in line, whose first is last.
    assert 2 * world.left_h[0, 0] == pytest.approx(1.5)
    # Hour 1: one on-demand GPU costs 3, a needs 0.75 h on two: 1.5. One contract is ordered since hour 0.
    worlds.observe(world, 0, seen)
    assert dict(zip(worlds.FEATURE_NAMES, seen, strict=True))["ordered"] == 0.25
    assert worlds.run_hour(world, 0, 1, 1) == pytest.approx(3.0 + 1.5)
    # Hours 2 to 7 have the contract, at 1 USD; with the target of 1 another is ordered when it has ended.
    costs = [worlds.run_hour(world, 0, 1, 0) for _ in range(9)]
    assert costs == pytest.approx([1.0] * 6 + [0.0, 0.0, 1.0])
    assert np.flatnonzero(world.bought[0]).tolist() == [0, 8]


def test_a_late_job_and_what_is_left_at_the_end():
    # 10 GPU-hours on 4 GPUs may take 5 h, as they do on the 2 own ones. After 0.5 GPU-hours of a shorter job
    # they are late by a quarter of an hour, in hour 5; with 2 more GPUs in the first hour they are not.
    for hired, late in ((2, 0.0), (0, worlds.LATE_COST)):
        world, found = by_hand([(0.0, 10.0, 4), (0.001, 0.5, 2)]), []
        for hour in range(8):
            worlds.run_hour(world, 0, 0, 0 if hour else hired)
            found.append(float(world.cost[0, 1]))
        assert sum(found) == late
        assert found[5] == late
    # 30 GPU-hours on 1 GPU that come in the last hour are left with 29.5: 1.3 USD and 2 USD for each.
    world = by_hand([(71.5, 30.0, 1)])
    for _ in range(worlds.HOURS):
        cost = worlds.run_hour(world, 0, 0, 0)
    assert cost == pytest.approx(2 * 0.5 + 29.5 * (1.3 + 2.0))


class Scripted(renting.Renting):
    """Rents by a table of targets, hour by hour, and notes what is in the system at each hour."""

    def __init__(self, targets):
        super().__init__()
        self.table, self.seen = targets, []

    def find_targets(self, view, rented, left_s):
        left_h = float((left_s * view.requested_gpus).sum()) / 3600
        self.seen.append((len(view), left_h, int(rented.held[0]), int(rented.ordered[0])))
        return tuple(self.table[len(self.seen) - 1])


def test_the_world_is_that_of_the_simpy_engine():
    world, hours, rng = worlds.make_world(1, 16), 30, np.random.default_rng(5)
    worlds.begin_episode(rng, worlds.day_profiles("train"), world, 0, np.zeros((2, 1 + worlds.FEATURES)))
    # Whole seconds of work, and microseconds of time, as the engine has them.
    number = int(world.first[0, hours])
    world.work[0] = np.ceil(world.work[0] * 3600) / 3600
    world.at[0] = np.rint(world.at[0] * 3.6e9) / 3.6e9
    targets = np.stack([rng.integers(0, 12, hours), rng.integers(0, 10, hours)], axis=1)
    submit_s, work_s = world.at[0] * 3600, np.rint(world.work[0] * 3600)
    jobs = [
        Job(f"{row}", float(submit_s[row]), int(work_s[row]), int(world.gpus[0, row]))
        for row in range(number)
    ]
    scenario = small_scenario(
        jobs,
        {"X": (8 + 64 + 64, 1)},
        {"m": {"X": {n: 1 / n for n in (1, 2, 4, 8)}}},
        horizon_s=hours * 3600.0,
    )
    steps = [
        tuple((hour * HOUR, float(world.prices[0, hour, product])) for hour in range(hours))
        for product in range(2)
    ]
    contract = Product("contract", tuple(range(8, 72)), 2 * HOUR, 6 * HOUR, 0, steps[0], ((0, 64),))
    demand = Product("on-demand", tuple(range(72, 136)), 0, 0, 0, steps[1], ((0, 64),))
    capacity = Capacity((contract, demand))
    policy = Scripted(targets.tolist())
    run = simulate(replace(scenario, disturbances=(capacity,)), policy, Buddy())
    seen = np.zeros(worlds.FEATURES)
    rent, waited = 0.0, 0.0
    for hour in range(hours):
        worlds.observe(world, 0, seen)
        named = dict(zip(worlds.FEATURE_NAMES, (16 * seen).tolist(), strict=True))
        mine = (int(world.state[0, worlds.JOBS]), named["work"], named["held"], named["ordered"])
        assert policy.seen[hour] == pytest.approx(mine, rel=1e-6, abs=1e-5), hour
        worlds.run_hour(world, 0, *targets[hour].tolist())
        rent, waited = rent + world.cost[0, 2], waited + world.cost[0, 0] / worlds.DELAY_COST
    leases = read_leases(capacity, scenario.cluster, run.simulation.log.events, hours * 3600.0)
    owed = 0.0
    for lease in leases:
        if lease.begin is None:
            continue
        span = np.array([lease.begin, lease.end])
        by_hour = accrue(lease.product.prices, span)
        fixed = find_value(lease.product.prices, lease.ordered) * (lease.end - lease.begin) / HOUR
        owed += fixed if lease.product.term else float(by_hour[1] - by_hour[0])
    assert owed == pytest.approx(rent)
    ends = {e.job: e.time_s for e in run.simulation.log.events if e.event_type == EventType.COMPLETE}
    assert len(ends) > 100
    end_s = np.array([ends.get(row, hours * 3600.0) for row in range(number)])
    jct_h = float((end_s / 3600 - world.at[0, :number]).sum())
    assert jct_h == pytest.approx(waited, rel=1e-7)


@pytest.mark.parametrize("parameters", [{}, {"observation": "history"}, {"residual": True}])
def test_the_vector_form_is_the_single_one_and_both_keep_the_rules_of_gymnasium(parameters):
    check_env(gymnasium.make(NAME, **parameters).unwrapped, skip_render_check=True)
    vector = gymnasium.make_vec(NAME, num_envs=3, vectorization_mode="vector_entry_point", **parameters)
    singles = [gymnasium.make(NAME, **parameters) for _ in range(3)]
    seen, _ = vector.reset(seed=7)
    own = [env.reset(seed=7 + at)[0] for at, env in enumerate(singles)]
    rng = np.random.default_rng(1)
    for _ in range(worlds.HOURS):
        np.testing.assert_array_equal(seen, own)
        actions = rng.uniform(-1, 0.5, (3, 2)).astype(np.float32)
        seen, rewards, over, _, infos = vector.step(actions)
        steps = [env.step(action) for env, action in zip(singles, actions, strict=True)]
        own = [step[0] for step in steps]
        assert rewards.tolist() == [step[1] for step in steps]
        assert over.tolist() == [step[2] for step in steps]
        assert infos["cost"].tolist() == [step[4]["cost"] for step in steps]
    assert over.all()
    drawn = vector.sample_actions()
    assert drawn.shape == (3, 2)
    assert np.abs(drawn).max() <= 1.0


def test_the_reactive_rule_has_no_reward_and_its_cost_is_that_of_its_actions():
    env = gymnasium.make(NAME, residual=True, split="dev")
    env.reset(seed=3)
    for _ in range(worlds.HOURS):
        _, reward, _, _, _ = env.step(np.zeros(2, dtype=np.float32))
        assert reward == pytest.approx(0.0, abs=1e-9)
    assert list_used("reactive").sum() == len(REACTIVE[16]) == len(REACTIVE[64]) == 7
    assert fill(list_used("constant"), np.array([0.5, 0.25]))[:, 0].tolist() == [0.5, 0.25]


def test_nothing_that_comes_later_is_seen():
    seen, later = np.zeros((2, worlds.FEATURES))
    world, other = worlds.make_world(1, 16), worlds.make_world(1, 16)
    profiles, rule = worlds.day_profiles("train"), np.zeros((2, 1 + worlds.FEATURES))
    for one in (world, other):
        worlds.begin_episode(np.random.default_rng(1), profiles, one, 0, rule)
    after = int(other.first[0, 20])
    other.work[0, after:] *= 3.0
    other.prices[0, 20:] *= 2.0
    for _ in range(19):
        worlds.observe(world, 0, seen)
        worlds.observe(other, 0, later)
        np.testing.assert_array_equal(seen, later)
        assert worlds.run_hour(world, 0, 3, 2) == worlds.run_hour(other, 0, 3, 2)


def test_the_days_of_the_splits_are_others():
    shown = {
        split: {tuple(day) for day in worlds.day_profiles(split)[:-1].tolist()} for split in worlds.SPLITS
    }
    assert [len(days) for days in shown.values()] == [26, 13, 13]
    assert not shown["train"] & shown["test"]
    assert not shown["train"] & shown["dev"]
    env = gymnasium.make(NAME).unwrapped
    env.reset(seed=0)
    with pytest.raises(InputError, match="actions"):
        env.step(np.array([np.nan, 0.0]))


def test_hindsight_costs_no_more_than_look_ahead_and_its_plan_costs_what_it_says():
    world, rule = worlds.make_world(1, 16), fill(list_used("reactive"), np.array(REACTIVE[16]))
    profiles, plan = worlds.day_profiles("train"), np.zeros((worlds.HOURS, 2), dtype=np.int64)
    worlds.begin_episode(np.random.default_rng(2), profiles, world, 0, rule)
    rng, drawn = np.random.default_rng(0), worlds.make_world(2, 16)
    ahead = planning.plan_traces(rng, profiles, world, 0, drawn, rule, plan)
    assert ahead == pytest.approx(sum(worlds.run_hour(world, 0, *targets) for targets in plan.tolist()))
    assert planning.improve_plan(world, 0, worlds.make_world(1, 16), plan) <= ahead
