"""Planners for `Rack-told`, compiled: a rule with a linear score of each legal action, and look-ahead.

Look-ahead (rollout; Bertsekas, Tsitsiklis and Wu, 1997, Journal of Heuristics 3) draws what it does not know
by the distribution from which episodes are drawn: how long gangs run, given what they told and their age, and
which gangs come in the next `AHEAD_S`. In each such world it plays the rule to the end after each legal
action, and takes another action than the rule's where that costs less by `ERRORS` standard errors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.envs.racks import step as steps
from clustergym.envs.racks.gangs import LN_SIGMA, MEDIAN_S, Gangs, RackParameters
from clustergym.envs.racks.step import (
    GANGS,
    MOVED,
    MOVES_LEFT,
    NEXT,
    NONE,
    NOW_S,
    OFFERED,
    RUNNING,
    WAITED,
    WAITING,
    RackArrays,
    RackRules,
)
from clustergym.envs.racks.vector import load_gangs, make_arrays, make_rules
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place

NEVER = 1e12
"""A cost above all others."""
WEIGHTS = 30
"""Numbers of a rule: 6 of placements, 13 of waiting, 11 of moves, as `choose` lists them."""
BEST_FIT = np.zeros(WEIGHTS)
"""Best fit, with moves into room that one move makes."""
BEST_FIT[[0, 6, 19, 20, 24]] = -4.0, -6.0, -7.0, -4.0, 6.0
AHEAD_S = 4 * 3600.0
"""Later arrivals count for nothing: what an action does to them drowns in what else differs by then."""
ERRORS = 0.5
"""Standard errors by which an action has to be better than the rule's, of several worlds."""
RULE, HINDSIGHT = -1, 0
"""In place of a number of drawn worlds: the rule alone; the world as it is."""


@compile_in_place
def _find_reserved(s: RackArrays, rules: RackRules) -> tuple[int, float, int]:
    """Return where and when the first gang without room will have some, and the trays that it leaves then.

    That is the rack where, by what gangs told, a segment of it fits first. NONE: every gang has room.
    """
    head = NONE
    for at in range(s.numbers[WAITING] - 1, -1, -1):
        if s.waiting[at] != s.numbers[OFFERED] and not steps.fits(s, rules, s.waiting[at]):
            head = s.waiting[at]
    best, best_s, spare = NONE, np.inf, 0
    if head == NONE:
        return best, best_s, spare
    for rack in range(len(s.free)):
        free, at, free_s = s.free[rack], 0, s.figures[NOW_S]
        while free < s.trays[head] and at < s.numbers[RUNNING]:
            row = s.running[at]
            if s.held[row, rack]:
                free += s.held[row, rack]
                free_s = max(free_s, s.told_end_s[row])
            at += 1
        if free >= s.trays[head] and free_s < best_s:
            best, best_s, spare = rack, free_s, free - s.trays[head]
    return best, best_s, spare


@compile_in_place
def choose(s: RackArrays, rules: RackRules, weights: Floats, first: int, last: int) -> int:
    """Return the legal action with the highest score among first..last - 1; NONE: none is legal."""
    row, racks, trays, waits = s.numbers[OFFERED], len(s.free), rules.trays, s.numbers[WAITING]
    size, told_s, now_s = s.trays[row], s.told_s[row], s.figures[NOW_S]
    segment, segments, small = size / trays, s.segments[row], size / trays < 0.5
    waited_h, log_told = (now_s - s.submit_s[row]) / 3600, math.log(told_s / MEDIAN_S)
    waited, large, shorter, could = waited_h / (1 + waited_h), 0.0, 0, 0.0
    for at in range(waits):
        other = s.waiting[at]
        large += s.size[other] * (s.trays[other] >= rules.most_trays)
        if other != row and s.told_s[other] < told_s:
            shorter += 1
            # A shorter gang that is offered after this one, and has room.
            if at > s.numbers[steps.TURN] and at < rules.window and steps.fits(s, rules, other):
                could = 1.0
    large /= trays + large
    reserved, reserved_s, spare = _find_reserved(s, rules)
    breaks = small
    for rack in range(racks):
        breaks &= s.mask[rack] == 0 or s.free[rack] == trays
    w, best, best_score = weights, NONE, -np.inf
    for action in range(first, last):
        if not s.mask[action]:
            continue
        if action < racks:
            rest, empty = (s.free[action] - size) / trays, s.free[action] == trays
            delays = action == reserved and now_s + told_s > reserved_s and size > spare
            score = w[0] * rest + w[1] * (rest == 0.0) + w[2] * empty + w[3] * (empty and small)
            score += w[4] * (s.held[row, action] > 0) + w[5] * delays
        elif action == 2 * racks:
            score = w[6] + w[7] * segment + w[8] * waited + w[9] * waits / (10 + waits) + w[10] * large
            score += w[11] * breaks + w[12] * breaks * large + w[13] * (segments - 1)
            score += w[14] * (segment > 0.8) * waited + w[15] * log_told
            score += w[16] * shorter / max(waits - 1, 1) + w[17] * could + w[18] * log_told * large
        else:
            rack = action - racks
            mover = steps.find_mover(s, rack)
            leaves, free = s.size[mover] / trays, s.free[rack] / trays
            left_s = max(s.told_end_s[mover] - now_s, 60.0)
            score = w[19] + w[20] * leaves + w[21] * free + w[22] * segment * segments
            score += w[23] * s.figures[MOVES_LEFT] / max(rules.moves_per_hour, 1.0)
            score += w[24] * (free + leaves >= segment) + w[25] * waited + w[26] * large
            score += w[27] * (segments > 1) + w[28] * math.log(left_s / MEDIAN_S) + w[29] * log_told
        if score > best_score:
            best, best_score = action, score
    return best


