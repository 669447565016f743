"""Iterations, progress and gradient statistics of Sia's models at each global batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.columns import integers, numbers
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable, check_path, read_csv
from clustergym.oracle.base import statistical_efficiency

LARGEST = 1e30
"""Noise scale, samples, so large that every sample of a batch counts fully."""

STATISTICS = ("progress", "grad_sqr", "grad_var")


@dataclass(frozen=True)
class Training:
    """Measured trainings of one model at B global batches, ascending, over the same E epochs.

    Attributes
    ----------
    path : Path
    batches, iterations : ndarray of float, shape (B,)
        Samples of each batch, and iterations of a whole training at it.
    progress : ndarray of float, shape (E,)
        Iterations at the least batch that do the same work as each epoch; empty if there are no statistics.
    noise : ndarray of float, shape (B, E, 2)
        Squared norm of the gradient and its variance at the least batch, in each epoch at each batch.
    """

    path: Path
    batches: Floats
    iterations: Floats
    progress: Floats
    noise: Floats

    def interpolate_iterations(self, global_batch: int) -> float:
        """Return the iterations of a training at a global batch, interpolated between logarithms of both."""
        self._check(global_batch)
        return float(np.exp(np.interp(np.log(global_batch), np.log(self.batches), np.log(self.iterations))))

    def by_noise(self, global_batch: int) -> Floats:
        """Return the iterations that each epoch takes at a batch, from its gradient statistics, shape (E,).

        An iteration at batch M is worth M / m x (phi + m) / (phi + M) iterations at the least batch m, with
        the noise scale phi, which is m x variance / squared norm (Pollux, OSDI '21, section 3.1). The
        statistics of a batch between validated ones are interpolated linearly.
        """
        self._check(global_batch)
        if not len(self.progress):
            remedy = f"give each validation-BATCH.csv columns {', '.join(STATISTICS)}"
            raise InputError("has no gradient statistics", file=self.path, remedy=remedy)
        least = self.batches[0]
        # The lowest and highest batch belong to the first and last interval, so that both ends interpolate.
        above = min(max(int(np.searchsorted(self.batches, global_batch)), 1), len(self.batches) - 1)
        low, high = self.batches[above - 1], self.batches[above]
        share = (global_batch - low) / (high - low)
        square, variance = ((1 - share) * self.noise[above - 1] + share * self.noise[above]).T
        # A squared norm that rounds to 0 means nothing but noise: every sample counts fully.
        scale = np.divide(least * variance, square, out=np.full_like(square, LARGEST), where=square > 0)
        efficiency = statistical_efficiency(np.array(global_batch), least, scale)
        needed: Floats = self.progress / (global_batch / least * efficiency)
        return needed

    def _check(self, global_batch: int) -> None:
        if not self.batches[0] <= global_batch <= self.batches[-1]:
            raise InputError(
                f"global batch {global_batch} is outside what was validated, "
                f"{self.batches[0]:.0f} to {self.batches[-1]:.0f}",
                file=self.path,
                remedy="add a file validation-BATCH.csv, or change the trace",
            )


def read_training(folder: Path) -> Training:
    """Read a model's measured trainings from the files `validation-BATCH.csv` in its folder."""
    check_folder(folder)
    found: dict[int, TextTable] = {}
    for path in sorted(folder.glob("validation-*.csv")):
        size = path.stem.removeprefix("validation-")
        if not (size.isascii() and size.isdigit() and int(size) > 0):
            raise InputError("names no global batch", file=path, remedy="name it validation-BATCH.csv")
        found[int(size)] = read_csv(path, ("iteration",), optional=("epoch", *STATISTICS))
    if not found:
        raise InputError("holds no validation-BATCH.csv", file=folder, remedy="give Sia's profiles folder")
    tables = [found[size] for size in sorted(found)]
    batches = np.array(sorted(found), dtype=np.float64)
    progress, noise = _statistics(tables)
    return Training(folder, batches, np.array([_iterations(table) for table in tables]), progress, noise)


def _iterations(table: TextTable) -> float:
    total = float(integers(table, "iteration", low=0)[-1])
    if total < 1:
        remedy = "remove it"
        raise InputError("ends before its first iteration", file=table.path, field="iteration", remedy=remedy)
    return total


def _statistics(tables: list[TextTable]) -> tuple[Floats, Floats]:
    """Return progress and noise of a Training; empty if a file lacks a column, or there is only one batch."""
    if len(tables) < 2 or any(name not in table.columns for table in tables for name in STATISTICS):
        return np.empty(0), np.empty((len(tables), 0, 2))
    epochs = min(len(table.line) for table in tables)
    noise = [
        np.stack([numbers(table, name, low=0)[:epochs] for name in STATISTICS[1:]], axis=1)
        for table in tables
    ]
    progress = numbers(tables[0], STATISTICS[0], low=0)[:epochs]
    # The column is the progress up to each epoch's end; work in an epoch is the difference.
    epoch = np.diff(progress, prepend=0.0)
    if (epoch < 0).any():
        line = tables[0].line[int(np.argmax(epoch < 0))]
        remedy = "give it ascending"
        raise InputError("falls", file=tables[0].path, line=line, field=STATISTICS[0], remedy=remedy)
    return epoch, np.stack(noise)


def check_folder(folder: Path) -> None:
    """Raise an InputError, with the nearest existing folder, unless a path is a folder."""
    check_path(folder)
    if not folder.is_dir():
        raise InputError("is a file, not a folder", file=folder, remedy="give Sia's profiles folder")
