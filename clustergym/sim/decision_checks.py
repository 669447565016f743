"""Check a policy's Decision against the rules; an illegal decision is an error, never clipped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import numpy as np

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.parts import WHOLE
from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Bools, Ints
from clustergym.common.errors import InputError
from clustergym.scenario.gpu_requests import sum_requested_milli
from clustergym.scenario.policy import Decision
from clustergym.scenario.scenario import Scenario
from clustergym.sim.moves import find_move_fault, find_notice_fault
from clustergym.sim.pairs import find_pair_fault, mark_counted_jobs
from clustergym.sim.state import JobStates


class DecisionError(InputError):
    """An error in a policy's decision; the message names the job and the rule that is broken.

    Attributes
    ----------
    job_id : str
        The offending job; empty when the decision as a whole is at fault.
    """

    def __init__(self, message: str, *, job_id: str = "", remedy: str) -> None:
        self.job_id = job_id
        super().__init__(message, field=f"decision, job {job_id}" if job_id else "decision", remedy=remedy)


@dataclass(frozen=True)
class Limits:
    """The jobs and GPUs against which a decision is checked, copied so that a policy cannot change them.

    Attributes
    ----------
    job : ndarray of int, shape (n,)
        Rows of the jobs in the View, ascending.
    available : ndarray of int, shape (T,)
    hidden : ndarray of int, shape (jobs of the trace,)
        Bit t: the job is not profiled yet on type t.
    jobs, held : JobStates, Allocations, or None
        Who runs where, for decisions that give notice or nodes; None: the engine carries out neither.
    """

    job: Ints
    available: Ints
    hidden: Ints
    jobs: JobStates | None = None
    held: Allocations | None = None


def coerce_decision(decision: object) -> Decision:
    """Convert a policy's answer to a Decision with one-dimensional int64 columns.

    Raises
    ------
    DecisionError
        If the answer is not a Decision, or a column holds anything but whole numbers.
    """
    if not isinstance(decision, Decision):
        message = f"is a {type(decision).__name__}, not a Decision"
        raise DecisionError(message, remedy="return Decision.of(...) or Decision.keep(view)")
    if decision.move is not None:
        decision = replace(decision, move=_coerce_moves(decision.move))
    columns = {name: getattr(decision, name) for name in ("job", "gpu_type", "gpus", "drop", "notice")}
    if decision.batch is not None:
        columns["batch"] = decision.batch
    if decision.partner is not None:
        columns["partner"] = decision.partner
    # The usual answer is returned unchanged: a copy of each column at each decision would cost time.
    if all(
        type(value) is np.ndarray and value.dtype == np.int64 and value.ndim == 1
        for value in columns.values()
    ):
        return decision
    whole: dict[str, Any] = {name: _whole(name, value) for name, value in columns.items()}
    return replace(decision, **whole)


def _coerce_moves(given: object) -> dict[int, Nodes | int] | None:
    """Return the moves of a decision (job to nodes), as plain numbers."""
    if not given:
        return None
    try:
        assert isinstance(given, Mapping)
        return {
            index(row): index(target)
            if isinstance(target, int | np.integer)
            else tuple((index(node), index(gpus)) for node, gpus in target)
            for row, target in given.items()
        }
    except (AssertionError, TypeError, ValueError):
        remedy = "give {row: ((node, GPUs), ...)} or {row: domain}, of whole numbers"
        raise DecisionError("its moves are no nodes or domains of jobs", remedy=remedy) from None


def _whole(name: str, value: Any) -> Ints:
    """Return a sequence of whole numbers as a one-dimensional int64 array."""
    remedy = "give a one-dimensional array of whole numbers"
    try:
        column = np.asarray(value)
    except ValueError as error:
        raise DecisionError(f"its column {name} is not an array: {error}", remedy=remedy) from None
    if column.ndim != 1:
        raise DecisionError(f"its column {name} has {column.ndim} dimensions", remedy=remedy)
    if column.size and column.dtype.kind not in "iu":
        raise DecisionError(f"its column {name} holds {column.dtype} such as {column[0]!r}", remedy=remedy)
    # astype(int64) would wrap a large unsigned number to a negative one, without an error.
    if column.size and column.dtype.kind == "u" and int(column.max()) > np.iinfo(np.int64).max:
        raise DecisionError(f"its column {name} holds {column.max()}", remedy=remedy)
    return column.astype(np.int64)


def check_capacity(decision: Decision, products: int | None) -> tuple[int, ...] | None:
    """Return a decision's targets of the products that can be rented, as whole numbers; None: it has none."""
    if decision.capacity is None:
        return None
    if products is None:
        message, remedy = "orders nodes, and the scenario has none to rent", "give scenario.capacity.products"
        raise DecisionError(message, remedy=remedy)
    try:
        targets = tuple(index(target) for target in decision.capacity)
    except TypeError:
        targets = (-1,)
    if len(targets) != products or min(targets) < 0:
        message, remedy = f"has the targets {decision.capacity!r}", f"give {products} whole numbers from 0"
        raise DecisionError(message, remedy=remedy)
    return targets