@compile_in_place
def _copy(source: RackArrays, to: RackArrays) -> None:
    """Copy an episode, but for what its agent sees."""
    for row in range(source.numbers[GANGS]):
        to.submit_s[row], to.duration_s[row] = source.submit_s[row], source.duration_s[row]
        to.told_s[row], to.trays[row] = source.told_s[row], source.trays[row]
        to.segments[row], to.size[row] = source.segments[row], source.size[row]
        to.home[row], to.start_s[row] = source.home[row], source.start_s[row]
        to.end_s[row], to.told_end_s[row] = source.end_s[row], source.told_end_s[row]
        to.waiting[row], to.running[row] = source.waiting[row], source.running[row]
        for rack in range(len(source.free)):
            to.held[row, rack] = source.held[row, rack]
    for rack in range(len(source.free)):
        to.free[rack] = source.free[rack]
    for at in range(len(source.numbers)):
        to.numbers[at] = source.numbers[at]
    for at in range(len(source.figures)):
        to.figures[at] = source.figures[at]


@compile_in_place
def _draw_world(s: RackArrays, shapes: Floats, error: float, gap_s: float, rng: Any) -> None:
    """Draw anew what an agent does not know: how long gangs run, and which are to come."""
    now_s = s.figures[NOW_S]
    # The logarithm of a duration, given that of what was told, is normal.
    known = LN_SIGMA**2 / (LN_SIGMA**2 + error**2)
    mean, deviation = math.log(MEDIAN_S), LN_SIGMA * math.sqrt(1 - known)
    for at in range(s.numbers[RUNNING]):
        row = s.running[at]
        moved_s = s.told_end_s[row] - s.start_s[row] - s.told_s[row]
        age_s, tries, drawn_s = now_s - s.start_s[row] - moved_s, 0, 0.0
        centre = mean + known * (math.log(s.told_s[row]) - mean)
        while drawn_s <= age_s and tries < 50:
            drawn_s = math.exp(centre + deviation * rng.standard_normal())
            tries += 1
        s.duration_s[row] = drawn_s if drawn_s > age_s else 1.05 * age_s
        s.end_s[row] = s.start_s[row] + moved_s + s.duration_s[row]
    for at in range(s.numbers[WAITING]):
        row = s.waiting[at]
        centre = mean + known * (math.log(s.told_s[row]) - mean)
        s.duration_s[row] = math.exp(centre + deviation * rng.standard_normal())
    comes_s = now_s
    for row in range(s.numbers[NEXT], s.numbers[GANGS]):
        comes_s += gap_s * rng.standard_exponential()
        if comes_s > now_s + AHEAD_S:
            s.numbers[GANGS] = row
            break
        share, shape = rng.random(), 0
        while shape < len(shapes) - 1 and share >= shapes[shape, 2]:
            share -= shapes[shape, 2]
            shape += 1
        s.submit_s[row], s.trays[row], s.segments[row] = comes_s, int(shapes[shape, 0]), int(shapes[shape, 1])
        s.size[row] = s.trays[row] * s.segments[row]
        s.duration_s[row] = math.exp(mean + LN_SIGMA * rng.standard_normal())
        s.told_s[row] = s.duration_s[row] * math.exp(error * rng.standard_normal())


@compile_in_place
def _finish(s: RackArrays, rules: RackRules, weights: Floats) -> float:
    """Play the rule to the end; return what gangs waited and stood still, times their trays."""
    while s.numbers[OFFERED] != NONE:
        steps.write_mask(s, rules)
        steps.act(s, rules, choose(s, rules, weights, 0, len(s.mask)))
    # A gang that waits although nothing is to come or to end would wait for ever.
    return float(s.figures[WAITED] + s.figures[MOVED] + (NEVER if s.numbers[WAITING] else 0.0))


@compile_in_place
def _try(source: RackArrays, tried: RackArrays, rules: RackRules, weights: Floats, action: int) -> float:
    """Return what an action costs if the rule plays on."""
    _copy(source, tried)
    steps.act(tried, rules, action)
    return _finish(tried, rules, weights)


