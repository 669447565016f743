"""Trainings of placers: the same twice, and after a stop."""

from pathlib import Path

from clustergym.commands import train
from clustergym.common.arrays import Floats
from clustergym.training.placer_checkpoints import PlacerType


def repeated(words: list[str], folder: Path, kind: PlacerType) -> Floats:
    """Train, train again, and go on after the checkpoint is lost; return the weights, which must be equal."""
    a, b = folder / "a", folder / "b"
    for output in (a, b, b):
        (b / "b.safetensors").unlink(missing_ok=True)
        assert train.main([*words, f"output={output}"]) == 0
    first, second = (kind.load(str(path / f"{path.name}.safetensors")).weights for path in (a, b))
    assert first.tolist() == second.tolist()
    return first
