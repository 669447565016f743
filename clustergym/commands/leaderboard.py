"""`clustergym leaderboard`: check and publish entries of boards."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.benchmark.leaderboard import DECISION_LIMIT_S
from clustergym.common.errors import InputError, Parser, exits_on_bad_input, require_known
from clustergym.common.processes import Processes

if TYPE_CHECKING:
    from clustergym.benchmark.leaderboard.board import Board

ROWS = 10
"""Rows of a table that a check runs again."""
OVERRIDES = (("", "="), ("", "."), ("+", "."))
"""What stands before and after `policy` or `placer` in an override of an entry's."""


def _parser() -> argparse.ArgumentParser:
    summary = "Check, score and add entries of boards, and write the boards' pages."
    parser = Parser(prog="clustergym leaderboard", description=summary, allow_abbrev=False)
    parser.add_argument("--root", type=Path, metavar="DIR", help="folder of boards (leaderboards/)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser("add", help="run a policy or placer in every cell and write it as an entry")
    add.add_argument("board", help="name of its folder")
    add.add_argument("name", help="of the entry's folder")
    chosen = "and policy.PARAMETER=VALUE; or so for a placer"
    add.add_argument("override", nargs="+", metavar="policy=NAME", help=chosen)
    add.add_argument("--title", help="as it is to be shown")
    add.add_argument("--author", action="append", metavar="NAME", help="may be given several times")
    add.add_argument("--workers", default=1, metavar="N", help="processes (1), or ray")
    limit = f"seconds of wall time that a decision may take ({DECISION_LIMIT_S:g})"
    add.add_argument("--decision-limit-s", type=float, default=DECISION_LIMIT_S, metavar="S", help=limit)
    words = "folder of a run in a cell, as of `clustergym live`, which is not run again; several times"
    add.add_argument("--run", type=Path, action="append", default=[], metavar="DIR", help=words)
    check = commands.add_parser(
        "check",
        help="replay entries, run what is published here again in a cell, and drawn rows of tables",
    )
    check.add_argument("board", nargs="?", help="all by default")
    check.add_argument("entry", nargs="*", help="all by default")
    check.add_argument(
        "--strict",
        type=int,
        default=0,
        metavar="N",
        help="run it again in N cells (1; with --cells 0), and flag what cannot be",
    )
    words = "replay only N drawn cells of each entry, and measure N constants; of a table, rows to run (10)"
    check.add_argument("--cells", type=int, metavar="N", help=words)
    check.add_argument("--seed", type=int, default=0, help="of the draws of cells")
    check.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    _add_workers(check)
    score = commands.add_parser("score", help="print the standings of a board")
    score.add_argument("board", help="name of its folder")
    score.add_argument("--json", type=Path, metavar="FILE", help="write the same figures")
    render = commands.add_parser("render", help="write README.md and index.html of boards")
    render.add_argument("board", nargs="*", help="all by default")
    render.add_argument("--check", action="store_true", help="write nothing; fail if they would change")
    _add_figures(commands)
    curves = commands.add_parser("curves", help="replay entries and write their curves")
    curves.add_argument("board", help="name of its folder")
    curves.add_argument("entry", nargs="*", help="all by default")
    _add_workers(curves)
    bound = commands.add_parser(
        "bound", help="prove what no schedule can beat, in cells that have no bound yet"
    )
    bound.add_argument("board", help="name of its folder")
    bound.add_argument("scenario", nargs="*", help="of the board; all by default")
    _add_workers(bound)
    freeze = commands.add_parser("freeze", help="measure the constants of a new board, and hash its traces")
    freeze.add_argument("board", help="name of its folder")
    anew = "raise the version and measure all of it anew; every entry is then to be run anew"
    freeze.add_argument("--next-version", action="store_true", help=anew)
    _add_workers(freeze)
    _add_searches(commands)
    agents = commands.add_parser("agents", help="play recorded actions of agents again, and score them")
    agents.add_argument("board", help="name of its folder, which has agents.yaml")
    agents.add_argument("entry", nargs="*", help="all by default")
    agents.add_argument("--write", action="store_true", help="write README.md of the board, with all entries")
    words = "measure what random play, heuristics and the best known reach, first"
    agents.add_argument("--freeze", action="store_true", help=words)
    agents.add_argument("--json", type=Path, metavar="FILE", help="write the scores")
    _add_workers(agents)
    return parser


def _add_figures(commands: Any) -> None:
    """Add the sub-commands of tables of figures to a parser."""
    words = "run what a board's table of figures lacks; each finished run is in the table at once"
    fill = commands.add_parser("fill", help=words)
    fill.add_argument("board", help="name of its folder, which has cells.yaml")
    fill.add_argument("--hours", type=float, default=1.0, metavar="H", help="begin no run afterwards (1)")
    words = "run only this one and the reference; may be given several times"
    fill.add_argument("--policy", action="append", default=[], metavar="NAME", help=words)
    _add_workers(fill)
    words = "run a learned policy and its rivals on seeds that its parameters and weights determine"
    sealed = commands.add_parser("seal", help=words)
    sealed.add_argument("board", help="name of its folder, which has cells.yaml")
    sealed.add_argument("entry", help="row of the table whose rules are `learned`")
    sealed.add_argument("--hours", type=float, default=1.0, metavar="H", help="begin no run afterwards (1)")
    sealed.add_argument("--json", type=Path, metavar="FILE", help="write the ratios")
    _add_workers(sealed)
    figures = commands.add_parser("table", help="print a board's table of figures")
    figures.add_argument("board", help="name of its folder, which has cells.yaml")
    figures.add_argument("--json", type=Path, metavar="FILE", help="write the same figures")


def _add_searches(commands: Any) -> None:
    """Add the sub-commands that search for schedules or train agents to a parser."""
    known = commands.add_parser("best-known", help="search in hindsight for the best schedule of each cell")
    known.add_argument("board", help="name of its folder")
    words = "cells, or scenarios for all of their seeds (all)"
    known.add_argument("--cells", nargs="+", default=[], metavar="CELL", help=words)
    known.add_argument(
        "--evaluations", type=int, default=2000, metavar="N", help="episodes of each cell (2000)"
    )
    known.add_argument("--seed", type=int, default=0, help="of the search (0)")
    words = "share of the candidates that keep a job off a GPU type (0.4)"
    known.add_argument("--types", type=float, default=0.4, metavar="SHARE", help=words)
    words = "share of the others that change the auction's weights, and no biases of single jobs (0.2)"
    known.add_argument("--weights", type=float, default=0.2, metavar="SHARE", help=words)
    words = "of a change of weights, over 1 + their absolute values (0.05)"
    known.add_argument("--step", type=float, default=0.05, help=words)
    _add_workers(known)
    retrain = commands.add_parser("retrain", help="train a learned entry anew and compare the scores")
    retrain.add_argument("board", help="name of its folder")
    retrain.add_argument("entry", help="name of its folder")
    words = "folder of the training (outputs/retrain/BOARD-ENTRY); a killed one goes on there"
    retrain.add_argument("--output", type=Path, metavar="DIR", help=words)
    retrain.add_argument("--seed", type=int, help="of the training (that of the entry's)")
    retrain.add_argument("--json", type=Path, metavar="FILE", help="write the scores")
    _add_workers(retrain)


def _add_workers(command: argparse.ArgumentParser) -> None:
    words = "processes (as many as there are cores), or ray: those of a Ray cluster"
    command.add_argument("--workers", metavar="N", help=words)


def _add(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.add import add
    from clustergym.scenario.configuration.hydra_edge import compose_config
    from clustergym.sim.guard import check_limit

    board = _load_board(options)
    own = " ".join(f"{component}=NAME {component}.PARAMETER=VALUE" for component in board.components)
    for word in options.override:
        if not word.startswith(
            tuple(f"{sign}{component}{end}" for component in board.components for sign, end in OVERRIDES)
        ):
            remedy = f"only the {board.chooses} is an entry's: {own}"
            raise InputError(f"{word!r} is not of the {board.chooses}", remedy=remedy)
    for component in board.components if len(board.components) > 1 else ():
        if not any(word.startswith(f"{component}=") for word in options.override):
            raise InputError(
                f"no {component} is named, and entries of {board.name} choose both", remedy=f"give {own}"
            )
    workers, config = _workers(options), compose_config("config", options.override)
    chosen = {component: config[component] for component in board.components}
    parameters = chosen if len(chosen) > 1 else chosen[board.chooses]
    authors = options.author or ["clustergym"]
    folder = add(
        board,
        options.name,
        parameters,
        title=options.title,
        authors=authors,
        workers=workers,
        words=[*options.override, *(f"--run={folder}" for folder in options.run)],
        finished=options.run,
        decision_limit_s=check_limit(options.decision_limit_s, "--decision-limit-s"),
    )
    print(f"wrote {folder}/: {len(board.cells)} cells; now `leaderboard render {board.name}`")
    return 0


def _load_board(options: argparse.Namespace) -> Board:
    """Load a board whose figures are entries."""
    from clustergym.benchmark.leaderboard.board import load_board
    from clustergym.benchmark.leaderboard.cells import has_table

    board = load_board(options.board, options.root)
    if has_table(board):
        raise _table_error(board)
    return board


def _table_error(board: Board) -> InputError:
    remedy = f"see `clustergym leaderboard table {board.name}`"
    return InputError(f"{board.name} has a table of figures, and no entries", field="board", remedy=remedy)


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


def _check(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.board import board_names, load_board
    from clustergym.benchmark.leaderboard.cells import has_table
    from clustergym.benchmark.leaderboard.check import (
        check_constants,
        check_entries,
        describe_unverified,
        draw_cells,
    )
    from clustergym.benchmark.leaderboard.entry import entry_names
    from clustergym.common.errors import visible

    if options.cells is not None and options.cells < 1:
        raise InputError(f"{options.cells} cells", field="--cells", remedy="give at least 1")
    found: dict[str, Any] = {}
    workers = _workers(options)
    for name in [options.board] if options.board else board_names(options.root):
        board = load_board(name, options.root)
        if has_table(board):
            found[name] = _check_figures(board, options.entry, options.cells or ROWS, workers)
            continue
        entries = options.entry or entry_names(board)
        cells = draw_cells(board.cells, options.cells, options.seed, board.name)
        wrong = check_constants(board, cells, workers, progress=True)
        found[name] = [flag.list_fields() for flag in wrong]
        count = f"{len(cells)}" if options.cells is None else f"{len(cells)} of {len(board.cells)}"
        again = f"baseline and reference run again in {count} cells, equal"
        print(f"{name}: " + (f"{len(wrong)} FLAGS" if wrong else again), flush=True)
        for flag in wrong:
            print(f"  {flag}")
        every = check_entries(
            board, entries, options.strict, options.seed, workers, progress=True, replayed=options.cells
        )
        for entry, flags in every.items():
            found[f"{name}/{entry}"] = [flag.list_fields() for flag in flags]
            replayed = f"{count} cells replayed, every metric equal"
            print(f"{name}/{visible(entry)}: " + (f"{len(flags)} FLAGS" if flags else replayed), flush=True)
            for line in flags or describe_unverified(board, entry):
                print(f"  {line}")
    _write_json(found, options.json)
    return 2 if any(found.values()) else 0


def _check_figures(board: Board, entries: Sequence[str], count: int, workers: Processes) -> list[str]:
    """Check a board's table of figures, print what was found, and return a line on each wrong row."""
    from clustergym.benchmark.leaderboard.cells import load_table
    from clustergym.benchmark.leaderboard.check_figures import check_figures
    from clustergym.benchmark.leaderboard.fill import take_fingerprints

    if entries:
        raise _table_error(board)
    table = load_table(board)
    found = check_figures(table, take_fingerprints(table), count, workers, progress=True)
    checked = len(table.rows) - found.stale
    flags = f"{len(found.wrong)} FLAGS" if found.wrong else "equal, and none below its bound"
    print(f"{board.name}: {len(found.again)} of {checked} rows run again, {flags}", flush=True)
    for line in found.wrong:
        print(f"  {line}")
    chances = f"{found.forged_cell:.3f}, a policy of forged rows {found.forged_policy:.2f}"
    print(f"  a forged row is found with probability {chances}; {found.stale} rows are stale and not shown")
    return found.wrong


def _best_known(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.best_known import SearchOutcome, best_known, choose_cells
    from clustergym.training.hindsight import Proposals

    board = _load_board(options)
    cells = choose_cells(board, options.cells)
    if options.evaluations < 1 or options.seed < 0:
        message = f"{options.evaluations} evaluations, seed {options.seed}"
        raise InputError(message, field="--evaluations", remedy="give at least 1, and a seed from 0")

    for name in ("types", "weights"):
        if not 0.0 <= getattr(options, name) <= 1.0:
            message, remedy = f"{getattr(options, name)}", "give a share from 0 to 1"
            raise InputError(message, field=f"--{name}", remedy=remedy)
    if not 0.0 < options.step < math.inf:
        raise InputError(f"{options.step}", field="--step", remedy="give a positive number")
    proposals = Proposals(options.types, options.weights, options.step)

    def print_outcome(found: SearchOutcome) -> None:
        beside = f"; best entry {found.best_entry} {found.best_value:.6g}" if found.best_entry else ""
        kept = "" if found.kept == found.value else f", kept {found.kept:.6g}"
        print(f"{found.cell}: {board.metric} {found.value:.6g}{kept}{beside}", flush=True)

    folder = best_known(
        board, cells, options.evaluations, options.seed, proposals, _workers(options), print_outcome
    )
    print(f"{folder}/: {len(cells)} cells searched; now `leaderboard render {board.name}`")
    return 0


def _score(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.score import division_words, format_figure, interval, standings
    from clustergym.common.tables import print_table, text_table

    board = _load_board(options)
    found = standings(board)
    rows = []
    for standing in found:
        over = "" if standing.over_next is None else f"{standing.over_next.value:.2f}"
        each = [f"{value:z.2f}" for value in standing.by_scenario.values()]
        jct, words = format_figure(standing.raw["jct_mean"], "s"), division_words(standing.division)
        ranks = str(standing.rank), str(standing.rank_all)
        gained = "-" if standing.gained is None else interval(standing.gained)
        rows.append([words, *ranks, standing.name, interval(standing.score), over, gained, *each, jct])
    scenarios = (scenario.name for scenario in board.scenarios)
    columns = (
        "division",
        "rank",
        "rank, all",
        "entry",
        "score",
        "P(better)",
        "gained over chance",
        *scenarios,
    )
    columns = (*columns, "mean JCT, s")
    print_table(text_table(f"{board.name} version {board.version}", columns, rows, words=(0, 3)))
    plain = [
        {
            "entry": standing.name,
            "division": standing.division,
            "rank": standing.rank,
            "rank_all": standing.rank_all,
            "score": standing.score._asdict(),
            "by_scenario": standing.by_scenario,
            "over_next": None if standing.over_next is None else standing.over_next._asdict(),
            "gained": None if standing.gained is None else standing.gained._asdict(),
            "relative": None if standing.relative is None else standing.relative._asdict(),
            **standing.raw,
        }
        for standing in found
    ]
    _write_json(plain, options.json)
    return 0


def _retrain(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.retrain import retrain
    from clustergym.benchmark.leaderboard.score import interval

    if options.seed is not None and options.seed < 0:
        raise InputError(f"{options.seed} is no seed", field="--seed", remedy="give 0 or more")
    board, workers = _load_board(options), _workers(options)
    output = options.output or Path("outputs/retrain") / f"{board.name}-{options.entry}"
    found = retrain(board, options.entry, output, options.seed, workers, workers)
    inside = "inside" if found.inside else "OUTSIDE"
    print(f"{board.name}/{options.entry}: entered with score {interval(found.entered)}")
    print(f"trained anew with seed {found.seed}: score {interval(found.found)}, {inside} that interval")
    traces = "the same training traces" if found.same_traces else "OTHER TRAINING TRACES"
    print(f"{found.checkpoint}: {traces}, weights differ by at most {found.largest_difference:.3g}")
    plain = {"entered": found.entered._asdict(), "found": found.found._asdict(), "inside": found.inside}
    rest = {key: getattr(found, key) for key in ("seed", "same_traces", "largest_difference")}
    _write_json({**plain, **rest}, options.json)
    return 0 if found.inside and found.same_traces else 2


def _render(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.board import board_names, load_board
    from clustergym.benchmark.leaderboard.render import stale, write

    status = 0
    for name in options.board or board_names(options.root):
        board = load_board(name, options.root)
        for path in stale(board) if options.check else write(board):
            print(f"{path} is not what render writes" if options.check else f"wrote {path}")
            status = 2 if options.check else 0
    return status


def _check_hours(hours: float) -> None:
    if not 0.0 < hours < math.inf:
        raise InputError(f"{hours} hours", field="--hours", remedy="give a positive number")


def _fill(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.board import load_board
    from clustergym.benchmark.leaderboard.cells import load_table
    from clustergym.benchmark.leaderboard.fill import drop_stale, fill, list_missing, take_fingerprints
    from clustergym.common.errors import nearest

    _check_hours(options.hours)
    table = load_table(load_board(options.board, options.root))
    for name in options.policy:
        if name not in table.keys.policies:
            remedy = nearest(name, table.keys.policies)
            raise InputError(f"unknown policy {name!r}", field="--policy", remedy=remedy)
    prints = take_fingerprints(table)
    fresh = drop_stale(table, prints)
    print(f"{table.path}: {len(fresh.rows)} rows, {len(table.rows) - len(fresh.rows)} stale", flush=True)
    count = fill(table, prints, options.hours, _workers(options), options.policy, partial(print, flush=True))
    left = sum(1 for _ in list_missing(drop_stale(table.reread(), prints), options.policy))
    print(f"wrote {table.path}: {count} runs; {left} to go")
    return 0


def _seal(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.board import load_board
    from clustergym.benchmark.leaderboard.cells import load_table
    from clustergym.benchmark.leaderboard.fill import drop_stale, take_fingerprints
    from clustergym.benchmark.leaderboard.pairs import compare_with_reference
    from clustergym.benchmark.leaderboard.sealing import find_rivals, list_sealed_places, seal
    from clustergym.benchmark.leaderboard.table_text import format_ratio

    _check_hours(options.hours)
    table = load_table(load_board(options.board, options.root))
    prints, label = take_fingerprints(table), table.keys.sealed_label(options.entry)
    fresh = drop_stale(table, prints)
    places = list_sealed_places(fresh, options.entry)
    count = seal(fresh, prints, options.entry, options.hours, _workers(options), partial(print, flush=True))
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
    from clustergym.benchmark.leaderboard.board import load_board
    from clustergym.benchmark.leaderboard.cells import load_table
    from clustergym.benchmark.leaderboard.fill import drop_stale, take_fingerprints
    from clustergym.common.tables import print_table, text_table

    table = load_table(load_board(options.board, options.root))
    fresh = drop_stale(table, take_fingerprints(table))
    rows = list(table_text.list_table_rows(fresh))
    print_table(text_table(table.board.title, table_text.list_headers(fresh), rows, words=(0, 1)))
    print(table_text.describe_table(fresh) + table_text.describe_halves(fresh))
    for line in [*table_text.list_stopped(fresh), *table_text.list_sealed(fresh)]:
        print(line)
    if len(fresh.rows) < len(table.rows):
        gone = len(table.rows) - len(fresh.rows)
        print(
            f"{gone} rows are of other code: `clustergym leaderboard fill {table.board.name}` runs them again"
        )
    _write_json(table_text.plain_table(fresh), options.json)
    return 0


def _curves(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.entry import entry_names
    from clustergym.benchmark.leaderboard.entry_curves import write_curves
    from clustergym.common.processes import in_order

    board = _load_board(options)
    names = options.entry or entry_names(board)
    board.compose()
    for path in in_order(partial(write_curves, board), names, _workers(options), f"curves of {board.name}"):
        print(f"wrote {path}", flush=True)
    return 0


def _bound(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.bounds import add_bounds

    board = _load_board(options)
    names = [scenario.name for scenario in board.scenarios]
    for name in options.scenario:
        require_known(name, names, "scenario", "scenario")
    print(f"wrote {add_bounds(board, _workers(options), options.scenario)}")
    return 0


def _freeze(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard.add import freeze

    board, workers = _load_board(options), _workers(options)
    path = freeze(board, workers, options.next_version, progress=True)
    print(f"wrote {path}")
    return 0


def _agents(options: argparse.Namespace) -> int:
    from clustergym.benchmark.leaderboard import agent_scores
    from clustergym.benchmark.leaderboard.agent_board import load_agent_board, measure_constants
    from clustergym.common.tables import print_table, text_table

    board = load_agent_board(options.board, options.root)
    if options.write and options.entry:
        raise InputError("is of all entries", field="--write", remedy="name no entry")
    if options.freeze:
        print(f"wrote {measure_constants(board)}")
    found = (
        [agent_scores.replay_entry(board, name) for name in options.entry]
        if options.entry
        else agent_scores.rank_agents(board, _workers(options))
    )
    rows = agent_scores.agent_rows(board, found)
    title = f"{board.name} version {board.version}"
    print_table(text_table(title, agent_scores.agent_columns(board), rows))
    if options.write:
        print(f"wrote {agent_scores.write_agent_page(board, found)}")
    scores = {one.name: {name: score._asdict() for name, score in one.found.items()} for one in found}
    _write_json(scores, options.json)
    return 0


def _write_json(content: Any, path: Path | None) -> None:
    from clustergym.common.writing import write_json

    write_json(path, content)
    if path is not None:
        print(f"wrote {path}")


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "add": _add,
    "check": _check,
    "best-known": _best_known,
    "score": _score,
    "render": _render,
    "retrain": _retrain,
    "fill": _fill,
    "seal": _seal,
    "table": _table,
    "curves": _curves,
    "bound": _bound,
    "freeze": _freeze,
    "agents": _agents,
}


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym leaderboard`: check, score or add entries of boards; return the exit status.

    It is 2 if a check or the input fails.
    """
    options = _parser().parse_args(argv)
    return COMMANDS[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
