"""The colour and dash of each policy's line, the same in every picture."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#6A6A6A")
"""Told apart with any colour blindness (Okabe and Ito, 2008), less its yellow and its black, which
vanish on a light or a dark page."""

GREYLESS = (*COLOURS[:-1], "#332288", "#117733", "#882255")
"""Of jobs, and of policies that are not listed below: grey is for what is no job's, such as profiling."""

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
    place = _find_place(name)
    if place is None:
        return Style(GREYLESS[_hash(name) % len(GREYLESS)], DASHES[0])
    return Style(COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)])


def _find_place(name: str) -> int | None:
    plain = name.split(" ")[0].replace("_", "-").removesuffix("-by-node")
    return next((order.index(plain) for order in _ORDERS if plain in order), None)


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def choose_styles(names: Sequence[str]) -> list[Style]:
    """Choose a different line style for each line of a plot, by the name of the line's policy.

    The first line of a policy has that policy's style, or if it is unknown the next colour that no other line
    has; lines of its variants have the same colour and a dash that is free.
    """
    first = {name: choose_style(name) for name in names if _find_place(name) is not None}
    for name in dict.fromkeys(names):
        if name not in first:
            start, used = _hash(name), {style.colour for style in first.values()}
            colours = [GREYLESS[(start + at) % len(GREYLESS)] for at in range(len(GREYLESS))]
            free = next((colour for colour in colours if colour not in used), colours[0])
            first[name] = Style(free, DASHES[0])
    taken = set(first.values())
    styles = []
    for place, name in enumerate(names):
        style = first[name]
        if name in names[:place]:
            others = (Style(style.colour, dash) for dash in DASHES)
            style = next((other for other in others if other not in taken), style)
        taken.add(style)
        styles.append(style)
    return styles
