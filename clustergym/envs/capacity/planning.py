"""Reference plans of `Capacity`: look-ahead with the true model, and hindsight; compiled."""

from __future__ import annotations

import math

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.envs.capacity import world as worlds
from clustergym.envs.capacity.world import (
    BURST,
    BURST_BEGIN,
    BURST_END,
    CONTRACT,
    DAY_FACTORS,
    FEATURES,
    HELIOS_SHARE,
    HOUR,
    HOURS,
    JOBS,
    KEEP,
    MEAN_PRICE,
    NOISE,
    ON_DEMAND,
    PEAK,
    RATE,
    SPELL,
    SPELL_BEGIN,
    SPELL_END,
    WAVE,
    World,
    clip_target,
    draw_jobs,
    draw_rates,
    find_values,
    observe,
    run_hour,
    settle,
)
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place, compile_part

AHEAD = 12
"""Hours that look-ahead simulates."""
OFTEN = BURST_BEGIN / (BURST_BEGIN + BURST_END)
"""Share of hours in bursts."""
CHANGES = (-16.0, -8.0, -4.0, 0.0, 4.0, 8.0, 16.0)
"""What look-ahead adds to the rule's targets, for each 16 GPUs of the size."""


@compile_in_place
def copy_state(source: World, row: int, target: World, at: int) -> None:
    """Copy the state of an episode, without its trace."""
    for part in range(3):
        target.state[at, part] = source.state[row, part]
    for hour in range(HOURS):
        target.bought[at, hour] = source.bought[row, hour]
    for place in range(source.state[row, JOBS]):
        target.line[at, place] = source.line[row, place]
        target.left_h[at, place] = source.left_h[row, place]


@compile_in_place
def score_poisson(count: int, rate: float) -> float:
    """Return the likelihood of a count over that at the rate 1, as a logarithm."""
    return count * math.log(max(rate, 1e-9)) - rate


