"""The fitted constants of the grid oracle, and the YAML file they live in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError, nearest
from clustergym.oracle.devices import HALF_FP32
from clustergym.paths import conf_dir

Floats = npt.NDArray[np.float64]

UNFITTED = {"matmul": 0.72, "convolution": 0.55, "network": 0.3, "transfer": 0.1}
"""Shares of GPU types that nobody measured."""

UNFITTED_HALF_FP32 = 0.24
"""Share of the fp32 peak for convolutions on unmeasured types of `devices.HALF_FP32`."""

DIGITS = 4
"""Significant digits of a constant in the file."""


@dataclass(frozen=True)
class Constants:
    """What kernels and networks reach of the data sheet; defaults are the centres of the priors.

    Attributes
    ----------
    matmul, convolution : dict of str to float
        Shares of the fp16 and of the fp32 peak that large kernels reach, by GPU type.
    network, transfer : dict of str to float
        Shares of a node's line rate that collectives, and that transfers between stages, reach.
    attention, gate : float
        Shares of the fp16 peak that einsums of attention, and of MoE gating, reach.
    half_tokens, half_pixels : float
        Tokens, or output pixels, of a micro-batch at which a kernel reaches half its rate.
    layer_traffic, block_traffic, gate_traffic : float
        Factors on the bytes that elementwise operators of language models, of wide ResNets, and
        of gating masks move.
    block_exchange : float
        Factor on the bytes that split convolutions exchange (halos, batch statistics and layout
        changes come on top of their inputs and outputs).
    split_saturation : float
        How a split shrinks what an unsaturated convolution loses: by the GPUs to this power.
    slow_machine : float
        Factor on the measured times of Arena's artifact on one node of 4 or 8 V100: another
        machine than that of 1, 2 and 16. A property of the data set; the oracle does not use it.
    """

    matmul: Mapping[str, float] = field(
        default_factory=lambda: {"A100": 0.75, "A40": 0.75, "A10": 0.65, "V100": 0.75}
    )
    convolution: Mapping[str, float] = field(
        default_factory=lambda: {"A100": 0.6, "A40": 0.24, "A10": 0.24, "V100": 0.6}
    )
    network: Mapping[str, float] = field(default_factory=lambda: {"A100": 0.5, "A40": 0.25, "A10": 0.15})
    transfer: Mapping[str, float] = field(default_factory=lambda: {"A100": 0.25, "A40": 0.04, "A10": 0.04})
    attention: float = 0.5
    gate: float = 0.3
    half_tokens: float = 200.0
    half_pixels: float = 1000.0
    layer_traffic: float = 0.8
    block_traffic: float = 0.65
    gate_traffic: float = 0.85
    block_exchange: float = 1.5
    split_saturation: float = 0.5
    slow_machine: float = 1.3

    def shares(self, name: str, gpu_types: Sequence[str]) -> Floats:
        """Return one of the shares for each GPU type, shape (n,); a fixed one where it was not fitted."""
        known: Mapping[str, float] = getattr(self, name)
        return np.array([known.get(gpu, _unfitted(name, gpu)) for gpu in gpu_types], dtype=np.float64)

    def rounded(self) -> Constants:
        """Return the constants with four significant digits."""
        plain: dict[str, Any] = {
            name: {gpu: _rounded(share) for gpu, share in value.items()}
            if isinstance(value, Mapping)
            else _rounded(value)
            for name, value in asdict(self).items()
        }
        return Constants(**plain)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _unfitted(name: str, gpu_type: str) -> float:
    if name == "convolution" and gpu_type in HALF_FP32:
        return UNFITTED_HALF_FP32
    return UNFITTED[name]


def default_path() -> Path:
    """Return the committed constants' file."""
    return conf_dir() / "calibration" / "grid.yaml"


def load_constants(path: str | Path | None = None) -> Constants:
    """Read fitted constants.

    Parameters
    ----------
    path : str or Path, optional
        `conf/calibration/grid.yaml` by default.

    Raises
    ------
    InputError
        If the file cannot be read, or a constant is unknown, missing or not a positive number.
    """
    from clustergym.cluster.yaml_file import read_mapping

    source = read_mapping(Path(path) if path is not None else default_path())
    given = source.content.get("constants")
    if not isinstance(given, dict):
        remedy = "write it with `clustergym oracle calibrate`"
        raise InputError("is missing", file=source.path, field="constants", remedy=remedy)
    names = [entry.name for entry in fields(Constants)]
    for name in given:
        if name not in names:
            line, remedy = source.line(("constants", name)), nearest(str(name), names)
            raise InputError("unknown constant", file=source.path, line=line, field=str(name), remedy=remedy)
    for name in names:
        _check(given.get(name), isinstance(getattr(Constants(), name), Mapping), source, name)
    return Constants(**given)


def _check(value: Any, by_type: bool, source: Any, name: str) -> None:
    line = source.line(("constants", name))
    if value is None or isinstance(value, dict) != by_type:
        remedy = "give a number by GPU type" if by_type else "give a number above 0"
        message = "is missing" if value is None else f"{value!r} is not valid"
        raise InputError(message, file=source.path, line=line, field=f"constants.{name}", remedy=remedy)
    for number in value.values() if isinstance(value, dict) else [value]:
        valid = isinstance(number, int | float) and not isinstance(number, bool) and 0 < number < 1e9
        if not valid:
            message = f"{number!r} is not a number above 0"
            remedy = "write the file with `clustergym oracle calibrate`"
            raise InputError(message, file=source.path, line=line, field=f"constants.{name}", remedy=remedy)
