"""Count the changes that a scenario makes to the GPU requests of a trace's jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustergym.scenario.gpu_requests import index_named_types
from clustergym.scenario.scenario import Scenario


@dataclass(frozen=True)
class RequestChanges:
    """Numbers of jobs whose GPU request was changed, by type of change; a job counts once.

    Attributes
    ----------
    rounded : int
        Raised to the next GPU count that the scenario allows, or already rounded up when the trace was read.
    asked_gpus, given_gpus : int
        GPUs of the rounded requests, before and after.
    largest : tuple of int
        The request that was rounded up by most GPUs, before and after; (0, 0) if there is none.
    raised : int
        Raised further, since the job does not fit in the memory of fewer GPUs.
    moved : int
        Moved to another GPU type, since the job fits on no allowed count of its own.
    too_large, no_time : int
        Dropped at submission: more GPUs than the cluster has; no iteration time on any of its GPUs, since the
        job does not fit in their memory or was not measured there.
    """

    rounded: int
    asked_gpus: int
    given_gpus: int
    largest: tuple[int, int]
    raised: int
    moved: int
    too_large: int
    no_time: int

    @property
    def dropped(self) -> int:
        """Number of jobs dropped at submission because their request cannot be met."""
        return self.too_large + self.no_time

    @property
    def counts(self) -> dict[str, int]:
        """Number of jobs for each type of change that occurs, as result.json lists them."""
        names = ("rounded", "raised", "moved", "too_large", "no_time")
        return {name: count for name in names if (count := getattr(self, name))}


def request_changes(scenario: Scenario) -> RequestChanges:
    """Count the jobs whose GPU request the scenario changed, by type of change."""
    trace, given, counts = scenario.trace, scenario.request_gpus, scenario.tables.counts
    read = trace.gpus
    asked = read if trace.asked_gpus is None else trace.asked_gpus
    # 0 for what is above all counts, which is dropped.
    next_allowed = np.append(counts, 0)[np.searchsorted(counts, read)]
    # In this order a job counts once, by the greatest change to it.
    gone, oversize = given == 0, scenario.oversize_jobs
    moved = ~gone & (scenario.request_type != index_named_types(trace, scenario.cluster))
    raised = ~gone & ~moved & (given > next_allowed)
    rounded = ~gone & ~moved & ~raised & (given > asked)
    rows = np.flatnonzero(rounded)
    most = rows[np.argmax(given[rows] - asked[rows])] if len(rows) else None
    return RequestChanges(
        rounded=len(rows),
        asked_gpus=int(asked[rows].sum()),
        given_gpus=int(given[rows].sum()),
        largest=(0, 0) if most is None else (int(asked[most]), int(given[most])),
        raised=int(raised.sum()),
        moved=int(moved.sum()),
        too_large=int((gone & oversize).sum()),
        no_time=int((gone & ~oversize).sum()),
    )
