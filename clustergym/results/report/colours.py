"""The colour and dash of each policy's line, the same in every picture."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#6A6A6A")
"""Told apart with any colour blindness (Okabe and Ito, 2008), less its yellow and its black, which
vanish on a light or a dark page."""

DASHES = ("", "6 3", "2 2", "8 3 2 3", "12 3", "1 3")
"""Of an SVG's stroke; the first is a solid line."""


class Style(NamedTuple):
    """The colour and dash pattern of a policy's line in plots."""

    colour: str
    dash: str

    @property
    def matplotlib(self) -> dict[str, Any]:
        """The style as keyword arguments of Matplotlib's `plot`."""
        dashes = tuple(float(part) / 2 for part in self.dash.split())
        return {"color": self.colour, "linestyle": (0, dashes) if dashes else "-"}


_ORDERS = (
    (
        *("arena", "fcfs", "ares", "sia", "gavel", "pollux", "learned", "srtf"),
        *("hesrpt", "elasticflow", "optimus", "themis", "tiresias", "allox", "lucid", "las"),
        *("gandiva", "crius", "sjf", "random", "elasticflow-ls", "quotas"),
        *("kai", "kueue", "capacity", "slurm-multifactor", "morphling"),
    ),
    ("arnold", "best-fit", "random-fit", "gpu-packing", "topology-aware", "round-robin", "buddy", "minipod"),
)
"""Schedulers, and placers, which are never in one picture."""


def choose_style(name: str) -> Style:
    """Return the line style of a policy or placement algorithm; unknown names get one by their hash.

    An algorithm that places node by node has the style of the one that places whole groups.
    """
    plain = name.split(" ")[0].replace("_", "-").removesuffix("-by-node")
    place = next((order.index(plain) for order in _ORDERS if plain in order), None)
    if place is None:
        place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return Style(COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)])


def choose_styles(names: Sequence[str]) -> list[Style]:
    """Choose a different line style for each line of a plot, by the name of the line's policy.

    The first line of a policy has that policy's style; lines of its variants have the same colour and a
    dash that is free.
    """
    own = [choose_style(name) for name in names]
    taken = set(own)
    styles = []
    for place, (name, style) in enumerate(zip(names, own, strict=True)):
        if name in names[:place]:
            others = (Style(style.colour, dash) for dash in DASHES)
            style = next((other for other in others if other not in taken), style)
        taken.add(style)
        styles.append(style)
    return styles
