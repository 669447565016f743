"""Copies of finished results in Weights & Biases; result.json remains the source of truth."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from clustergym.common.errors import InputError
from clustergym.common.parameters import Parameters, build
from clustergym.common.paths import require_extra

MOST_ROWS = 10_000
"""Rows of jobs.csv shown as a table; the artifact has all."""
MOST_POINTS = 400
"""Points of a line in a plot."""


@dataclass(frozen=True)
class LoggerChoice(Parameters):
    """The configuration's group `logger`: whether and how results are logged to Weights & Biases.

    Attributes
    ----------
    name : str
        `none` or `wandb`.
    mode : str
        `offline`, `online` or `disabled`.
    project : str
    group : str or None
    dir : str or None
        Where offline runs are written; None: the result's folder.
    """

    config_key: ClassVar[str] = "logger"
    name: Literal["none", "wandb"] = "none"
    mode: Literal["offline", "online", "disabled"] = "offline"
    project: str = "clustergym"
    group: str | None = None
    dir: str | None = None


def read_logger_choice(config: Mapping[str, Any]) -> LoggerChoice:
    """Check and return the configuration's group `logger`, before anything is run."""
    choice: LoggerChoice = build(LoggerChoice, config.get("logger") or {"name": "none"}, "logger")
    if choice.name == "wandb":
        _wandb()
    return choice


def _wandb() -> Any:
    with require_extra("wandb is not installed", "wandb", "logger", ", or logger=none"):
        import wandb
    return wandb


@contextmanager
def one_line(remedy: str) -> Iterator[None]:
    """Turn errors of wandb inside a `with` block into one-line `InputError`s with a remedy."""
    wandb = _wandb()
    try:
        yield
    except (wandb.errors.Error, OSError) as error:
        raise InputError(f"wandb: {error}", field="logger", remedy=remedy) from error


def start(choice: LoggerChoice, config: Mapping[str, Any], folder: Path, name: str, group: str | None) -> Any:
    """Begin a wandb run; return wandb's run object."""
    wandb, where = _wandb(), Path(choice.dir or folder)
    # wandb writes to a temporary folder, which is lost, if this folder does not exist.
    where.mkdir(parents=True, exist_ok=True)
    return wandb.init(
        project=choice.project,
        group=choice.group or group,
        name=name,
        mode=choice.mode,
        dir=str(where),
        config=dict(config),
        reinit="create_new",
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
    )


def log_result(
    choice: LoggerChoice,
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    folder: Path,
    page: Path | None,
) -> None:
    """Log a result to wandb: configuration, metrics, plots, table of jobs, and files as an artifact."""
    from clustergym.results.columns import check_lines
    from clustergym.results.result_writing import FILES

    check_lines(folder / "jobs.csv")
    wandb = _wandb()
    name = f"{result['policy']['name']}-{result['scenario']['name']}-{result['seed']}"
    with one_line("try logger.mode=offline; the result is written"):
        run = start(choice, config, folder, name, _sweep())
        try:
            run.summary.update({key: value for key, value in result["metrics"].items() if value is not None})
            run.summary.update({"digest": result["digest"], "run_key": result["run_key"]})
            shown = {"jobs": _table(wandb, folder / "jobs.csv"), **_plots(wandb, folder, result["end_s"])}
            if page is not None:
                shown["report"] = wandb.Html(page.read_text(encoding="utf-8"), inject=False)
            run.log(shown)
            files = [*(folder / file_name for file_name in FILES), *([page] if page else [])]
            log_files(run, f"result-{result['run_key'][:16]}", "result", files)
        finally:
            run.finish()


def log_files(run: Any, name: str, artifact_type: str, paths: Sequence[Path]) -> None:
    """Log files to wandb as one artifact."""
    artifact = _wandb().Artifact(name, type=artifact_type)
    for path in paths:
        artifact.add_file(str(path))
    run.log_artifact(artifact)


def _sweep() -> str | None:
    """Return the name of the folder of the present sweep; None outside a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    return Path(str(HydraConfig.get().sweep.dir)).name


def _table(wandb: Any, path: Path) -> Any:
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    columns = [_numbers(values) for values in zip(*rows[:MOST_ROWS], strict=True)]
    return wandb.Table(columns=head, data=[list(row) for row in zip(*columns, strict=True)])


def _numbers(texts: Sequence[str]) -> Sequence[float | str | None]:
    """Return a column as numbers if every text in it is one; None: empty."""
    try:
        return [float(text) if text else None for text in texts]
    except ValueError:
        return texts


def _plots(wandb: Any, folder: Path, end_s: float) -> dict[str, Any]:
    """Return charts of the JCT distribution, and of jobs, throughput and GPUs in use over time."""
    import numpy as np

    from clustergym.results.report.series import cdf, column, read_table, resample_steps

    jct_s, share = cdf(column(read_table(folder / "jobs.csv", ("jct_s",)), "jct_s"), MOST_POINTS)
    points = [[value / 3600, part] for value, part in zip(jct_s, share, strict=True)]
    table = wandb.Table(columns=["JCT (h)", "share of jobs"], data=points)
    plots = {"jct_cdf": wandb.plot.line(table, "JCT (h)", "share of jobs", title="Job completion time")}
    read = read_table(folder / "timeline.csv", ("time_s", "queued_jobs", "running_jobs", "throughput"))
    types = [name for name in read.columns if name.startswith("held_gpus_")]
    for key, names, title in (
        ("jobs_over_time", ["queued_jobs", "running_jobs"], "Jobs"),
        ("throughput_over_time", ["throughput"], "Throughput (samples/s)"),
        ("gpus_over_time", types, "GPUs in use"),
    ):
        if not len(read) or not names:
            continue
        values = np.stack([column(read, name) for name in names], axis=1)
        time_s, values = resample_steps(column(read, "time_s"), values, end_s, MOST_POINTS)
        hours, lines = (time_s / 3600).tolist(), values.T.tolist()
        plots[key] = wandb.plot.line_series(hours, lines, keys=names, title=title, xname="time (h)")
    return plots
