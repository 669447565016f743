"""Steps of Rack episodes, compiled, by the rules of `RackState` (state.py), which says what they are.

All of it is in this file: Numba's cache knows a function by the bytes of its file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.racks.gangs import SIZES
from clustergym.envs.racks.state import SLOTS
from clustergym.sim.compiled.numba_cache import compile_fields, compile_in_place, entry_in_place

(GANGS, NEXT, TURN, OFFERED, LEFT, FITS, MOVES, WAITING, RUNNING, NUMBERS) = range(10)
"""Columns of `RackArrays.numbers`: gangs of the episode, and what `RackState` calls so."""
NOW_S, MOVES_LEFT, WAITED, MOVED, FIGURES = range(5)
"""Columns of `RackArrays.figures`."""
NONE = -1
SHOW, LEAVE = -1, -2
"""In place of an action: begin an episode, or leave it as it is."""
OF_SIZE = np.array(SIZES)


class RackArrays(NamedTuple):
    """Episodes of the Rack environment: R racks, up to J gangs; in a batch all have one axis more, the first.

    Attributes
    ----------
    submit_s, duration_s, told_s : ndarray of float, shape (J,)
    trays, segments, size : ndarray of int, shape (J,)
        Of each gang: trays of a segment, segments, trays of all.
    numbers : ndarray of int, shape (NUMBERS,)
    figures : ndarray of float, shape (FIGURES,)
    free : ndarray of int, shape (R,)
    held : ndarray of int, shape (J, R)
        Trays of each gang in each rack.
    home : ndarray of int, shape (J,)
        The rack in which all of a gang that runs lies; NONE: it lies in several.
    start_s, end_s, told_end_s : ndarray of float, shape (J,)
        Of gangs that have started; ends with the restarts of moves.
    waiting, running : ndarray of int, shape (J,)
        The gangs that wait, by time of submission, and those that run, by the end that they told.
    mask : ndarray of int8, shape (2 R + 1,)
    observation : ndarray of float32
    """

    submit_s: Floats
    duration_s: Floats
    told_s: Floats
    trays: Ints
    segments: Ints
    size: Ints
    numbers: Ints
    figures: Floats
    free: Ints
    held: Ints
    home: Ints
    start_s: Floats
    end_s: Floats
    told_end_s: Floats
    waiting: Ints
    running: Ints
    mask: npt.NDArray[np.int8]
    observation: npt.NDArray[np.float32]


class RackRules(NamedTuple):
    """Constants of the episodes: fields of `RackParameters`, and whether gangs tell their durations."""

    trays: int
    most_trays: int
    window: int
    moves_per_hour: float
    restart_s: float
    told: bool


select = compile_fields(RackArrays, "arrays, at", "arrays.{}[at]")
"""(Arrays of a batch, episode) -> its arrays, as views."""


@compile_in_place
def fits(s: RackArrays, rules: RackRules, row: int) -> bool:
    """Return whether all segments of a gang that waits have room."""
    room = 0
    for rack in range(len(s.free)):
        room += min(s.free[rack], rules.most_trays) // s.trays[row]
    return bool(room >= s.segments[row])


@compile_in_place
def has_room(s: RackArrays, rules: RackRules, rack: int) -> bool:
    """Return whether a rack has room for the offered gang's next segment."""
    row = s.numbers[OFFERED]
    if row == NONE or not s.numbers[FITS]:
        return False
    fits_gang = s.held[row, rack] + s.trays[row] <= rules.most_trays
    return bool(s.free[rack] >= s.trays[row] and fits_gang)


@compile_in_place
def find_mover(s: RackArrays, rack: int) -> int:
    """Return the smallest gang wholly in a rack that has room in another; NONE: no move is possible."""
    if s.numbers[OFFERED] == NONE or s.figures[MOVES_LEFT] < 1.0 or s.numbers[FITS]:
        return NONE
    best = NONE
    for at in range(s.numbers[RUNNING]):
        row = s.running[at]
        if s.home[row] == rack and (best == NONE or (s.size[row], row) < (s.size[best], best)):
            best = row
    # Where the smallest has no room, no other one has.
    return best if best != NONE and find_target(s, rack, s.size[best]) != NONE else NONE


@compile_in_place
def find_target(s: RackArrays, rack: int, size: int) -> int:
    """Return the rack other than `rack` with the fewest free trays that suffice; NONE: there is none."""
    best = NONE
    for other in range(len(s.free)):
        if other != rack and s.free[other] >= size and (best == NONE or s.free[other] < s.free[best]):
            best = other
    return best


@compile_in_place
def may_wait(s: RackArrays) -> bool:
    """Return whether the offered gang may wait."""
    row = s.numbers[OFFERED]
    if row == NONE or s.numbers[LEFT] != s.segments[row]:
        return False
    return bool(s.numbers[RUNNING] > 0 or s.numbers[NEXT] < s.numbers[GANGS])


