"""What a command says of bad input."""

import pytest


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line on stderr with which a command has refused its input."""
    text = capsys.readouterr().err
    assert text.startswith("error: "), text
    assert text.count("\n") == 1, text
    assert text.endswith("\n")
    return text
