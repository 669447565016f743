"""Runs of what a board's table of figures lacks; whenever it is stopped, it leaves a better table."""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.cells import (
    BOUND,
    FigureTable,
    Place,
    Row,
    load_table,
    write_rows,
)
from clustergym.benchmark.leaderboard.entries import replay_entry
from clustergym.benchmark.leaderboard.entry import entry_names
from clustergym.benchmark.leaderboard.fingerprint import (
    fingerprint_agent,
    fingerprint_policy,
    fingerprint_simulator,
)
from clustergym.benchmark.leaderboard.pairs import compare_with_reference
from clustergym.benchmark.leaderboard.sealing import list_sealed_places
from clustergym.common.errors import InputError, shorten_text, visible
from clustergym.common.processes import Processes, cores, in_order, measure_cpu_s
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
    made = {BOUND: ("0" * 12, "")}
    for name in table.keys.policies:
        if name != BOUND:
            chosen = table.policies[name]
            if name in table.agents:
                made[name] = fingerprint_agent(table.agents[name]), ""
            else:
                made[name] = fingerprint_policy(chosen.policy or table.board.policy or {}, chosen.placer)
    return Fingerprints(made, fingerprint_simulator(table.board, table.keys.scenarios, table.keys.probe))


def load_fresh_table(board: Board) -> FigureTable:
    """Read a board's table of figures, without stale rows, and with those of entries."""
    table = load_table(board)
    return add_entered_rows(drop_stale(table, take_fingerprints(table)))


