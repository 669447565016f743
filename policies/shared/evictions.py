"""Jobs that are to stop, or to give GPUs back, and keep what they hold for a while."""

from __future__ import annotations


class Evictions:
    """Since when jobs are to give GPUs to others; one that is spared at a decision point begins anew.

    Parameters
    ----------
    takes_s : float
        For how long a job keeps its GPUs after it was first to give them.
    """

    def __init__(self, takes_s: float) -> None:
        self._takes_s = takes_s
        self._before_s: dict[int, float] = {}
        self._first_s: dict[int, float] = {}

    def open(self) -> None:
        """Begin a decision point at which GPUs may be taken."""
        self._before_s, self._first_s = self._first_s, {}

    def note_eviction(self, job: int, now_s: float) -> bool:
        """Note that a job (row of the trace) is to give GPUs, and return whether it does now."""
        self._first_s[job] = self._before_s.get(job, now_s)
        return now_s - self._first_s[job] >= self._takes_s

    def is_leaving(self, job: int) -> bool:
        """Whether a job was to give GPUs at the decision point before."""
        return job in self._before_s
