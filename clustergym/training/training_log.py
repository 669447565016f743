"""Reports a training's figures as they come: lines on stderr, TensorBoard, Weights & Biases."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.reading import read_json
from clustergym.common.writing import atomic_path
from clustergym.results.report.wandb_logger import LoggerChoice, log_files, one_line, start

RUN_FILE = "wandb-run.json"
"""Beside the state: the id of the run, which a resumed training continues."""
LARGEST_RUN_BYTES = 10_000
IMITATION = "imitation/"


class TrainingLog:
    """Writes a training's figures to all places; a context manager, and the agent's `Progress`.

    Parameters
    ----------
    folder : Path
        Of the training.
    shown : bool
        Print a line for each call.
    events : bool
        Write TensorBoard event files.
    mirror : Mirror or None
        The run of Weights & Biases.

    Raises
    ------
    InputError
        On entry, if TensorBoard is asked for and missing.
    """

    def __init__(self, folder: Path, shown: bool, events: bool, mirror: Mirror | None = None) -> None:
        self.folder, self.shown, self.events, self.mirror = folder, shown, events, mirror
        self._writer: Any = None
        self._open = ExitStack()

    def __enter__(self) -> TrainingLog:
        if self.events:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                remedy = "pip install torch tensorboard, or tensorboard=false"
                raise InputError("needs torch and tensorboard", field="tensorboard", remedy=remedy) from error
            self._writer = SummaryWriter(str(self.folder))
            self._open.callback(self._writer.close)
        if self.mirror is not None:
            self._open.push(self.mirror)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def __call__(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Write the figures of a step."""
        if self.shown and figures:
            text = "  ".join(f"{name} {value:.4f}" for name, value in figures.items())
            print(f"{step}/{steps}  {text}", file=sys.stderr, flush=True)
        if self._writer is not None:
            for name, value in figures.items():
                self._writer.add_scalar(name, value, step)
        if self.mirror is not None:
            self.mirror.log(step, figures)

    def finish(self, path: Path, about: Mapping[str, Any]) -> None:
        """Mirror the checkpoint that was written."""
        if self.mirror is not None:
            self.mirror.finish(path, about)


class Mirror:
    """Mirrors a training in a single run of Weights & Biases, which a resumed training continues.

    A kill loses what wandb has not written yet. A resumed agent first repeats the figures that it saved, and
    every call has its number as wandb's step, so that the run has each of them once.

    Parameters
    ----------
    choice : LoggerChoice
    folder : Path
        Of the training.
    name, group : str
    config : mapping
    """

    def __init__(
        self, choice: LoggerChoice, folder: Path, name: str, group: str, config: Mapping[str, Any]
    ) -> None:
        self.choice, self.folder, self.name, self.group, self.config = choice, folder, name, group, config
        self._run: Any = None
        self._rows = 0

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if kind is None else 1)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the figures of a step; the first call begins the run."""
        with one_line("try logger.mode=offline, or logger=none; the training goes on where it was"):
            if self._run is None:
                self._begin()
            if figures:
                imitates = any(name.startswith(IMITATION) for name in figures)
                axis = IMITATION + "round" if imitates else "step"
                self._run.log({**figures, axis: step}, step=self._rows)
                self._rows += 1

    def _begin(self) -> None:
        path = self.folder / RUN_FILE
        training = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()
        known = _run_id(path, training)
        self._run = start(self.choice, self.config, self.folder, self.name, self.group, known)
        self._run.define_metric(f"{IMITATION}*", step_metric=f"{IMITATION}round")
        self._run.define_metric("*", step_metric="step")
        if self.choice.mode != "disabled":
            with atomic_path(path) as temporary:
                text = json.dumps({"id": self._run.id, "training": training})
                temporary.write_text(text + "\n", encoding="utf-8")

    def finish(self, path: Path, about: Mapping[str, Any]) -> None:
        """Log the checkpoint as an artifact, and the figures of the whole training."""
        with one_line("the checkpoint is written; try logger.mode=offline"):
            curves = about["curves"]
            summary = {name: value for name, value in curves.items() if isinstance(value, int | float)}
            self._run.summary.update({**summary, "wall_s": about["wall_s"]})
            files = [path, path.with_suffix(".yaml")]
            log_files(self._run, f"checkpoint-{self._run.id}", "checkpoint", files)


def _run_id(path: Path, training: str) -> str | None:
    """Return the id of a training's run from a file; None if there is none, or it is of another training."""
    if not path.exists():
        return None
    remedy = "delete it: the training goes on, in a run of its own"
    kept = read_json(path, LARGEST_RUN_BYTES, remedy)
    try:
        if not all(isinstance(kept[key], str) for key in ("id", "training")):
            raise ValueError("values of other types")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("is not a record of a wandb run", file=path, remedy=remedy) from error
    return str(kept["id"]) if kept["training"] == training else None
