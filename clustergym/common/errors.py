"""The error that bad input raises, and how a command reports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from clustergym.common.visible_text import visible

P = ParamSpec("P")
LONGEST = (600, 200, 800, 380)
"""Most characters shown of each part of the line: place, field, message, remedy."""


class InputError(ValueError):
    """Bad input from outside: a file, an option, a decision.

    Parameters
    ----------
    message : str
        What is wrong, on one line.
    file : str or Path, optional
        The file it stands in.
    line : int, optional
        The 1-based line of that file.
    field : str, optional
        The column, key or job it concerns.
    remedy : str, optional
        What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.file, self.line, self.field, self.remedy = file, line, field, remedy
        self.message = message
        where = "" if file is None else str(file)
        where += "" if line is None else f":{line}"
        given = zip((where, field, message, remedy), LONGEST, strict=True)
        where, field, message, remedy = (_shown(part or "", longest) for part, longest in given)
        text = ": ".join(part for part in (where, field, message) if part)
        super().__init__(text + (f" ({remedy})" if remedy else ""))

    def __reduce__(self) -> tuple[type[InputError], tuple[str]]:
        """Pickle as the error line alone, as when a worker of a sweep returns it."""
        return InputError, (str(self),)


class UnknownKeywordError(InputError, TypeError):
    """A keyword that a constructor does not have: a `TypeError` too, as Python's own.

    Libraries that try keywords on a constructor, as TorchRL tries `frameskip`, leave out those that a
    `TypeError` calls unexpected.
    """

    def __reduce__(self) -> tuple[type[InputError], tuple[str]]:
        """Pickle as the error line alone."""
        return UnknownKeywordError, (str(self),)


def _shown(part: str, longest: int) -> str:
    """Return a part of the error line without invisible characters, its middle cut out if it is long."""
    text = visible(" ".join(part.split()))
    half = longest // 2
    return text if len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}"


def nearest(name: object, valid: Iterable[object], limit: int = 3) -> str:
    """Return a remedy such as "did you mean …?" with the valid names that are nearest to `name`.

    Names may be whole numbers, as keys of YAML are.
    """
    import difflib

    options = sorted(set(map(str, valid)))
    close = difflib.get_close_matches(str(name), options, n=limit, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    shown = ", ".join(options[:12]) + (", …" if len(options) > 12 else "")
    return f"valid: {shown}" if shown else "there is nothing to choose from"


def require(holds: bool, field: str, value: object, remedy: str) -> None:
    """Raise an `InputError` about a parameter's value if a condition does not hold."""
    if not holds:
        raise InputError(f"{value} is not valid", field=field, remedy=remedy)


def out_of_memory(error: MemoryError) -> InputError:
    """Return the `InputError` to report when memory has run out."""
    told = f": {error}" if str(error) else ""
    return InputError(f"out of memory{told}", remedy="give fewer jobs or processes, or more memory")


def exits_on_bad_input(command: Callable[P, int]) -> Callable[P, int]:
    """Decorate a command so that an `InputError` becomes one line on stderr and exit status 2."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return command(*args, **kwargs)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except MemoryError as error:
            print(f"error: {out_of_memory(error)}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:
            sys.stderr.close()
            return 0

    return wrapped
