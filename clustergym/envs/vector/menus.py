"""What the policies of a batch's menus remember."""

from __future__ import annotations

import numpy as np

from clustergym.agents.compiled_policies.memory import FIGURES, JOB_FIGURES, Memory
from clustergym.agents.speedup import fit_speedup
from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.scenario_arrays import ScenarioArrays


class Memories:
    """The memories of a batch of episodes, which grow with the jobs and the model classes.

    Attributes
    ----------
    arrays : Memory
        With one axis more for the episodes and, but for those of model classes, one for the policies.
    """

    def __init__(self, size: int, policies: int, counts: Ints) -> None:
        self._counts = counts
        self.arrays = Memory(
            np.zeros((size, policies, FIGURES)),
            np.zeros((size, policies, 0, JOB_FIGURES)),
            np.zeros((size, 0)),
            np.zeros((size, 0)),
        )

    def load(self, at: int, scenario: ScenarioArrays) -> None:
        """Forget what row `at` remembers, and fit the speedups of a scenario's model classes."""
        arrays, (n, classes) = self.arrays, (len(scenario.job), len(scenario.known_s))
        exponent, one_gpu_s = fit_speedup(self._counts, scenario.known_s)
        self.arrays = arrays = Memory(
            arrays.figure,
            _longer(arrays.of_job, 2, n),
            _longer(arrays.exponent, 1, classes),
            _longer(arrays.one_gpu_s, 1, classes),
        )
        arrays.figure[at], arrays.of_job[at] = 0.0, 0.0
        arrays.exponent[at, :classes], arrays.one_gpu_s[at, :classes] = exponent, one_gpu_s


def _longer(array: Floats, axis: int, least: int) -> Floats:
    """Return an array that has at least as many entries along an axis."""
    more = least - array.shape[axis]
    if more <= 0:
        return array
    return np.pad(array, [(0, more if at == axis else 0) for at in range(array.ndim)])
