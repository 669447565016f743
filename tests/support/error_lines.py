"""What a command, or a function, says of bad input."""

from collections.abc import Callable

import pytest

from clustergym.common.errors import InputError


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line on stderr with which a command has refused its input."""
    text = capsys.readouterr().err
    assert text.startswith("error: "), text
    assert text.count("\n") == 1, text
    assert text.endswith("\n")
    return text


def line_of(do: Callable[[], object]) -> str:
    """Return the line of the error that something raises."""
    with pytest.raises(InputError) as error:
        do()
    return str(error.value)


def refuses(do: Callable[[], object], line: str) -> None:
    """Expect that something raises the error of just this line."""
    assert line_of(do) == line
