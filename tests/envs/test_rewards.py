"""Weights of rewards: what is taken, and what is refused in one line."""

import math

import pytest

from clustergym.common.errors import InputError
from clustergym.envs.rewards import _weight

KNOWN = {"jobs_in_system": None, "stalls": None}


@pytest.mark.parametrize("weight", [2, -0.5, 0])
def test_a_weight_is_a_finite_number(weight):
    assert _weight("stalls", weight, KNOWN) == weight


@pytest.mark.parametrize("weight", [True, "1", None, math.nan, math.inf, -math.inf])
def test_what_is_no_weight(weight):
    with pytest.raises(InputError, match=r"^reward\.stalls: .* is not a weight \(give a finite number\)$"):
        _weight("stalls", weight, KNOWN)


def test_an_unknown_term_names_the_nearest():
    with pytest.raises(InputError, match=r"unknown term 'stals' \(did you mean stalls\?\)$"):
        _weight("stals", 1.0, KNOWN)
