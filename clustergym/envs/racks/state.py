"""An episode of the Rack environment, what a reward can weigh of it, and its pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from operator import attrgetter

import numpy as np

from clustergym.envs.racks.gangs import SIZES, Gangs, RackParameters
from clustergym.envs.rendering import (
    EMPTY,
    FAINT,
    HEIGHT,
    INK,
    LIGHT,
    WIDTH,
    Picture,
    Pixels,
    choose_colour,
    clock,
    table,
)

SLOTS = 6
"""Gangs of a rack that an observation shows one by one where they tell durations: those that end first."""


class RackState:
    """Gangs (jobs) that run in racks or wait, and the one that is offered to the agent for placement.

    Parameters
    ----------
    parameters : RackParameters
    gangs : Gangs

    Attributes
    ----------
    now_s : float
    free : list of int
        Free trays of each rack.
    held : dict of int to Counter
        Trays in each rack of each gang that runs, and of the one that is being placed.
    waiting : list of int
        Gangs that wait, in order of submission.
    offered : int or None
        The gang that the next action is about; None: all have started.
    left : int
        Its segments that have no rack yet.
    moves_left : float
    end_s, start_s, told_end_s : dict of int to float
        When gangs that run end; when all that have started did, and would end as they told.
    waited_tray_s, moved_tray_s : float
        What gangs have waited so far, and stood still for moves, times their trays.
    """

    def __init__(self, parameters: RackParameters, gangs: Gangs) -> None:
        self.parameters, self.gangs = parameters, gangs
        self.now_s, self.free = 0.0, [parameters.trays] * parameters.racks
        self.held: dict[int, Counter[int]] = {}
        self.waiting: list[int] = []
        self.offered: int | None = None
        self.left, self.moves_left = 0, parameters.moves_per_hour
        self._most_trays, self._offered_fits = parameters.most_trays, False
        self.waited_tray_s = self.moved_tray_s = 0.0
        self.moves, self._next, self._turn = 0, 0, 0
        self._ends: list[tuple[float, int]] = []
        self.end_s: dict[int, float] = {}
        self.told_s = gangs.duration_s if gangs.told_s is None else gangs.told_s
        self.start_s: dict[int, float] = {}
        self.told_end_s: dict[int, float] = {}
        self.sizes = (gangs.trays * gangs.segments).tolist()
        self.total_trays = float(sum(self.sizes))
        self._advance()
        self._offer()

    @property
    def over(self) -> bool:
        """Whether all gangs have started, which ends the episode."""
        return self.offered is None

    @property
    def size(self) -> int:
        """Trays that each segment of the offered gang needs in one rack; 0 if no gang is offered."""
        return 0 if self.offered is None else int(self.gangs.trays[self.offered])

    @property
    def waiting_cost(self) -> float:
        """Mean hours that gangs have waited so far, weighted by their trays."""
        return self.waited_tray_s / self.total_trays / 3600

    @property
    def moved_cost(self) -> float:
        """Mean hours that gangs lost by restarts after moves so far, weighted by their trays."""
        return self.moved_tray_s / self.total_trays / 3600

    @property
    def stranded(self) -> int:
        """Free trays that would stay empty if racks were filled with parts as large as the offered gang's."""
        size = self.size
        return sum(free - self._room(free, size) * size for free in self.free) if size else 0

    def has_room(self, rack: int) -> bool:
        """Return whether a rack has room for the offered gang's next segment (its part within one rack)."""
        if self.offered is None or not self._offered_fits:
            return False
        used = self.held.get(self.offered, Counter())[rack]
        return self.free[rack] >= self.size and used + self.size <= self._most_trays

    def find_move(self, rack: int) -> tuple[int, int] | None:
        """Return the smallest gang wholly in `rack` that fits in another, and that rack; None: no move helps.

        None: there is none, no move is left, or the gang that is offered has room without.
        """
        if self.offered is None or self.moves_left < 1 or self._offered_fits:
            return None
        inside = [(self.sizes[row], row) for row, racks in self.held.items() if racks.keys() == {rack}]
        # The smallest first: its restart costs least, weighted by trays. A gang in several racks never moves.
        for size, row in sorted(inside):
            rooms = [(free, at) for at, free in enumerate(self.free) if at != rack and free >= size]
            if rooms:
                return row, min(rooms)[1]
        return None

    def may_wait(self) -> bool:
        """Return whether the offered gang may wait: no segment is placed, and gangs will end or arrive."""
        offered = self.offered
        # Gangs start whole: once a segment has a rack, the others must follow.
        if offered is None or self.left != int(self.gangs.segments[offered]):
            return False
        return bool(self._ends) or self._next < len(self.gangs.submit_s)

    def place(self, rack: int) -> None:
        """Put the offered gang's next segment (part within a rack) in a rack; the last one starts it."""
        row, size = self.offered, self.size
        assert row is not None
        self.free[rack] -= size
        self.held.setdefault(row, Counter())[rack] += size
        self.left -= 1
        if self.left == 0:
            self.end_s[row] = self.now_s + float(self.gangs.duration_s[row])
            self.start_s[row] = self.now_s
            self.told_end_s[row] = self.now_s + float(self.told_s[row])
            heappush(self._ends, (self.end_s[row], row))
            self.waiting.remove(row)
            self._offer()

    def move(self, rack: int) -> None:
        """Move the gang that `find_move` chooses from `rack` to another; the restart delays its end."""
        found = self.find_move(rack)
        assert found is not None
        row, to = found
        size, restart_s = self.sizes[row], self.parameters.restart_s
        self.free[rack] += size
        self.free[to] -= size
        self.held[row] = Counter({to: size})
        self.end_s[row] += restart_s
        self.told_end_s[row] += restart_s
        heappush(self._ends, (self.end_s[row], row))
        self.moved_tray_s += size * restart_s
        self.moves += 1
        self.moves_left -= 1
        assert self.offered is not None
        self._offered_fits = self._fits(self.offered)

    def wait(self) -> None:
        """Leave the offered gang waiting, and offer the next one to the agent."""
        self._turn += 1
        self._offer()

    def give_up(self) -> None:
        """Charge gangs that have not started until all gangs could have run one after another.

        Where an episode is cut off, that costs more than any play that lets gangs start.
        """
        submit_s = self.gangs.submit_s.tolist()
        until_s = max(self.now_s, submit_s[-1]) + sum(self.gangs.duration_s.tolist())
        for row in [*self.waiting, *range(self._next, len(submit_s))]:
            self.waited_tray_s += (until_s - max(self.now_s, submit_s[row])) * self.sizes[row]

    def _room(self, free: int, size: int) -> int:
        return min(free, self._most_trays) // size

    def _fits(self, row: int) -> bool:
        """Return whether all segments of a gang that waits have room."""
        size, segments = int(self.gangs.trays[row]), int(self.gangs.segments[row])
        return sum(self._room(free, size) for free in self.free) >= segments

    def _offer(self) -> None:
        """Let time pass until a gang fits, or would if others moved, and offer it to the agent."""
        while True:
            while self._turn < min(len(self.waiting), self.parameters.window):
                row = self.waiting[self._turn]
                self.offered, self.left = row, int(self.gangs.segments[row])
                self._offered_fits = self._fits(row)
                if self._offered_fits:
                    return
                # Moves cannot make trays: a gang that is larger than all that is free is not offered.
                if sum(self.free) >= self.sizes[row] and any(map(self.find_move, range(len(self.free)))):
                    return
                self._turn += 1
            self.offered, self.left = None, 0
            if not self._advance():
                return

    def _advance(self) -> bool:
        """Let time pass until the next gang comes or ends; return whether there was one to wait for."""
        gangs, total = self.gangs, len(self.gangs.submit_s)
        # A move delays an end by a new entry of the heap: the old one counts for nothing.
        while self._ends and self.end_s.get(self._ends[0][1]) != self._ends[0][0]:
            heappop(self._ends)
        comes_s = float(gangs.submit_s[self._next]) if self._next < total else np.inf
        ends_s = self._ends[0][0] if self._ends else np.inf
        until_s = min(comes_s, ends_s)
        if not np.isfinite(until_s) or (self._next == total and not self.waiting):
            return False
        passed_s = until_s - self.now_s
        self.waited_tray_s += passed_s * sum(self.sizes[row] for row in self.waiting)
        most = self.parameters.moves_per_hour
        # A token bucket: moves that are not made are saved up, for an hour at most.
        self.moves_left = min(most, self.moves_left + most * passed_s / 3600)
        self.now_s, self._turn = until_s, 0
        # At the same time a gang comes before another ends; that end follows, with no time between.
        if comes_s <= ends_s:
            self.waiting.append(self._next)
            self._next += 1
        else:
            _, row = heappop(self._ends)
            del self.end_s[row]
            for rack, trays in self.held.pop(row).items():
                self.free[rack] += trays
        return True


