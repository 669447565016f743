"""Checkpoints of the learned auction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.agents import auction, beliefs
from clustergym.agents import auction_features as features
from clustergym.agents.checkpoints import AUCTION_SCHEMA, CheckpointContent, read, write
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.scenario.policy import InformationClass

AGENT = "auction_es"
"""The agent whose checkpoints are weights of an auction."""


@dataclass(frozen=True, eq=False)
class AuctionCheckpoint:
    """The weights of a trained auction, and what its YAML file says.

    Attributes
    ----------
    weights : ndarray of float
        As `clustergym.agents.auction.score_move` takes them; of an agent that measures jobs, then the numbers
        of `clustergym.agents.beliefs.NAMES` or, if it knows iteration times, of `NAMES_TOLD`.
    information_class : InformationClass
    sha256 : str
        Digest of the weights file.
    about : mapping
        Training scenarios, seeds, git revision, curves.
    """

    weights: Floats
    information_class: InformationClass
    sha256: str
    about: Mapping[str, Any]


def save(path: Path, weights: Floats, information: InformationClass, about: Mapping[str, Any]) -> None:
    """Write an auction's weights to `path`, and their description to a YAML file of the same name."""
    head = {
        "schema": AUCTION_SCHEMA,
        "agent": about.get("training", {}).get("name", AGENT),
        "feature_version": features.VERSION,
        "features": list(features.NAMES),
        "normalisation": "in the features: every one is of the order of 1",
    }
    scores, believed = beliefs.split(weights)
    tensors = {"weights": np.ascontiguousarray(scores, dtype=np.float64)}
    if len(believed):
        head["beliefs"], tensors["beliefs"] = list(beliefs.NAMES_TOLD[: len(believed)]), believed
    write(path, tensors, head, information, about)


def load(name: str) -> AuctionCheckpoint:
    """Read the checkpoint of an auction by its path, or by its name in the package."""
    stored = read(name, AUCTION_SCHEMA)
    for key, value in (("agent", AGENT), ("feature_version", features.VERSION)):
        if stored.about.get(key) != value:
            message = f"is {stored.about.get(key)!r}, this version has {value!r}"
            raise _make_outdated_error(stored.yaml, message, key)
    names = stored.about.get("features")
    if not isinstance(names, list) or names != [name for name in features.NAMES if name in names]:
        raise _make_outdated_error(stored.yaml, "are not this version's", "features")
    weights = _weights(stored, names)
    told = stored.information_class != InformationClass.NONE
    if not told or "beliefs" in stored.about:
        names = list(beliefs.NAMES_TOLD if told else beliefs.NAMES)
        weights = np.concatenate([weights, _beliefs(stored, names)])
    return AuctionCheckpoint(weights, stored.information_class, stored.sha256, stored.about)


def _beliefs(stored: CheckpointContent, names: list[str]) -> Floats:
    """Check and return the numbers by which an agent estimates iteration times."""
    if stored.about.get("beliefs") != names:
        raise _make_outdated_error(stored.yaml, "are not this version's", "beliefs")
    believed = stored.tensors.get("beliefs")
    if believed is None or believed.dtype != np.float64 or believed.shape != (len(names),):
        raise _make_outdated_error(stored.path, f"are not {len(names)} of float64", "beliefs")
    return believed


def _make_outdated_error(file: Path, message: str, key: str) -> InputError:
    return InputError(message, file=file, field=key, remedy="train it anew")


def _weights(stored: CheckpointContent, names: list[str]) -> Floats:
    """Check the weights, and return them in the layout of this version."""
    weights = stored.tensors.get("weights")
    if weights is None or weights.dtype != np.float64:
        found = "nothing" if weights is None else f"{weights.dtype}"
        raise _make_outdated_error(stored.path, f"{found} instead of float64", "weights")
    try:
        return _widen_weights(weights, names)
    except ValueError as error:
        remedy = f"want {len(names)} and those of hidden units"
        raise InputError(str(error), file=stored.path, field="weights", remedy=remedy) from error


def _widen_weights(weights: Floats, names: list[str]) -> Floats:
    """Return weights over all features, given those over some; the other features weigh 0.

    Raises
    ------
    ValueError
        If they have not the shape of any hidden units over so many features.
    """
    count, columns = len(names), [features.NAMES.index(name) for name in names]
    units = auction.count_hidden_units(weights, count)
    linear, inside = np.zeros(features.COUNT), np.zeros((units, auction.INPUTS + 2))
    # A unit: its weight and bias, those of the features, and those of two facts of the decision point.
    given = weights[count:].reshape(units, count + 4)
    linear[columns] = weights[:count]
    inside[:, :2], inside[:, -2:] = given[:, :2], given[:, -2:]
    inside[:, [2 + at for at in columns]] = given[:, 2:-2]
    return np.concatenate([linear, inside.ravel()])