@compile_in_place
def _remove(rows: Ints, count: int, row: int) -> None:
    """Take a row out of a list, whose order stays."""
    found = False
    for at in range(count - 1):
        found |= rows[at] == row
        if found:
            rows[at] = rows[at + 1]


@compile_in_place
def _insert_running(s: RackArrays, row: int) -> None:
    """Enter a gang in the list of those that run, by the end that it told."""
    at = s.numbers[RUNNING]
    while at > 0 and (s.told_end_s[s.running[at - 1]], s.running[at - 1]) > (s.told_end_s[row], row):
        s.running[at] = s.running[at - 1]
        at -= 1
    s.running[at] = row
    s.numbers[RUNNING] += 1


@compile_in_place
def _remove_running(s: RackArrays, row: int) -> None:
    _remove(s.running, s.numbers[RUNNING], row)
    s.numbers[RUNNING] -= 1


@compile_in_place
def _place(s: RackArrays, rules: RackRules, rack: int) -> None:
    row, now_s = s.numbers[OFFERED], s.figures[NOW_S]
    s.free[rack] -= s.trays[row]
    s.held[row, rack] += s.trays[row]
    s.numbers[LEFT] -= 1
    if s.numbers[LEFT]:
        return
    s.home[row] = rack if s.held[row, rack] == s.size[row] else NONE
    s.start_s[row] = now_s
    s.end_s[row], s.told_end_s[row] = now_s + s.duration_s[row], now_s + s.told_s[row]
    _insert_running(s, row)
    _remove(s.waiting, s.numbers[WAITING], row)
    s.numbers[WAITING] -= 1
    offer(s, rules)


@compile_in_place
def _move(s: RackArrays, rules: RackRules, rack: int) -> None:
    row = find_mover(s, rack)
    target, size = find_target(s, rack, s.size[row]), s.size[row]
    s.free[rack] += size
    s.free[target] -= size
    s.held[row, rack], s.held[row, target], s.home[row] = 0, size, target
    _remove_running(s, row)
    s.end_s[row] += rules.restart_s
    s.told_end_s[row] += rules.restart_s
    _insert_running(s, row)
    s.figures[MOVED] += size * rules.restart_s
    s.figures[MOVES_LEFT] -= 1.0
    s.numbers[MOVES] += 1
    s.numbers[FITS] = fits(s, rules, s.numbers[OFFERED])


@compile_in_place
def act(s: RackArrays, rules: RackRules, action: int) -> None:
    """Carry out a legal action."""
    racks = len(s.free)
    if action == 2 * racks:
        s.numbers[TURN] += 1
        offer(s, rules)
    elif action < racks:
        _place(s, rules, action)
    else:
        _move(s, rules, action - racks)


@compile_in_place
def _any_move(s: RackArrays) -> bool:
    found = False
    for rack in range(len(s.free)):
        found |= find_mover(s, rack) != NONE
    return found


@compile_in_place
def offer(s: RackArrays, rules: RackRules) -> None:
    """Let time pass until a gang fits, or would if others moved, and offer it."""
    numbers = s.numbers
    while True:
        while numbers[TURN] < min(numbers[WAITING], rules.window):
            row = s.waiting[numbers[TURN]]
            numbers[OFFERED], numbers[LEFT] = row, s.segments[row]
            numbers[FITS] = fits(s, rules, row)
            if numbers[FITS] or (s.free.sum() >= s.size[row] and _any_move(s)):
                return
            numbers[TURN] += 1
        numbers[OFFERED], numbers[LEFT] = NONE, 0
        if not advance(s, rules):
            return


@compile_in_place
def advance(s: RackArrays, rules: RackRules) -> bool:
    """Let time pass until the next gang comes or ends; return whether there was one to wait for."""
    numbers, figures = s.numbers, s.figures
    comes_s = s.submit_s[numbers[NEXT]] if numbers[NEXT] < numbers[GANGS] else np.inf
    ends_s, ending = np.inf, NONE
    for at in range(numbers[RUNNING]):
        row = s.running[at]
        if s.end_s[row] < ends_s or (s.end_s[row] == ends_s and row < ending):
            ends_s, ending = s.end_s[row], row
    until_s = min(comes_s, ends_s)
    if until_s == np.inf or (numbers[NEXT] == numbers[GANGS] and numbers[WAITING] == 0):
        return False
    passed_s, waiting = until_s - figures[NOW_S], 0
    for at in range(numbers[WAITING]):
        waiting += s.size[s.waiting[at]]
    figures[WAITED] += passed_s * waiting
    most = rules.moves_per_hour
    figures[MOVES_LEFT] = min(most, figures[MOVES_LEFT] + most * passed_s / 3600)
    figures[NOW_S], numbers[TURN] = until_s, 0
    if comes_s <= ends_s:
        s.waiting[numbers[WAITING]] = numbers[NEXT]
        numbers[WAITING] += 1
        numbers[NEXT] += 1
    else:
        _remove_running(s, ending)
        for rack in range(len(s.free)):
            s.free[rack] += s.held[ending, rack]
            s.held[ending, rack] = 0
    return True


