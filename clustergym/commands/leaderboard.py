"""`clustergym leaderboard`: fill, print and check the tables of boards, and enter a policy on them."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.benchmark.leaderboard import DECISION_LIMIT_S
from clustergym.common.errors import InputError, Parser, exits_on_bad_input, require_known
from clustergym.common.processes import Processes

if TYPE_CHECKING:
    from clustergym.benchmark.leaderboard.cells import FigureTable
    from clustergym.benchmark.leaderboard.fill import Fingerprints

ROWS = 40
"""Rows that a check runs again, over all boards that it checks."""
COMPONENTS = ("policy", "placer")
OVERRIDES = (("", "="), ("", "."), ("+", "."))
"""What stands before and after `policy` or `placer` in an override of an entry's."""


def _parser() -> argparse.ArgumentParser:
    summary = "Fill, print and check the tables of boards, and enter a policy on them."
    parser = Parser(prog="clustergym leaderboard", description=summary, allow_abbrev=False)
    parser.add_argument("--root", type=Path, metavar="DIR", help="folder of boards (leaderboards/)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser("add", help="run a policy of one's own in every cell, and keep its logs")
    add.add_argument("board", help="name of its folder")
    add.add_argument("name", help="of the entry's folder")
    chosen = "policy=NAME and policy.PARAMETER=VALUE; so too placer, where it is not the board's"
    add.add_argument("override", nargs="+", metavar="policy=NAME", help=chosen)
    add.add_argument("--title", help="as it is to be shown")
    add.add_argument("--author", action="append", metavar="NAME", help="may be given several times")
    limit = f"seconds of wall time that a decision may take ({DECISION_LIMIT_S:g})"
    add.add_argument("--decision-limit-s", type=float, default=DECISION_LIMIT_S, metavar="S", help=limit)
    _add_workers(add)
    words = "replay all logs, run drawn rows of tables again, and hold every figure against its bound"
    check = commands.add_parser("check", help=words)
    check.add_argument("board", nargs="?", help="all by default")
    check.add_argument("entry", nargs="*", help="replay the logs of these entries alone")
    words = f"rows to run again, each of another policy ({ROWS})"
    check.add_argument("--rows", type=int, default=ROWS, metavar="N", help=words)
    check.add_argument("--all", action="store_true", help="run every row again")
    _add_json(check, "what was found")
    _add_workers(check)
    words = "run what a board's table of figures lacks; each finished run is in the table at once"
    fill = commands.add_parser("fill", help=words)
    fill.add_argument("board", help="name of its folder")
    _add_hours(fill)
    words = "run only this one and the reference; may be given several times"
    fill.add_argument("--policy", action="append", default=[], metavar="NAME", help=words)
    words = "run no rows, but those again whose logs are kept, and write these"
    fill.add_argument("--logs", action="store_true", help=words)
    _add_workers(fill)
    words = "run an agent and its rivals on seeds that were drawn after it"
    sealed = commands.add_parser("seal", help=words)
    sealed.add_argument("board", help="name of its folder")
    sealed.add_argument("entry", help="a sealed entry, or a row of the table whose rules are `learned`")
    sealed.add_argument("--beacon", metavar="VALUE", help="random value that the entry announced")
    _add_hours(sealed)
    _add_json(sealed, "the ratios")
    _add_workers(sealed)
    figures = commands.add_parser("table", help="print a board's table of figures")
    figures.add_argument("board", help="name of its folder")
    _add_json(figures, "the same figures")
    render = commands.add_parser("render", help="write README.md of boards")
    render.add_argument("board", nargs="*", help="all by default")
    render.add_argument("--check", action="store_true", help="write nothing; fail if they would change")
    return parser


def _add_workers(command: argparse.ArgumentParser) -> None:
    words = "processes (as many as there are cores), or ray: those of a Ray cluster"
    command.add_argument("--workers", metavar="N", help=words)


def _add_json(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument("--json", type=Path, metavar="FILE", help=f"write {what}")


def _add_hours(command: argparse.ArgumentParser) -> None:
    command.add_argument("--hours", type=float, default=1.0, metavar="H", help="begin no run afterwards (1)")


def _load(name: str, root: Path | None) -> FigureTable:
    """Read a board's table of figures."""
    from clustergym.benchmark.leaderboard.board import load_board
    from clustergym.benchmark.leaderboard.cells import load_table

    return load_table(load_board(name, root))


def _load_fresh(options: argparse.Namespace) -> tuple[FigureTable, FigureTable, Fingerprints]:
    """Return a board's table, the same without stale rows, and the fingerprints of today."""
    from clustergym.benchmark.leaderboard.fill import drop_stale, take_fingerprints

    table = _load(options.board, options.root)
    prints = take_fingerprints(table)
    return table, drop_stale(table, prints), prints


def _workers(options: argparse.Namespace) -> Processes:
    from clustergym.common.processes import RAY, cores

    given = cores() if options.workers is None else options.workers
    if given == RAY:
        return "ray"
    try:
        workers = int(given)
    except ValueError:
        workers = 0
    if workers < 1:
        raise InputError(f"{given} processes", field="--workers", remedy="give at least 1, or ray")
    return workers


def _add(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.entries import add_entry
    from clustergym.scenario.configuration.hydra_edge import compose_config
    from clustergym.sim.guard import check_limit

    table = _load(options.board, options.root)
    for word in options.override:
        if not word.startswith(tuple(f"{sign}{one}{end}" for one in COMPONENTS for sign, end in OVERRIDES)):
            remedy = "give policy=NAME policy.PARAMETER=VALUE, or so for a placer"
            raise InputError(f"{word!r} is not of the policy or placer", remedy=remedy)
    named = [one for one in COMPONENTS if any(word.lstrip("+").startswith(one) for word in options.override)]
    config = compose_config("config", options.override)
    folder = add_entry(
        table,
        options.name,
        {component: config[component] for component in named},
        options.title or options.name,
        options.author or ["clustergym"],
        shlex.join(["clustergym", "leaderboard", "add", options.board, options.name, *options.override]),
        _workers(options),
        check_limit(options.decision_limit_s, "--decision-limit-s"),
    )
    print(f"wrote {folder}/: {len(table.keys.least_cells)} logs; now `leaderboard table {options.board}`")
    return 0


def _check(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.board import board_names
    from clustergym.benchmark.leaderboard.causality import check_causality
    from clustergym.benchmark.leaderboard.check_figures import check_board
    from clustergym.benchmark.leaderboard.entry import entry_names
    from clustergym.benchmark.leaderboard.fill import take_fingerprints

    if options.rows < 1:
        raise InputError(f"{options.rows} rows", field="--rows", remedy="give at least 1")
    workers, wrong, checked = _workers(options), list[str](), {}
    for name in [options.board] if options.board else board_names(options.root):
        table = _load(name, options.root)
        for entry in options.entry:
            require_known(entry, entry_names(table.board), "entry", "entry")
        prints, labels = take_fingerprints(table), [*map(table.keys.sealed_label, options.entry)]
        found = check_board(table, prints, options.entry, workers, progress=True)
        try:
            for agent in [one for one in options.entry or table.agents if one in table.agents]:
                _print_lines(check_causality(table, agent))
        except InputError as error:
            found.wrong.append(str(error))
        logs = f"{len(found.entries)} entries and {len(found.logs)} rows replayed from their logs"
        said = f"{len(found.wrong)} FLAGS" if found.wrong else "none better than its bound"
        stale = f", {found.stale} stale and not shown" if found.stale else ""
        print(f"{name}: {logs}; {len(found.table.rows)} figures, {said}{stale}", flush=True)
        wrong += [f"{name}: {line}" for line in found.wrong]
        _print_lines(f"{name}: {line}" for line in found.wrong)
        every = found.table.rows.items()
        rows = {place: row for place, row in every if not labels or place.condition in labels}
        checked[name] = found.table._replace(rows=rows), prints
    if not options.entry or rows:  # Those of an agent's sealed test, all of them.
        wrong += _run_again(checked, None if options.all or options.entry else options.rows, workers)
    _write_json(wrong, options.json)
    return 2 if wrong else 0


def _run_again(
    checked: dict[str, tuple[FigureTable, Fingerprints]], count: int | None, workers: Processes
) -> list[str]:
    """Run drawn rows again, print what was found, and return a line on each wrong one."""
    from clustergym.benchmark.leaderboard.check_figures import run_again

    found = run_again(checked, count, workers, progress=True)
    said = f"{len(found.wrong)} FLAGS" if found.wrong else "equal"
    print(f"{len(found.rows)} drawn rows run again, {said} ({found.cpu_s:.0f} CPU-s)", flush=True)
    _print_lines(found.wrong)
    chances = f"{found.forged_row:.3f}, a policy of forged rows {found.forged_policy:.2f}"
    print(f"a forged row is found with probability {chances}, a forged log of an entry 1")
    return found.wrong


def _print_lines(lines: Iterable[str]) -> None:
    from clustergym.common.errors import visible

    for line in lines:
        print(f"  {visible(line)}", flush=True)


def _render(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.board import board_names, load_board
    from clustergym.benchmark.leaderboard.fill import load_fresh_table
    from clustergym.benchmark.leaderboard.table_text import render_table
    from clustergym.common.writing import write_text

    status = 0
    for name in options.board or board_names(options.root):
        table = load_fresh_table(load_board(name, options.root))
        path, text = table.board.folder / "README.md", render_table(table)
        if not options.check:
            write_text(path, text)
            print(f"wrote {path}")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is not what render writes")
            status = 2
    return status


def _check_hours(hours: float) -> None:
    if not 0.0 < hours < math.inf:
        raise InputError(f"{hours} hours", field="--hours", remedy="give a positive number")


def _fill(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.entries import keep_logs
    from clustergym.benchmark.leaderboard.fill import drop_stale, fill, list_missing

    _check_hours(options.hours)
    workers = _workers(options)
    table, fresh, prints = _load_fresh(options)
    for name in options.policy:
        require_known(name, table.keys.policies, "policy", "--policy")
    if options.logs:
        for path in keep_logs(table, options.policy or table.keys.logged, workers):
            print(f"wrote {path}", flush=True)
        return 0
    print(f"{table.path}: {len(fresh.rows)} rows, {len(table.rows) - len(fresh.rows)} stale", flush=True)
    count = fill(table, prints, options.hours, workers, options.policy, partial(print, flush=True))
    left = sum(1 for _ in list_missing(drop_stale(table.reread(), prints), options.policy))
    print(f"wrote {table.path}: {count} runs; {left} to go")
    return 0


def _seal(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.causality import check_causality
    from clustergym.benchmark.leaderboard.fill import drop_stale, fill
    from clustergym.benchmark.leaderboard.pairs import compare_with_reference
    from clustergym.benchmark.leaderboard.sealed_entry import record_value
    from clustergym.benchmark.leaderboard.sealing import find_rivals, list_sealed_places
    from clustergym.benchmark.leaderboard.table_text import format_ratio

    _check_hours(options.hours)
    table = _load(options.board, options.root)
    if options.entry in table.agents:
        _print_lines(check_causality(table, options.entry))
    if options.beacon is not None:
        require_known(options.entry, [*table.agents], "sealed entry", "entry")
        record_value(table.agents[options.entry], options.beacon)
    table, fresh, prints = _load_fresh(options)
    label = table.keys.sealed_label(options.entry)
    places = list_sealed_places(fresh, options.entry)
    workers, say = _workers(options), partial(print, flush=True)
    count = fill(fresh, prints, options.hours, workers, say=say, places=places)
    done = drop_stale(table.reread(), prints)
    left = sum(place not in done.rows for place in places)
    print(f"wrote {table.path}: {count} runs; {left} to go")
    found = {}
    for rival in find_rivals(fresh, options.entry):
        ratio = compare_with_reference(done, options.entry, label, reference=rival).overall
        found[rival] = ratio and ratio._asdict()
        seeds = ratio.seeds if ratio else 0
        print(f"{options.entry} over {rival}, sealed seeds: {format_ratio(ratio)}, n {seeds}")
    _write_json(found, options.json)
    return 0


def _table(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard import table_text
    from clustergym.benchmark.leaderboard.fill import add_entered_rows
    from clustergym.common.tables import print_table, text_table

    table, fresh, _ = _load_fresh(options)
    shown = add_entered_rows(fresh)
    for name in [*table_text.LISTS] if table.keys.sealed else [""]:
        rows = list(table_text.list_table_rows(shown, name))
        title = f"{table.board.title}: {name}".removesuffix(": ")
        print_table(text_table(title, table_text.list_headers(shown), rows, words=(0, 1)))
    print(table_text.describe_table(shown) + table_text.describe_halves(shown))
    values = list(table_text.list_values(shown)) if table.keys.sealed else []
    for line in [*table_text.list_stopped(shown), *table_text.list_sealed(shown), *values]:
        print(line)
    if len(fresh.rows) < len(table.rows):
        gone = len(table.rows) - len(fresh.rows)
        print(
            f"{gone} rows are of other code: `clustergym leaderboard fill {table.board.name}` runs them again"
        )
    _write_json(table_text.plain_table(shown), options.json)
    return 0


def _write_json(content: Any, path: Path | None) -> None:
    from clustergym.common.writing import write_json

    write_json(path, content)
    if path is not None:
        print(f"wrote {path}")


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "add": _add,
    "check": _check,
    "fill": _fill,
    "seal": _seal,
    "table": _table,
    "render": _render,
}


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym leaderboard`: fill, print or check tables of boards; return the exit status.

    It is 2 if a check or the input fails.
    """
    options = _parser().parse_args(argv)
    return COMMANDS[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
