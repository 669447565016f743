"""Watts of a busy GPU by its power limit, from a table of measurements such as Zeus's (ml-energy/zeus)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.common.errors import InputError
from clustergym.results.report.series import column, read_table

COLUMNS = ("network", "batch_size", "optimizer", "power_limit", "time_per_epoch", "average_power")


class MeasuredPower(NamedTuple):
    """Measured power and slowdown of training under one limit of the GPU's power.

    Attributes
    ----------
    watts : float
        Mean over the networks that were measured there.
    slower : float
        Time of an epoch over that at the highest limit, geometric mean over the same trainings.
    networks : int
    """

    watts: float
    slower: float
    networks: int


def read_power(path: Path, limit_w: float) -> MeasuredPower:
    """Read a table of measured trainings; return mean watts and the slowdown at a power limit in watts.

    Parameters
    ----------
    path : Path
        CSV with `COLUMNS`: watts, and seconds of an epoch, by network, batch, optimizer and power limit.
    limit_w : float

    Raises
    ------
    InputError
        If the file is no such table, or nothing was measured at the limit.
    """
    rows = read_table(path, COLUMNS)
    limits, epoch_s, watts = (column(path, rows, name) for name in COLUMNS[3:])
    known = np.isfinite(limits) & (watts > 0) & (epoch_s > 0) & np.isfinite(watts) & np.isfinite(epoch_s)
    here = known & (limits == limit_w)
    if not here.any():
        there = ", ".join(f"{limit:g}" for limit in np.unique(limits[known])[:20].tolist())
        remedy = f"there are {there}" if there else "give a table with watts"
        message = f"nothing was measured at {limit_w:g} W"
        raise InputError(message, file=path, field="power_limit", remedy=remedy)
    of_run = [tuple(row[name] for name in COLUMNS[:3]) for row in rows]
    highest = known & (limits == limits[known].max())
    fastest = {of_run[at]: float(epoch_s[at]) for at in np.flatnonzero(highest).tolist()}
    at_limit = np.flatnonzero(here).tolist()
    slower = [np.log(epoch_s[at] / fastest[of_run[at]]) for at in at_limit if of_run[at] in fastest]
    by_network = [
        watts[[at for at in at_limit if rows[at]["network"] == network]].mean()
        for network in sorted({rows[at]["network"] for at in at_limit})
    ]
    mean = float(np.exp(np.mean(slower))) if slower else float("nan")
    return MeasuredPower(float(np.mean(by_network)), mean, len(by_network))