@compile_part
def weigh_days(world: World, row: int, profiles: Floats) -> Floats:
    """Return the chances of what today may be, given the jobs so far: days of Philly, factors of Helios."""
    philly, now = len(profiles) - 1, world.state[row, HOUR]
    chances = np.empty(philly + len(DAY_FACTORS))
    for today in range(len(chances)):
        helios = today >= philly
        score = math.log(HELIOS_SHARE / len(DAY_FACTORS) if helios else (1.0 - HELIOS_SHARE) / philly)
        for hour in range(now // 24 * 24, now):
            count = world.first[row, hour + 1] - world.first[row, hour]
            rate = RATE * world.size[0] * profiles[min(today, philly), hour % 24]
            if helios:
                rate *= DAY_FACTORS[today - philly]
                often = math.log(1.0 - OFTEN) + score_poisson(count, rate)
                burst = math.log(OFTEN) + score_poisson(count, rate * BURST)
                top = max(often, burst)
                score += top + math.log(math.exp(often - top) + math.exp(burst - top))
            else:
                score += score_poisson(count, rate)
        chances[today] = score
    found: Floats = np.exp(chances - chances.max())
    found /= found.sum()
    return found


@compile_part
def draw_future(
    rng: np.random.Generator, profiles: Floats, chances: Floats, world: World, row: int, drawn: World, at: int
) -> None:
    """Draw what may come after what is known at an hour: jobs from now on, and later prices."""
    now, philly = world.state[row, HOUR], len(profiles) - 1
    for hour in range(now + 1):
        drawn.first[at, hour] = world.first[row, hour]
        drawn.prices[at, hour] = world.prices[row, hour]
    known = world.first[row, now]
    drawn.at[at, :known] = world.at[row, :known]
    drawn.work[at, :known] = world.work[row, :known]
    drawn.gpus[at, :known] = world.gpus[row, :known]
    rates = np.empty(HOURS + 24)
    draw_rates(rng, profiles, rates[: HOURS - HOURS % 24])
    luck, today = rng.random(), 0
    while today < len(chances) - 1 and luck >= chances[today]:
        luck -= chances[today]
        today += 1
    burst = rng.random() < OFTEN
    for hour in range(now, now // 24 * 24 + 24):
        rates[hour] = profiles[min(today, philly), hour % 24]
        if today >= philly:
            rates[hour] *= DAY_FACTORS[today - philly] * (BURST if burst else 1.0)
            fate = rng.random()
            burst = fate >= BURST_END if burst else fate < BURST_BEGIN
    last = min(now + AHEAD, HOURS)
    for hour in range(now, last):
        draw_jobs(rng, drawn, at, hour, rates[hour] * RATE * world.size[0])
    for product in range(2):
        level = math.log(world.prices[row, now, product] / find_base(now, product))
        # A spell shows: three times the price is eleven standard deviations of an hour's noise.
        scarce = product == ON_DEMAND and level > 0.5 * math.log(SPELL)
        level -= math.log(SPELL) if scarce else 0.0
        for hour in range(now + 1, last):
            level = KEEP * level + NOISE * rng.standard_normal()
            fate = rng.random()
            scarce = product == ON_DEMAND and (fate >= SPELL_END if scarce else fate < SPELL_BEGIN)
            factor = math.exp(level) * (SPELL if scarce else 1.0)
            drawn.prices[at, hour, product] = find_base(hour, product) * factor


@compile_in_place
def find_base(hour: int, product: int) -> float:
    """Return a price without noise and spells."""
    wave = WAVE[ON_DEMAND] if product == ON_DEMAND else WAVE[CONTRACT]
    mean = MEAN_PRICE[ON_DEMAND] if product == ON_DEMAND else MEAN_PRICE[CONTRACT]
    return mean + wave * math.cos(2.0 * math.pi * (hour - PEAK) / 24.0)


@compile_part
def roll(drawn: World, at: int, first: tuple[int, int], rule: Floats, last: int, seen: Floats) -> float:
    """Return the cost of a first action, and of the rule after it up to an hour, with what is left then."""
    total = run_hour(drawn, at, first[0], first[1])
    while drawn.state[at, HOUR] < last:
        observe(drawn, at, seen)
        by_rule = find_values(drawn, rule, seen)
        most = drawn.size[2]
        total += run_hour(drawn, at, clip_target(by_rule[0], most), clip_target(by_rule[1], most))
    if last < HOURS:
        settle(drawn, at)
        total += drawn.cost[at, 3]
    return total


@compile_entry
def plan_traces(
    rng: np.random.Generator, profiles: Floats, world: World, row: int, drawn: World, rule: Floats, plan: Ints
) -> float:
    """Play an episode from its start by look-ahead; return its cost.

    At each hour every pair of changes to the rule's targets is tried on the same futures, one in each row of
    `drawn`, with the rule after it.

    Parameters
    ----------
    profiles : ndarray of float
        Of the training days: that these days are others is not known.
    plan : ndarray of int, shape (HOURS, 2)
        Receives the targets.
    """
    worlds.restart(world, row)
    seen, scratch, total, most = np.zeros(FEATURES), np.zeros(FEATURES), 0.0, world.size[2]
    step = world.size[0] / 16.0
    for now in range(HOURS):
        observe(world, row, seen)
        by_rule = find_values(world, rule, seen)
        chances, last = weigh_days(world, row, profiles), min(now + AHEAD, HOURS)
        for at in range(len(drawn.at)):
            draw_future(rng, profiles, chances, world, row, drawn, at)
        best = 1e300
        for of_contracts in CHANGES:
            for of_hired in CHANGES:
                first = (
                    clip_target(by_rule[0] + of_contracts * step, most),
                    clip_target(by_rule[1] + of_hired * step, most),
                )
                cost = 0.0
                for at in range(len(drawn.at)):
                    copy_state(world, row, drawn, at)
                    cost += roll(drawn, at, first, rule, last, scratch)
                if cost < best:
                    best, plan[now, 0], plan[now, 1] = cost, first[0], first[1]
        total += run_hour(world, row, plan[now, 0], plan[now, 1])
    worlds.restart(world, row)
    return total


@compile_part
def play_plan(world: World, row: int, plan: Ints) -> float:
    """Return the cost of an episode by given targets."""
    total = 0.0
    for now in range(world.state[row, HOUR], HOURS):
        total += run_hour(world, row, plan[now, 0], plan[now, 1])
    return total


@compile_entry
def improve_plan(world: World, row: int, spare: World, plan: Ints) -> float:
    """Improve the targets of an episode one by one, knowing its trace; return its cost.

    It stops when no change is better. The plan is no optimum: it bounds from above what hindsight could cost.
    """
    spare.at[0], spare.work[0], spare.gpus[0] = world.at[row], world.work[row], world.gpus[row]
    spare.first[0], spare.prices[0] = world.first[row], world.prices[row]
    worlds.restart(world, row)
    copy_state(world, row, spare, 0)
    best, better, sweeps = play_plan(spare, 0, plan), True, 0
    while better and sweeps < 12:
        better, sweeps = False, sweeps + 1
        worlds.restart(world, row)
        so_far = 0.0
        for now in range(HOURS):
            for product in range(2):
                for change in (-8, -3, -1, 1, 3, 8):
                    before = plan[now, product]
                    plan[now, product] = min(max(before + change, 0), world.size[2])
                    copy_state(world, row, spare, 0)
                    cost = so_far + play_plan(spare, 0, plan)
                    if cost < best - 1e-9:
                        best, better = cost, True
                    else:
                        plan[now, product] = before
            so_far += run_hour(world, row, plan[now, 0], plan[now, 1])
    worlds.restart(world, row)
    return best
