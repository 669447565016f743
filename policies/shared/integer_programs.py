"""The integer program that several policies solve: at most one configuration per job, within capacity."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints, dot_in_order
from clustergym.common.errors import InputError
from clustergym.common.parameters import check_value

Solver = Literal["scip", "highs"]
OPTIMAL, LIMIT, FAILED = "optimal", "limit", "failed"
"""Proved to within the gap; stopped by the node limit; no usable answer of the solver."""

CLEARLY_MORE = 1e-5
"""A hundred times the tolerance within which the solvers take values for equal."""


class SolverError(RuntimeError):
    """Raised if a solver of linear or integer programs ends without a solution."""


@dataclass(frozen=True)
class Choices:
    """An integer program that chooses for each of n jobs one of m GPU types and counts, within a capacity.

    Attributes
    ----------
    value : ndarray of float, shape (n, m)
        What is maximised in sum; -inf where a job may not have a configuration.
    gpu_type, gpus : ndarray of int, shape (m,)
        GPU type and count of each configuration.
    capacity : ndarray of int, shape (T,)
    """

    value: Floats
    gpu_type: Ints
    gpus: Ints
    capacity: Ints

    def total(self, choice: Ints) -> float:
        """Return the total value if each job i gets the choice numbered `choice[i]`, -1 for none."""
        taken = np.flatnonzero(choice >= 0)
        return float(self.value[taken, choice[taken]].sum())

    def count_used(self, choice: Ints) -> Ints:
        """Return the GPUs of each type that a choice for each job uses, shape (T,)."""
        taken = choice[choice >= 0]
        used: Ints = np.bincount(self.gpu_type[taken], self.gpus[taken], len(self.capacity)).astype(np.int64)
        return used


@dataclass(frozen=True)
class ProgramSolution:
    """The solution of an integer program: each job's choice, and how close it is to optimal.

    Attributes
    ----------
    choice : ndarray of int, shape (n,)
        Index of a configuration; -1: none.
    value : float
    bound : float
        No choice is worth more: the Lagrangian bound, which at the LP's prices is the LP's optimum, or
        the solver's where that is tighter.
    status : str
        `optimal`, `limit` or `failed`; a choice is legal in every case.
    """

    choice: Ints
    value: float
    bound: float
    status: str

    @property
    def gap(self) -> float:
        """(bound - value) / bound: the greatest possible relative distance to the optimum."""
        return max(self.bound - self.value, 0.0) / self.bound if self.bound > 0 else 0.0


def solve(
    problem: Choices, start: Ints, solver: str = "scip", gap: float = 1e-4, nodes: int = 10_000
) -> ProgramSolution:
    """Choose at most one GPU type and count per job for the greatest total value, beginning with `start`.

    All steps but the last are exact and leave it little to do: configurations that need no fewer GPUs and are
    worth no more than another of their type are left out; if each job can have its best one, it has; jobs of
    equal value rows share one integer variable; the LP relaxation gives prices and a bound; the start and the
    rounded LP, both improved greedily, give a first solution; variables whose reduced cost rules out a better
    solution with them are left out.

    Parameters
    ----------
    problem : Choices
    start : ndarray of int, shape (n,)
        A choice to begin with, such as the present one; what no longer fits is left out.
    solver : str
        `highs` or `scip`, for what is left; `scip` is started from the first solution.
    gap : float
        Relative distance to the bound at which a solution counts as optimal.
    nodes : int
        Most nodes of the search.
    """
    check_solver(solver)
    value = np.where(problem.gpus <= problem.capacity[problem.gpu_type], problem.value, -np.inf)
    # What adds nothing is never chosen before nothing, so it may be left out.
    value = np.where(value > 0, value, -np.inf)
    problem = Choices(value, problem.gpu_type, problem.gpus, problem.capacity)
    first = improve_choice(problem, _legal(problem, start))
    unlimited = _best_of_each(problem)
    if unlimited is not None:
        total = problem.total(unlimited)
        return ProgramSolution(unlimited, total, total, OPTIMAL)
    rows, row_of, members = np.unique(
        _drop_dominated(problem), axis=0, return_inverse=True, return_counts=True
    )
    row_of = row_of.reshape(-1)
    merged = Choices(rows, problem.gpu_type, problem.gpus, problem.capacity)
    try:
        prices, amounts = _solve_relaxation(merged, members)
    except SolverError:
        worst = np.where(np.isfinite(value), value, 0.0)
        bound = float(worst.max(axis=1).sum()) if value.size else 0.0
        return ProgramSolution(first, problem.total(first), bound, FAILED)
    bound, reduced = _lagrangian(merged, members, prices)
    # Rounding down cannot break a capacity; the small term saves amounts that are whole but for rounding
    # errors.
    rounded = improve_choice(problem, _assign_rows(np.floor(amounts + 1e-6).astype(np.int64), row_of, start))
    best = max(first, rounded, key=problem.total)
    distance = bound - problem.total(best)
    if distance <= gap * bound:
        return ProgramSolution(best, problem.total(best), bound, OPTIMAL)
    # Reduced-cost fixing: a variable that would lower the bound to the best known value or below it is in no
    # better solution.
    usable = np.isfinite(rows) & (reduced > -distance)
    begin = _merge_rows(best, row_of, rows)
    try:
        counted, proved, status = _integral(merged, members, usable, begin, solver, gap, nodes)
    except SolverError:
        return ProgramSolution(best, problem.total(best), bound, FAILED)
    best = max(best, improve_choice(problem, _assign_rows(counted, row_of, start)), key=problem.total)
    bound = min(bound, max(proved, problem.total(best)))
    return ProgramSolution(best, problem.total(best), bound, status)


def check_solver(solver: str) -> None:
    """Raise an `InputError` if a solver is unknown or not installed."""
    check_value(solver, Solver, "policy.solver")
    if solver == "scip" and find_spec("pyscipopt") is None:
        remedy = "pip install pyscipopt, or choose highs"
        raise InputError("SCIP is not installed", field="policy.solver", remedy=remedy)


def _legal(problem: Choices, choice: Ints) -> Ints:
    """Return a legal choice: drop what is not allowed and, from the last job back, what does not fit."""
    rows = np.arange(len(choice))
    kept = np.where((choice >= 0) & np.isfinite(problem.value[rows, choice]), choice, -1)
    used = problem.count_used(kept)
    for row in np.flatnonzero(kept >= 0)[::-1] if (used > problem.capacity).any() else ():
        gpu_type = problem.gpu_type[kept[row]]
        if used[gpu_type] > problem.capacity[gpu_type]:
            used[gpu_type] -= problem.gpus[kept[row]]
            kept[row] = -1
    return kept


def improve_choice(problem: Choices, choice: Ints, none: float = 0.0) -> Ints:
    """Improve jobs' choices on free GPUs, the greatest gain per GPU first; no choice has the value `none`.

    A configuration of another type than the job has adds all its GPUs.

    Parameters
    ----------
    problem : Choices
    choice : ndarray of int, shape (n,)
        Legal; -1: none.
    none : float
        Value of a job without a configuration.
    """
    choice = choice.copy()
    value, gpu_type, gpus = problem.value, problem.gpu_type, problem.gpus
    free = problem.capacity - problem.count_used(choice)
    usable = np.isfinite(value)
    now = np.where(choice >= 0, value[np.arange(len(choice)), choice], none)
    # On the type that it holds a job pays only the difference.
    own = (choice >= 0)[:, None] & (gpu_type[choice][:, None] == gpu_type)
    added = gpus - np.where(own, gpus[choice][:, None], 0)
    gain = np.where(usable, np.where(usable, value, 0.0) - now[:, None], -np.inf)
    # Fewer or no more GPUs for more value come first: the floor of the divisor makes their ratio large.
    worth = np.where(gain > 1e-9, gain / np.maximum(added, 1e-3), -np.inf)
    while worth.size:
        row, column = divmod(int(np.argmax(np.where(added <= free[gpu_type], worth, -np.inf))), len(gpu_type))
        if not (worth[row, column] > 0 and added[row, column] <= free[gpu_type[column]]):
            break
        if choice[row] >= 0:
            free[gpu_type[choice[row]]] += gpus[choice[row]]
        choice[row] = column
        free[gpu_type[column]] -= gpus[column]
        better = np.where(usable[row], value[row] - value[row, column], -np.inf)
        added[row] = gpus - np.where(gpu_type == gpu_type[column], gpus[column], 0)
        worth[row] = np.where(better > 1e-9, better / np.maximum(added[row], 1e-3), -np.inf)
    return choice


def _drop_dominated(problem: Choices) -> Floats:
    """Return the values; -inf where a configuration of the type with no more GPUs is worth as much."""
    value = problem.value.copy()
    for gpu_type in range(len(problem.capacity)):
        columns = np.flatnonzero(problem.gpu_type == gpu_type)
        columns = columns[np.argsort(problem.gpus[columns], kind="stable")]
        if len(columns) > 1:
            best = np.maximum.accumulate(problem.value[:, columns], axis=1)[:, :-1]
            later = problem.value[:, columns[1:]]
            value[:, columns[1:]] = np.where(later > best, later, -np.inf)
    return value


def _best_of_each(problem: Choices) -> Ints | None:
    """Return the choice of each job's best configuration, if all fit and it is the only optimum.

    It is where every best value is greater than the next by more than the solvers' tolerances: any other
    choice, and any other solution of the LP relaxation, is then worth less.
    """
    if problem.value.shape[1] < 2:
        return None
    best, some = np.argmax(problem.value, axis=1), np.isfinite(problem.value).any(axis=1)
    second, first = np.partition(problem.value[some], -2, axis=1)[:, -2:].T
    choice: Ints = np.where(some, best, -1)
    alone = (first - second > CLEARLY_MORE).all() and (problem.count_used(choice) <= problem.capacity).all()
    return choice if alone else None


def _constraints(problem: Choices, row: Ints, column: Ints) -> object:
    """Return the constraint matrix: a line per job row and per GPU type, a column per variable."""
    from scipy.sparse import csr_matrix

    n, variables = len(problem.value), np.arange(len(row))
    lines = np.concatenate([row, n + problem.gpu_type[column]])
    weights = np.concatenate([np.ones(len(row)), problem.gpus[column].astype(np.float64)])
    shape = (n + len(problem.capacity), len(row))
    # Not `csr_array`: that of SciPy 1.12 has indices of 64 bits, and its solver takes none.
    return csr_matrix((weights, (lines, np.concatenate([variables, variables]))), shape=shape)


def _solve_relaxation(problem: Choices, members: Ints) -> tuple[Floats, Floats]:
    """Solve the LP relaxation; return the prices of the GPU types and the amounts, shape (n, m)."""
    from scipy.optimize import linprog

    amounts = np.zeros(problem.value.shape)
    row, column = np.nonzero(np.isfinite(problem.value))
    if not len(row):
        return np.zeros(len(problem.capacity)), amounts
    limits = np.concatenate([members, problem.capacity]).astype(np.float64)
    found = linprog(
        -problem.value[row, column], A_ub=_constraints(problem, row, column), b_ub=limits, method="highs"
    )
    if found.status != 0:
        raise SolverError(found.message)
    amounts[row, column] = found.x
    # The duals of the capacity rows: what one more GPU of a type would be worth.
    prices: Floats = np.maximum(-found.ineqlin.marginals[len(members) :], 0.0)
    return prices, amounts


def _lagrangian(problem: Choices, members: Ints, prices: Floats) -> tuple[float, Floats]:
    """Return the Lagrangian bound at some prices, and by how much each variable at 1 lowers it."""
    net = problem.value - (prices[problem.gpu_type] * problem.gpus)
    best = net.max(axis=1, initial=0.0)
    bound = float(dot_in_order(prices, problem.capacity) + dot_in_order(members, best))
    return bound, net - best[:, None]


def _integral(
    problem: Choices, members: Ints, usable: Bools, start: Ints, solver: str, gap: float, nodes: int
) -> tuple[Ints, float, str]:
    """Return how many jobs of each row take each configuration, the solver's bound, and its status."""
    row, column = np.nonzero(usable)
    counted = np.zeros(problem.value.shape, dtype=np.int64)
    if not len(row):
        return counted, 0.0, OPTIMAL
    search = {"highs": _highs, "scip": _scip}[solver]
    amounts, bound, status = search(problem, members, row, column, start[row, column], gap, nodes)
    counted[row, column] = np.round(amounts).astype(np.int64)
    used = np.bincount(
        problem.gpu_type[column], problem.gpus[column] * counted[row, column], len(problem.capacity)
    )
    # Solvers keep constraints only within tolerances; what is rounded from them is checked exactly.
    if (counted < 0).any() or (counted.sum(axis=1) > members).any() or (used > problem.capacity).any():
        raise SolverError("its solution breaks a constraint")
    return counted, bound, status


