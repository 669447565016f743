"""The format of checkpoints: a safetensors file with a YAML file beside it; nothing is pickled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import PACKAGE, require_extra
from clustergym.common.reading import open_regular_file, read_regular
from clustergym.common.writing import atomic_path
from clustergym.common.yaml_file import parse_mapping
from clustergym.scenario.policy import InformationClass

Tensors = Mapping[str, npt.NDArray[Any]]

AUCTION_SCHEMA = "clustergym.checkpoint/1"
NETWORK_SCHEMA = "clustergym.network/1"
TRAINED = PACKAGE / "agents" / "trained"
"""Checkpoints that come with the package, by name."""
LARGEST_BYTES = 2**26
BOTH = "give both files of a checkpoint"
SUFFIX = ".safetensors"


@dataclass(frozen=True, eq=False)
class CheckpointContent:
    """The content of a checkpoint's two files: tensors, and the YAML that describes them.

    Attributes
    ----------
    path, yaml : Path
        The weights file, and the YAML beside it.
    tensors : mapping of str to ndarray
        All values are finite.
    information_class : InformationClass
        What the agent knew of iteration times in training, and knows as a policy.
    sha256 : str
        Digest of the weights file.
    about : mapping
        All that the YAML says.
    """

    path: Path
    yaml: Path
    tensors: Tensors
    information_class: InformationClass
    sha256: str
    about: Mapping[str, Any]


def find(name: str) -> Path:
    """Return the path of a checkpoint's weights file, given that path or its name in the package."""
    path = Path(name)
    if path.suffix != SUFFIX and len(path.parts) == 1:
        path = TRAINED / f"{name}{SUFFIX}"
    if not path.is_file():
        known = [path.stem for path in TRAINED.glob(f"*{SUFFIX}")]
        raise InputError(
            f"no checkpoint {name!r}",
            field="checkpoint",
            remedy=f"give a {SUFFIX} file, or {nearest(name, known)}",
        )
    return path


def is_network(name: str) -> bool:
    """Return whether a checkpoint of this name exists and holds a neural network."""
    try:
        return read_schema(name) == NETWORK_SCHEMA
    except InputError:
        return False


def read_schema(name: str) -> str:
    """Return the schema that the first line of a checkpoint's YAML names, or an empty text."""
    with open_regular_file(find(name).with_suffix(".yaml"), BOTH) as file:
        line = file.readline(200).decode(errors="replace").strip()
    return line.removeprefix("schema: ") if line.startswith("schema: ") else ""


def write(
    path: Path,
    tensors: Tensors,
    head: Mapping[str, Any],
    information: InformationClass,
    about: Mapping[str, Any],
) -> None:
    """Write tensors to `path`, and their description and digest to a YAML file of the same name."""
    from safetensors.numpy import save as packed

    data = packed(dict(tensors))
    digest = {"information_class": information.value, "sha256": hashlib.sha256(data).hexdigest()}
    text = yaml.safe_dump({**head, **digest, **about}, sort_keys=False, width=110)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    with atomic_path(path.with_suffix(".yaml")) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read(name: str, schema: str) -> CheckpointContent:
    """Read the two files of a checkpoint, by its path or name, and check their schema and digest."""
    path = find(name)
    file = path.with_suffix(".yaml")
    data = read_regular(path, LARGEST_BYTES, BOTH)
    about = parse_mapping(read_regular(file, LARGEST_BYTES, BOTH), file).content
    if about.get("schema") != schema:
        raise InputError(
            "is not a checkpoint of this schema", file=file, field="schema", remedy=f"want {schema}"
        )
    digest = hashlib.sha256(data).hexdigest()
    if about.get("sha256") != digest:
        remedy = "take both from one source"
        raise InputError("is not the file its YAML describes", file=path, field="sha256", remedy=remedy)
    known, information = [member.value for member in InformationClass], about.get("information_class")
    if information not in known:
        remedy = nearest(str(information), known)
        message = f"unknown class {information!r}"
        raise InputError(message, file=file, field="information_class", remedy=remedy)
    return CheckpointContent(path, file, _tensors(path, data), InformationClass(information), digest, about)


def _tensors(path: Path, data: bytes) -> Tensors:
    with require_extra("needs safetensors to be read", "learn", None, file=path):
        from safetensors import SafetensorError
        from safetensors.numpy import load as unpacked
    try:
        tensors: Tensors = unpacked(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError("is not a safetensors file", file=path, remedy="the file is damaged") from error
    for name, value in tensors.items():
        if not np.isfinite(value).all():
            message = "has a value that is not a finite number"
            raise InputError(message, file=path, field=name, remedy="train it anew")
    return tensors
