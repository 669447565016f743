"""Runs of what a board's table of figures lacks; whenever it is stopped, it leaves a better table."""

from __future__ import annotations

import contextlib
import fcntl
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.cells import (
    BOUND,
    METRICS,
    FigureTable,
    Place,
    Row,
    load_table,
    shorten_keys,
    write_rows,
)
from clustergym.benchmark.leaderboard.fingerprint import fingerprint_policy, fingerprint_simulator
from clustergym.benchmark.leaderboard.pairs import compare_with_reference
from clustergym.common.errors import InputError, shorten_text
from clustergym.common.processes import Processes, cores, in_order
from clustergym.scenario.scenario import Scenario

AHEAD = 4
"""Cells that each process is given at a time: what is chosen next depends on what was found."""


class Fingerprints(NamedTuple):
    """What makes a row stale: the fingerprints of each policy with its solvers, and of the simulator."""

    policies: Mapping[str, tuple[str, str]]
    simulator: str

    def is_fresh(self, row: Row) -> bool:
        """Return whether a row is of today's code and parameters."""
        code = self.policies.get(row.place.policy, ("", ""))[0]
        return (row.code, row.simulator) == (code, self.simulator)


def take_fingerprints(table: FigureTable) -> Fingerprints:
    """Return the fingerprints of a board's policies and of the simulator on it."""
    made = {
        name: ("0" * 12, "") if name == BOUND else fingerprint_policy(table.policies[name].policy)
        for name in table.keys.policies
    }
    return Fingerprints(made, fingerprint_simulator(table.board, table.keys.scenarios))


def load_fresh_table(board: Board) -> FigureTable:
    """Read a board's table of figures, without stale rows."""
    table = load_table(board)
    return drop_stale(table, take_fingerprints(table))


def drop_stale(table: FigureTable, prints: Fingerprints) -> FigureTable:
    """Return the table without stale rows, and without those of places that cells.yaml no longer has."""
    keys = table.keys
    known = {"", *keys.conditions, *map(keys.sealed_label, keys.policies)}
    rows = {
        place: row
        for place, row in table.rows.items()
        if prints.is_fresh(row) and place.scenario in keys.scenarios and place.condition in known
    }
    return table._replace(rows=rows)


def fill(
    table: FigureTable,
    prints: Fingerprints,
    hours: float,
    workers: Processes = 1,
    policies: Sequence[str] = (),
    say: Callable[[str], object] = print,
) -> int:
    """Run missing and stale cells until `hours` have passed or none is left; return how many were run.

    Each finished run is in the file at once. Several calls may fill one table at the same time: each cell is
    claimed by a lock that ends with its process.

    Parameters
    ----------
    table : FigureTable
    prints : Fingerprints
    hours : float
        No cell is begun afterwards.
    workers : int or "ray"
    policies : sequence of str
        The only ones to run, beside the reference; all by default.
    say : callable
        It gets a line on each finished run.
    """

    def choose(found: FigureTable) -> Iterator[Place]:
        return list_missing(found, policies)

    return run_places(table, prints, choose, hours, workers, say)


def run_places(
    table: FigureTable,
    prints: Fingerprints,
    choose: Callable[[FigureTable], Iterable[Place]],
    hours: float,
    workers: Processes,
    say: Callable[[str], object],
) -> int:
    """Run places that `choose` gives for the table as it is, a few at a time; return how many were run."""
    end, count = time.monotonic() + 3600 * hours, 0
    at_once = AHEAD * (4 if workers == "ray" else int(workers or cores()))
    table.board.compose()
    tried = set[Place]()
    while time.monotonic() < end:
        table = drop_stale(table.reread(), prints)
        wanted = (place for place in choose(table) if place not in tried)
        batch = list(islice(wanted, at_once))
        if not batch:
            break
        tried.update(batch)
        shared = workers != "ray"
        for row in in_order(partial(_run_claimed, table, prints, end, shared), batch, workers):
            if row is not None:
                if not shared:
                    _add_row(table, row, prints)
                count += 1
                value = row.stopped or f"mean JCT {row.metrics['jct_mean']:.6g} s"
                say(f"{row.place}: {value} ({row.cpu_s:.3g} CPU-s)")
    return count