@compile_in_place
def give_up(s: RackArrays) -> None:
    """Charge gangs that have not started until all gangs could have run one after another."""
    numbers, now_s, all_s = s.numbers, s.figures[NOW_S], 0.0
    for row in range(numbers[GANGS]):
        all_s += s.duration_s[row]
    until_s = max(now_s, s.submit_s[numbers[GANGS] - 1]) + all_s
    for at in range(numbers[WAITING]):
        s.figures[WAITED] += (until_s - now_s) * s.size[s.waiting[at]]
    for row in range(numbers[NEXT], numbers[GANGS]):
        s.figures[WAITED] += (until_s - s.submit_s[row]) * s.size[row]


@compile_in_place
def write_mask(s: RackArrays, rules: RackRules) -> None:
    """Write which actions are legal; all where no gang is left."""
    racks = len(s.free)
    if s.numbers[OFFERED] == NONE:
        s.mask[:] = 1
        return
    for rack in range(racks):
        s.mask[rack] = has_room(s, rules, rack)
        s.mask[racks + rack] = find_mover(s, rack) != NONE
    s.mask[2 * racks] = may_wait(s)


@compile_in_place
def _observe(s: RackArrays, rules: RackRules) -> None:
    numbers, seen, racks, trays = s.numbers, s.observation, len(s.free), rules.trays
    row, now_s = numbers[OFFERED], s.figures[NOW_S]
    waits = numbers[WAITING]
    for rack in range(racks):
        mover = find_mover(s, rack)
        seen[rack] = s.free[rack] / trays
        seen[racks + 3 + rack] = 0.0 if mover == NONE else s.size[mover] / trays
        seen[2 * racks + 4 + rack] = 0.0 if row == NONE else s.held[row, rack] / trays
    waited_h = 0.0 if row == NONE else (now_s - s.submit_s[row]) / 3600
    seen[racks] = 0.0 if row == NONE else s.trays[row] / trays
    seen[racks + 1], seen[racks + 2] = numbers[LEFT] / max(numbers[LEFT], 4), waited_h / (1 + waited_h)
    seen[2 * racks + 3] = s.figures[MOVES_LEFT] / max(rules.moves_per_hour, 1.0)
    queue = seen[3 * racks + 4 :]
    queue[0] = waits / (10 + waits)
    for at in range(len(OF_SIZE)):
        total = 0
        for place in range(waits):
            if s.trays[s.waiting[place]] == OF_SIZE[at]:
                total += s.size[s.waiting[place]]
        queue[1 + at] = total / (trays + total)
    if rules.told:
        _observe_told(s, rules, queue[1 + len(OF_SIZE) :])


@compile_in_place
def _observe_told(s: RackArrays, rules: RackRules, seen: npt.NDArray[np.float32]) -> None:
    """Write what gangs tell: of those that wait in the window, and of those that run in each rack."""
    now_s, racks, trays = s.figures[NOW_S], len(s.free), rules.trays
    seen[:] = 0.0
    for at in range(min(s.numbers[WAITING], rules.window)):
        row, first = s.waiting[at], 5 * at
        told_h, waited_h = s.told_s[row] / 3600, (now_s - s.submit_s[row]) / 3600
        seen[first], seen[first + 1] = s.trays[row] / trays, s.segments[row] / max(s.segments[row], 4)
        seen[first + 2], seen[first + 3] = told_h / (2 + told_h), waited_h / (1 + waited_h)
        seen[first + 4] = row == s.numbers[OFFERED]
    runs = seen[5 * rules.window :]
    for rack in range(racks):
        slot = 0
        for at in range(s.numbers[RUNNING]):
            row = s.running[at]
            if s.held[row, rack] == 0 or slot == SLOTS:
                continue
            first, left_h = 3 * (rack * SLOTS + slot), max(s.told_end_s[row] - now_s, 0.0) / 3600
            age_h = (now_s - s.start_s[row]) / 3600
            runs[first] = s.held[row, rack] / trays
            runs[first + 1], runs[first + 2] = age_h / (2 + age_h), left_h / (2 + left_h)
            slot += 1


@entry_in_place
def apply_actions(
    arrays: RackArrays, rules: RackRules, actions: Ints, cut_off: Bools, first: int, last: int
) -> None:
    """Apply an action in each of the episodes first..last - 1, and write what their agents see.

    Parameters
    ----------
    actions : ndarray of int, shape (E,)
        Legal ones; SHOW: begin; LEAVE: nothing changes.
    cut_off : ndarray of bool, shape (E,)
        Whether the episode is truncated after that, if gangs are left.
    """
    for at in range(first, last):
        s = select(arrays, at)
        if actions[at] == SHOW:
            advance(s, rules)
            offer(s, rules)
        elif actions[at] != LEAVE and s.numbers[OFFERED] != NONE:
            act(s, rules, actions[at])
        if cut_off[at] and s.numbers[OFFERED] != NONE:
            give_up(s)
        if actions[at] != LEAVE:
            write_mask(s, rules)
            _observe(s, rules)
