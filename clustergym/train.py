"""`python -m clustergym.train agent=auction_es`: train an agent and write its checkpoint."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clustergym.errors import InputError, exits_on_bad_input
from clustergym.paths import PACKAGE


def train(config: Mapping[str, Any], overrides: list[str]) -> Path:
    """Train what a configuration says; return the checkpoint's path."""
    from clustergym.learn.agents import make_agent
    from clustergym.learn.checkpoints import SUFFIX
    from clustergym.learn.windows import SPLITS

    env = {} if config.get("env") is None else {"env": config["env"]}
    agent = make_agent({**config["agent"], **env})
    seed, folder = _whole(config, "seed"), Path(str(config["output"]))
    processes = _whole(config, "processes")
    if agent.split not in SPLITS:
        raise InputError(
            f"unknown split {agent.split!r}", field="agent.split", remedy=f"one of {', '.join(SPLITS)}"
        )
    leak = agent.leak()
    if leak is not None and not config["allow_test"]:
        remedy = "give agent.split=train and drawn traces, or allow_test=true, which marks the checkpoint"
        raise InputError(leak[1], field=leak[0], remedy=remedy)
    began = time.monotonic()
    with _progress(bool(config["progress"]), folder if config["tensorboard"] else None) as progress:
        trained = agent.train(seed, processes, folder / "state.json", progress)
    about = {
        "command": " ".join(["python -m clustergym.train", *overrides]),
        "seed": seed,
        "training": dict(config["agent"]),
        "traces": _record(agent),
        "trained_on_test": leak is not None and agent.split != "dev",
        "curves": dict(trained.curves),
        "git_revision": _git_revision(),
        "wall_s": round(time.monotonic() - began, 1),
    }
    path = folder / f"{folder.name}{SUFFIX}"
    agent.save(path, trained, about)
    return path


def _record(agent: Any) -> dict[str, Any]:
    """Return which traces an agent was trained on."""
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
        raise InputError(f"{value!r} is no count", field=key, remedy="give 0 or more")
    return value


def _traces(origin: str, philly: Path) -> dict[str, Any]:
    """Return which traces the windows came from, with digests, and the splits' bounds."""
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
    """Return the checkout's revision; None outside one."""
    command = ["git", "-C", str(PACKAGE.parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


class _progress:  # noqa: N801 - a context manager, used as a function
    """Prints a line per step, and writes TensorBoard events where asked."""

    def __init__(self, shown: bool, events: Path | None) -> None:
        self.shown, self.events = shown, events
        self.writer: Any = None

    def __enter__(self) -> _progress:
        if self.events is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                remedy = "pip install torch tensorboard, or tensorboard=false"
                raise InputError("needs torch and tensorboard", field="tensorboard", remedy=remedy) from error
            self.writer = SummaryWriter(str(self.events))
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()

    def __call__(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        if self.shown:
            text = "  ".join(f"{name} {value:.4f}" for name, value in figures.items())
            print(f"{step}/{steps}  {text}", file=sys.stderr, flush=True)
        if self.writer is not None:
            for name, value in figures.items():
                self.writer.add_scalar(name, value, step)


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    from clustergym.hydra_edge import composed, helped

    overrides = list(sys.argv[1:] if argv is None else argv)
    if helped("train", __doc__, overrides):
        return 0
    # A file of conf/env need not name every parameter of its environment.
    words = [f"++{word}" if word.startswith("env.") else word for word in overrides]
    path = train(composed("train", words), overrides)
    print(f"wrote {path} and {path.with_suffix('.yaml').name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
