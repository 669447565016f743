"""Keeps the state of a network's training in a safetensors file, from which a killed training continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.errors import InputError
from clustergym.common.writing import atomic_path

Tensors = dict[str, npt.NDArray[Any]]

STATE_SCHEMA = "clustergym.network-training/3"
COUNTERS = ("num_timesteps", "_n_updates")
REMEDY = "delete it, or give another output="
DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a file that no training has written may raise."""


@dataclass
class History:
    """The saved progress of a network's training: parameters, validations, best return, numbers of steps.

    Attributes
    ----------
    key : dict
        Seed and parameters; a state of another key is refused.
    rows : list of dict
        Figures of each segment.
    best : float
        Best validation so far; `-inf`: none.
    counters : dict
        Counters of the algorithm.
    """

    key: dict[str, Any]
    rows: list[dict[str, float]] = field(default_factory=list)
    best: float = -float("inf")
    counters: dict[str, int] = field(default_factory=dict)


def write_state(path: Path, history: History, model: Any, best: Tensors) -> None:
    """Write all that a training needs to continue after a segment: history, network and optimizer."""
    from safetensors.numpy import save as packed

    history.counters = {name: int(getattr(model, name)) for name in COUNTERS if hasattr(model, name)}
    tensors = {f"policy.{name}": value for name, value in arrays(model.policy).items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    for at, entry in model.policy.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{at}.{name}": np.asarray(value.numpy()) for name, value in entry.items()}
    about = {"schema": STATE_SCHEMA, **vars(history)}
    with atomic_path(path) as temporary:
        text = json.dumps(about)
        # In one entry: safetensors writes several in any order.
        temporary.write_bytes(packed(tensors, {"state": f"{_digest(text, tensors)} {text}"}))


def read_state(path: Path, key: dict[str, Any]) -> tuple[History, Tensors]:
    """Read the saved history and tensors of a training with parameters `key`; empty if there is no file."""
    key = plain(key)
    if not path.is_file():
        return History(key), {}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as opened:
            digest, _, text = opened.metadata()["state"].partition(" ")
            about = json.loads(text)
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
        # safetensors keeps no digest: a cut or flipped file would be trained on.
        if digest != _digest(text, tensors):
            raise ValueError("other bytes than were written")
        good = about.pop("schema") == STATE_SCHEMA
        history = History(**about)
    except (SafetensorError, *DAMAGED) as error:
        raise make_damaged_error(path) from error
    # A state of other parameters is refused, not continued: its curve would be of two trainings.
    if not good or history.key != key:
        raise of_another(path)
    return history, tensors


def _digest(text: str, tensors: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the digest of a state."""
    found = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {value.dtype} {value.shape}".encode())
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def restore(model: Any, history: History, tensors: Mapping[str, npt.NDArray[Any]], path: Path) -> None:
    """Load a saved state into a new model: the network, the optimizer and the step counters."""
    try:
        load_arrays(model.policy, select_part(tensors, "policy."))
        _restore_optimizer(model.policy.optimizer, select_part(tensors, "optimizer."))
    except (RuntimeError, KeyError, ValueError, IndexError) as error:
        raise InputError("has tensors of another network", file=path, remedy=REMEDY) from error
    for name in COUNTERS:
        if hasattr(model, name):
            setattr(model, name, history.counters[name])


def select_part(tensors: Mapping[str, npt.NDArray[Any]], prefix: str) -> Tensors:
    """Return the tensors whose names begin with a prefix, with the prefix removed."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _restore_optimizer(optimizer: Any, tensors: Tensors) -> None:
    import torch

    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        at, _, entry = name.partition(".")
        state.setdefault(int(at), {})[entry] = torch.from_numpy(value.copy())
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def arrays(policy: Any) -> Tensors:
    """Return copies of a network's tensors as NumPy arrays, by name."""
    return {name: value.detach().cpu().numpy().copy() for name, value in policy.state_dict().items()}


def load_arrays(policy: Any, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Load tensors into a network that has the same names and shapes."""
    import torch

    policy.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in tensors.items()})


def plain(value: Any) -> Any:
    """Return a value as it comes back from JSON, with lists for tuples."""
    return json.loads(json.dumps(value))


def make_damaged_error(path: Path) -> InputError:
    """Return the error for a file that is not the state of a training."""
    return InputError("is not a state of a training", file=path, remedy=REMEDY)


def of_another(path: Path) -> InputError:
    """Return the error for the saved state of a training with other parameters."""
    return InputError("is of a training with other parameters", file=path, remedy=REMEDY)
