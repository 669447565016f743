"""What the policies of a menu remember of an episode."""

from __future__ import annotations

from typing import NamedTuple

from clustergym.common.arrays import Floats
from clustergym.sim.compiled.numba_cache import compile_inline


class Memory(NamedTuple):
    """What one policy remembers of an episode of n jobs, C model classes: at the start all is 0.

    For P policies and a batch of E episodes arrays have two axes more, the first: (E, P, …); those of the
    model classes, one: (E, …).

    Attributes
    ----------
    figure : ndarray of float, shape (FIGURES,)
    of_job : ndarray of float, shape (n, JOB_FIGURES)
    exponent, one_gpu_s : ndarray of float, shape (C,)
        The fit of each model class's speedup, as of `clustergym.agents.speedup.fit_speedup`.
    """

    figure: Floats
    of_job: Floats
    exponent: Floats
    one_gpu_s: Floats


FIGURES, JOB_FIGURES = 8, 4


@compile_inline
def select_memory(memories: Memory, at: int, policy: int) -> Memory:
    """Return the memory of a policy in one episode of a batch; its arrays share their memory."""
    return Memory(
        memories.figure[at, policy],
        memories.of_job[at, policy],
        memories.exponent[at],
        memories.one_gpu_s[at],
    )
