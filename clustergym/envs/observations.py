"""Observations: a summary of the cluster and the queue, and rows of jobs.

All numbers are in [0, 1], by fixed constants: a count by `share(x, half)` = x / (x + half), a time
or work by `logarithm` with ten years as 1, where it stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from clustergym.agents import auction_features
from clustergym.common.arrays import Floats, Ints
from clustergym.envs.actions import EditActions
from clustergym.envs.auction_actions import RANKED, Actions, AuctionActions
from clustergym.envs.placing import join_boxes
from clustergym.envs.queue_imbalance import QueueRules
from clustergym.results.metrics.tenants import compute_fair_shares
from clustergym.scenario.policy import InformationClass, Setting, View

Singles = npt.NDArray[np.float32]

LONGEST_S = 10 * 365 * 86400.0
_PER_LOGARITHM = 1.0 / np.log1p(LONGEST_S)
JOB_FEATURES = (
    "present",
    "waiting",
    "gpus",
    "gpus_held",
    "assigned",
    "preempted",
    "may_reject",
    "age",
    "attained",
    "work_left",
    "time_left",
    "done",
    "waited",
    "restarts",
    "standstill",
    "gpus_requested",
    "has_deadline",
    "slack",
    "late",
    "fair_lag",
)
"""Columns of `jobs`, before one-hot columns of the type held as edited, and of the type requested."""
OPTION_FEATURES = ("speed", "efficiency", "restart")
"""Of each (type, count): speed by the job's highest, speed per GPU by its highest, restart cost."""
QUEUE_FEATURES = ("jobs", "waiting", "without_row", "mean_age", "demand", "work_left", "edits", "progress")
TENANT_FEATURES = ("held", "quota", "fair_share")
"""Columns of `tenants`: of the queue of each row's job, by the GPUs of the cluster."""
OF_AUCTIONS, LARGEST_FEATURE = ("scored_moves", "ranked"), 100.0
"""Parts that have features of an auction's moves; no feature comes near that."""
_COLUMN = {name: at for at, name in enumerate(JOB_FEATURES)}


def logarithm(seconds: Any) -> Any:
    """Scale seconds to 0 to 1 by log(1 + seconds) / log(1 + ten years); NaN becomes 0."""
    # fmax and fmin pass over NaN: in this order NaN becomes 0.
    return np.log1p(np.fmin(np.fmax(seconds, 0.0), LONGEST_S)) * _PER_LOGARITHM


def share(value: Any, half: float) -> Any:
    """Return x / (x + half) for x = `value`, at least 0: it grows from 0 to 1, and is 1/2 at `half`."""
    return value / (value + half)


