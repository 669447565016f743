"""Actions that edit the allotment of a job or admit it, and the choice of the jobs that have a row.

`begin` starts a decision point, `mask` says which actions are legal, and `act` returns the whole Decision
when an action ends the decision point. `clustergym.envs.auction_actions` has actions of the same interface,
and makes those that the parameter `actions` names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from clustergym.common.arrays import Bools, Ints
from clustergym.common.errors import InputError
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.scenario.policy import Decision, Setting, View
from clustergym.trace.trace import Trace


class Edits(NamedTuple):
    """The agent's changes at a decision point so far: the GPUs that each of n jobs is to hold.

    Attributes
    ----------
    shown : ndarray of int, shape (m,)
    target_type, target_gpus : ndarray of int, shape (n,)
    free : ndarray of int, shape (T,)
    assigned, preempted, rejected, undecided : ndarray of bool, shape (n,)
    assignable : ndarray of bool, shape (m, T, K)
        Assignments that are legal where the GPUs are free.
    legal : ndarray of bool, shape (number,)
    """

    shown: Ints
    target_type: Ints
    target_gpus: Ints
    free: Ints
    assigned: Bools
    preempted: Bools
    rejected: Bools
    undecided: Bools
    assignable: Bools
    legal: Bools


class EditActions:
    """Actions that each change the GPUs of one job; the action `stop` ends the decision point.

    Row r of R has W = T K + 1 actions, or T K + 2 with rejection: r W + t K + k gives the job
    `counts[k]` GPUs of type t, r W + T K preempts it, r W + T K + 1 rejects it. The last action of
    all, R W, stops. A job is assigned at most once at a decision point, and preempted at most once,
    before that.

    Parameters
    ----------
    parameters : SchedulingParameters
    setting : Setting

    Attributes
    ----------
    view : View
    target_type, target_gpus : ndarray of int, shape (n,)
        The allotments as edited so far, of all jobs of the View.
    free : ndarray of int, shape (T,)
        GPUs that they leave.
    assigned, preempted, rejected : ndarray of bool, shape (n,)
    undecided : ndarray of bool, shape (n,)
        Jobs that may be rejected here.
    shown : ndarray of int, shape (m,)
        Positions in the View of the jobs that have a row.
    """

    def __init__(self, parameters: SchedulingParameters, setting: Setting) -> None:
        self.rows = parameters.rows
        self.levels, self.types = len(setting.counts), len(setting.gpu_types)
        self.options = self.types * self.levels
        self.rejects = parameters.actions in ("admit", "drop")
        self.width = self.options + 1 + self.rejects
        self.number = self.rows * self.width + 1
        self.stop = self.number - 1
        self.binding = parameters.actions == "admit"
        self._mask_stop = parameters.mask_stop_while_idle
        self._counts = setting.counts
        self._names = setting.gpu_types
        self._mask = np.zeros(self.number, dtype=np.bool_)
        self._link()
        self._decided, self._turn = np.zeros(0, dtype=np.bool_), 0

    def _link(self) -> None:
        self._table = self._mask[:-1].reshape(self.rows, self.width)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the table a view of the mask again: pickling has copied both."""
        self.__dict__.update(state)
        self._link()

    @property
    def space(self) -> spaces.Space[Any]:
        """The Gymnasium space of the environment's actions."""
        return spaces.Discrete(self.number)

    def check_action(self, action: Any) -> Any:
        """Check that an action is in the action space, and return it in the form that `act` takes."""
        # What contains() makes sure of, at a tenth of its time.
        plain = isinstance(action, (int, np.integer)) and 0 <= action < self.number
        if not plain and not self.space.contains(action):
            remedy = f"give a whole number from 0 to {self.number - 1}"
            raise InputError(f"{action!r} is not an action", field="action", remedy=remedy)
        return int(action)

    def reset(self, trace: Trace) -> None:
        """Prepare for a new episode, in which no job is admitted yet."""
        # By job of the trace: positions in Views change as jobs come and leave.
        self._decided, self._turn = np.zeros(len(trace), dtype=np.bool_), 0

    def begin(self, view: View) -> None:
        """Prepare for a new decision point, at which every job still has the GPUs that it holds in `view`."""
        n = len(view)
        self.view, self.shown = view, choose_rows(view, self.rows, self._turn)
        self._turn += 1
        self.target_type, self.target_gpus = view.gpu_type.copy(), view.gpus.copy()
        self.free = view.free.copy()
        self.assigned, self.preempted = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
        self.rejected = np.zeros(n, dtype=np.bool_)
        self.undecided = np.zeros(n, dtype=np.bool_)
        if self.rejects:
            self.undecided = ~self._decided[view.job] if self.binding else np.ones(n, dtype=np.bool_)
        self._assignable = view.feasible[self.shown].copy()
        # What a job holds is no assignment: to leave a job as it is, an agent does nothing.
        held = np.flatnonzero(view.gpus[self.shown] > 0)
        at = self.shown[held]
        self._assignable[held, view.gpu_type[at], np.searchsorted(self._counts, view.gpus[at])] = False
        self._table[:] = False
        m = len(self.shown)
        self._table[:m, self.options] = view.gpus[self.shown] > 0
        if self.rejects:
            self._table[:m, self.options + 1] = self.undecided[self.shown]
        self._refresh()

    def adopt_allotments(self, view: View, edits: Edits) -> None:
        """Replace the View (what a policy sees) and the agent's changes of a decision point by given ones."""
        self.view, self.shown = view, edits.shown
        self.target_type, self.target_gpus, self.free = edits.target_type, edits.target_gpus, edits.free
        self.assigned, self.preempted = edits.assigned, edits.preempted
        self.rejected, self.undecided = edits.rejected, edits.undecided
        self._assignable = edits.assignable
        self._mask[:] = edits.legal

    def _refresh(self) -> None:
        """Recompute which assignments are legal, from the GPUs that are free."""
        m, counts = len(self.shown), self._counts
        fits = counts <= self.free[:, None]
        legal = self._assignable & fits
        holding = np.flatnonzero(self.target_gpus[self.shown] > 0)
        if len(holding):
            at = self.shown[holding]
            gpu_type = self.target_type[at]
            # On the type that a job holds as edited its own GPUs are free, too: the edit returns them.
            own = counts <= (self.free[gpu_type] + self.target_gpus[at])[:, None]
            legal[holding, gpu_type] = self._assignable[holding, gpu_type] & own
        self._table[:m, : self.options] = legal.reshape(m, self.options)
        # Stopping is one of hundreds of actions but ends the point: without this mask random play, and an
        # untrained agent, leaves GPUs idle (3.39 in place of 2.94 h of mean JCT in Elastic-16).
        waiting = self.target_gpus[self.shown] == 0
        self._mask[-1] = not (self._mask_stop and legal[waiting].any())

    def mask(self) -> Bools:
        """Return a mask that is true for each action that is legal now, shape (number of actions,)."""
        return self._mask.copy()

    def legal(self, action: int) -> bool:
        """Return whether an action is legal now."""
        return bool(self._mask[action])

    def index(self, row: int, gpu_type: int, gpus: int) -> int:
        """Return the action that gives the job in observation row `row` this many GPUs; 0 GPUs preempt it."""
        if gpus == 0:
            return row * self.width + self.options
        return row * self.width + gpu_type * self.levels + int(np.searchsorted(self._counts, gpus))

    def rejection(self, row: int) -> int:
        """Return the action that rejects the job in a row of the observation."""
        return row * self.width + self.options + 1

    def act(self, action: int) -> Decision | None:
        """Change the GPUs of a job and return None; for the action `stop`, return the completed decision."""
        if action == self.stop:
            return self._decision()
        row, option = divmod(action, self.width)
        at = int(self.shown[row])
        held = int(self.target_gpus[at])
        if held:
            self.free[self.target_type[at]] += held
        table = self._table[row]
        if option < self.options:
            gpu_type, level = divmod(option, self.levels)
            gpus = int(self._counts[level])
            self.target_type[at], self.target_gpus[at] = gpu_type, gpus
            self.free[gpu_type] -= gpus
            self.assigned[at] = True
        else:
            self.target_type[at], self.target_gpus[at] = -1, 0
            (self.preempted if option == self.options else self.rejected)[at] = True
        # A preempted job may be assigned once more, one that is assigned or rejected is settled: so no job
        # has more than two edits at a point, and every point ends.
        if option == self.options:
            self._assignable[row] = self.view.feasible[at]
            table[self.options] = False
        else:
            self._assignable[row] = False
            table[self.options :] = False
        self._refresh()
        return None

    def _decision(self) -> Decision:
        view = self.view
        if self.binding:
            self._decided[view.job[self.shown]] = True
        # A Decision is about all jobs of the View: those without a row go on with what they hold.
        kept = self.target_gpus > 0
        return Decision(
            view.job[kept], self.target_type[kept], self.target_gpus[kept], view.job[self.rejected]
        )

    def describe(self, action: int) -> str:
        """Return a description of an action, as `row 2: assign 4 A100`."""
        if action == self.stop:
            return "stop"
        row, option = divmod(action, self.width)
        if option < self.options:
            gpu_type, level = divmod(option, self.levels)
            return f"row {row}: assign {self._counts[level]} {self._names[gpu_type]}"
        return f"row {row}: " + ("preempt" if option == self.options else "reject")


