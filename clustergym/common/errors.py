"""The error that bad input raises, how a command reports it, and a parser of arguments that raises it.

Text from outside is made safe to print: invisible characters are written out.
"""

from __future__ import annotations

import argparse
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

from clustergym.common.left_out import is_recording, recording
from clustergym.common.output_streams import lasting_output

P = ParamSpec("P")
LONGEST = (600, 200, 800, 380)
"""Most characters shown of each part of the line: place, field, message, remedy."""


class InputError(ValueError):
    """An error in what a user gave, such as a file, an option or a decision, told in one line.

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
        where, field, message, remedy = (_shorten_part(part or "", longest) for part, longest in given)
        text = ": ".join(part for part in (where, field, message) if part)
        super().__init__(text + (f" ({remedy})" if remedy else ""))

    def __reduce__(self) -> tuple[type[InputError], tuple[str]]:
        """Pickle as the error line alone, as when a worker of a sweep returns it."""
        return InputError, (str(self),)


class UnknownKeywordError(InputError, TypeError):
    """An unknown keyword argument: an `InputError` that is also a `TypeError`, as Python raises.

    Libraries that try keywords on a constructor, as TorchRL tries `frameskip`, leave out those that a
    `TypeError` calls unexpected.
    """

    def __reduce__(self) -> tuple[type[InputError], tuple[str]]:
        """Pickle as the error line alone."""
        return UnknownKeywordError, (str(self),)


def _shorten_part(part: str, longest: int) -> str:
    """Return a part of the error line without invisible characters, its middle cut out if it is long."""
    text = visible(" ".join(part.split()))
    half = longest // 2
    return text if len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}"


def nearest(name: object, valid: Iterable[object], limit: int = 3) -> str:
    """Return a remedy for an unknown name, such as "did you mean …?", with the most similar valid names.

    Names may be whole numbers, as keys of YAML are. They are compared without case.
    """
    import difflib

    options = sorted(set(map(str, valid)))
    by_folded = {option.casefold(): option for option in options}
    folded = str(name).casefold()
    close = [folded] if folded in by_folded else difflib.get_close_matches(folded, by_folded, limit, 0.5)
    if close:
        return "did you mean " + " or ".join(by_folded[one] for one in close) + "?"
    shown = ", ".join(options[:12]) + (", …" if len(options) > 12 else "")
    return f"valid: {shown}" if shown else "there is nothing to choose from"


def require_known(name: object, known: Collection[object], what: str, field: str | None = None) -> None:
    """Raise an `InputError` unless a name is among those `known`; it says the nearest of them."""
    if name not in known:
        raise InputError(f"unknown {what} {name!r}", field=field, remedy=nearest(name, known))


def require(holds: bool, field: str, value: object, remedy: str) -> None:
    """Raise an `InputError` that a parameter's value is not valid, unless a condition holds."""
    if not holds:
        raise InputError(f"{value} is not valid", field=field, remedy=remedy)


def out_of_memory(error: MemoryError) -> InputError:
    """Return the `InputError` that reports that memory has run out."""
    told = f": {error}" if str(error) else ""
    return InputError(f"out of memory{told}", remedy="give fewer jobs or processes, or more memory")


def exits_on_bad_input(command: Callable[P, int]) -> Callable[P, int]:
    """Decorate a command so that an `InputError` becomes one line on stderr and exit status 2.

    What the command's readers left out is named on stderr, too.
    """

    def run_and_name(*args: P.args, **kwargs: P.kwargs) -> int:
        # A command may run another: the outer one names what both left out, once.
        if is_recording():
            return command(*args, **kwargs)
        with recording() as notes:
            status = command(*args, **kwargs)
        for line in notes.lines():
            print(line, file=sys.stderr)
        return status

    @wraps(command)
    def run_command(*args: P.args, **kwargs: P.kwargs) -> int:
        with lasting_output() as failures:
            status = _end_in_a_line(lambda: run_and_name(*args, **kwargs))
        for failure in failures:
            print(f"error: standard output: cannot be written: {failure.strerror}", file=sys.stderr)
        return status or 2 * bool(failures)

    return run_command


def _end_in_a_line(run: Callable[[], int]) -> int:
    try:
        return run()
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
    except OSError as error:
        # Whatever the system says of a file, such as that its name is too long.
        if error.filename is None:
            raise
        line = InputError(str(error.strerror), file=str(error.filename), remedy="name another file")
        print(f"error: {line}", file=sys.stderr)
        return 2


_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Invisible characters that `str.isprintable` accepts (Unicode's Default_Ignorable; blank Braille)."""
_WRITTEN_OUT = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[nrt])")


def visible(text: str) -> str:
    r"""Return text with its control, bidirectional and invisible characters escaped, as `\u202e`.

    All spaces but the plain one are written out, too. Other text is returned unchanged.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _has_ink(char) else char.encode("unicode_escape").decode() for char in text)


def _has_ink(character: str) -> bool:
    return character.isprintable() and not _INVISIBLE.match(character)


def visible_all(value: Any, deepest: int = 40) -> Any:
    """Apply `visible` to all keys and texts of a JSON value; raises ValueError if nested too deep."""
    if isinstance(value, str):
        return visible(value)
    if not isinstance(value, dict | list | tuple):
        return value
    if not deepest and value:
        raise ValueError("is nested too deep")
    deeper = deepest - 1
    if isinstance(value, dict):
        return {visible(str(key)): visible_all(item, deeper) for key, item in value.items()}
    # Most values by far are numbers in lists.
    return [item if type(item) in (int, float) else visible_all(item, deeper) for item in value]


def shorten_text(text: str, longest: int) -> str:
    """Return the first `longest` characters of a text, with an ellipsis if it was longer."""
    return text if len(text) <= longest else text[:longest] + "…"


def alike(text: str) -> str:
    """Return a normal form of a title, which is equal for titles that look alike.

    It ignores compatibility forms, upper and lower case, different spaces and whatever `visible` writes
    out. It does not match letters of different scripts that look alike.
    """
    seen = "".join(char if _has_ink(char) or char.isspace() else "" for char in _WRITTEN_OUT.sub(_read, text))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(folded.split())


def _read(found: re.Match[str]) -> str:
    return found[0].encode().decode("unicode_escape")


class Parser(argparse.ArgumentParser):
    """An `argparse` parser that raises an `InputError` instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise `message` as an `InputError`."""
        raise InputError(message, remedy=f"see `{self.prog} --help`")