@compile_in_place
def _look_ahead(
    arrays: RackArrays,
    rules: RackRules,
    weights: Floats,
    worlds: int,
    shapes: Floats,
    error: float,
    gap_s: float,
    differs: Floats,
    rng: Any,
) -> int:
    """Return the action in row 0 after which the rule costs least, in so many worlds.

    Rows 1 and 2 are scratch; so is `differs`, shape (2, actions).
    """
    s, world, tried = steps.select(arrays, 0), steps.select(arrays, 1), steps.select(arrays, 2)
    racks, rule, count = len(s.free), choose(s, rules, weights, 0, len(s.mask)), 0
    differs[0], differs[1] = np.inf, 0.0
    # Of placements, of moves and of waiting, what the rule likes best: which of the three it is matters most,
    # and of many candidates that cost the same in truth one looks better by chance.
    for part in range(3):
        action = choose(s, rules, weights, part * racks, min((part + 1) * racks, 2 * racks + 1))
        if action != NONE:
            differs[0, action] = 0.0
            count += 1
    if count == 1:
        return rule
    number = max(worlds, 1)
    for _ in range(number):
        _copy(s, world)
        if worlds != HINDSIGHT:
            _draw_world(world, shapes, error, gap_s, rng)
        usual = _try(world, tried, rules, weights, rule)
        for action in range(2 * racks + 1):
            if action != rule and differs[0, action] < np.inf:
                more = _try(world, tried, rules, weights, action) - usual
                differs[0, action] += more
                differs[1, action] += more * more
    return _choose_cheapest(differs, number, rule)


@compile_in_place
def _choose_cheapest(differs: Floats, number: int, rule: int) -> int:
    """Return the action that costs least, if it is the rule's or better by `ERRORS` standard errors.

    Parameters
    ----------
    differs : ndarray of float, shape (2, actions)
        Sums over so many worlds of an action's cost less that of the rule's, and of its square.
    """
    best, least = rule, 0.0
    for action in range(differs.shape[1]):
        mean = differs[0, action] / number
        if mean < 0.0:
            variance = max(differs[1, action] / number - mean * mean, 0.0)
            upper = mean + ERRORS * math.sqrt(variance / max(number - 1, 1))
            if upper < least:
                best, least = action, upper
    return best


@compile_entry
def _play(
    arrays: RackArrays,
    rules: RackRules,
    weights: Floats,
    worlds: int,
    shapes: Floats,
    error: float,
    gap_s: float,
    rng: Any,
) -> None:
    """Play the episode in row 0 to its end by look-ahead, or with RULE by the rule alone."""
    s, differs = steps.select(arrays, 0), np.zeros((2, arrays.mask.shape[1]))
    steps.advance(s, rules)
    steps.offer(s, rules)
    while s.numbers[OFFERED] != NONE:
        steps.write_mask(s, rules)
        if worlds == RULE:
            action = choose(s, rules, weights, 0, len(s.mask))
        else:
            action = _look_ahead(arrays, rules, weights, worlds, shapes, error, gap_s, differs, rng)
        steps.act(s, rules, action)


class RackPlanner:
    """Plays episodes of the Rack environment by a rule, or by look-ahead with that rule.

    Parameters
    ----------
    parameters : RackParameters
    weights : ndarray of float, shape (WEIGHTS,)
        Of the rule.
    worlds : int
        Worlds that look-ahead draws at each action; RULE: it does not look ahead; HINDSIGHT: it knows all.
    """

    def __init__(self, parameters: RackParameters, weights: Floats, worlds: int = RULE) -> None:
        self.parameters, self.weights, self.worlds = parameters, weights, worlds
        self._arrays, self._rules = make_arrays(parameters, 3, parameters.jobs, 0), make_rules(parameters)
        self._shapes = np.array(parameters.fitting_shapes())
        self._shapes[:, 2] /= self._shapes[:, 2].sum()
        mean_s = (self._shapes.prod(axis=1)).sum() * MEDIAN_S * math.exp(LN_SIGMA**2 / 2)
        self._gap_s = float(mean_s / (parameters.load * parameters.racks * parameters.trays))

    def play(self, gangs: Gangs, rng: np.random.Generator) -> tuple[float, float]:
        """Play an episode of `parameters.jobs` gangs; return the hours that gangs waited, and stood still.

        Means weighted by trays. `rng` draws the worlds.
        """
        arrays, error = self._arrays, self.parameters.told_error
        load_gangs(arrays, 0, self.parameters, gangs)
        given = self._rules, self.weights, self.worlds, self._shapes, error or 0.0, self._gap_s
        _play(arrays, *given, rng)
        tray_h = 3600 * float((gangs.trays * gangs.segments).sum())
        return float(arrays.figures[0, WAITED]) / tray_h, float(arrays.figures[0, MOVED]) / tray_h
