"""The world of `Capacity`: traces of jobs and prices, and what happens in an hour; compiled.

All episodes are rows of common arrays. Times are hours from the first midnight, work is in GPU-hours.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.capacity.philly_days import PHILLY_DAYS
from clustergym.scenario.market import draw_prices as _draw_prices
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place, compile_part, entry_in_place

HOURS = 72
"""Decisions of an episode: three days."""
LEAD, TERM = 2, 6
"""Hours until a contract begins, and for which it lasts."""
CONTRACT, ON_DEMAND = 0, 1
MEAN_PRICE = (0.55, 1.3)
WAVE = (0.1, 0.3)
PEAK, KEEP, NOISE = 14.0, 0.8, 0.25
SPELL, SPELL_BEGIN, SPELL_END = 3.0, 1.0 / 6.0, 0.4
"""Prices in USD per GPU-hour (`scenario.market.PriceProcess`); only on-demand GPUs have spells. Assumed."""
DELAY_COST, LATE_COST = 2.0, 3.0
"""USD for an hour that a job is in the system, and for a job not done within twice its ideal time."""
RATE = 7.5 / 16.0
"""Mean jobs an hour for each GPU of the size."""
MOST_FACTOR = 4.0
"""Limit on an hour's rate over the mean one: Philly has hours of 25 times the mean."""
DAY_FACTORS = (0.4, 1.0, 1.8)
BURST, BURST_BEGIN, BURST_END = 2.5, 0.1, 1.0 / 1.5
HELIOS_SHARE = 0.75
"""Of days drawn of the hours of Helios, with a hidden factor and bursts; the others are Philly's."""
# Share of jobs by hour of day: conf/generator/helios.yaml.
HELIOS_HOURS = (
    *(0.03737, 0.02742, 0.02498, 0.01601, 0.01117, 0.00856, 0.00781, 0.00933, 0.0156, 0.03317, 0.05396),
    *(0.06142, 0.04852, 0.05411, 0.06496, 0.06902, 0.07225, 0.0722, 0.05343, 0.05471, 0.05602, 0.05685),
    *(0.04788, 0.04325),
)
WORK_MEDIAN, WORK_SIGMA, WORK_MOST = 0.9, 1.2, 30.0
GPU_SHARES = (0.35, 0.6, 0.85, 1.0)
"""Cumulative shares of jobs that ask for 1, 2, 4 and 8 GPUs."""
SPLITS = {"train": (0, 2), "dev": (1,), "test": (3,)}
"""Days of Philly by their number modulo 4."""


@cache
def day_profiles(split: str) -> Floats:
    """Return the hourly rates of a split's days over the mean of the training days, (days + 1, 24).

    The last row is that of Helios, without the day's factor.
    """
    rows = np.array([line.split(",") for line in PHILLY_DAYS.split()], dtype=np.float64)
    number = np.arange(len(rows)) % 4
    mean = rows[np.isin(number, SPLITS["train"])].clip(max=MOST_FACTOR * rows.mean()).mean()
    chosen = rows[np.isin(number, SPLITS[split])] / mean
    helios = 24.0 * np.array(HELIOS_HOURS) / sum(HELIOS_HOURS)
    made: Floats = np.concatenate([chosen, helios[None]]).clip(max=MOST_FACTOR)
    return made


class World(NamedTuple):
    """Traces and states of R episodes, in rows.

    Attributes
    ----------
    size : ndarray of int, shape (3,)
        GPUs in the name of the environment, one's own, and the most contracts, and on-demand GPUs.
    at, work : ndarray of float, shape (R, J)
        Submission of each job; its work.
    gpus : ndarray of int, shape (R, J)
    first : ndarray of int, shape (R, HOURS + 1)
        First job of each hour.
    prices : ndarray of float, shape (R, HOURS, 2)
    line : ndarray of int, shape (R, J)
        Jobs in the system, shortest time left last: most that come or go move few others.
    left_h : ndarray of float, shape (R, J)
        Hours left of each job in line, at its request.
    bought : ndarray of int, shape (R, HOURS)
        Contracts ordered in each hour.
    state : ndarray of int, shape (R, 3)
        `HOUR`, `JOBS` in the system, `HIRED`: on-demand GPUs of the hour before.
    cost : ndarray of float, shape (R, 4)
        Of the last hour: delay, late jobs, rent, and what is left at the end.
    rule_cost : ndarray of float, shape (R, HOURS)
        What each hour costs by the reactive rule.
    """

    size: Ints
    at: Floats
    work: Floats
    gpus: Ints
    first: Ints
    prices: Floats
    line: Ints
    left_h: Floats
    bought: Ints
    state: Ints
    cost: Floats
    rule_cost: Floats