COSTS: Mapping[str, Callable[[RackState], float]] = {
    name: attrgetter(f"{name}_cost") for name in ("waiting", "moved")
}
"""The costs that a reward can weigh; each is 0 at the start."""


def observe(state: RackState) -> dict[str, list[float]]:
    """Return the parts of the observation of a state, by name."""
    parameters, offered = state.parameters, state.offered
    racks, trays = range(parameters.racks), parameters.trays
    mine = Counter[int]() if offered is None else state.held.get(offered, Counter())
    moves = [state.find_move(rack) for rack in racks]
    waits = Counter[int]()
    for row in state.waiting:
        waits[int(state.gangs.trays[row])] += state.sizes[row]
    waited_h = 0.0 if offered is None else (state.now_s - float(state.gangs.submit_s[offered])) / 3600
    rows = len(state.waiting)
    most = max(parameters.moves_per_hour, 1.0)
    told = {} if parameters.told_error is None else _observe_told(state)
    return {
        "free": [free / trays for free in state.free],
        "gang": [state.size / trays, state.left / max(state.left, 4), waited_h / (1 + waited_h)],
        "leaves": [0.0 if move is None else state.sizes[move[0]] / trays for move in moves],
        "moves": [state.moves_left / most],
        "own": [mine[rack] / trays for rack in racks],
        "queue": [rows / (10 + rows), *(waits[size] / (trays + waits[size]) for size in SIZES)],
        **told,
    }