def check_decision(decision: Decision, limits: Limits, scenario: Scenario) -> None:
    """Raise a `DecisionError` if a policy's decision breaks a rule."""
    again_s = decision.again_s
    if again_s is not None and not (isinstance(again_s, float | int) and math.isfinite(again_s)):
        raise DecisionError(f"asks to decide again at {again_s!r}", remedy="give seconds, or None")
    # Rows are checked first: every later check indexes the trace by them, and numpy would take -1 as the
    # last job.
    _check_jobs(decision, limits, scenario)
    _check_allotments(decision, limits, scenario)
    _check_batches(decision, scenario)
    _check_avoided(decision, scenario)
    if len(decision.notice) or decision.move:
        _check_notices_and_moves(decision, limits, scenario)
    # GPUs of a divisible cluster are counted in thousandths, not as whole GPUs of a type.
    if scenario.parts is not None:
        _check_parts(decision, limits, scenario)
        return
    gpus = decision.gpus
    if decision.partner is not None:
        _check_pairs(decision, scenario)
        gpus = gpus * mark_counted_jobs(decision)
    used = np.bincount(decision.gpu_type, weights=gpus, minlength=len(limits.available))
    over = np.flatnonzero(used > limits.available)
    if len(over):
        gpu_type = int(over[0])
        raise DecisionError(
            f"uses {int(used[gpu_type])} {scenario.cluster.gpu_types[gpu_type]}, "
            f"{int(limits.available[gpu_type])} are available",
            job_id=_job_id(scenario, decision.job[decision.gpu_type == gpu_type][-1]),
            remedy="leave out or shrink jobs of that GPU type",
        )


def _check_avoided(decision: Decision, scenario: Scenario) -> None:
    """Check that the nodes to avoid are nodes."""
    count = len(scenario.cluster.node_type)
    for row, nodes in (decision.avoid or {}).items():
        wrong = [node for node in nodes if not 0 <= node < count]
        if wrong:
            message = f"is to avoid node {wrong[0]}, and there are {count}"
            raise DecisionError(message, job_id=_job_id(scenario, row), remedy="count nodes from 0")


def _check_notices_and_moves(decision: Decision, limits: Limits, scenario: Scenario) -> None:
    """Check who is given notice, and the nodes that jobs are given."""
    if limits.jobs is None or limits.held is None:
        row = int(decision.notice[0]) if len(decision.notice) else next(iter(decision.move or {}))
        message = "is given notice or nodes, which the compiled engine does not carry out"
        remedy = "declare Policy.needs_places = True"
        raise DecisionError(message, job_id=_job_id(scenario, row), remedy=remedy)
    for find_fault in (find_notice_fault, find_move_fault):
        fault = find_fault(decision, limits.jobs, scenario, limits.held)
        if fault is not None:
            job_id = _job_id(scenario, fault.row)
            raise DecisionError(fault.message, job_id=job_id, remedy=fault.remedy)


def _check_parts(decision: Decision, limits: Limits, scenario: Scenario) -> None:
    """Check that each job gets what it asks for, and that the nodes have all of it together."""
    assert scenario.parts is not None
    other = decision.gpus != scenario.request_gpus[decision.job]
    if other.any():
        first = int(np.argmax(other))
        raise DecisionError(
            f"has {int(decision.gpus[first])} GPUs",
            job_id=_job_id(scenario, decision.job[first]),
            remedy="on a divisible cluster give each job view.requested_gpus",
        )
    # Only the sum is checked: whether a node has room is the placer's answer, after the decision.
    milli = int(sum_requested_milli(scenario.parts, decision.job).sum())
    if milli > WHOLE * int(limits.available[0]):
        raise DecisionError(
            f"uses {milli} thousandths of GPUs, {WHOLE * int(limits.available[0])} are available",
            remedy="leave out jobs that do not fit",
        )


