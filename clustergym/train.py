"""`clustergym train agent=auction_es`: train an agent and write its checkpoint."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.inputs.errors import InputError, exits_on_bad_input, out_of_memory
from clustergym.inputs.paths import PACKAGE

if TYPE_CHECKING:
    from clustergym.learn.training_log import Mirror
    from clustergym.report.wandb_logger import LoggerChoice

SUFFIX = ".safetensors"
SUMMARY = "Train an agent and write its checkpoint."


def train(config: Mapping[str, Any], overrides: list[str]) -> Path:
    """Train the agent of a configuration; return the path of its checkpoint.

    Raises
    ------
    InputError
        For any value that is not valid, before the training; and if the folder cannot be written, or a
        process is ended from outside; the same command then resumes from what was saved.
    """
    from clustergym.learn.training_log import TrainingLog
    from clustergym.report.wandb_logger import logger_of

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
    """Build the agent; return it, and whether it was allowed to see test traces."""
    from clustergym.learn.agents import make_agent
    from clustergym.learn.windows import SPLITS

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
    """Return the folder of the training, which need not exist yet."""
    folder = Path(str(config["output"]))
    if not folder.name or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} names no folder", field="output", remedy="give output=outputs/NAME")
    return folder


def _mirror(logger: LoggerChoice, config: Mapping[str, Any], folder: Path) -> Mirror:
    """Return the training's Weights & Biases run, in a group per agent and environment."""
    from clustergym.learn.training_log import Mirror

    where = (config.get("env") or {}).get("id")
    group = "-".join([config["agent"]["name"], *([str(where).rpartition("/")[2]] if where else [])])
    described = {key: config.get(key) for key in ("agent", "env", "seed")}
    return Mirror(logger, folder, f"{folder.name}-{config['seed']}", group, described)


@contextmanager
def _reported(folder: Path) -> Iterator[None]:
    """Turn errors of the disk, of memory and of lost processes into an error of one line."""
    from concurrent.futures.process import BrokenProcessPool

    again = "the same command goes on with what was saved"
    try:
        yield
    except (BrokenProcessPool, EOFError, ConnectionError) as error:
        raise InputError(
            "a process of the training was ended", field="processes", remedy=f"{again}; give fewer, or 1"
        ) from error
    except RuntimeError as error:
        # PyTorch raises this in place of a MemoryError.
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
    """Return a record of the traces that an agent was trained on."""
    from clustergym.learn.windows import philly_file

    if hasattr(agent, "record"):
        return dict(agent.record())
    if agent.scenarios.traces is not None:
        from clustergym.learn.trace_windows import record

        return record(agent.scenarios.traces)
    return _traces(str(agent.scenarios.origin), philly_file())


def _whole(config: Mapping[str, Any], key: str) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{value!r} is not a count", field=key, remedy="give 0 or more")
    return value


def _traces(origin: str, philly: Path) -> dict[str, Any]:
    """Return the traces that the windows came from, with digests, and the bounds of the splits."""
    import hashlib

    from clustergym.learn.windows import BOUNDS, SOURCES

    traces: dict[str, Any] = {"origin": origin}
    if origin != "synthetic":
        digest = hashlib.sha256(philly.read_bytes()).hexdigest()
        traces["philly.csv"] = {"sha256": digest, **{split: list(days) for split, days in BOUNDS.items()}}
    if origin != "real":
        traces["generators"] = list(SOURCES)
    return traces


def _git_revision() -> str | None:
    """Return the Git revision of the checkout; None outside a checkout."""
    command = ["git", "-C", str(PACKAGE.parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    from clustergym.configuration.command_help import helped
    from clustergym.configuration.hydra_edge import composed

    overrides = list(sys.argv[1:] if argv is None else argv)
    if helped("train", SUMMARY, overrides):
        return 0
    # `env=NAME` sets the id alone, so Hydra takes every parameter of the environment for a new key.
    words = [f"++{word}" if word.startswith("env.") else word for word in overrides]
    path = train(composed("train", words), overrides)
    print(f"wrote {path} and {path.with_suffix('.yaml').name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