def _observe_told(state: RackState) -> dict[str, list[float]]:
    """Return what gangs tell: those that wait in the window, and of each rack those that end first."""
    parameters, gangs, now_s = state.parameters, state.gangs, state.now_s
    window, running = np.zeros((parameters.window, 5)), np.zeros((parameters.racks, SLOTS, 3))
    for at, row in enumerate(state.waiting[: parameters.window]):
        told_h, waited_h = float(state.told_s[row]) / 3600, (now_s - float(gangs.submit_s[row])) / 3600
        segments = int(gangs.segments[row])
        shares = gangs.trays[row] / parameters.trays, segments / max(segments, 4)
        window[at] = *shares, told_h / (2 + told_h), waited_h / (1 + waited_h), row == state.offered
    by_end = sorted((end_s, row) for row, end_s in state.told_end_s.items() if row in state.end_s)
    for rack in range(parameters.racks):
        inside = [row for _, row in by_end if state.held[row][rack]]
        for slot, row in enumerate(inside[:SLOTS]):
            age_h = (now_s - state.start_s[row]) / 3600
            left_h = max(state.told_end_s[row] - now_s, 0.0) / 3600
            share = state.held[row][rack] / parameters.trays
            running[rack, slot] = share, age_h / (2 + age_h), left_h / (2 + left_h)
    return {"window": window.ravel().tolist(), "running": running.ravel().tolist()}


def _say(state: RackState) -> str:
    if state.offered is None:
        return "all gangs have started"
    return f"gang {state.offered}: {state.left} segments of {state.size} trays to place"


def _sum_up(state: RackState) -> str:
    counts = f"{len(state.waiting)} wait, {state.moves} moves, {state.stranded} trays stranded"
    return f"{clock(state.now_s)}, {counts}"


def as_text(state: RackState) -> str:
    """Return the state as text: a table of the racks, and the gang that is offered."""
    rows = []
    for rack, free in enumerate(state.free):
        inside = " ".join(f"{row}:{racks[rack]}" for row, racks in sorted(state.held.items()) if racks[rack])
        rows.append((rack, free, inside))
    return "\n".join([_say(state), table(("rack", "free trays", "gang:trays"), rows), _sum_up(state)])


MARGIN, TOP = 12, 64


def as_pixels(state: RackState) -> Pixels:
    """Return a picture of the state: a column of trays per rack, in the colours of the gangs that hold them.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
    """
    parameters = state.parameters
    picture = Picture((HEIGHT, WIDTH))
    picture.text(MARGIN, 8, _say(state).capitalize(), 18)
    picture.text(WIDTH - MARGIN, 8, _sum_up(state), 18, INK, "ra")
    picture.text(MARGIN, 40, "Racks: a bar for each tray; light where the gang may go", 13, FAINT)
    wide = (WIDTH - 2 * MARGIN) // parameters.racks
    high = max(1, (HEIGHT - TOP - MARGIN) // parameters.trays)
    for rack in range(parameters.racks):
        taken = [row for row, racks in sorted(state.held.items()) for _ in range(racks[rack])]
        empty = LIGHT if state.has_room(rack) else EMPTY
        for tray in range(parameters.trays):
            fill = choose_colour(taken[tray]) if tray < len(taken) else empty
            picture.box(MARGIN + rack * wide, TOP + tray * high, wide - 8, max(1, high - 2), fill)
    return picture.pixels()
