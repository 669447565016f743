"""Mirrors a finished result to Weights & Biases; result.json stays the truth."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustergym.errors import InputError, nearest, require
from clustergym.registry import build

NAMES = ("none", "wandb")
MODES = ("offline", "online", "disabled")
MOST_ROWS = 10_000
"""Rows of jobs.csv shown as a table; the artifact has all."""


@dataclass(frozen=True)
class LoggerChoice:
    """The `logger` group of the configuration.

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

    name: str = "none"
    mode: str = "offline"
    project: str = "clustergym"
    group: str | None = None
    dir: str | None = None

    def __post_init__(self) -> None:
        require(self.name in NAMES, "logger.name", self.name, nearest(self.name, NAMES))
        require(self.mode in MODES, "logger.mode", self.mode, nearest(self.mode, MODES))


def logger_of(config: Mapping[str, Any]) -> LoggerChoice:
    """Return the checked `logger` group, before anything is run.

    Raises
    ------
    InputError
        If it is not valid, or names wandb and that is not installed.
    """
    choice: LoggerChoice = build(LoggerChoice, config.get("logger") or {"name": "none"}, "logger")
    if choice.name == "wandb":
        _wandb()
    return choice


def _wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        remedy = "pip install 'clustergym[wandb]', or logger=none"
        raise InputError("wandb is not installed", field="logger", remedy=remedy) from error
    return wandb


def log_result(
    choice: LoggerChoice,
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    folder: Path,
    page: Path | None,
) -> None:
    """Log one result: configuration, metrics, the table of jobs, and its files as an artifact.

    Raises
    ------
    InputError
        If wandb refuses.
    """
    wandb = _wandb()
    name = f"{result['policy']['name']}-{result['scenario']['name']}-{result['seed']}"
    where = Path(choice.dir or folder)
    try:
        run = wandb.init(
            project=choice.project,
            group=choice.group or _sweep(),
            name=name,
            mode=choice.mode,
            dir=str(where),
            config=dict(config),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
        )
        try:
            run.summary.update({key: value for key, value in result["metrics"].items() if value is not None})
            run.summary.update({"digest": result["digest"], "run_key": result["run_key"]})
            run.log({"jobs": _table(wandb, folder / "jobs.csv")})
            artifact = wandb.Artifact(f"result-{result['run_key'][:16]}", type="result")
            for path in (*(folder / one for one in _files()), *([page] if page else [])):
                artifact.add_file(str(path))
            run.log_artifact(artifact)
        finally:
            run.finish()
    except (wandb.errors.Error, OSError) as error:
        raise InputError(
            f"wandb: {error}", field="logger", remedy="try logger.mode=offline; the result is written"
        ) from error


def _sweep() -> str | None:
    """Return the name of the sweep's folder; None outside a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    return Path(str(HydraConfig.get().sweep.dir)).name


def _files() -> tuple[str, ...]:
    from clustergym.output import FILES

    return FILES


def _table(wandb: Any, path: Path) -> Any:
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    return wandb.Table(columns=head, data=rows[:MOST_ROWS])
