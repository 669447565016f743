"""Trains the agent that a configuration names, reports its figures, and writes its checkpoint."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError, out_of_memory, require_known
from clustergym.common.parameter_types import NonNegativeInt
from clustergym.common.parameters import check_value
from clustergym.common.paths import PACKAGE
from clustergym.common.processes import RAY, Processes, check_processes
from clustergym.envs.episodes import SPLITS
from clustergym.results.report.wandb_logger import (
    LoggerChoice,
    log_files,
    one_line,
    read_logger_choice,
    start,
)
from clustergym.training.agents import Progress, make_agent

SUFFIX = ".safetensors"


def train(config: Mapping[str, Any], overrides: list[str]) -> Path:
    """Train the agent that `config`, made with `overrides`, describes, and return its checkpoint's path.

    Raises
    ------
    InputError
        For whatever is not valid, before anything is trained; and if the folder cannot be written, or a
        process is ended from outside, where the same command goes on with what was saved.
    """
    logger = read_logger_choice(config)
    agent, leaks = _agent(config)
    # All that can be wrong is said before the folder is made.
    seed = check_value(config["seed"], NonNegativeInt, "seed")
    processes, folder = _processes(config, agent), _folder(config)
    mirror = _mirror(logger, config, folder) if logger.name == "wandb" else None
    began = time.monotonic()
    with _report_failures(folder), mirror or nullcontext():
        progress = make_progress(bool(config["progress"]), mirror)
        trained = agent.train(seed, processes, folder / "state.json", progress)
        about = {
            "command": " ".join(["python -m clustergym.train", *overrides]),
            "seed": seed,
            "training": dict(config["agent"]),
            "traces": agent.record(),
            "trained_on_test": leaks,
            "curves": dict(trained.curves),
            "git_revision": _git_revision(),
            "wall_s": round(time.monotonic() - began, 1),
        }
        path = folder / f"{folder.name}{SUFFIX}"
        agent.save(path, trained, about)
        if mirror is not None:
            mirror.finish(path, about)
    return path


def _agent(config: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return the agent, and whether it was allowed to see test traces."""
    env = {} if config.get("env") is None else {"env": config["env"]}
    agent = make_agent({**config["agent"], **env})
    require_known(agent.split, SPLITS, "split", "agent.split")
    leak = agent.leak()
    if leak is not None and not config["allow_test"]:
        remedy = "give agent.split=train and drawn traces, or allow_test=true, which marks the checkpoint"
        raise InputError(leak[1], field=leak[0], remedy=remedy)
    return agent, leak is not None and agent.split != "dev"


def _folder(config: Mapping[str, Any]) -> Path:
    """Return the folder of the training, which need not be there."""
    folder = Path(str(config["output"]))
    if not folder.name or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} names no folder", field="output", remedy="give output=outputs/NAME")
    return folder


def _mirror(logger: LoggerChoice, config: Mapping[str, Any], folder: Path) -> Mirror:
    """Return the training's run of Weights & Biases; the runs of an agent in an environment are a group."""
    where = (config.get("env") or {}).get("id")
    group = "-".join([config["agent"]["name"], *([str(where).rpartition("/")[2]] if where else [])])
    described = {key: config.get(key) for key in ("agent", "env", "seed")}
    return Mirror(logger, folder, f"{folder.name}-{config['seed']}", group, described)


@contextmanager
def _report_failures(folder: Path) -> Iterator[None]:
    """Turn a failing disk, and processes that end, into one line."""
    try:
        yield
    except BrokenProcessPool as error:
        raise InputError(
            "a process of the training was ended",
            field="processes",
            remedy="the same command goes on with what was saved; give fewer, or 1",
        ) from error
    except RuntimeError as error:
        # What PyTorch raises in place of a MemoryError.
        if "allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise out_of_memory(MemoryError(*error.args)) from error
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror or error}",
            file=error.filename or folder,
            remedy="make room, or give another output=",
        ) from error


def _processes(config: Mapping[str, Any], agent: Any) -> Processes:
    """Return the processes to use; only what a population of candidates plays is shared out on Ray."""
    found = check_processes(config["processes"])
    if found == RAY and agent.name != "auction_es":
        remedy = "give agent=auction_es; seeds run on Ray with hydra/launcher=ray"
        raise InputError(f"agent={agent.name} has no population", field="processes", remedy=remedy)
    return found


def _git_revision() -> str | None:
    """Return the checkout's revision; None outside one."""
    command = ["git", "-C", str(PACKAGE.parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def make_progress(shown: bool, mirror: Mirror | None) -> Progress:
    """Return a function that prints a training's figures, if they are to be shown, and tells the mirror."""

    def tell(step: int, steps: int, figures: Mapping[str, float]) -> None:
        if shown and figures:
            text = "  ".join(f"{name} {value:.4f}" for name, value in figures.items())
            print(f"{step}/{steps}  {text}", file=sys.stderr, flush=True)
        if mirror is not None:
            mirror.log(step, figures)

    return tell


class Mirror:
    """Sends a training's figures to a run of Weights & Biases; a resumed one first repeats what it saved.

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

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, error_type: Any, *_: Any) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if error_type is None else 1)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Send the figures of a step to Weights & Biases; the first call begins the run."""
        with one_line("try logger.mode=offline, or logger=none; the training goes on where it was"):
            if self._run is None:
                self._run = start(self.choice, self.config, self.folder, self.name, self.group)
                self._run.define_metric("*", step_metric="step")
            if figures:
                self._run.log({**figures, "step": step}, step=step)

    def finish(self, path: Path, about: Mapping[str, Any]) -> None:
        """Send the checkpoint, as an artifact, and the final figures to Weights & Biases."""
        with one_line("the checkpoint is written; try logger.mode=offline"):
            curves = about["curves"]
            summary = {name: value for name, value in curves.items() if isinstance(value, int | float)}
            self._run.summary.update({**summary, "wall_s": about["wall_s"]})
            files = [path, path.with_suffix(".yaml")]
            log_files(self._run, f"checkpoint-{self._run.id}", "checkpoint", files)
