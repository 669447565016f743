"""`clustergym bench …`: time the engine and the environments; compare placers of shares of GPUs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from clustergym.common.errors import InputError, Parser, exits_on_bad_input, require
from clustergym.common.writing import write_json
from clustergym.scenario.registry import make_policy


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="clustergym bench", description="Run benchmarks.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _engine_parser(commands.add_parser("engine", help="processor time of runs and of each decision"))
    _environments_parser(commands.add_parser("environments", help="steps a second of the environments"))
    _sharing_parser(commands.add_parser("sharing", help="GPU that a learned placer of shares allocates"))
    return parser


def _sharing_parser(sharing: argparse.ArgumentParser) -> None:
    sharing.add_argument("--nodes", type=int, default=64, metavar="N", help="of generated clusters (64)")
    sharing.add_argument("--streams", type=int, default=100, metavar="N", help="test seeds there (100)")
    sharing.add_argument("--data", type=Path, metavar="DIR", help="published orders of a folder as openb's")
    sharing.add_argument(
        "--workloads",
        nargs="+",
        default=["default"],
        metavar="NAME",
        help="lists of requests in DIR (default)",
    )
    sharing.add_argument("--checkpoint", default="sharing", metavar="NAME", help="a name or a file (sharing)")
    sharing.add_argument("--json", type=Path, metavar="FILE", help="write all figures, unrounded")
    sharing.set_defaults(run=_sharing)


def _engine_parser(engine: argparse.ArgumentParser) -> None:
    import clustergym.bench.engine as benchmark

    gpus, names, hours = benchmark.GPUS, benchmark.POLICIES, benchmark.HORIZON_H
    shown = " ".join(map(str, gpus))
    engine.add_argument("--gpus", type=int, nargs="+", default=gpus, metavar="N", help=f"sizes ({shown})")
    policies = f"names, or mappings such as '{{name: elasticflow, mode: loosened}}' ({' '.join(names)})"
    engine.add_argument("--policies", nargs="+", default=names, metavar="POLICY", help=policies)
    engine.add_argument("--hours", type=float, default=hours, metavar="H", help=f"simulated ({hours:g})")
    engine.add_argument("--contention", action="store_true", help="a row without and a row with contention")
    engine.add_argument("--scattered", action="store_true", help="place jobs at random minipods")
    engine.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="runs of each; the quickest counts"
    )
    engine.add_argument("--json", type=Path, metavar="FILE", help="write all figures, unrounded")
    engine.set_defaults(run=_engine)


def _environments_parser(environments: argparse.ArgumentParser) -> None:
    environments.add_argument(
        "--only", default="", metavar="TEXT", help="ids that have it in them, as burst,knobs"
    )
    environments.add_argument(
        "--numbers", type=int, nargs="+", default=[1, 16, 256], metavar="N", help="environments (1 16 256)"
    )
    environments.add_argument(
        "--seconds", type=float, default=1.0, metavar="S", help="processor time of each measurement (1)"
    )
    environments.add_argument(
        "--quick", action="store_true", help="a tenth of that time, 1 and 16 environments"
    )
    environments.add_argument("--json", type=Path, metavar="FILE", help="write all figures, unrounded")
    environments.set_defaults(run=_environments)


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym bench`: benchmark placers, the engine or environments; return the exit status."""
    options = _parser().parse_args(argv)
    options.run(options)
    return 0


def _engine(options: argparse.Namespace) -> None:
    import clustergym.bench.engine as benchmark

    require(min(options.gpus) >= 1, "--gpus", min(options.gpus), "give numbers from 1")
    require(0 < options.hours < 1e6, "--hours", options.hours, "give hours above 0")
    require(options.repeat >= 1, "--repeat", options.repeat, "give a number from 1")
    _check_files(options)
    policies = [_policy(text) for text in options.policies]
    asked = benchmark.EngineOptions(
        options.gpus, policies, options.hours, options.contention, options.scattered, options.repeat
    )
    rows: list[dict[str, Any]] = []
    for row in benchmark.engine_rows(asked):
        if not rows:
            print(benchmark.HEADING)
        rows.append(row)
        print(benchmark.line(row), flush=True)
    if options.json is not None:
        bare = benchmark.bare_simpy_events_per_s()
        figures = {"schema": benchmark.SCHEMA, "bare_simpy_events_per_s": bare, "rows": rows}
        write_json(options.json, figures)


def _policy(text: str) -> dict[str, Any]:
    """Return the name and the parameters of a policy given as a name or as a mapping in YAML."""
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError:
        given = None
    given = {"name": given} if isinstance(given, str) else given
    if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
        remedy = "give a name, or a mapping such as '{name: arena, span: 2}'"
        raise InputError(f"unreadable policy {text!r}", field="--policies", remedy=remedy)
    make_policy(given)
    return given


def _environments(options: argparse.Namespace) -> None:
    from clustergym.bench.environments import (
        EnvironmentOptions,
        environment_figures,
        names,
        plain_names,
        report,
    )

    require(0 < options.seconds < 1e4, "--seconds", options.seconds, "give seconds above 0")
    require(min(options.numbers) >= 1, "--numbers", min(options.numbers), "give numbers from 1")
    if not names(options.only) and not plain_names(options.only):
        raise InputError(
            f"no id has {options.only!r} in it", field="--only", remedy="give elastic-16, or less"
        )
    _check_files(options)
    numbers, seconds = options.numbers, options.seconds
    if options.quick:
        numbers, seconds = [number for number in numbers if number <= 16] or numbers, seconds / 10
    asked = EnvironmentOptions(options.only, numbers, seconds)
    figures = environment_figures(asked, lambda line: print(line, file=sys.stderr, flush=True))
    print(report(figures), end="")
    write_json(options.json, figures)


def _sharing(options: argparse.Namespace) -> None:
    from clustergym.bench.sharing import SharingOptions, comparison, report

    require(options.nodes >= 1, "--nodes", options.nodes, "give a number from 1")
    require(options.streams >= 1, "--streams", options.streams, "give a number from 1")
    _check_files(options)
    names = ("nodes", "streams", "data", "workloads", "checkpoint")
    asked = SharingOptions(**{name: getattr(options, name) for name in names})
    figures = comparison(asked, lambda name: print(f"done: {name}", file=sys.stderr, flush=True))
    print(report(figures), end="")
    write_json(options.json, figures)


def _check_files(options: argparse.Namespace) -> None:
    """Refuse files that cannot be written before minutes of work, not after."""
    path: Path | None = options.json
    if path is not None and path.is_dir():
        raise InputError("is a folder", file=path, field="--json", remedy="give a file")


if __name__ == "__main__":
    sys.exit(main())
