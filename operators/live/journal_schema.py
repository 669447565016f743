"""Schema of the answers in a journal. Import this module late: it loads pydantic."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from clustergym.scenario.clock import TICKS_PER_S

Tick = Annotated[int, Field(ge=0, le=10**9 * TICKS_PER_S)]
Seconds = Annotated[float, Field(ge=0, lt=1e12)]
Names = list[str]
Numbers = list[Annotated[int, Field(ge=0)]]


class CallAnswer(BaseModel):
    """The fields that every answer in a journal has: the run's time in ticks (or null), and the real time."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")

    t: Tick | None
    wall_s: Seconds


class StartAnswer(CallAnswer):
    """A journal's record of the answer to a call that starts a job: whether it was refused, and why."""

    refused: str = ""


class RepairAnswer(CallAnswer):
    """A journal's record of the answer to a call that repairs a node: whether the node is back in use."""

    back: bool


class WaitAnswer(CallAnswer):
    """A journal's record of what a wait found: the allocations that are gone, the nodes out of use."""

    gone: Names = Field(default_factory=list)
    down: Numbers = Field(default_factory=list)


ANSWERS: dict[str, type[CallAnswer]] = {
    "begin": CallAnswer,
    "start": StartAnswer,
    "stop": CallAnswer,
    "fail": CallAnswer,
    "repair": RepairAnswer,
    "wait": WaitAnswer,
}
"""What each call is answered."""
Entry = TypeAdapter(tuple[str, dict[str, Any], dict[str, Any]])


def check_entry(entry: object) -> None:
    """Check an entry of a journal, which is a call with its answer; raise a ValueError if it is wrong.

    Raises
    ------
    ValueError
        Naming what is wrong, on one line.
    """
    try:
        call, _, answer = Entry.validate_python(entry)
        if call not in ANSWERS:
            raise ValueError(f"unknown call {call!r}")
        ANSWERS[call].model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None
