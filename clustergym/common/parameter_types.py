"""Types of parameters that carry their bounds, for `clustergym.common.parameters` to check.

The markers are those of `annotated_types`, which pydantic reads; this module loads without pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Lt, Predicate


@dataclass(frozen=True)
class Condition(Predicate):
    """A condition on a parameter's value, with words for it in error messages."""

    words: str


class OneOf:
    """The condition that a text parameter is one of the given names."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(map(str, names))

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return pydantic's schema of a literal."""
        from pydantic_core.core_schema import literal_schema

        return literal_schema(list(self.names))


def _ascending(values: tuple[float, ...]) -> bool:
    return all(low < high for low, high in pairwise((0.0, *values)))


PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
Seed = Annotated[int, Ge(0), Lt(2**63)]
"""Of a random stream."""
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
NonZeroFloat = Annotated[float, Condition(bool, "other than 0")]
Factor = Annotated[float, Gt(0), Lt(1e6)]
AtLeastOne = Annotated[float, Ge(1)]
Slowdown = Annotated[float, Ge(1), Lt(1e6)]
"""How many times as long, or as often."""
AtLeastTwo = Annotated[int, Ge(2)]
Fraction = Annotated[float, Ge(0), Le(1)]
PositiveFraction = Annotated[float, Gt(0), Le(1)]
FractionBelowOne = Annotated[float, Ge(0), Lt(1)]
Period = Annotated[float, Ge(1e-3), Lt(1e9)]
"""Seconds between two points of time, or that something may take."""
Delay = Annotated[float, Ge(0), Lt(1e9)]
"""Seconds that something takes, or none."""
Duration = Annotated[float, Gt(0), Lt(1e12)]
IN_ORDER = Condition(lambda pair: len(pair) == 2 and pair[0] <= pair[1], "in order, as [low, high]")
IN_ORDER_OR_NONE = Condition(lambda pair: not pair or IN_ORDER.func(pair), f"{IN_ORDER.words}, or []")
PositiveRange = Annotated[tuple[PositiveFloat, ...], IN_ORDER]
Window = Annotated[tuple[NonNegativeFloat, ...], IN_ORDER]
"""From the first time on, and before the second, seconds."""
AscendingFloats = Annotated[tuple[float, ...], Condition(_ascending, "above 0, ascending")]
