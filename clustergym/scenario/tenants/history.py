"""How much of a parent's GPU time each queue has had, of late."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats


class _Span(NamedTuple):
    """What was held from one time to another: GPUs by queue, and the parent's, shape (queues + 1,)."""

    start_s: float
    end_s: float
    gpus: Floats


class History:
    """GPU time by queue in a sliding window, in which older use counts less.

    Source: NVIDIA KAI-Scheduler, docs/time-based-fairshare.

    Parameters
    ----------
    queues : int
    window_s : float
        Use that is older is forgotten.
    half_life_s : float or None
        Seconds after which use counts half; None: all of the window counts alike.
    """

    def __init__(self, queues: int, window_s: float, half_life_s: float | None = None) -> None:
        self.window_s, self.half_life_s = window_s, half_life_s
        self._spans: deque[_Span] = deque()
        self._now_s = 0.0
        self._time = np.zeros(queues + 1)
        """Weighted GPU-seconds of each queue and of the parent, as of `_now_s`."""

    def add(self, start_s: float, end_s: float, gpus: Sequence[float] | Floats, capacity: float) -> None:
        """Note what each queue held, and what the parent had, since the last time noted."""
        if end_s > start_s:
            self._advance(end_s)
            held = np.empty(len(self._time))
            held[:-1], held[-1] = gpus, capacity
            span = _Span(start_s, end_s, held)
            self._spans.append(span)
            self._time += self._weight(span.start_s, span.end_s) * span.gpus

    @property
    def gpu_s(self) -> Floats:
        """GPU time of each queue and of the parent, but for a common factor, shape (queues + 1,)."""
        return self._time

    def growth(self, gpus: Floats, capacity: float) -> tuple[Floats, Floats]:
        """Return the GPU time of each queue and the parent now, and what each unit of `until_s` adds to it.

        Parameters
        ----------
        gpus, capacity : ndarray of float, float
            What each queue holds from now on, and what the parent has.

        Returns
        -------
        two ndarrays of float, shape (queues + 1,)
            But for a common factor.
        """
        added = np.append(gpus, capacity)
        if self._forgets:
            lost = 1.0 if self.half_life_s is None else 0.5 ** (self.window_s / self.half_life_s)
            added -= lost * self._spans[0].gpus
        return self._time, added

    def until_s(self, length: float) -> float:
        """Return when the GPU time will have grown by so much along `growth`, or turns elsewhere before."""
        if self.half_life_s is not None:
            length = self.half_life_s * math.log2(1.0 + length)
        if not self._spans:
            return self._now_s
        turns_s = self._spans[0].end_s if self._forgets else self._spans[0].start_s
        return min(self._now_s + length, turns_s + self.window_s)

    @property
    def _forgets(self) -> bool:
        """Whether the oldest use noted leaves the window now."""
        return bool(self._spans) and self._spans[0].start_s <= self._now_s - self.window_s

    def usage(self, now_s: float) -> Floats:
        """Return each queue's part of the GPU time that the parent could have given, from 0 to 1."""
        self._advance(now_s)
        used: Floats = self._time[:-1] / self._time[-1] if self._spans else np.zeros(len(self._time) - 1)
        return used.clip(0.0, 1.0)

    def _advance(self, now_s: float) -> None:
        if self.half_life_s is not None:
            self._time *= 0.5 ** ((now_s - self._now_s) / self.half_life_s)
        self._now_s = now_s
        oldest = now_s - self.window_s
        while self._spans and self._spans[0].start_s < oldest:
            span = self._spans.popleft()
            until = min(span.end_s, oldest)
            self._time -= self._weight(span.start_s, until) * span.gpus
            if until < span.end_s:
                self._spans.appendleft(span._replace(start_s=until))
                break
        if not self._spans:
            self._time[:] = 0.0  # without what rounding has left

    def _weight(self, start_s: float, end_s: float) -> float:
        """Return the integral of 0.5^(age / half-life) over a span, but for a constant factor."""
        if self.half_life_s is None:
            return end_s - start_s
        early, late = ((self._now_s - at) / self.half_life_s for at in (start_s, end_s))
        return float(0.5**late - 0.5**early)