HOUR, JOBS, HIRED = 0, 1, 2


def make_world(rows: int, gpus: int) -> World:
    """Return the arrays of some episodes on a cluster of a size."""
    jobs, whole = 128 * gpus, np.int64
    size = np.array([gpus, gpus // 2, 4 * gpus], dtype=whole)
    return World(
        size,
        np.zeros((rows, jobs)),
        np.zeros((rows, jobs)),
        np.zeros((rows, jobs), whole),
        np.zeros((rows, HOURS + 1), whole),
        np.zeros((rows, HOURS, 2)),
        np.zeros((rows, jobs), whole),
        np.zeros((rows, jobs)),
        np.zeros((rows, HOURS), whole),
        np.zeros((rows, 3), whole),
        np.zeros((rows, 4)),
        np.zeros((rows, HOURS)),
    )


draw_prices = compile_part(_draw_prices)


@compile_part
def draw_rates(rng: np.random.Generator, profiles: Floats, rates: Floats) -> None:
    """Draw the hourly rates of arrival of consecutive days from midnight, over the mean rate."""
    burst, helios = False, len(profiles) - 1
    for day in range(len(rates) // 24):
        profile, factor, bursts = int(rng.random() * helios), 1.0, False
        luck, of_day = rng.random(), rng.random()
        if luck < HELIOS_SHARE:
            profile, factor, bursts = helios, DAY_FACTORS[int(of_day * 3.0)], True
        for hour in range(24):
            luck = rng.random()
            burst = luck >= BURST_END if burst else luck < BURST_BEGIN
            rates[24 * day + hour] = profiles[profile, hour] * factor * (BURST if bursts and burst else 1.0)


@compile_part
def draw_jobs(rng: np.random.Generator, world: World, row: int, hour: int, rate: float) -> None:
    """Draw the jobs that are submitted in an hour."""
    begin, most = world.first[row, hour], world.at.shape[1]
    world.first[row, hour + 1] = end = begin + min(rng.poisson(rate), most - begin)
    submitted, work, gpus = world.at[row, begin:end], world.work[row, begin:end], world.gpus[row, begin:end]
    for job in range(end - begin):
        at, place = hour + rng.random(), job
        # Sorted by time as they come.
        while place > 0 and submitted[place - 1] > at:
            submitted[place] = submitted[place - 1]
            place -= 1
        submitted[place] = at
    for job in range(end - begin):
        work[job] = min(WORK_MEDIAN * np.exp(WORK_SIGMA * rng.standard_normal()), WORK_MOST)
        luck, level = rng.random(), 0
        for share in GPU_SHARES:
            level += luck >= share
        gpus[job] = 1 << level


@compile_part
def restart(world: World, row: int) -> None:
    """Put an episode back to its first hour, with no job in the system and nothing rented."""
    world.bought[row] = 0
    world.state[row] = 0
    world.cost[row] = 0.0


@compile_part
def draw_trace(rng: np.random.Generator, profiles: Floats, world: World, row: int) -> None:
    """Draw an episode's jobs and prices."""
    rates, prices = np.empty(HOURS), np.empty(HOURS)
    draw_rates(rng, profiles, rates)
    world.first[row, 0] = 0
    for hour in range(HOURS):
        draw_jobs(rng, world, row, hour, rates[hour] * RATE * world.size[0])
    for product in range(2):
        spell = SPELL if product == ON_DEMAND else 1.0
        draw_prices(
            rng, prices, MEAN_PRICE[product], WAVE[product], PEAK, KEEP, NOISE, spell, SPELL_BEGIN, SPELL_END
        )
        world.prices[row, :, product] = prices
    restart(world, row)


@compile_in_place
def count_contracts(world: World, row: int, begin: int, end: int) -> int:
    """Return how many contracts were ordered in the hours from `begin` to before `end`."""
    total = 0
    for hour in range(max(begin, 0), max(end, 0)):
        total += world.bought[row, hour]
    return total


@entry_in_place
def run_hour(world: World, row: int, contracts: int, hired: int) -> float:
    """Order contracts up to a target, hire on-demand GPUs for the hour, and simulate it; return its cost."""
    now_h, prices = world.state[row, HOUR], world.prices[row]
    held = count_contracts(world, row, now_h - LEAD - TERM + 1, now_h - LEAD + 1)
    ordered = count_contracts(world, row, now_h - LEAD + 1, now_h)
    world.bought[row, now_h] = max(contracts - held - ordered, 0)
    rent = hired * prices[now_h, ON_DEMAND]
    for hour in range(max(now_h - LEAD - TERM + 1, 0), now_h - LEAD + 1):
        rent += world.bought[row, hour] * prices[hour, CONTRACT]
    world.state[row, HIRED] = hired
    run_jobs(world, row, world.size[1] + held + hired)
    world.cost[row, 2], world.cost[row, 3] = rent, 0.0
    world.state[row, HOUR] = now_h + 1
    if now_h + 1 == HOURS:
        settle(world, row)
    cost = world.cost[row]
    return float(cost[0] + cost[1] + cost[2] + cost[3])


@compile_in_place
def settle(world: World, row: int) -> None:
    """Charge for the jobs that are left at the end as if each ran on at once, on on-demand GPUs."""
    total = 0.0
    for place in range(world.state[row, JOBS] - 1, -1, -1):
        job = world.line[row, place]
        takes = world.left_h[row, place]
        total += takes * world.gpus[row, job] * MEAN_PRICE[ON_DEMAND] + DELAY_COST * takes
        total += LATE_COST * is_late(world, row, job, world.state[row, HOUR] + takes)
    world.cost[row, 3] = total


@compile_in_place
def is_late(world: World, row: int, job: int, end: float) -> bool:
    """Return whether a job that ends at a time is late."""
    return bool(end - world.at[row, job] > max(2.0 * world.work[row, job] / world.gpus[row, job], 0.5))


@compile_in_place
def run_jobs(world: World, row: int, gpus: int) -> None:
    """Simulate the jobs of an hour on so many GPUs: shortest time left first, at most at their requests.

    Each job in line gets the largest power of two that is left, up to its request; speed is proportional.
    """
    now, hour_end, waited, late = float(world.state[row, HOUR]), world.state[row, HOUR] + 1.0, 0.0, 0
    line, left_h, asked = world.line[row], world.left_h[row], world.gpus[row]
    count, job = world.state[row, JOBS], world.first[row, world.state[row, HOUR]]
    last = world.first[row, world.state[row, HOUR] + 1]
    whole, used = 0, 0
    while True:
        whole, used = count_whole(line, asked, count, gpus, whole, used)
        soonest, ending, running = find_end(line, left_h, asked, count, gpus - used, whole, now, hour_end)
        arrives = job < last and world.at[row, job] <= soonest
        span = (world.at[row, job] if arrives else soonest) - now
        waited += count * span
        do_work(line, left_h, asked, count, running, gpus - used, whole, span)
        now = world.at[row, job] if arrives else soonest
        if not arrives and ending >= 0:
            late += is_late(world, row, line[ending], now)
            if ending >= count - whole:
                whole, used = whole - 1, used - asked[line[ending]]
            count, running = count - 1, running - 1
            for place in range(ending, count):
                line[place], left_h[place] = line[place + 1], left_h[place + 1]
        for place in range(count - running + 1, count - whole):
            move_back(line, left_h, place)
        if arrives:
            line[count], left_h[count] = job, world.work[row, job] / asked[job]
            if count - move_back(line, left_h, count) < whole:
                whole, used = whole + 1, used + asked[job]
            count, job = count + 1, job + 1
        elif ending < 0:
            break
    world.state[row, JOBS] = count
    world.cost[row, 0], world.cost[row, 1] = DELAY_COST * waited, LATE_COST * late


@compile_in_place
def count_whole(line: Ints, asked: Ints, count: int, gpus: int, whole: int, used: int) -> tuple[int, int]:
    """Return how many jobs, from the first in line, have all GPUs they ask for, and how many GPUs these are.

    `whole` and `used` are those of before a job came or went.
    """
    while used > gpus:
        whole -= 1
        used -= asked[line[count - 1 - whole]]
    while whole < count and used + asked[line[count - 1 - whole]] <= gpus:
        used += asked[line[count - 1 - whole]]
        whole += 1
    return whole, used


@compile_in_place
def find_end(
    line: Ints, left_h: Floats, asked: Ints, count: int, free: int, whole: int, now: float, soonest: float
) -> tuple[float, int, int]:
    """Return when the next job ends, before `soonest`, its place or -1, and how many jobs run.

    Of the `whole` jobs with all their GPUs only the first can be next. Of the others few run on the GPUs that
    are `free`: requests are powers of two.
    """
    ending, running = -1, whole
    if whole > 0 and now + left_h[count - 1] < soonest:
        soonest, ending = now + left_h[count - 1], count - 1
    while running < count and free > 0:
        place, running = count - 1 - running, running + 1
        one = asked[line[place]]
        share = grant(one, free)
        free -= share
        end = now + left_h[place] * one / share
        if end < soonest:
            soonest, ending = end, place
    return soonest, ending, running


@compile_in_place
def do_work(
    line: Ints, left_h: Floats, asked: Ints, count: int, running: int, free: int, whole: int, span: float
) -> None:
    """Let the running jobs run for some hours."""
    # A multiple of eight, for vector instructions; places beyond the line hold nothing.
    first = left_h[count - whole : count + -whole % 8]
    first -= span
    for place in range(count - whole - 1, count - running - 1, -1):
        one = asked[line[place]]
        share = grant(one, free)
        free -= share
        left_h[place] -= share * span / one


@compile_in_place
def grant(asked: int, free: int) -> int:
    """Return the largest power of two that is neither more than was asked for nor than is free."""
    share = asked
    while share > free:
        share //= 2
    return share


@compile_in_place
def move_back(line: Ints, left_h: Floats, place: int) -> int:
    """Move a job back in the line past those with less time left; return its place."""
    job, own_h = line[place], left_h[place]
    while place > 0:
        other, other_h = line[place - 1], left_h[place - 1]
        if other_h > own_h or (other_h == own_h and other > job):
            break
        line[place], left_h[place] = other, other_h
        place -= 1
    line[place], left_h[place] = job, own_h
    return place


@compile_entry
def begin_episode(
    rng: np.random.Generator, profiles: Floats, world: World, row: int, weights: Floats
) -> None:
    """Draw an episode, note what it costs by a rule (`weights`), and put it to its start."""
    draw_trace(rng, profiles, world, row)
    seen = np.zeros(FEATURES)
    for hour in range(HOURS):
        observe(world, row, seen)
        contracts, hired = find_targets(world, weights, seen)
        world.rule_cost[row, hour] = run_hour(world, row, contracts, hired)
    restart(world, row)


FEATURE_NAMES = (
    *("waiting", "work", "asked", "due", "usable", "contract_price", "on_demand_price"),
    *("sin_day", "cos_day", "sin_half", "cos_half", "arrivals_1h", "arrivals_6h", "work_1h"),
    *("held", "ordered", "ending_2h", "ending_4h", "hired", "running"),
)
FEATURES = len(FEATURE_NAMES)
WORK, ASKED, PRICE, CLOCK, ARRIVALS, HELD = 1, 2, 5, 7, 11, 14


@entry_in_place
def observe(world: World, row: int, seen: Floats) -> None:
    """Write what an agent sees at the begin of an hour; counts and work are for each GPU of the size."""
    now, size, own = world.state[row, HOUR], float(world.size[0]), world.size[1]
    count, work, asked, due = world.state[row, JOBS], 0.0, 0, 0
    held = count_contracts(world, row, now - LEAD - TERM + 1, now - LEAD + 1)
    ordered = count_contracts(world, row, now - LEAD + 1, now)
    free, running = own + held, 0
    for place in range(count - 1, -1, -1):
        job = world.line[row, place]
        work += world.left_h[row, place] * world.gpus[row, job]
        asked += world.gpus[row, job]
        due += is_late(world, row, job, now + 1.0) and not is_late(world, row, job, float(now))
        if free > 0:
            free -= grant(world.gpus[row, job], free)
            running += 1
    seen[0], seen[1], seen[2], seen[3] = (count - running) / size, work / size, asked / size, due / size
    seen[4] = (own + held) / size
    hour = min(now, HOURS - 1)
    seen[5] = np.log(world.prices[row, hour, CONTRACT] / MEAN_PRICE[CONTRACT])
    seen[6] = np.log(world.prices[row, hour, ON_DEMAND] / MEAN_PRICE[ON_DEMAND])
    angle = 2.0 * np.pi * now / 24.0
    seen[7], seen[8], seen[9], seen[10] = np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle)
    usual, first = RATE * size, world.first[row]
    seen[11] = (first[now] - first[max(now - 1, 0)]) / usual
    seen[12] = (first[now] - first[max(now - 6, 0)]) / (6.0 * usual)
    recent = 0.0
    for job in range(first[max(now - 1, 0)], first[now]):
        recent += world.work[row, job]
    seen[13] = recent / size
    seen[14], seen[15] = held / size, ordered / size
    seen[16] = count_contracts(world, row, now - LEAD - TERM + 1, now - LEAD - TERM + 3) / size
    seen[17] = count_contracts(world, row, now - LEAD - TERM + 1, now - LEAD - TERM + 5) / size
    seen[18], seen[19] = world.state[row, HIRED] / size, running / size


@compile_in_place
def find_targets(world: World, weights: Floats, seen: Floats) -> tuple[int, int]:
    """Return the targets of a rule that is linear in what is seen; `weights` has shape (2, 1 + FEATURES)."""
    contracts, hired = find_values(world, weights, seen)
    return clip_target(contracts, world.size[2]), clip_target(hired, world.size[2])


@compile_in_place
def find_values(world: World, weights: Floats, seen: Floats) -> tuple[float, float]:
    """Return the targets of a linear rule before they are cut to what there is."""
    contracts, hired = weights[0, 0], weights[1, 0]
    for at in range(FEATURES):
        contracts += weights[0, 1 + at] * seen[at]
        hired += weights[1, 1 + at] * seen[at]
    return contracts * world.size[0], hired * world.size[0]


@compile_in_place
def clip_target(value: float, most: int) -> int:
    """Return a target as a whole number from 0 to the most."""
    return int(min(max(value + 0.5, 0.0), float(most)))


@compile_entry
def play_rule(world: World, weights: Floats, costs: Floats) -> None:
    """Play all episodes from their start by a linear rule; write what each costs to `costs`, shape (R,)."""
    seen = np.zeros(FEATURES)
    for row in range(len(costs)):
        restart(world, row)
        costs[row] = 0.0
        for _ in range(HOURS):
            observe(world, row, seen)
            contracts, hired = find_targets(world, weights, seen)
            costs[row] += run_hour(world, row, contracts, hired)
        restart(world, row)


@compile_entry
def observe_rows(world: World, begin: int, end: int, seen: Floats) -> None:
    """Write what agents see in some rows to those of `seen`, shape (R, FEATURES)."""
    for row in range(begin, end):
        observe(world, row, seen[row])


@compile_entry
def step_rows(
    world: World, actions: Floats, base: Floats, skipped: Bools, seen: Floats, rewards: Floats, costs: Floats
) -> None:
    """Rent and simulate an hour in all rows that are not skipped.

    Parameters
    ----------
    actions : ndarray of float, shape (R, 2)
        GPUs, which are added to the targets of the rule `base`.
    seen : ndarray of float, shape (R, FEATURES)
        Observations, which are replaced by the next ones.
    rewards, costs : ndarray of float, shape (R,)
        Receive the cost of the hour by the reactive rule less the cost, and the cost, in USD.
    """
    most = world.size[2]
    for row in range(len(rewards)):
        rewards[row] = costs[row] = 0.0
        if skipped[row]:
            continue
        hour = world.state[row, HOUR]
        by_rule = find_values(world, base, seen[row])
        contracts = clip_target(by_rule[0] + actions[row, 0], most)
        hired = clip_target(by_rule[1] + actions[row, 1], most)
        costs[row] = run_hour(world, row, contracts, hired)
        rewards[row] = world.rule_cost[row, hour] - costs[row]
        observe(world, row, seen[row])


@compile_entry
def show_past(world: World, found: Floats, begin: int, hours: int) -> None:
    """Write jobs, work and prices of the last hours, latest first, to `found` from column `begin` on."""
    size = float(world.size[0])
    for row in range(len(found)):
        now, column = world.state[row, HOUR], begin
        for back in range(hours):
            hour = now - 1 - back
            if hour >= 0:
                first, last = world.first[row, hour], world.first[row, hour + 1]
                found[row, column] = (last - first) / (RATE * size)
                found[row, column + 1] = world.work[row, first:last].sum() / size
            priced = min(now - back, HOURS - 1)
            for product in range(2 * (priced >= 0)):
                found[row, column + 2 + product] = np.log(
                    world.prices[row, priced, product] / MEAN_PRICE[product]
                )
            column += 4
