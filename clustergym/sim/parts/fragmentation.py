"""Fragmentation as FGD defines it: idle GPU that the usual requests cannot use.

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023, section 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import Nodes, Requests
from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_in_place

COVERED = 0.95
"""Share of the requests that the usual requests cover."""


class UsualRequests(NamedTuple):
    """The M most frequent sizes of requests to a cluster, the most frequent first, and their shares.

    Attributes
    ----------
    cpu_milli, gpus, gpu_milli, models : ndarray of int, shape (M,)
        As of `Requests`.
    share : ndarray of float, shape (M,)
        Of the requests; they sum to 1.
    """

    cpu_milli: Ints
    gpus: Ints
    gpu_milli: Ints
    models: Ints
    share: Floats


def find_usual_requests(rows: Requests, accepted: Sequence[str]) -> UsualRequests:
    """Count requests by size and `accepted` GPU models; return the most frequent, which cover most jobs.

    Parameters
    ----------
    rows : Requests
    accepted : sequence of str
        The models that each row accepts, as its list has them: another text is another request. Of equally
        common ones that of more CPU, then GPU, then devices, then of the later text comes first, which
        agrees with FGD's published runs.
    """
    columns = (rows.cpu_milli, rows.gpu_milli, rows.gpus)
    keys = list(zip(*(column.tolist() for column in columns), accepted, strict=True))
    number, models = Counter(keys), dict(zip(keys, rows.models.tolist(), strict=True))
    order = sorted(number, key=lambda request: (number[request], request), reverse=True)
    counts = np.array([number[key] for key in order])
    chosen = int(np.searchsorted(np.cumsum(counts), COVERED * len(keys))) + 1
    # Two divisions, as FGD's simulator does them: the last digit decides between equal scores.
    share = (counts[:chosen] / len(keys)) / (counts[:chosen].sum() / len(keys))
    usual = [(cpu, gpus, milli, models[cpu, milli, gpus, text]) for cpu, milli, gpus, text in order[:chosen]]
    cpu_milli, gpus, gpu_milli, accepts = np.array(usual, dtype=np.int64).T.copy()
    return UsualRequests(cpu_milli, gpus, gpu_milli, accepts, share)


LACKS_BOTH, LACKS_GPU, LACKS_CPU, NO_GPU, NO_GPU_LACKS_CPU, OTHER_MODEL = range(6)
"""Why a usual request cannot use what is idle, in the order in which the parts are summed."""


@compile_in_place
def idle_milli(nodes: Nodes, at: int) -> np.int64:
    """Return the free GPU of a node, in thousandths of a GPU."""
    idle = np.int64(0)
    for device in range(nodes.devices[at]):
        idle += nodes.gpu_milli[at, device]
    return idle


@compile_in_place
def _unusable(
    nodes: Nodes, at: int, usual: UsualRequests, request: int, idle: np.int64
) -> tuple[int, np.int64]:
    """Return why a frequent request cannot use a node's idle GPU, and how much of it, in thousandths."""
    enough_cpu = nodes.cpu_milli[at] >= usual.cpu_milli[request]
    if usual.gpus[request] == 0:
        return (NO_GPU if enough_cpu else NO_GPU_LACKS_CPU), idle
    if not (usual.models[request] >> nodes.model[at]) & 1:
        return OTHER_MODEL, idle
    fitting, small = 0, np.int64(0)
    for device in range(nodes.devices[at]):
        free = nodes.gpu_milli[at, device]
        if free >= usual.gpu_milli[request]:
            fitting += 1
        else:
            small += free
    if fitting < usual.gpus[request]:
        return (LACKS_GPU if enough_cpu else LACKS_BOTH), idle
    # A request that fits still leaves devices that are too small for it.
    return (LACKS_GPU, small) if enough_cpu else (LACKS_CPU, idle)


@compile_in_place
def fragments(nodes: Nodes, at: int, usual: UsualRequests) -> float:
    """Return the idle GPU of a node that usual requests cannot use, in thousandths, averaged over requests.

    The parts are summed in an order of their own: another one changes last digits, and with them which of
    two nodes has the higher score.
    """
    idle = idle_milli(nodes, at)
    lacks_both = lacks_gpu = lacks_cpu = no_gpu = no_gpu_lacks_cpu = other_model = 0.0
    for request in range(len(usual.share)):
        why, unusable = _unusable(nodes, at, usual, request, idle)
        expected = usual.share[request] * unusable
        if why == LACKS_BOTH:
            lacks_both += expected
        elif why == LACKS_GPU:
            lacks_gpu += expected
        elif why == LACKS_CPU:
            lacks_cpu += expected
        elif why == NO_GPU:
            no_gpu += expected
        elif why == NO_GPU_LACKS_CPU:
            no_gpu_lacks_cpu += expected
        else:
            other_model += expected
    return lacks_both + lacks_gpu + lacks_cpu + no_gpu + no_gpu_lacks_cpu + other_model