def _least(time_s: Floats) -> Floats:
    """Return each job's least finite value in an array of shape (n, T, K), or 0 if there is none."""
    least = time_s.min(axis=(1, 2), initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


class Summary:
    """An observation of the cluster and of the queue of jobs as a whole, without rows for single jobs.

    `clustergym.envs.families.ElasticEnv` describes its parts, `cluster` and `queue`. All numbers come from
    what a policy of the information class is shown, and from how many jobs have left: never from the trace,
    which has the jobs to come, nor from the yardsticks of rewards.

    Parameters
    ----------
    setting : Setting
    rows : int

    Attributes
    ----------
    queues : QueueRules or None
        The episode's queues of tenants; None: there are none.
    """

    def __init__(self, setting: Setting, rows: int) -> None:
        self.setting, self.rows = setting, rows
        self.queues: QueueRules | None = None
        self.types, self.levels = len(setting.gpu_types), len(setting.counts)
        self.capacity = setting.capacity.astype(np.float64)
        self.total = float(self.capacity.sum())
        self.layout: Mapping[str, tuple[int, ...]] = self.make_layout()
        sizes = [int(np.prod(shape)) for shape in self.layout.values()]
        ends = np.cumsum(sizes).tolist()
        self.parts = dict(zip(self.layout, map(slice, [0, *ends], ends), strict=False))
        self.size = ends[-1]
        self._flat = np.zeros(self.size, dtype=np.float32)
        self._link()

    def _link(self) -> None:
        self.tables = {
            name: self._flat[self.parts[name]].reshape(shape) for name, shape in self.layout.items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the tables views of the flat array again: pickling has copied both."""
        self.__dict__.update(state)
        self._link()

    def make_layout(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each part of the observation, by name."""
        return {"cluster": (3, self.types), "queue": (len(QUEUE_FEATURES),)}

    def make_space(self, form: str) -> spaces.Space[Any]:
        """Return the space of observations: one `flat` box, or a dict of the parts."""
        boxes = {}
        for name, part in self.parts.items():
            low, high = (-LARGEST_FEATURE, LARGEST_FEATURE) if name in OF_AUCTIONS else (0.0, 1.0)
            boxes[name] = spaces.Box(low, high, (part.stop - part.start,))
        return join_boxes(boxes, form)

    def begin(self, view: View, actions: Actions, left: int, known: bool) -> None:
        """Compute the observation; `left` jobs have departed, and iteration times are shown if `known`.

        Parameters
        ----------
        view : View
        actions : Actions
        left : int
            Jobs that have left so far.
        known : bool
            Whether the information class knows iteration times.
        """
        self._edits = 0
        n = len(view)
        cluster, queue = self.tables["cluster"], self.tables["queue"]
        cluster[0] = view.free / self.capacity
        cluster[1] = view.available / self.capacity
        cluster[2] = self.capacity / self.total
        waiting = view.gpus == 0
        age = view.now_s - view.submit_s
        # GPU-seconds of an iteration at the most efficient allotment: 0 where the class is told no times, and
        # with it every column of work.
        self.least_gpu_s = np.zeros(n)
        if known:
            self.time_s = view.iteration_time_s()
            self.least_gpu_s = _least(self.time_s * self.setting.counts)
        work = self.least_gpu_s * view.remaining_iterations
        queue[:] = (
            share(n, 50.0),
            share(int(waiting.sum()), 50.0),
            # No maximum is known of a count of jobs, so it is halved at 50 and never cut off.
            share(n - len(actions.shown), 50.0),
            float(logarithm(age.sum() / max(n, 1))),
            share(float(view.requested_gpus[waiting].sum()), self.total),
            float(logarithm(work.sum() / self.total)),
            0.0,
            # Of the jobs met so far: how many there are in all is not known before the end.
            left / (left + n),
        )
        self.work = work

    def update_edited(self, actions: Actions, action: int) -> None:
        """Update the parts of the observation that the agent's last action has changed."""
        if not isinstance(actions, EditActions):
            return
        self._edits += 1
        self.tables["cluster"][0] = actions.free / self.capacity
        self.tables["queue"][6] = share(self._edits, 10.0)

    def unpack(self, observation: Mapping[str, Singles] | Singles) -> dict[str, Singles]:
        """Return the parts of an observation, or of a batch, by name, each in its own shape.

        Parameters
        ----------
        observation : mapping of str to ndarray, or ndarray
            As the environment returns it, dict or flat; leading axes are kept.

        Returns
        -------
        dict of str to ndarray
            `cluster` (…, 3, T), `queue` (…, 8); of `JobRows` also `jobs` (…, R, J) and
            `options` (…, R, T, K, 3); of `MoveRows` also `scored_moves` (…, R, T, K, 35); of `RankedRows`
            `ranked` (…, R, 5); of `QueueRows` `tenants` (…, R, 3).
        """
        tables = {}
        for name, shape in self.layout.items():
            part = (
                observation[name] if isinstance(observation, Mapping) else observation[..., self.parts[name]]
            )
            tables[name] = part.reshape(*part.shape[:-1], *shape)
        return tables

    def values(self) -> Singles:
        """Return a copy of the observation as one flat array, shape (size,)."""
        return self._flat.copy()


class JobRows(Summary):
    """An observation of the cluster, the queue, and single jobs with the GPUs they could get, in rows."""

    def make_layout(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each part of the observation, by name."""
        return {
            "cluster": (3, self.types),
            "jobs": (self.rows, len(JOB_FEATURES) + 2 * self.types),
            "options": (self.rows, self.types, self.levels, len(OPTION_FEATURES)),
            "queue": (len(QUEUE_FEATURES),),
        }

    def begin(self, view: View, actions: Actions, left: int, known: bool) -> None:
        """Compute the observation; `left` jobs have departed, and iteration times are shown if `known`."""
        super().begin(view, actions, left, known)
        at = actions.shown
        m = len(at)
        jobs, options = self.tables["jobs"], self.tables["options"]
        jobs[m:], options[m:] = 0.0, 0.0
        time_s = self.time_s[at] if known else np.full((m, self.types, self.levels), np.inf)
        self._fill_jobs(jobs[:m], view, actions, time_s)
        self._fill_options(options[:m], view, at, time_s)

    def _fill_jobs(self, table: Singles, view: View, actions: Actions, time_s: Floats) -> None:
        at = actions.shown
        gpus, now = view.gpus[at], view.now_s
        age, deadline = now - view.submit_s[at], view.deadline_s[at]
        fastest, iterations = _least(time_s), view.iterations[at]
        remaining, deadline_left = view.remaining_iterations[at], deadline - now
        # An even share of G GPUs among n jobs: max(W n / G, T), with W the least GPU-seconds of the whole job
        # and T its time on its fastest allotment.
        even_s = np.maximum(self.least_gpu_s[at] * iterations * len(view) / self.total, fastest * iterations)
        durations = (
            *(age, view.attained_gpu_s[at], self.work[at], fastest * remaining),
            *(now - view.queued_s[at], view.standstill_s[at], deadline_left),
        )
        ages, attained, work, time_left, waited, standstill, slack = logarithm(np.stack(durations))
        columns = {
            "present": 1.0,
            "waiting": gpus == 0,
            "gpus": self._by_size(gpus),
            "gpus_held": self._by_size(gpus),
            "assigned": 0.0,
            "preempted": 0.0,
            "may_reject": actions.undecided[at],
            "age": ages,
            "attained": attained,
            "work_left": work,
            "time_left": time_left,
            "done": 1.0 - remaining / iterations,
            "waited": waited,
            "restarts": share(view.restarts[at], 4.0),
            "standstill": standstill,
            "gpus_requested": self._by_size(view.requested_gpus[at]),
            "has_deadline": np.isfinite(deadline),
            "slack": slack,
            "late": deadline_left < 0,
            "fair_lag": np.divide(age, age + even_s, out=np.zeros_like(age), where=even_s > 0.0),
        }
        for name, values in columns.items():
            table[:, _COLUMN[name]] = values
        types = np.arange(self.types)
        first = len(JOB_FEATURES)
        table[:, first : first + self.types] = view.gpu_type[at][:, None] == types
        table[:, first + self.types :] = view.requested_type[at][:, None] == types

    def _fill_options(self, table: Singles, view: View, at: Ints, time_s: Floats) -> None:
        # Times are inf where a job does not fit or nothing is known: 1 / inf is the 0 that is shown.
        speed = np.where(view.feasible[at], 1.0 / time_s, 0.0)
        per_gpu = speed / self.setting.counts
        axes = (1, 2)
        tiny = np.finfo(np.float64).tiny
        table[..., 0] = speed / np.maximum(speed.max(axis=axes, keepdims=True, initial=0.0), tiny)
        table[..., 1] = per_gpu / np.maximum(per_gpu.max(axis=axes, keepdims=True, initial=0.0), tiny)
        table[..., 2] = logarithm(view.restart_cost_s()[at])

    def _by_size(self, gpus: Any) -> Any:
        return np.log2(1.0 + gpus) / math.log2(1.0 + float(self.setting.counts[-1]))

    def update_edited(self, actions: Actions, action: int) -> None:
        """Update the row of the job whose GPUs the agent's last action has changed."""
        super().update_edited(actions, action)
        assert isinstance(actions, EditActions)
        row = action // actions.width
        at = int(actions.shown[row])
        table = self.tables["jobs"][row]
        table[_COLUMN["gpus"]] = self._by_size(int(actions.target_gpus[at]))
        table[_COLUMN["assigned"]] = actions.assigned[at]
        table[_COLUMN["preempted"]] = actions.preempted[at]
        # As the mask has it: an assignment or a rejection settles a job.
        table[_COLUMN["may_reject"]] = (
            actions.undecided[at] and not actions.assigned[at] and not actions.rejected[at]
        )
        first = len(JOB_FEATURES)
        table[first : first + self.types] = np.arange(self.types) == actions.target_type[at]


class MoveRows(JobRows):
    """An observation with a row per job: what an auction knows of each way to change the job's GPUs."""

    def make_layout(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each part of the observation, by name."""
        moves = (self.rows, self.types, self.levels, auction_features.COUNT)
        return {**super().make_layout(), "scored_moves": moves}

    def begin(self, view: View, actions: Actions, left: int, known: bool) -> None:
        """Compute the observation; `left` jobs have departed, and iteration times are shown if `known`."""
        super().begin(view, actions, left, known)
        assert isinstance(actions, AuctionActions)
        self.tables["scored_moves"][:] = actions.described


class RankedRows(JobRows):
    """An observation with a row per job, which includes the features by which an auction ranks jobs."""

    def make_layout(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each part of the observation, by name."""
        return {**super().make_layout(), "ranked": (self.rows, len(RANKED))}

    def begin(self, view: View, actions: Actions, left: int, known: bool) -> None:
        """Compute the observation; `left` jobs have departed, and iteration times are shown if `known`."""
        super().begin(view, actions, left, known)
        assert isinstance(actions, AuctionActions)
        table, shown = self.tables["ranked"], len(actions.shown)
        table[:shown], table[shown:] = actions.rank_jobs(), 0.0


class QueueRows(JobRows):
    """An observation with a row per job, which includes the quota and use of the job's queue."""

    def make_layout(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each part of the observation, by name."""
        return {**super().make_layout(), "tenants": (self.rows, len(TENANT_FEATURES))}

    def begin(self, view: View, actions: Actions, left: int, known: bool) -> None:
        """Compute the observation, with the held GPUs, quota and fair share of each shown job's queue."""
        super().begin(view, actions, left, known)
        assert self.queues is not None
        rules, table = self.queues, self.tables["tenants"]
        leaf, leaves = view.queue, len(rules.quota)
        wanted = np.bincount(leaf, np.maximum(view.gpus, view.requested_gpus), leaves).astype(np.int64)
        fair = compute_fair_shares(rules.tree, wanted[None], rules.total)[0]
        self._leaf, self._leaves = leaf, leaves
        shown = leaf[actions.shown]
        table[len(shown) :] = 0.0
        table[: len(shown), 0] = np.bincount(leaf, view.gpus, leaves)[shown] / self.total
        table[: len(shown), 1] = np.minimum(rules.quota[shown] / self.total, 1.0)
        table[: len(shown), 2] = fair[shown] / self.total

    def update_edited(self, actions: Actions, action: int) -> None:
        """Update the share of the GPUs that each queue holds after the agent's last action."""
        super().update_edited(actions, action)
        assert isinstance(actions, EditActions)
        shown = self._leaf[actions.shown]
        held = np.bincount(self._leaf, actions.target_gpus, self._leaves)
        self.tables["tenants"][: len(shown), 0] = held[shown] / self.total


FEATURES: Mapping[str, type[Summary]] = {
    "jobs": JobRows,
    "summary": Summary,
    "moves": MoveRows,
    "ranked": RankedRows,
    "tenants": QueueRows,
}


def times_known(information: InformationClass) -> bool:
    """Return whether policies with this information class are told jobs' iteration times."""
    return information != InformationClass.NONE
