"""`clustergym tune KEY=VALUES … [KEY=VALUE …]`: search for the values that better a metric, by Optuna."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError, Parser, exits_on_bad_input, require_known

QUIET = ("compare=null", "report=false", "table=false", "progress=false")
"""Of every run; what is given comes later, and holds."""


def _parser() -> argparse.ArgumentParser:
    summary = (
        "Search for the values of some keys that better a metric (Optuna's tree-structured Parzen estimator)."
    )
    parser = Parser(prog="clustergym tune", description=summary, allow_abbrev=False)
    words = "as `clustergym run` takes them; what is searched is a list, as policy.alpha=0.5,0.7,0.9, "
    words += "or policy.alpha='interval(0.5,1)'"
    parser.add_argument("override", nargs="+", metavar="KEY=VALUE", help=words)
    parser.add_argument(
        "--metric", default="jct_mean", metavar="NAME", help="of result.json (default jct_mean)"
    )
    parser.add_argument("--trials", type=int, default=12, metavar="N", help="runs (default 12)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the search (default 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/tuned"), metavar="DIR", help="folder of the runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every trial, and the best")
    return parser


def _import_optuna() -> Any:
    import logging

    try:
        import optuna
    except ImportError as error:
        remedy = "pip install -e '.[tune]' in a checkout"
        raise InputError("is needed", field="optuna", remedy=remedy) from error
    optuna.logging.set_verbosity(logging.ERROR)
    return optuna


def _split(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the searched lists and intervals by key, as Hydra parses them, and all other words."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    searched, fixed = {}, []
    for word in words:
        try:
            parsed = OverridesParser.create().parse_override(word)
        except HydraException as error:
            remedy = "give KEY=VALUE, KEY=A,B,C or KEY='interval(A,B)'"
            raise InputError(f"{word!r} cannot be read", field="KEY=VALUE", remedy=remedy) from error
        if parsed.is_sweep_override():
            searched[parsed.key_or_group] = parsed
        else:
            fixed.append(word)
    if not searched:
        raise InputError(
            "nothing to search", field="KEY=VALUE", remedy="give a list, as policy.alpha=0.5,0.7,0.9"
        )
    return searched, fixed


def _suggest(trial: Any, key: str, parsed: Any) -> str:
    """Return the value of a key that Optuna tries next."""
    if not parsed.is_interval_sweep():
        return str(trial.suggest_categorical(key, list(parsed.sweep_string_iterator())))
    interval, log = parsed.value(), "log" in parsed.value().tags
    suggest = trial.suggest_int if isinstance(interval.start, int) else trial.suggest_float
    return repr(suggest(key, interval.start, interval.end, log=log))


def _run(words: Sequence[str], metric: str, folder: Path) -> float:
    """Run `clustergym run` with words, without its text; return the metric."""
    from clustergym.results.run_job import run_job
    from clustergym.scenario.configuration.hydra_edge import run_hydra

    seen: list[float | None] = []

    def job(config: Mapping[str, Any], into: Path) -> None:
        seen.append(run_job(config, into))

    given = [*QUIET, *words, f"objective={metric}", f"hydra.run.dir='{folder}'"]
    with contextlib.redirect_stdout(io.StringIO()):
        run_hydra(job, given, "clustergym.tune")
    if seen[0] is None:
        raise InputError("has no value in this scenario", field=metric, remedy="choose another --metric")
    return seen[0]


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym tune`: search for parameters that improve a metric; return the exit status."""
    options = _parser().parse_args(argv)
    if options.trials < 1:
        raise InputError(str(options.trials), field="--trials", remedy="give at least 1")
    searched, fixed = _split(options.override)
    optuna = _import_optuna()
    from clustergym.common.writing import write_json
    from clustergym.results.metrics.catalogue import METRICS

    require_known(options.metric, METRICS, "metric", "--metric")
    trials: list[dict[str, Any]] = []

    def evaluate(trial: Any) -> float:
        values = {key: _suggest(trial, key, parsed) for key, parsed in searched.items()}
        told = [f"{key}={value}" for key, value in values.items()]
        folder = options.out / ",".join(told).replace("/", "_").replace("'", "")
        value = _run([*fixed, *told], options.metric, folder)
        trials.append({"values": values, options.metric: value, "folder": str(folder)})
        words = f"trial {trial.number + 1} of {options.trials}: {' '.join(told)}: {value:.6g}"
        print(words, file=sys.stderr, flush=True)
        return value

    direction = "maximize" if METRICS[options.metric].better == "higher" else "minimize"
    study = optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=options.seed))
    study.optimize(evaluate, n_trials=options.trials)
    best = trials[study.best_trial.number]
    told = " ".join(f"{key}={value}" for key, value in best["values"].items())
    found = f"{told}, {options.metric} {best[options.metric]:.6g}"
    print(f"best of {len(trials)} trials: {found}; wrote {best['folder']}/")
    write_json(options.json, {"metric": options.metric, "best": best, "trials": trials})
    if options.json is not None:
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
