"""Text from outside, made safe to print: what nobody can see is written out."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Without ink, though `str.isprintable` says otherwise (Unicode's Default_Ignorable; blank Braille)."""
_WRITTEN_OUT = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[nrt])")


def visible(text: str) -> str:
    r"""Return text with control, bidirectional and invisible characters written out, as `\u202e`.

    So are all spaces but the plain one. Text of one line that has none of them stays as it is.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if _has_ink(one) else one.encode("unicode_escape").decode() for one in text)


def _has_ink(character: str) -> bool:
    return character.isprintable() and not _INVISIBLE.match(character)


def visible_all(value: Any, deepest: int = 40) -> Any:
    """Return a value of JSON with `visible` names and texts; raises ValueError if it is nested deeper."""
    if deepest < 0:
        raise ValueError("is nested too deep")
    if isinstance(value, dict):
        return {visible(str(key)): visible_all(one, deepest - 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [visible_all(one, deepest - 1) for one in value]
    return visible(value) if isinstance(value, str) else value


def shortened(text: str, longest: int) -> str:
    """Return text of at most so many characters, and a mark where the rest was cut off."""
    return text if len(text) <= longest else text[:longest] + "…"


def alike(text: str) -> str:
    """Return what two titles share if people may take one for the other.

    Compatibility forms, upper and lower case, kinds of space and whatever `visible` writes out do not
    count; letters of other scripts that look alike do.
    """
    seen = "".join(one if _has_ink(one) or one.isspace() else "" for one in _WRITTEN_OUT.sub(_read, text))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(folded.split())


def _read(found: re.Match[str]) -> str:
    return found[0].encode().decode("unicode_escape")