def list_missing(table: FigureTable, policies: Sequence[str] = ()) -> Iterator[Place]:
    """Yield the places that lack a row, in the order in which they are run.

    First the least number of seeds, seed by seed, in each the reference first, so that pairs are complete;
    then the conditions; then more seeds of the row whose interval is widest. Which row is never chosen by
    its figure.
    """
    keys = table.keys
    chosen = [name for name in keys.policies if not policies or name in policies or name == keys.reference]
    order = sorted(chosen, key=lambda name: name != keys.reference)
    seeds = range(keys.first_seed, keys.first_seed + keys.least)
    places = [Place(name, family, seed, "") for seed, family, name in product(seeds, keys.scenarios, order)]
    for label, condition in keys.conditions.items():
        under = [name for name in order if condition.policies is None or name in condition.policies]
        few = seeds[: condition.seeds]
        places += [
            Place(name, family, seed, label)
            for seed, family, name in product(few, keys.scenarios, under)
            if name != BOUND
        ]
    missing = [place for place in places if place not in table.rows]
    yield from missing
    if missing:
        return
    wide = _widest_first(table, order)
    for seed in range(keys.first_seed + keys.least, keys.first_seed + keys.most):
        for name, family in product(wide, keys.scenarios):
            pair = (Place(keys.reference, family, seed, ""), Place(name, family, seed, ""))
            found = [place for place in pair if place not in table.rows]
            yield from found
            if found:
                return


def _widest_first(table: FigureTable, names: Sequence[str]) -> list[str]:
    """Return the one row whose interval is widest, if it is wider than cells.yaml asks."""
    width = {}
    for name in names:
        found = compare_with_reference(table, name).overall
        if name not in (BOUND, table.keys.reference) and found is not None and found.high is not None:
            assert found.low is not None
            width[name] = found.high / found.low - 1.0
    widest = max(width, key=lambda name: width[name], default=None)
    return [] if widest is None or width[widest] <= table.keys.width else [widest]


def _run_claimed(
    table: FigureTable, prints: Fingerprints, end: float, shared: bool, place: Place
) -> Row | None:
    """Run a cell, unless time is over or another process runs it or has run it.

    Where the table is on this machine, the row is added before the claim ends: nobody runs it in between.
    """
    if time.monotonic() > end:
        return None
    with _locked(table, str(place), wait=False) as mine:
        if not mine or place in drop_stale(table.reread(), prints).rows:
            return None
        row = run_place(table, prints, place)
        if shared:
            _add_row(table, row, prints)
        return row


def run_place(table: FigureTable, prints: Fingerprints, place: Place) -> Row:
    """Run a policy in one place, and return its row; if it does not end, with the reason for figures."""
    board, cell = table.board, Cell(place.scenario, place.seed)
    policy = {} if place.policy == BOUND else table.policies[place.policy].policy
    started, stopped, digest = _cpu_s(), "", ""
    metrics: dict[str, float | None] = dict.fromkeys(METRICS)
    scenario = board.scenario(cell, table.keys.overrides(place.scenario, place.condition))
    try:
        found, digest = _measure(board, scenario, policy, cell)
        metrics |= {name: found.get(name) for name in METRICS}
    except InputError as error:
        stopped = shorten_text(error.message, 200).encode("ascii", "replace").decode()
    code, solvers = prints.policies[place.policy]
    cpu_s = round(_cpu_s() - started, 2)
    keys, sha256 = shorten_keys(policy), scenario.sha256
    return Row(place, keys, code, prints.simulator, sha256, digest, cpu_s, solvers, stopped, metrics)


def _measure(
    board: Board, scenario: Scenario, policy: Mapping[str, object], cell: Cell
) -> tuple[Mapping[str, float | None], str]:
    """Return the metrics of a run and the digest of its events; for no policy, the bound on the mean JCT."""
    from clustergym.benchmark.leaderboard.run_cells import run_scenario
    from clustergym.results.bounds.bounds import lower_bounds

    if not policy:
        return {"jct_mean": lower_bounds(scenario).jct_mean}, ""
    row = run_scenario(board, scenario, policy, cell).row
    return row.metrics, row.digest


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _add_row(table: FigureTable, row: Row, prints: Fingerprints) -> None:
    """Add a row to the file, which other processes may have changed; stale rows go."""
    with _locked(table, "table", wait=True):
        rows = drop_stale(table.reread(), prints).rows
        write_rows(table.path, [*({**rows, row.place: row}).values()])


@contextlib.contextmanager
def _locked(table: FigureTable, name: str, wait: bool) -> Iterator[bool]:
    """Give a context that holds a lock of this machine; False if another process holds it."""
    folder = (
        Path(tempfile.gettempdir()) / "clustergym-fill" / str(table.board.folder.resolve()).replace("/", "-")
    )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
