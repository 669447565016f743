"""Fits the constants of operators to measured iteration times, and cross-validates them by model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats
from clustergym.common.errors import InputError
from clustergym.oracle.base import check_choice
from clustergym.oracle.calibration.validation import Figures, Rows, figures, read_rows
from clustergym.oracle.grid.constants import Constants
from clustergym.oracle.grid.grid_oracle import build_graph
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.grid.pipelines import Layouts, price
from clustergym.oracle.grid.search import BestPlans, full_search
from clustergym.oracle.models.catalog import Catalog, load_catalog
from clustergym.oracle.stacks.catalog import round_constants

Progress = Callable[[str], None]


PRIORS = {
    "matmul": 0.15,
    "convolution": 0.3,
    "convolution_intensity": 0.5,
    "network": 0.5,
    "host_network": 0.5,
    "transfer": 0.7,
    "node_decline": 0.7,
    "attention": 0.4,
    "gate": 0.4,
    "half_tokens": 0.5,
    "half_pixels": 0.5,
    "traffic": 0.3,
    "block_exchange": 0.5,
    "slow_machine": 0.15,
}
"""The fitted constants, and the standard deviations of their log-normal priors; the centre is the default."""

NOISE, ROBUST = 0.1, 0.05
"""Standard deviation of the relative error of a row; beyond the second, errors count linearly
(pseudo-Huber)."""

ROUNDS, DAMPED_AFTER, EVALUATIONS = 8, 3, 6
"""Rounds, each of which plans anew and then fits with these plans; rounds after which steps are halved, so
that plans and constants do not alternate for ever; evaluations of the Jacobian in a round."""

SCHEMES = ("leave_one_model_out", "half")
OF_WHOLE_CLASSES = (
    *("spearman", "regret", "regret_within_type"),
    *("feasibility_agreement", "failures", "failure_recall"),
)
"""Figures that would be wrong where a row counts several times."""

HALVINGS = 4
"""Ways to halve the models; constants are fitted to either half in turn."""


def vector(constants: Constants) -> Floats:
    """Return the values of the fitted constants as an array in the order of `PRIORS`, shape (14,)."""
    return np.array([getattr(constants, name) for name in PRIORS], dtype=np.float64)


def with_vector(values: Floats) -> Constants:
    """Return constants with the values of an array in the order of `PRIORS`."""
    return Constants(**dict(zip(PRIORS, values.tolist(), strict=True)))


class _Group:
    """Measured rows whose graphs have equally many operators, and the plans found for them."""

    def __init__(self, rows: Rows, chosen: Sequence[int], catalog: Catalog) -> None:
        self.index = np.array(chosen)
        graphs = [build_graph(catalog.get(rows.models[row])) for row in chosen]
        layouts = [rows.layouts[row] for row in chosen]
        types = [rows.gpu_types[row] for row in chosen]
        ports = [
            layout.per_node if gpu.nic_per_gpu else 1 for gpu, layout in zip(types, layouts, strict=True)
        ]
        self.rows = GraphAllocations.from_graphs(
            graphs,
            [rows.models[row].global_batch for row in chosen],
            types,
            [layout.nodes * layout.per_node for layout in layouts],
            [layout.nodes for layout in layouts],
            [gpu.nic_gbps / 8 * count for gpu, count in zip(types, ports, strict=True)],
        )
        self.slow = rows.slow[self.index]
        self.found: BestPlans | None = None
        self.layouts: Layouts | None = None

    def plan(self, constants: Constants) -> None:
        """Search for the best plans under these constants, and keep them."""
        self.found = full_search(self.rows, Machine.from_rows(self.rows, constants))
        self.layouts = Layouts(self.rows, self.found.plans)

    def seconds(self, constants: Constants) -> Floats:
        """Return the iteration times of the kept plans under these constants."""
        if self.found is None or self.layouts is None:
            raise AssertionError("plan first")
        machine = Machine.from_rows(self.rows, constants)
        times = price(self.rows, machine, self.layouts, self.found.micro_batches).iteration_s
        return np.where(self.slow, times * constants.slow_machine, times)


class Calibrator:
    """Fits an oracle's constants to chosen measured iteration times, and predicts all of them.

    Parameters
    ----------
    rows : Rows
    catalog : Catalog
    """

    def __init__(self, rows: Rows, catalog: Catalog) -> None:
        self.rows = rows
        by_length: dict[int, list[int]] = {}
        for row, model in enumerate(rows.models):
            # Wide ResNets are searched apart, so that stages split in part are tried for them alone.
            length = len(build_graph(catalog.get(model))) + 1000 * (model.family == "wide_resnet")
            by_length.setdefault(length, []).append(row)
        self.groups = [_Group(rows, chosen, catalog) for chosen in by_length.values()]

    def predict(self, constants: Constants) -> Floats:
        """Return the seconds per iteration that the oracle predicts for the n measured rows, (n,)."""
        for group in self.groups:
            group.plan(constants)
        return self._seconds(constants)

    def _seconds(self, constants: Constants) -> Floats:
        seconds = np.empty(len(self.rows.models))
        for group in self.groups:
            seconds[group.index] = group.seconds(constants)
        return seconds

    def fit(self, chosen: Bools, rounds: int = ROUNDS) -> Constants:
        """Return constants fitted to the chosen rows that were feasible, with four significant digits."""
        from scipy.optimize import least_squares

        constants = Constants()
        prior, spread = np.log(vector(constants)), np.array(list(PRIORS.values()))
        usable = chosen & np.isfinite(self.rows.seconds)

        for step in range(rounds):
            # Plans are frozen for a round, as a fit through a search is not differentiable; then all are
            # planned anew.
            use = usable & np.isfinite(self.predict(constants))

            def residuals(logs: Floats, use: Bools = use) -> Floats:
                # Logarithms keep constants positive.
                times = self._seconds(with_vector(np.exp(logs)))
                errors = robust(times[use] / self.rows.seconds[use] - 1)
                return np.concatenate([errors / NOISE, (logs - prior) / spread])

            start = np.log(vector(constants))
            found = least_squares(residuals, start, max_nfev=EVALUATIONS).x
            share = 0.5 if step >= DAMPED_AFTER else 1.0
            constants = with_vector(np.exp(start + share * (found - start)))
        rounded: Constants = round_constants(constants)
        return rounded


def robust(errors: Floats) -> Floats:
    """Transform errors such that half of their squares are their pseudo-Huber losses."""
    losses = np.sqrt(1 + (errors / ROBUST) ** 2) - 1
    return np.asarray(np.sign(errors) * ROBUST * np.sqrt(2 * losses))


def cross_validate(
    path: str | Path,
    scheme: str = "leave_one_model_out",
    catalog: Catalog | None = None,
    progress: Progress = lambda message: None,
) -> Figures:
    """Return the prediction errors on models that were left out when the constants were fitted.

    Parameters
    ----------
    path : str or Path
    scheme : str
        `leave_one_model_out`: each (family, size) is predicted by a fit to all others. `half`: half
        of the sizes of each family are predicted by a fit to the other half, and the other way round,
        for four ways to halve them; a row counts once for each.

    Returns
    -------
    dict
        As `validation.validate`; ranks, regret and feasibility are left out for `half`.
    """
    known = catalog or load_catalog()
    return _cross_validate(_usable(path, known), known, scheme, progress)


def _cross_validate(rows: Rows, catalog: Catalog, scheme: str, progress: Progress) -> Figures:
    check_choice(scheme, SCHEMES, "scheme")
    calibrator = Calibrator(rows, catalog)
    if scheme == "leave_one_model_out":
        seconds = np.full(len(rows.models), np.inf)
        for model, held in _list_left_out(rows):
            progress(f"{scheme}: without {model}")
            seconds[held] = calibrator.predict(calibrator.fit(~held))[held]
        return figures(rows, seconds)
    parts, times = [], []
    for number, held in enumerate(_halves(rows), start=1):
        progress(f"{scheme}: {number} of {2 * HALVINGS}")
        parts.append(held)
        times.append(calibrator.predict(calibrator.fit(~held))[held])
    every = np.concatenate([np.flatnonzero(held) for held in parts])
    found = figures(rows.take(every), np.concatenate(times))
    for name in OF_WHOLE_CLASSES:
        found.pop(name)
    return found


def _list_left_out(rows: Rows) -> Iterator[tuple[str, Bools]]:
    for family, size in sorted({(model.family, model.size) for model in rows.models}):
        held = [model.family == family and model.size == size for model in rows.models]
        yield f"{family}-{size}", np.array(held, dtype=bool)


def _halves(rows: Rows) -> Iterator[Bools]:
    """Yield the rows to hold back: random halves of the sizes of each family, with fixed seeds."""
    sizes: dict[str, list[str]] = {}
    for family, size in sorted({(model.family, model.size) for model in rows.models}):
        sizes.setdefault(family, []).append(size)
    for seed in range(HALVINGS):
        draw = random_streams.CALIBRATION_HALVES.generator(seed)
        half = set()
        for family, names in sizes.items():
            count = len(names) // 2 + (len(names) % 2 and int(draw.integers(2)))
            half |= {(family, names[index]) for index in draw.permutation(len(names))[:count]}
        held = np.array([(model.family, model.size) in half for model in rows.models], dtype=bool)
        yield held
        yield ~held


def _usable(path: str | Path, catalog: Catalog) -> Rows:
    rows = read_rows(path, catalog)
    rows = rows.take(np.isfinite(rows.seconds))
    planned = np.array([catalog.get(model).architecture != "dense" for model in rows.models], dtype=bool)
    rows = rows.take(planned)
    if len(rows.models) < len(PRIORS):
        message = f"has {len(rows.models)} feasible optimal rows for {len(PRIORS)} constants"
        raise InputError(message, file=path, remedy=f"give at least {len(PRIORS)}")
    return rows
