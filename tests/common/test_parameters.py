"""Types of parameters carry their bounds; what they refuse is one line with a remedy made from the type."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Interval, MinLen
from pydantic import Field
from refusals import Said, refused

from clustergym.common.errors import InputError
from clustergym.common.parameter_types import (
    AscendingFloats,
    Fraction,
    OneOf,
    Period,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
)
from clustergym.common.parameters import Parameters, build
from clustergym.scenario.policy import Decision, InformationClass, Policy, View
from clustergym.scenario.registry import entry_points, find_class

if TYPE_CHECKING:
    from decimal import Decimal

MODES = {"strict": 1, "loose": 2}


@dataclass
class Price:
    seconds: PositiveFloat
    gpus: PositiveInt = 1


@dataclass
class Plan(Parameters):
    config_key = "plan"
    share: Fraction = 0.5
    alpha: PositiveFraction = 0.5
    window: Annotated[int, Interval(ge=1, le=4096)] = 1
    span: PositiveInt | None = None
    size: Annotated[float, Field(gt=0, lt=10)] = 1.0
    wait_s: Period | None = None
    bounds_h: AscendingFloats = ()
    loads: Annotated[tuple[PositiveFloat, ...], MinLen(1)] = (1.0,)
    mode: Annotated[str, OneOf(MODES)] = "strict"
    search: Literal["full", "proxy"] = "full"
    rounds: Literal["policy", "event"] | Period = "policy"
    prices: Mapping[str, Price] = field(default_factory=dict)
    elastic: bool = False
    level: Literal[1, 2] = 1
    name: str = ""


@refused("parameters")
def test_what_a_type_refuses_is_one_line_with_a_remedy(given: dict[str, Any], said: Said) -> None:
    with said.of_error():
        build(Plan, given, "plan")


@pytest.mark.parametrize("given", [{"alpha": 2}, {"span": 1.5}, {"mode": "x"}, {"prices": {"a": Price(-1)}}])
def test_construction_in_python_is_checked_too(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"plan\.{next(iter(given))}"):
        Plan(**given)


def test_a_whole_number_is_a_float_and_a_list_a_tuple() -> None:
    made = build(
        Plan, {"alpha": 1, "bounds_h": [1, 2], "rounds": 60, "prices": {"a": {"seconds": 2}}}, "plan"
    )
    assert made == Plan(alpha=1.0, bounds_h=(1.0, 2.0), rounds=60.0, prices={"a": Price(2.0)})
    assert [type(value) for value in (made.alpha, *made.bounds_h, made.rounds)] == [float] * 4


@dataclass
class Foreign(Policy):
    """A user's policy: types that pydantic does not know, and one that only type checkers see."""

    name = "foreign"
    information_class = InformationClass.NONE
    weights: np.ndarray = field(default_factory=lambda: np.ones(2))
    price: Decimal | None = None
    patience: float = 5.0

    def schedule(self, view: View) -> Decision:
        return Decision.keep(view)


def test_a_policy_with_types_that_cannot_be_checked_is_made() -> None:
    assert Foreign(patience=1).patience == 1
    assert build(Foreign, {"patience": 2.0}, "policy").patience == 2.0


@dataclass
class Grouped(Parameters):
    """A user's parameters in containers of Python."""

    config_key = "policy"
    sizes: list[float] = field(default_factory=list)
    groups: set[int] = field(default_factory=set)
    table: dict[str, float] = field(default_factory=dict)


def test_containers_of_python() -> None:
    given = {"sizes": [1, 2.5], "groups": {1}, "table": {"a": 1}}
    assert build(Grouped, given, "policy") == Grouped([1.0, 2.5], {1}, {"a": 1.0})
    for bad, key in (
        ({"sizes": [1, "x"]}, "sizes"),
        ({"groups": {"x"}}, "groups"),
        ({"table": {"a": "x"}}, "table.a"),
    ):
        with pytest.raises(InputError, match=rf"policy\.{key}: "):
            build(Grouped, bad, "policy")


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("policy", "placer") for name in entry_points(kind)]
)
def test_every_parameter_is_checked(kind: str, name: str) -> None:
    made_by = find_class(kind, name)
    for f in (f for f in dataclasses.fields(made_by) if f.init):
        for value in (object(), float("inf"), float("nan")):
            with pytest.raises(InputError, match=rf"{kind}\.{f.name}: "):
                build(made_by, {f.name: value}, kind)
            with pytest.raises(InputError, match=rf"{kind}\.{f.name}: "):
                made_by(**{f.name: value})
