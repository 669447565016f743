"""Small scenarios whose jobs may choose their global batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scenarios import Job, small_scenario

from clustergym.oracle.base import BatchTables, statistical_efficiency
from clustergym.scenario.scenario import Scenario

REQUESTED = 32


def with_batches(
    scenario: Scenario,
    sizes: Sequence[int],
    noise: npt.NDArray[np.float64],
    times: npt.NDArray[np.float64] | None = None,
) -> Scenario:
    """Let all classes of a scenario choose among batches.

    `noise` has the noise scale, in samples, of each of as many equal parts of the training. An
    iteration takes `times` as long as at the request, by default as many times as the batch is larger.
    """
    axis = np.array([sizes] * len(scenario.tables.classes))
    longer = axis[0] / REQUESTED if times is None else times
    execution = scenario.tables.execution[..., None] * longer
    ends = np.repeat(np.arange(1, noise.shape[1] + 1)[None, :] / noise.shape[1], len(axis), axis=0)
    efficiency = statistical_efficiency(axis[:, None, :], np.array(REQUESTED), noise[:, :, None])
    tables = replace(scenario.tables, batches=BatchTables(axis, execution, ends, efficiency))
    return replace(scenario, tables=tables)


def batch_scenario(
    jobs: Sequence[Job],
    seconds: Mapping[int, float],
    noise: Sequence[float],
    counts: Sequence[int] = (1,),
    **keys: Any,
) -> Scenario:
    """Build a scenario of one model on 4 X, `seconds` an iteration at each batch on any of `counts`."""
    times = {"m": {"X": dict.fromkeys(counts, seconds[REQUESTED])}}
    scenario = small_scenario(jobs, {"X": (1, 4)}, times, **keys)
    longer = np.array([seconds[size] / seconds[REQUESTED] for size in sorted(seconds)])
    return with_batches(scenario, sorted(seconds), np.array([noise]), longer)
