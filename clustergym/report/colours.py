"""One colour and one dash for a policy, the same in every picture."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#6A6A6A")
"""Told apart with any kind of colour blindness (Okabe and Ito, 2008), less its yellow and its black, which
vanish on a light or a dark page."""

DASHES = ("", "6 3", "2 2", "8 3 2 3")
"""Of an SVG's stroke; the first is a solid line."""


class Style(NamedTuple):
    """How a policy is drawn."""

    colour: str
    dash: str


_ORDER = (
    *("arena", "fcfs", "ares", "sia", "gavel", "pollux", "learned", "srtf"),
    *("hesrpt", "elasticflow", "optimus", "themis", "tiresias", "allox", "lucid", "las"),
    *("gandiva", "crius", "sjf", "random", "elasticflow-ls"),
)


def style_of(name: str) -> Style:
    """Return the style of a policy or entry; any other name has one by its hash."""
    plain = name.split(" ")[0]
    if plain in _ORDER:
        place = _ORDER.index(plain)
    else:
        place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return Style(COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)])
