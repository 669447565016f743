"""The training of an agent, as a configuration says: from the agent to its checkpoint."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError, out_of_memory
from clustergym.common.paths import PACKAGE
from clustergym.results.report.wandb_logger import LoggerChoice, logger_of
from clustergym.training.agents import make_agent
from clustergym.training.trace_windows import record
from clustergym.training.training_log import Mirror, TrainingLog
from clustergym.training.windows import BOUNDS, SOURCES, SPLITS, philly_file

SUFFIX = ".safetensors"


def train(config: Mapping[str, Any], overrides: list[str]) -> Path:
    """Train what a configuration says; return the checkpoint's path.

    Raises
    ------
    InputError
        For whatever is not valid, before anything is trained; and if the folder cannot be written, or a
        process is ended from outside, where the same command goes on with what was saved.
    """
    logger = logger_of(config)
    agent, leaks = _agent(config)
    seed, processes, folder = _whole(config, "seed"), _whole(config, "processes"), _folder(config)
    mirror = _mirror(logger, config, folder) if logger.name == "wandb" else None
    began = time.monotonic()
    with (
        _reported(folder),
        TrainingLog(folder, bool(config["progress"]), bool(config["tensorboard"]), mirror) as log,
    ):
        trained = agent.train(seed, processes, folder / "state.json", log)
        about = {
            "command": " ".join(["python -m clustergym.train", *overrides]),
            "seed": seed,
            "training": dict(config["agent"]),
            "traces": _record(agent),
            "trained_on_test": leaks,
            "curves": dict(trained.curves),
            "git_revision": _git_revision(),
            "wall_s": round(time.monotonic() - began, 1),
        }
        path = folder / f"{folder.name}{SUFFIX}"
        agent.save(path, trained, about)
        log.finish(path, about)
    return path


def _agent(config: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return the agent, and whether it was allowed to see test traces."""
    env = {} if config.get("env") is None else {"env": config["env"]}
    agent = make_agent({**config["agent"], **env})
    if agent.split not in SPLITS:
        remedy = f"one of {', '.join(SPLITS)}"
        raise InputError(f"unknown split {agent.split!r}", field="agent.split", remedy=remedy)
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
def _reported(folder: Path) -> Iterator[None]:
    """Turn a failing disk, and processes that end, into one line."""
    again = "the same command goes on with what was saved"
    try:
        yield
    except (BrokenProcessPool, EOFError, ConnectionError) as error:
        raise InputError(
            "a process of the training was ended", field="processes", remedy=f"{again}; give fewer, or 1"
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
            remedy=f"make room, or give another output=; {again}",
        ) from error


def _record(agent: Any) -> dict[str, Any]:
    """Return which traces an agent was trained on."""
    if hasattr(agent, "record"):
        return dict(agent.record())
    if agent.scenarios.traces is not None:
        return record(agent.scenarios.traces)
    return _traces(str(agent.scenarios.origin), philly_file())


def _whole(config: Mapping[str, Any], key: str) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{value!r} is no count", field=key, remedy="give 0 or more")
    return value


def _traces(origin: str, philly: Path) -> dict[str, Any]:
    """Return which traces the windows came from, with digests, and the splits' bounds."""
    traces: dict[str, Any] = {"origin": origin}
    if origin != "synthetic":
        digest = hashlib.sha256(philly.read_bytes()).hexdigest()
        traces["philly.csv"] = {"sha256": digest, **{split: list(days) for split, days in BOUNDS.items()}}
    if origin != "real":
        traces["generators"] = list(SOURCES)
    return traces


def _git_revision() -> str | None:
    """Return the checkout's revision; None outside one."""
    command = ["git", "-C", str(PACKAGE.parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
