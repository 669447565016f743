"""The check of boards: every log is replayed, drawn rows are run again, all are held against bounds."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from clustergym.benchmark.leaderboard.cells import BOUND, FigureTable, Place, Row
from clustergym.benchmark.leaderboard.entries import EnteredPolicy, replay_entry, replay_kept
from clustergym.benchmark.leaderboard.entry import LOGS, entry_names
from clustergym.benchmark.leaderboard.fill import Fingerprints, drop_stale, run_place
from clustergym.benchmark.leaderboard.sealing import list_foreign_seeds
from clustergym.common.errors import InputError
from clustergym.common.processes import Processes, in_order
from clustergym.results.metrics.catalogue import METRICS

TOLERANCE = 1e-9
COMPARED, REPLAYED = ("keys", "code", "simulator", "sha256", "digest", "stopped"), ("sha256", "digest")
SLOW, LARGE = ("sia", "pollux"), ("scale", "llm-2026")
"""Policies of which one is drawn, and only on boards that are not large: a run takes up to minutes."""
BUDGET_CPU_S = 180.0
"""No run begins afterwards; the order is drawn, so nobody can know which rows are left out."""


class BoardCheck(NamedTuple):
    """What a check of one board found without running a policy.

    Attributes
    ----------
    table : FigureTable
        With the rows of today's code, and those of entries.
    stale : int
        Rows of other code, which no page shows and which are not checked.
    entries, logs : list of str
        The entries and rows whose logs were replayed.
    wrong : list of str
        A line on each thing that is not as it must be.
    """

    table: FigureTable
    stale: int
    entries: list[str]
    logs: list[str]
    wrong: list[str]


class RunAgain(NamedTuple):
    """What running drawn rows again found.

    Attributes
    ----------
    rows : list of (str, Place)
        The rows, with their boards.
    wrong : list of str
        A line on each value that a new run does not give.
    cpu_s : float
    forged_row, forged_policy : float
        The probabilities that one forged row, and a policy whose rows are all forged, are found.
    """

    rows: list[tuple[str, Place]]
    wrong: list[str]
    cpu_s: float
    forged_row: float
    forged_policy: float


def check_board(
    table: FigureTable,
    prints: Fingerprints,
    only: Sequence[str] = (),
    workers: Processes = 1,
    progress: bool = False,
) -> BoardCheck:
    """Replay the logs of a board, or those of some entries, and hold every row against its bound."""
    fresh = drop_stale(table, prints)
    entries = sorted({*(only or entry_names(table.board))} - {*table.agents})
    paths = sorted((table.board.folder / LOGS).glob("*")) if not only else []
    kept = [path.name.removesuffix(".jsonl.gz") for path in paths]
    table.board.compose()
    label = f"replay {table.board.name}" if progress and (entries or kept) else None
    tasks = [(replay_entry, name) for name in entries] + [(replay_kept, name) for name in kept]
    found = list(in_order(partial(_replay, table), tasks, workers, label))
    wrong = [one for one in found if isinstance(one, str)]
    rows = dict(fresh.rows)
    for replayed in found:
        if isinstance(replayed, EnteredPolicy):
            rows |= {row.place: row for row in replayed.rows}
        elif isinstance(replayed, list):
            both = [(fresh.rows[row.place], row) for row in replayed if row.place in fresh.rows]
            wrong += [line for one, row in both for line in compare_rows(one, row, REPLAYED, " by its log")]
    whole = fresh._replace(rows=rows)
    wrong += [*list_below_bound(whole), *list_foreign_seeds(fresh)]
    return BoardCheck(whole, len(table.rows) - len(fresh.rows), entries, kept, wrong)


def _replay(
    table: FigureTable, task: tuple[Callable[[FigureTable, str], EnteredPolicy | list[Row]], str]
) -> EnteredPolicy | list[Row] | str:
    replay, name = task
    try:
        return replay(table, name)
    except InputError as error:
        return f"{name}: {error}"


def run_again(
    checked: Mapping[str, tuple[FigureTable, Fingerprints]],
    count: int | None,
    workers: Processes = 1,
    progress: bool = False,
) -> RunAgain:
    """Run drawn rows of tables again, each of another policy, or all rows; entries have no code to run.

    The operating system draws: who writes a table cannot know which rows will be run. Runs end once
    `BUDGET_CPU_S` are spent.

    Parameters
    ----------
    checked : mapping of str to (FigureTable, Fingerprints)
        By board, without stale rows.
    count : int or None
        Rows to run again; None: all.
    workers : int or "ray"
    progress : bool
    """
    every = [
        (board, row)
        for board, (table, prints) in checked.items()
        for row in table.rows.values()
        if prints.is_fresh(row)
    ]
    drawn = every if count is None else draw_rows(every, count)
    budget = float("inf") if count is None else BUDGET_CPU_S
    done, wrong, spent_s = list[tuple[str, Place]](), list[str](), 0.0
    label = "run rows again" if progress else None
    size = len(drawn) if count is None else max(4, workers if isinstance(workers, int) else 16)
    for at in range(0, len(drawn), size or 1):
        if spent_s > budget:
            break
        batch = [(board, row.place) for board, row in drawn[at : at + size]]
        runs = in_order(partial(_run, checked), batch, workers, label)
        for (board, row), found in zip(drawn[at : at + size], runs, strict=True):
            done.append((board, row.place))
            if isinstance(found, str):
                wrong.append(f"{board}: {row.place}: {found}")
                continue
            spent_s += found.cpu_s
            wrong += [f"{board}: {line}" for line in compare_rows(row, found)]
    policies = {row.place.policy for _, row in every}
    ran = {place.policy for _, place in done}
    return RunAgain(done, wrong, spent_s, len(done) / max(1, len(every)), len(ran) / max(1, len(policies)))


def _run(checked: Mapping[str, tuple[FigureTable, Fingerprints]], task: tuple[str, Place]) -> Row | str:
    board, place = task
    try:
        return run_place(*checked[board], place)
    except (InputError, MemoryError) as error:
        return f"cannot be run: {str(error) or 'out of memory'}"


def draw_rows(rows: Sequence[tuple[str, Row]], count: int) -> list[tuple[str, Row]]:
    """Draw rows of different policies: a policy, then one of its boards, then a row, each equally likely."""
    kept = secrets.choice(SLOW)
    by_policy: dict[str, dict[str, list[Row]]] = {}
    for board, row in rows:
        name = row.place.policy
        if name not in SLOW or (name == kept and board not in LARGE):
            by_policy.setdefault(name, {}).setdefault(board, []).append(row)
    left, drawn = sorted(by_policy), list[tuple[str, Row]]()
    while left and len(drawn) < count:
        boards = by_policy[left.pop(secrets.randbelow(len(left)))]
        board = secrets.choice(sorted(boards))
        drawn.append((board, secrets.choice(boards[board])))
    return drawn


def compare_rows(entered: Row, found: Row, names: Sequence[str] = COMPARED, by: str = "") -> list[str]:
    """Return a line on each value of a row that a new run, or the replay of its log, does not give."""
    values = [(name, getattr(entered, name), getattr(found, name)) for name in names]
    values += [(name, entered.metrics[name], found.metrics[name]) for name in entered.metrics]
    return [
        f"{entered.place}: {name} is {new}{by}, and {old} in the table"
        for name, old, new in values
        if old != new
    ]


def list_below_bound(table: FigureTable) -> list[str]:
    """Return a line on each row whose figure no schedule can reach, or with neither figure nor reason."""
    wrong = []
    metric = table.board.metric
    for place, row in sorted(table.rows.items()):
        value = row.metrics[metric]
        if (value is None) != bool(row.stopped):
            wrong.append(f"{place}: has neither a figure nor a reason, or both")
        elif value is not None:
            wrong += [f"{place}: {line}" for line in _list_unreachable(table, place, metric, value)]
    return wrong


def _list_unreachable(table: FigureTable, place: Place, metric: str, value: float) -> Iterator[str]:
    bound = table.rows.get(Place(BOUND, place.scenario, place.seed, ""))
    # Another condition may have other jobs or nodes, so other bounds.
    best = bound.metrics[metric] if bound is not None and not place.condition else None
    sign = table.board.sign
    if value < 0 or (value == 0 and METRICS[metric].unit == "s"):
        yield f"{metric} is {value}"
    elif best is not None and sign * value < sign * best - TOLERANCE * abs(best):
        yield f"{metric} is {value}, and no schedule is better than {best}"
