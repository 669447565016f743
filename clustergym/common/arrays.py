"""Type aliases of NumPy arrays by what they hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
"""Real numbers; units and shape stand where an array is described."""

Ints = npt.NDArray[np.int64]
"""Whole numbers: counts and positions."""

Bools = npt.NDArray[np.bool_]
"""Masks and flags."""