def add_entered_rows(table: FigureTable) -> FigureTable:
    """Return the table with a row for each log of an entry."""
    found = {name: replay_entry(table, name) for name in entry_names(table.board) if name not in table.agents}
    rows = {row.place: row for one in found.values() for row in one.rows}
    policies = {name: one.compared for name, one in found.items()}
    keys = table.keys.model_copy(update={"policies": [*table.keys.policies, *policies]})
    return table._replace(keys=keys, policies={**table.policies, **policies}, rows=table.rows | rows)


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
    places: Sequence[Place] | None = None,
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
    places : sequence of Place, optional
        The only ones to run, as those of a sealed test.
    """
    end, count = time.monotonic() + 3600 * hours, 0
    at_once = AHEAD * (4 if workers == "ray" else int(workers or cores()))
    table.board.compose()
    tried = set[Place]()
    while time.monotonic() < end:
        # A few at a time: what is run next hangs on the table as it is.
        table = drop_stale(table.reread(), prints)
        missing = list_missing(table, policies) if places is None else places
        wanted = (place for place in missing if place not in tried and place not in table.rows)
        batch = list(islice(wanted, at_once))
        if not batch:
            break
        tried.update(batch)
        shared = workers != "ray"
        for row in in_order(partial(_run_claimed, table, prints, end, shared), batch, workers):
            if isinstance(row, Row):
                if not shared:
                    _add_row(table, row, prints)
                count += 1
                value = row.stopped or f"{table.board.metric} {row.metrics[table.board.metric]:.6g}"
                say(f"{row.place}: {value} ({row.cpu_s:.3g} CPU-s)")
            elif row is not None:
                say(row)
    return count


def list_missing(table: FigureTable, policies: Sequence[str] = ()) -> Iterator[Place]:
    """Yield the places that lack a row, in the order in which they are run.

    First the least number of seeds, seed by seed, in each the reference first, so that pairs are complete;
    then the conditions; then more seeds of the row whose interval is widest. Which row is never chosen by
    its figure.
    """
    keys = table.keys
    known = [name for name in keys.policies if name not in table.agents]  # `seal` runs these.
    chosen = [name for name in known if not policies or name in policies or name == keys.reference]
    order = sorted(chosen, key=lambda name: name != keys.reference)
    seeds = range(keys.first_seed, keys.first_seed + keys.least)
    plain = [name for name in order if not table.condition_of(name)]
    places = [Place(name, family, seed, "") for seed, family, name in product(seeds, keys.scenarios, plain)]
    for name in order:
        places += list_sealed_places(table, name) if table.condition_of(name) else []
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
    compared = [name for name in plain if name not in (BOUND, keys.reference)]
    widths = {name: one.width for name in compared if (one := compare_with_reference(table, name).overall)}
    wide = max(widths, key=lambda name: widths[name], default=None)
    if wide is None or widths[wide] <= keys.width:
        return
    for seed in range(keys.first_seed + keys.least, keys.first_seed + keys.most):
        for family in keys.scenarios:
            pair = (Place(keys.reference, family, seed, ""), Place(wide, family, seed, ""))
            found = [place for place in pair if place not in table.rows]
            yield from found
            if found:
                return


def _run_claimed(
    table: FigureTable, prints: Fingerprints, end: float, shared: bool, place: Place
) -> Row | str | None:
    """Run a cell, unless time is over or another process runs it or has run it; or say why it cannot be run.

    Where the table is on this machine, the row is added before the claim ends: nobody runs it in between.
    """
    if time.monotonic() > end:
        return None
    with _locked(table, str(place), wait=False) as mine:
        if not mine or place in drop_stale(table.reread(), prints).rows:
            return None
        try:
            row = run_place(table, prints, place)
        except (InputError, MemoryError) as error:  # Nothing that a policy did: the table says nothing of it.
            return f"{place}: not run: {str(error) or 'out of memory'}"
        if shared:
            _add_row(table, row, prints)
        return row


def run_place(table: FigureTable, prints: Fingerprints, place: Place) -> Row:
    """Run a policy in one place, and return its row; if it does not end, with the reason for figures.

    Raises
    ------
    InputError, MemoryError
        If the run cannot be made here, as where something is not installed.
    """
    from clustergym.sim.decision_checks import DecisionError
    from clustergym.sim.engine import StalledError
    from clustergym.sim.guard import StoppedError
    from clustergym.sim.program import ProgramError

    started, stopped, digest = measure_cpu_s(), "", ""
    metrics: dict[str, float | None] = dict.fromkeys(table.keys.metrics)
    overrides = table.keys.overrides(place.scenario, place.condition)
    scenario = table.board.scenario(Cell(place.scenario, place.seed), overrides)
    try:
        if place.policy == BOUND:
            metrics |= measure_bounds(table.board, scenario)
        else:
            run = table.play(place.policy, scenario, place.seed)
            digest, metrics = run.digest, {name: run.metrics.get(name) for name in metrics}
    except (DecisionError, ProgramError, StalledError, StoppedError) as error:
        stopped = shorten_text(visible(getattr(error, "message", str(error))), 200)
        stopped = stopped.encode("ascii", "replace").decode()
    code, solvers = prints.policies[place.policy]
    keys = "{}" if place.policy == BOUND else table.policies[place.policy].keys
    cpu_s = round(measure_cpu_s() - started, 2)
    return Row(place, keys, code, prints.simulator, scenario.sha256, digest, cpu_s, solvers, stopped, metrics)


def measure_bounds(board: Board, scenario: Scenario) -> dict[str, float]:
    """Return what no schedule beats: of the mean JCT, where no job may be dropped, and of the metric."""
    from clustergym.results.bounds.bounds import build_programme, lower_bounds
    from clustergym.results.bounds.price_search import search

    if board.metric == "jct_mean":
        return {"jct_mean": lower_bounds(scenario).jct_mean}
    return {board.metric: search(build_programme(scenario, board.metric)).value}


def _add_row(table: FigureTable, row: Row, prints: Fingerprints) -> None:
    """Add a row to the file, which other processes may have changed; stale rows go."""
    with _locked(table, "table", wait=True):
        rows = drop_stale(table.reread(), prints).rows
        write_rows(table.path, [*({**rows, row.place: row}).values()], table.keys.metrics)


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
