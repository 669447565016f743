"""The choice of a job's global batch by its goodput on an allotment, if its model has a choice."""

from __future__ import annotations

from typing import Literal

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.scenario.policy import BatchOptions, Setting, View
from clustergym.trace.trace import Trace

BatchMode = Literal["known", "chosen", "requested"]
"""The policy chooses the batch of jobs that have a choice; of all, or it is an error; of none."""


def jobs_with_a_choice(mode: str, trace: Trace, setting: Setting) -> int:
    """Return the number of jobs in a trace whose batch the policy chooses.

    Raises
    ------
    InputError
        If a batch must be chosen for every job and a job has no choice; the error names the first.
    """
    if mode == "requested":
        return 0
    chosen = [trace.model_class(row) in setting.batch_models for row in range(len(trace))]
    if mode == "chosen" and not all(chosen):
        row = chosen.index(False)
        model = trace.model_class(row)
        raise InputError(
            f"job {trace.job_id[row]}: model {model.model} at batch {model.global_batch} has no noise scale "
            "and times at other batches",
            file=trace.path or None,
            line=int(trace.line[row]) or None,
            field="policy.batch",
            remedy="give known or requested, or an oracle that has them, as oracle=sia",
        )
    return sum(chosen)


def batch_options(mode: str, view: View) -> BatchOptions | None:
    """Return the batches that a policy may choose among; None: it chooses no batch."""
    return None if mode == "requested" else view.batch_options()


def find_requested_column(view: View, options: BatchOptions) -> Ints:
    """Return the column of each job's requested batch, shape (n,)."""
    column: Ints = np.argmax(options.sizes == view.global_batch[:, None], axis=1)
    return column


def get_requested_time_s(view: View, options: BatchOptions | None) -> Floats:
    """Return known seconds per iteration at the requested batch, shape (n, T, K)."""
    if options is None:
        return view.iteration_time_s()
    column = find_requested_column(view, options)[:, None, None, None]
    return np.take_along_axis(options.iteration_time_s, column, axis=3)[..., 0]


def goodput_at_best_batch(view: View, options: BatchOptions | None, time_s: Floats) -> tuple[Floats, Ints]:
    """Return each allotment's goodput in samples/s at its best batch, and that batch; shapes (n, T, K).

    Goodput is throughput times statistical efficiency; samples count as at the requested batch. Times at
    other batches follow from those known: the seconds by which an estimate exceeds the known time, such as
    synchronisation that a bootstrap does not see, are added at every batch; an estimate below the known time
    scales the times of all batches by the same ratio.

    Parameters
    ----------
    view : View
    options : BatchOptions or None
        None: all train at the requested batch.
    time_s : ndarray of float, shape (n, T, K)
        Estimates at the requested batch; inf where infeasible: the goodput is 0 there.
    """
    requested = view.global_batch[:, None, None]
    if options is None:
        return requested / time_s, np.broadcast_to(requested, time_s.shape)
    known, prior = options.iteration_time_s, get_requested_time_s(view, options)
    fits = np.isfinite(prior) & np.isfinite(time_s)
    # Seconds beyond the known time are taken for communication, which does not depend on the batch, and are
    # added; a job that is faster than known is faster in all it does, and is scaled.
    more = np.where(fits, time_s, 1.0) - np.where(fits, prior, 1.0)
    share = np.where(fits, time_s, 1.0) / np.where(fits, prior, 1.0)
    at_batch = np.where((more >= 0)[..., None], known + more[..., None], known * share[..., None])
    good = (options.sizes * options.efficiency)[:, None, None, :] / at_batch
    good = np.where(fits[..., None], good, 0.0)
    best = np.argmax(good, axis=3)
    sizes = np.broadcast_to(options.sizes[:, None, None, :], good.shape)
    chosen = np.take_along_axis(sizes, best[..., None], axis=3)[..., 0]
    return np.take_along_axis(good, best[..., None], axis=3)[..., 0], chosen
