"""Many episodes of the Rack environment, stepped together by one compiled call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.placing_vector import PlacingEpisodes
from clustergym.envs.racks import step as steps
from clustergym.envs.racks.environment import RackEnv
from clustergym.envs.racks.gangs import Gangs, RackParameters, episode_gangs
from clustergym.envs.racks.step import RackArrays, RackRules
from clustergym.envs.vector.base import Masks, ParameterVectorEnv
from clustergym.sim.compiled.numba_cache import Direct


def make_arrays(parameters: RackParameters, size: int, gangs: int, numbers: int) -> RackArrays:
    """Make the arrays of `size` episodes of up to so many gangs, whose observations have so many numbers."""
    racks = parameters.racks
    times, counts = (
        (np.zeros((size, gangs)) for _ in range(6)),
        (np.zeros((size, gangs), np.int64) for _ in range(6)),
    )
    submit_s, duration_s, told_s, start_s, end_s, told_end_s = times
    trays, segments, whole, home, waiting, running = counts
    return RackArrays(
        *(submit_s, duration_s, told_s, trays, segments, whole),
        numbers=np.zeros((size, steps.NUMBERS), np.int64),
        figures=np.zeros((size, steps.FIGURES)),
        free=np.zeros((size, racks), np.int64),
        held=np.zeros((size, gangs, racks), np.int64),
        home=home,
        start_s=start_s,
        end_s=end_s,
        told_end_s=told_end_s,
        waiting=waiting,
        running=running,
        mask=np.zeros((size, 2 * racks + 1), np.int8),
        observation=np.zeros((size, numbers), np.float32),
    )


def make_rules(parameters: RackParameters) -> RackRules:
    """Return the constants that compiled steps need."""
    most, told = float(parameters.moves_per_hour), parameters.told_error is not None
    sizes = parameters.trays, parameters.most_trays, parameters.window
    return RackRules(*sizes, most, float(parameters.restart_s), told)


def load_gangs(arrays: RackArrays, row: int, parameters: RackParameters, gangs: Gangs) -> None:
    """Write an episode's gangs in a row, and its state before the first of them comes."""
    count, told_s = len(gangs.submit_s), gangs.duration_s if gangs.told_s is None else gangs.told_s
    given = (gangs.submit_s, gangs.duration_s, told_s, gangs.trays, gangs.segments)
    tables: tuple[Any, ...] = arrays
    for table, values in zip(tables, (*given, gangs.trays * gangs.segments), strict=False):
        table[row, :count] = values
    for table in (arrays.numbers, arrays.figures, arrays.held):
        table[row] = 0
    arrays.free[row] = parameters.trays
    arrays.numbers[row, steps.GANGS], arrays.numbers[row, steps.OFFERED] = count, steps.NONE
    arrays.figures[row, steps.MOVES_LEFT] = parameters.moves_per_hour


class RackEpisodes(PlacingEpisodes):
    """The episodes of a `RackVectorEnv`, in the rows of common arrays."""

    single: RackEnv

    def __init__(self, single: RackEnv, size: int) -> None:
        super().__init__(single, size)
        self._numbers = max(part.stop for part in single.parts.values())
        self._arrays = make_arrays(single.parameters, size, single.parameters.jobs, self._numbers)
        self._rules, self._total = make_rules(single.parameters), np.ones(size)
        self._apply = Direct(steps.apply_actions)

    def begin_states(
        self, rows: Sequence[int], options: Mapping[str, Any], rngs: Sequence[np.random.Generator]
    ) -> int | Ints:
        """Begin episodes, in which the first gang comes; return the steps after which they are truncated."""
        parameters = self.single.parameters
        drawn = [episode_gangs(parameters, options, rngs[row]) for row in rows]
        counts = np.array([len(gangs.submit_s) for gangs in drawn])
        if counts.max() > self._arrays.submit_s.shape[1]:
            self._enlarge(int(counts.max()))
        for row, gangs in zip(rows, drawn, strict=True):
            load_gangs(self._arrays, row, parameters, gangs)
            self._total[row] = float((gangs.trays * gangs.segments).sum())
        actions = np.full(len(self.every_row), steps.LEAVE)
        actions[rows] = steps.SHOW
        self._step(actions, np.zeros(len(actions), np.bool_))
        return parameters.max_steps or 50 * counts

    def _enlarge(self, gangs: int) -> None:
        size = len(self.every_row)
        before: tuple[Any, ...] = self._arrays
        self._arrays = make_arrays(self.single.parameters, size, gangs, self._numbers)
        larger: tuple[Any, ...] = self._arrays
        for table, old in zip(larger, before, strict=True):
            table[tuple(map(slice, old.shape))] = old

    def _step(self, actions: Ints, cut_off: Bools) -> None:
        self._apply(self._arrays, self._rules, actions, cut_off, 0, len(actions))

    def place(self, taken: Ints, playing: Bools, cut_off: Bools) -> None:
        """Place a segment of the offered gang, move another, or let it wait, in each row."""
        self._step(np.where(playing, taken, steps.LEAVE), cut_off)

    def find_over(self) -> Bools:
        """Return in which rows all gangs have started."""
        over: Bools = self._arrays.numbers[:, steps.OFFERED] == steps.NONE
        return over

    def get_masks(self) -> Masks:
        """Return a mask of legal actions of each row; where no gang is left, every action is legal."""
        return self._arrays.mask.copy()

    def compute_cost(self, name: str) -> Floats:
        """Return the hours that gangs waited, or stood still for moves, a mean weighted by trays."""
        column = {"waiting": steps.WAITED, "moved": steps.MOVED}[name]
        hours: Floats = self._arrays.figures[:, column] / self._total / 3600
        return hours

    def get_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the time, the moves so far, the stranded trays, and the gangs that wait."""
        arrays, most = self._arrays, self.single.parameters.most_trays
        offered = arrays.numbers[:, steps.OFFERED]
        size = np.where(offered == steps.NONE, 0, arrays.trays[self.every_row, offered])[:, None]
        used = np.minimum(arrays.free, most) // np.maximum(size, 1) * size
        return {
            "now_s": arrays.figures[:, steps.NOW_S].copy(),
            "moves": arrays.numbers[:, steps.MOVES].copy(),
            "stranded_trays": np.where(size > 0, arrays.free - used, 0).sum(axis=1),
            "waiting": arrays.numbers[:, steps.WAITING].copy(),
        }

    def observe(self) -> npt.NDArray[np.float32]:
        """Return the flat observations."""
        return self._arrays.observation.copy()


class RackVectorEnv(ParameterVectorEnv):
    """A vector environment of `RackEnv`."""

    single_class, episodes_class = RackEnv, RackEpisodes