def _highs(
    problem: Choices, members: Ints, row: Ints, column: Ints, start: Ints, gap: float, nodes: int
) -> tuple[Floats, float, str]:
    from scipy.optimize import Bounds, LinearConstraint, milp

    limits = np.concatenate([members, problem.capacity])
    found = milp(
        -problem.value[row, column],
        integrality=np.ones(len(row)),
        bounds=Bounds(0, members[row]),
        constraints=LinearConstraint(_constraints(problem, row, column), ub=limits),
        options={"mip_rel_gap": gap, "node_limit": nodes},
    )
    if found.x is None:
        raise SolverError(found.message)
    return found.x, -float(found.mip_dual_bound), OPTIMAL if found.status == 0 else LIMIT


def _scip(
    problem: Choices, members: Ints, row: Ints, column: Ints, start: Ints, gap: float, nodes: int
) -> tuple[Floats, float, str]:
    from pyscipopt import Model, quicksum

    model = Model()
    model.hideOutput()
    # No limit of time: the answer must not depend on how fast the machine is.
    model.setParams({"limits/gap": gap, "limits/nodes": nodes, "parallel/maxnthreads": 1})
    value, top = problem.value[row, column], members[row]
    amount = [
        model.addVar(vtype="I", lb=0, ub=int(most), obj=float(v)) for v, most in zip(value, top, strict=True)
    ]
    model.setMaximize()
    for job in np.unique(row):
        model.addCons(quicksum(amount[v] for v in np.flatnonzero(row == job)) <= int(members[job]))
    for gpu_type, capacity in enumerate(problem.capacity.tolist()):
        uses = np.flatnonzero(problem.gpu_type[column] == gpu_type)
        if len(uses):
            weights = problem.gpus[column[uses]].tolist()
            model.addCons(quicksum(w * amount[v] for w, v in zip(weights, uses, strict=True)) <= capacity)
    known = model.createSol()
    for variable, taken in zip(amount, start.tolist(), strict=True):
        model.setSolVal(known, variable, taken)
    model.addSol(known)
    model.optimize()
    if model.getNSols() == 0:
        raise SolverError(f"SCIP ended {model.getStatus()}")
    best = model.getBestSol()
    amounts = np.array([model.getSolVal(best, variable) for variable in amount])
    done = model.getStatus() in ("optimal", "gaplimit")
    return amounts, float(model.getDualbound()), OPTIMAL if done else LIMIT


def _merge_rows(choice: Ints, row_of: Ints, value: Floats) -> Ints:
    """Return how many jobs of each merged row take each configuration, of those it may have."""
    counted = np.zeros(value.shape, dtype=np.int64)
    taken = np.flatnonzero(choice >= 0)
    np.add.at(counted, (row_of[taken], choice[taken]), 1)
    return np.where(np.isfinite(value), counted, 0)


def _assign_rows(counted: Ints, row_of: Ints, start: Ints) -> Ints:
    """Assign configurations to the jobs of each row, first to the jobs that have them at the start."""
    choice = np.full(len(row_of), -1, dtype=np.int64)
    left = counted.copy()
    for job in np.flatnonzero((start >= 0) & (left[row_of, start] > 0)):
        if left[row_of[job], start[job]] > 0:
            left[row_of[job], start[job]] -= 1
            choice[job] = start[job]
    rows = np.flatnonzero(left.sum(axis=1))
    queues = {int(row): np.flatnonzero((row_of == row) & (choice < 0)).tolist() for row in rows}
    for row, queue in queues.items():
        for column in np.flatnonzero(left[row]).tolist():
            for _ in range(int(left[row, column])):
                choice[queue.pop(0)] = column
    return choice
