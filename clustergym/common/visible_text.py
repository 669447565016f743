"""Make text from outside safe to print: invisible characters are written out."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Invisible characters that `str.isprintable` accepts (Unicode's Default_Ignorable; blank Braille)."""
_WRITTEN_OUT = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[nrt])")


def visible(text: str) -> str:
    r"""Return text with control, bidirectional and invisible characters written out, as `\u202e`.

    All spaces but the plain one are written out, too. Other text is returned unchanged.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _has_ink(char) else char.encode("unicode_escape").decode() for char in text)


def _has_ink(character: str) -> bool:
    return character.isprintable() and not _INVISIBLE.match(character)


def visible_all(value: Any, deepest: int = 40) -> Any:
    """Apply `visible` to all keys and texts of a JSON value; raises ValueError if nested too deep."""
    if deepest < 0:
        raise ValueError("is nested too deep")
    if isinstance(value, dict):
        return {visible(str(key)): visible_all(item, deepest - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [visible_all(item, deepest - 1) for item in value]
    return visible(value) if isinstance(value, str) else value


def shortened(text: str, longest: int) -> str:
    """Return the first `longest` characters of a text, with an ellipsis if it was longer."""
    return text if len(text) <= longest else text[:longest] + "…"


def alike(text: str) -> str:
    """Return a normal form of a title; titles that people may confuse have the same form.

    It ignores compatibility forms, upper and lower case, kinds of space and whatever `visible` writes
    out. It does not match letters of different scripts that look alike.
    """
    seen = "".join(char if _has_ink(char) or char.isspace() else "" for char in _WRITTEN_OUT.sub(_read, text))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(folded.split())


def _read(found: re.Match[str]) -> str:
    return found[0].encode().decode("unicode_escape")
