"""A test whether an agent decides by what has been: what comes later is drawn anew, and actions are compared.

It finds who sees what is to come. A plan that was found in hindsight and is known by the first arrivals is
no such case until it names a job that does not come: against it stand seeds that nobody knew.
"""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from clustergym.benchmark.leaderboard.cells import FigureTable
from clustergym.common.errors import InputError
from clustergym.scenario.scenario import Scenario

DRAWS = 3
"""Times drawn in a cell of each family."""


def check_causality(table: FigureTable, name: str) -> Iterator[str]:
    """Yield a line on each time after which all was drawn anew; the operating system draws times and jobs.

    Raises
    ------
    InputError
        For the first earlier action that is not the same bytes, or if a run does not end.
    """
    for family in table.keys.scenarios:
        cell = secrets.choice([cell for cell in table.keys.least_cells if cell.scenario == family])
        scenario, where = table.board.scenario(cell, table.keys.overrides(family, "")), f"{name}: {cell}"
        own = list_actions(table, name, scenario, cell.seed, where)
        for _ in range(DRAWS):
            at_s = draw_between(*scenario.trace.submit_s[[0, -1]].tolist())
            anew = f"{where}, all after {at_s:,.1f} s drawn anew"
            other = list_actions(table, name, draw_anew(scenario, at_s), cell.seed, anew)
            yield f"{anew}: {count_equal(own, other, at_s, anew)} earlier actions are equal"


def draw_between(low: float, high: float) -> float:
    """Return a number that no seed determines."""
    return low + (high - low) * secrets.randbelow(1 << 53) / (1 << 53)


def draw_anew(scenario: Scenario, at_s: float) -> Scenario:
    """Return a scenario with other jobs after a time: as drawn jobs of the trace, at drawn times."""
    trace = scenario.trace
    count, kept = len(trace), int((trace.submit_s <= at_s).sum())
    later_s = sorted(draw_between(at_s, float(trace.submit_s[-1])) for _ in range(count - kept))
    taken = trace.take([*range(kept), *(secrets.randbelow(count) for _ in later_s)])
    submit_s = np.concatenate([trace.submit_s[:kept], later_s])
    deadline_s = taken.deadline_s - taken.submit_s + submit_s
    jobs = replace(taken, job_id=trace.job_id, submit_s=submit_s, deadline_s=deadline_s)
    return replace(scenario, trace=jobs)


def list_actions(table: FigureTable, name: str, scenario: Scenario, seed: int, where: str) -> list[bytes]:
    """Run a row on a scenario, and return the lines of its decision log."""
    from clustergym.sim.stalls import StalledError

    try:
        return gzip.decompress(table.play(name, scenario, seed, "decisions").log).splitlines()[1:]
    except (InputError, StalledError) as error:
        raise InputError(f"{error} (it is refused)", field=where) from error


def count_equal(own: Sequence[bytes], other: Sequence[bytes], at_s: float, where: str) -> int:
    """Return the number of actions until a time, after a check that both lists have the same bytes there."""
    early = [[line for line in lines if json.loads(line)["time_s"] <= at_s] for lines in (own, other)]
    for pair in zip_longest(*early):
        if pair[0] != pair[1]:
            first_s = min(json.loads(line)["time_s"] for line in pair if line is not None)
            before, now = ("nothing" if line is None else line.decode() for line in pair)
            message = f"at {first_s:,.1f} s it decides {now}, and {before} on the trace as it is"
            raise InputError(message, field=where, remedy="it sees what comes, or does not repeat itself")
    return len(early[0])