def _check_pairs(decision: Decision, scenario: Scenario) -> None:
    if decision.partner is None or decision.partner.shape != decision.job.shape:
        raise DecisionError("its columns differ in length", remedy="give one partner per job, or none at all")
    fault = find_pair_fault(decision, scenario)
    if fault is not None:
        job_id = _job_id(scenario, decision.job[fault.row])
        raise DecisionError(fault.message, job_id=job_id, remedy=fault.remedy)


def _check_batches(decision: Decision, scenario: Scenario) -> None:
    if decision.batch is None:
        return
    if decision.batch.shape != decision.job.shape:
        raise DecisionError("its columns differ in length", remedy="give one batch per job, or none at all")
    other = np.flatnonzero(
        (decision.batch != 0) & (decision.batch != scenario.trace.global_batch[decision.job])
    )
    if not len(other):
        return
    rows, batch, choices = decision.job[other], decision.batch[other], scenario.batch_choices
    allowed = np.zeros(len(rows), dtype=np.bool_) if choices is None else choices.allows(rows, batch)
    if not allowed.all():
        first = int(np.argmin(allowed))
        raise DecisionError(
            f"trains at global batch {int(batch[first])}, which is not one of its choices",
            job_id=_job_id(scenario, rows[first]),
            remedy="choose among view.batch_options().sizes, or 0 for the requested one",
        )


def _job_id(scenario: Scenario, row: int) -> str:
    inside = 0 <= int(row) < len(scenario.trace)
    return scenario.trace.job_id[int(row)] if inside else f"#{int(row)}"


def _members(values: Ints, ascending: Ints) -> Bools:
    """Whether each value is in `ascending`; faster than np.isin, which would sort both arrays."""
    if not len(ascending):
        return np.zeros(len(values), dtype=np.bool_)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: Bools = ascending[at] == values
    return found


def _check_jobs(decision: Decision, limits: Limits, scenario: Scenario) -> None:
    lengths = {len(decision.job), len(decision.gpu_type), len(decision.gpus)}
    if len(lengths) != 1:
        raise DecisionError("its columns differ in length", remedy="give one type and one count per job")
    named = np.concatenate([decision.job, decision.drop])
    unknown = named[~_members(named, limits.job)]
    if len(unknown):
        raise DecisionError(
            "is not in the system now", job_id=_job_id(scenario, unknown[0]), remedy="choose among view.job"
        )
    ordered = np.sort(named)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        twice = repeated[0]
        raise DecisionError(
            "is named twice",
            job_id=_job_id(scenario, twice),
            remedy="give each job one allotment, or drop it",
        )


def _check_allotments(decision: Decision, limits: Limits, scenario: Scenario) -> None:
    gpu_types, counts = scenario.cluster.gpu_types, scenario.tables.counts
    bad_type = (decision.gpu_type < 0) | (decision.gpu_type >= len(gpu_types))
    if bad_type.any():
        first = int(np.argmax(bad_type))
        raise DecisionError(
            f"names GPU type {int(decision.gpu_type[first])}",
            job_id=_job_id(scenario, decision.job[first]),
            remedy=f"choose 0 to {len(gpu_types) - 1}",
        )
    bad_count = ~_members(decision.gpus, counts)
    if bad_count.any():
        first = int(np.argmax(bad_count))
        raise DecisionError(
            f"has {int(decision.gpus[first])} GPUs, which is not an allowed count",
            job_id=_job_id(scenario, decision.job[first]),
            remedy="choose among setting.counts",
        )
    level = np.searchsorted(counts, decision.gpus)
    fits = scenario.feasible[scenario.class_of[decision.job], decision.gpu_type, level]
    # A job that is not profiled on a type may not run there yet, even if it fits.
    fits = fits & ((limits.hidden[decision.job] >> decision.gpu_type) & 1 == 0)
    if not fits.all():
        first = int(np.argmin(fits))
        raise DecisionError(
            f"does not fit on {int(decision.gpus[first])} {gpu_types[int(decision.gpu_type[first])]}",
            job_id=_job_id(scenario, decision.job[first]),
            remedy="choose where view.feasible is true",
        )
