"""Trainings of placers: the same twice, and after a stop."""

from pathlib import Path
from typing import Any

import yaml

from clustergym.commands import train
from clustergym.common.arrays import Floats
from clustergym.training.placer_checkpoints import PlacerType

AUCTION = [
    "processes=1", "agent.population=6", "agent.episodes=4", "agent.validation=4", "agent.generations=4",
    "agent.validate_every=2", "agent.scenarios.origin=synthetic", "agent.scenarios.jobs=[20,30]",
    "agent.scenarios.gpus=16", "agent.scenarios.types=[2]",
]  # fmt: skip
"""Words of a small training of an auction."""


def repeated(words: list[str], folder: Path, kind: PlacerType) -> Floats:
    """Train, train again, and go on after the checkpoint is lost; return the weights, which must be equal."""
    a, b = folder / "a", folder / "b"
    for output in (a, b, b):
        (b / "b.safetensors").unlink(missing_ok=True)
        assert train.main([*words, f"output={output}"]) == 0
    first, second = (kind.load(str(path / f"{path.name}.safetensors")).weights for path in (a, b))
    assert first.tolist() == second.tolist()
    return first


def without_times(path: Path) -> dict[str, Any]:
    """Return what a checkpoint's YAML says, without what is another in each training."""
    about = yaml.safe_load(path.read_text())
    return {key: value for key, value in about.items() if key not in ("wall_s", "command", "git_revision")}
