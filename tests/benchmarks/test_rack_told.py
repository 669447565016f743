"""The page of Rack-told has what its committed figures come to."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import rack_told

KEPT = json.loads(rack_told.KEPT.read_text(encoding="utf-8"))


def test_the_page_has_the_table_of_the_committed_figures() -> None:
    assert rack_told.describe(KEPT) in rack_told.PAGE.read_text(encoding="utf-8")


def test_the_committed_figures_are_what_planners_come_to() -> None:
    weights = np.array(KEPT["weights"])
    for name, own in (("best fit", rack_told.BEST_FIT), ("rule", weights)):
        assert rack_told.play("test", range(5), own) == pytest.approx(KEPT["costs"][name][:5], abs=1e-4)
