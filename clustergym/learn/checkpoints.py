"""Checkpoints of learned agents: weights in safetensors, all else in YAML beside them; never a pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from clustergym.cluster.yaml_file import parse_mapping
from clustergym.errors import InputError, nearest
from clustergym.learn import auction, features
from clustergym.learn.auction import hidden_units
from clustergym.paths import PACKAGE, atomic_path
from clustergym.policy import InformationClass
from clustergym.reading import opened, read_regular

Floats = npt.NDArray[np.float64]

SCHEMA = "clustergym.checkpoint/1"
NETWORK_SCHEMA = "clustergym.network/1"
"""Of `clustergym.learn.network_checkpoints`."""
TRAINED = PACKAGE / "learn" / "trained"
"""Checkpoints that come with the package, by name."""
LARGEST_BYTES = 2**24
SUFFIX = ".safetensors"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A trained auction.

    Attributes
    ----------
    weights : ndarray of float
        As `clustergym.learn.auction.score_of` takes them.
    information_class : InformationClass
        What the agent knew of iteration times in training, and knows as a policy.
    sha256 : str
        Digest of the weights file.
    about : mapping
        Training scenarios, seeds, git revision, curves.
    """

    weights: Floats
    information_class: InformationClass
    sha256: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)


def find(name: str) -> Path:
    """Return the weights file of a checkpoint: a path, or the name of one in the package.

    Raises
    ------
    InputError
        If there is none.
    """
    path = Path(name)
    if path.suffix != SUFFIX and len(path.parts) == 1:
        path = TRAINED / f"{name}{SUFFIX}"
    if not path.is_file():
        known = [one.stem for one in TRAINED.glob(f"*{SUFFIX}")]
        raise InputError(
            f"no checkpoint {name!r}",
            field="checkpoint",
            remedy=f"give a {SUFFIX} file, or {nearest(name, known)}",
        )
    return path


def is_network(name: str) -> bool:
    """Whether a checkpoint is of a network, by the first line of its YAML.

    Raises
    ------
    InputError
        If there is none of the name.
    """
    try:
        with opened(find(name).with_suffix(".yaml")) as file:
            return file.readline(200).strip() == f"schema: {NETWORK_SCHEMA}".encode()
    except InputError:
        return False


def save(path: Path, weights: Floats, information: InformationClass, about: Mapping[str, Any]) -> None:
    """Write weights to `path` and the rest to the YAML beside it; the YAML last, with the digest."""
    head = {
        "schema": SCHEMA,
        "agent": "auction_es",
        "feature_version": features.VERSION,
        "features": list(features.NAMES),
        "normalisation": "in the features: every one is of the order of 1",
    }
    tensors = {"weights": np.ascontiguousarray(weights, dtype=np.float64)}
    write(path, tensors, head, information, about)


def write(
    path: Path,
    tensors: Mapping[str, npt.NDArray[Any]],
    head: Mapping[str, Any],
    information: InformationClass,
    about: Mapping[str, Any],
) -> None:
    """Write tensors to `path`, and what they are to the YAML beside it; the YAML last, with the digest."""
    from safetensors.numpy import save as packed

    data = packed(dict(tensors))
    digest = {"information_class": information.value, "sha256": hashlib.sha256(data).hexdigest()}
    text = yaml.safe_dump({**head, **digest, **about}, sort_keys=False, width=110)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    with atomic_path(path.with_suffix(".yaml")) as temporary:
        temporary.write_text(text, encoding="utf-8")


def load(name: str) -> Checkpoint:
    """Read a checkpoint.

    Raises
    ------
    InputError
        If it is missing, damaged, of another version or of the wrong shape.
    """
    path = find(name)
    data = _read(path)
    about = _about(path.with_suffix(".yaml"))
    digest = hashlib.sha256(data).hexdigest()
    if about["sha256"] != digest:
        raise _bad(path, "is not the file its YAML describes", "sha256", "take both from one source")
    weights = _weights(path, data, about["features"])
    return Checkpoint(weights, _information(path, about), digest, about)


def _bad(path: Path, message: str, key: str | None, remedy: str) -> InputError:
    return InputError(message, file=path, field=key, remedy=remedy)


def _read(path: Path) -> bytes:
    return read_regular(path, LARGEST_BYTES, "give both files of a checkpoint")


def _about(path: Path) -> dict[str, Any]:
    """Return the checked content of a checkpoint's YAML."""
    about = parse_mapping(_read(path), path).content
    if about.get("schema") != SCHEMA:
        raise _bad(path, "is no checkpoint", "schema", f"want {SCHEMA}")
    for key, wanted in (("agent", "auction_es"), ("feature_version", features.VERSION)):
        if about.get(key) != wanted:
            raise _bad(path, f"is {about.get(key)!r}, this version has {wanted!r}", key, "train it anew")
    if not _are_features(about.get("features")):
        raise _bad(path, "are not this version's", "features", "train it anew")
    if not isinstance(about.get("sha256"), str):
        raise _bad(path, "is missing", "sha256", "the file is damaged")
    return about


def _are_features(given: Any) -> bool:
    """Whether these are features of this version, in its order; later ones may be missing."""
    return isinstance(given, list) and given == [name for name in features.NAMES if name in given]


def _information(path: Path, about: Mapping[str, Any]) -> InformationClass:
    value = about.get("information_class")
    allowed = [one.value for one in InformationClass if one != InformationClass.NONE]
    if value not in allowed:
        file = path.with_suffix(".yaml")
        raise _bad(file, f"unknown class {value!r}", "information_class", nearest(str(value), allowed))
    return InformationClass(value)


def _weights(path: Path, data: bytes, names: list[str]) -> Floats:
    """Return the checked weights of a file, as this version takes them."""
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load as unpacked
    except ImportError as error:
        raise _bad(path, "needs safetensors to be read", None, "pip install 'clustergym[learn]'") from error
    try:
        tensors = unpacked(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _bad(path, "is no safetensors file", None, "the file is damaged") from error
    weights = tensors.get("weights")
    if weights is None or weights.dtype != np.float64:
        found = "nothing" if weights is None else f"{weights.dtype}"
        raise _bad(path, f"{found} instead of float64", "weights", "train it anew")
    try:
        widened = _widened(weights, names)
    except ValueError as error:
        raise _bad(path, str(error), "weights", f"want {len(names)} and those of hidden units") from error
    if not np.isfinite(widened).all():
        raise _bad(path, "has a value that is no finite number", "weights", "train it anew")
    return widened


def _widened(weights: Floats, names: list[str]) -> Floats:
    """Return the weights of some features as those of all; the others weigh 0.

    Raises
    ------
    ValueError
        If they have not the shape of any hidden units over so many features.
    """
    count, columns = len(names), [features.NAMES.index(name) for name in names]
    units = hidden_units(weights, count)
    linear, inside = np.zeros(features.COUNT), np.zeros((units, auction.INPUTS + 2))
    # A unit: its weight and bias, those of the features, and those of two facts of the decision point.
    given = weights[count:].reshape(units, count + 4)
    linear[columns] = weights[:count]
    inside[:, :2], inside[:, -2:] = given[:, :2], given[:, -2:]
    inside[:, [2 + at for at in columns]] = given[:, 2:-2]
    return np.concatenate([linear, inside.ravel()])