def find_nearest_legal(mask: npt.NDArray[Any], width: int, action: int) -> int:
    """Return the legal action in place of an illegal one, where the actions of a row are `width` numbers.

    It is the nearest of the same row, with a lower number (fewer GPUs of the type) or else a higher one; for
    a row without any it is to stop; where that is illegal, the first legal action of all.
    """
    first, stop = action - action % width, len(mask) - 1
    for other in range(action - 1, first - 1, -1):
        if mask[other]:
            return other
    for other in range(action + 1, min(first + width, stop)):
        if mask[other]:
            return other
    if mask[stop]:
        return stop
    for other in range(stop):
        if mask[other]:
            return other
    return action


def choose_rows(view: View, rows: int, turn: int = 0) -> Ints:
    """Return indices of at most `rows` jobs to show the agent; if there are more, `turn` varies the choice.

    A position is a job's index in the View; they are in ascending order.

    Where all jobs fit, all have a row. Otherwise waiting jobs and running jobs have half of the
    rows each; what the one part leaves goes to the other. Of each part's rows half go to the jobs
    submitted first, a quarter to those submitted last, and the rest to the jobs in between, in turn:
    each decision point goes on where the last one stopped. So the oldest jobs and those that have
    just come are in sight, and no job stays out of it. A job without a row keeps what it has.

    Parameters
    ----------
    view : View
    rows : int
    turn : int
        Decision points before this one.
    """
    n = len(view)
    if n <= rows:
        return np.arange(n, dtype=np.int64)
    held = view.gpus > 0
    waiting, running = np.flatnonzero(~held), np.flatnonzero(held)
    # The half of the waiting jobs, rounded up, or what running ones leave of the rows.
    for_waiting = min(len(waiting), max((rows + 1) // 2, rows - len(running)))
    chosen = [_in_turn(waiting, for_waiting, turn), _in_turn(running, rows - for_waiting, turn)]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def _in_turn(ordered: Ints, number: int, turn: int) -> Ints:
    """Choose `number` of the values: half from the front, a quarter from the end, the others in rotation."""
    if number >= len(ordered):
        return ordered
    front, back = number // 2, number // 4
    between = ordered[front : len(ordered) - back]
    places = number - front - back
    # With the same jobs, each of these is shown every len(between) / places points.
    turned = between[(turn * places + np.arange(places)) % len(between)]
    return np.concatenate([ordered[:front], turned, ordered[len(ordered) - back :]])
