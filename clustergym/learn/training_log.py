"""Where a training's figures go as they come: lines on stderr, TensorBoard, Weights & Biases."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clustergym.errors import InputError
from clustergym.paths import atomic_path
from clustergym.reading import read_regular
from clustergym.wandb_logger import LoggerChoice, log_files, one_line, start

RUN_FILE = "wandb-run.json"
LARGEST_RUN_BYTES = 10_000
"""Beside the state: the id of the run, which a training that goes on goes on with."""
IMITATION = "imitation/"


class TrainingLog:
    """All that a training's figures are written to; a context, and the agent's `Progress`.

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
        """Take in the checkpoint that was written."""
        if self.mirror is not None:
            self.mirror.finish(path, about)


class Mirror:
    """The one run of Weights & Biases of a training; one that goes on after a kill goes on with it.

    A kill loses what wandb has not written yet. The agent tells what it saved at the start, and every
    call has its number as wandb's step, so that the run has each of them once.

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
    """Return the id that a file has for a training; None: it is of another one, or not there."""
    if not path.exists():
        return None
    try:
        kept = json.loads(read_regular(path, LARGEST_RUN_BYTES))
        if not all(isinstance(kept[key], str) for key in ("id", "training")):
            raise ValueError("values of other types")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        remedy = "delete it: the training goes on, in a run of its own"
        raise InputError("is no record of a wandb run", file=path, remedy=remedy) from error
    return str(kept["id"]) if kept["training"] == training else None
