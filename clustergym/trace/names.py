"""Translate model names of published traces to families of the model catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from clustergym.common.errors import InputError, nearest

FAMILIES = {
    "a3c": "a3c",
    "bert": "bert",
    "cifar10": "resnet18",
    "cyclegan": "cyclegan",
    "deepspeech2": "deepspeech2",
    "gpt2": "gpt2",
    "imagenet": "resnet50",
    "inception3": "inception3",
    "lm": "lm",
    "ncf": "neumf",
    "neumf": "neumf",
    "recommendation": "recommendation",
    "resnet-18": "resnet18",
    "resnet-50": "resnet50",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "resnet50_cifar10": "resnet50",
    "transformer": "transformer",
    "vgg16": "vgg16",
    "yolov3": "yolov3",
}
"""Model names of Sia, Gavel and ElasticFlow -> families; Sia names ResNet-18 and -50 by data set."""


def families(
    names: Sequence[str], table: Mapping[str, str], path: Path, line: Sequence[int | None], field: str
) -> list[str]:
    """Return the catalogue's family of each model name, in upper or lower case.

    Raises
    ------
    InputError
        At the first unknown name; names the nearest.
    """
    known: dict[str, str] = {}
    for name, row in zip(names, line, strict=True):
        if name in known:
            continue
        family = table.get(name.lower())
        if family is None:
            message = f"unknown model {name[:60]!r}" if name else "is empty"
            raise InputError(message, file=path, line=row, field=field, remedy=nearest(name.lower(), table))
        known[name] = family
    return [known[name] for name in names]
