"""Types of parameters carry their bounds; what they refuse is one line with a remedy made from the type."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pytest
import yaml
from annotated_types import Interval, MinLen
from pydantic import Field

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


LINES = """
share=1.5 -> 1.5 is not valid (give a number from 0 to 1)
alpha=0 -> 0 is not valid (give a number above 0, up to 1)
alpha=.nan -> nan is not valid (give a number above 0, up to 1)
alpha='1' -> '1' is not a float (give a number above 0, up to 1)
alpha=true -> True is not a float (give a number above 0, up to 1)
window=5000 -> 5000 is not valid (give a whole number from 1 to 4,096)
window=1.0 -> 1.0 is not an int (give a whole number from 1 to 4,096)
span=0 -> 0 is not valid (give a whole number from 1, or null)
size=10 -> 10 is not valid (give a number above 0, below 10)
wait_s=0 -> 0 is not valid (give seconds from 0.001, below 1,000,000,000, or null)
bounds_h=[2, 1] -> [2, 1] is not valid (give hours above 0, ascending)
bounds_h=3 -> 3 is not a list (give hours above 0, ascending)
loads=[] -> [] is not valid (give at least one number above 0)
loads=[1, -1] -> -1 is not valid (give a number above 0)
mode=strcit -> unknown value 'strcit' (did you mean strict?)
search=quick -> unknown value 'quick' (valid: full, proxy)
search=3 -> 3 is not a str (give full or proxy)
rounds=evnt -> unknown value 'evnt' (give policy, event or seconds from 0.001, below 1,000,000,000)
prices={a: {seconds: 0}} -> plan.prices.a.seconds: 0 is not valid (give seconds above 0)
prices={a: {gpu: 1}} -> plan.prices.a.gpu: unknown key 'gpu' (did you mean gpus?)
prices={a: {}} -> plan.prices.a.seconds: is missing (give plan.prices.a.seconds=…)
prices={a: 3} -> plan.prices.a: 3 is not a mapping of seconds, gpus (give a mapping of seconds, gpus)
elastic=1 -> 1 is not a bool (give true or false)
level=3 -> unknown value 3 (valid: 1, 2)
level=x -> 'x' is not an int (give 1 or 2)
name=1 -> 1 is not a str (give a text)
aplha=1 -> unknown key 'aplha' (did you mean alpha?)
"""


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_what_a_type_refuses_is_one_line_with_a_remedy(line: str) -> None:
    key, given, told = re.split("=| -> ", line, maxsplit=2)
    with pytest.raises(InputError) as caught:
        build(Plan, {key: yaml.safe_load(given)}, "plan")
    assert str(caught.value) == (told if told.startswith("plan.") else f"plan.{key}: {told}")


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
