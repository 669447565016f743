"""The parts of an environment's pictures. The first picture imports Pillow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.common.errors import require_known
from clustergym.common.paths import require_extra
from clustergym.results.report.colours import GREYLESS

if TYPE_CHECKING:
    from PIL import Image, ImageFont

Pixels = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]

WIDTH, HEIGHT = 960, 540
"""Pixels of a picture; a cluster that does not fit makes it higher."""

WHITE: Colour = (255, 255, 255)
INK: Colour = (40, 40, 40)
FAINT: Colour = (120, 120, 120)
LINE: Colour = (200, 200, 200)
EMPTY: Colour = (232, 232, 232)
LIGHT: Colour = (164, 205, 230)

GAP = 8
"""Pixels between the parts of a picture."""


def check_mode(given: str | None, modes: Sequence[str]) -> str | None:
    """Check that an environment supports the render mode, and return it."""
    if given is not None:
        require_known(given, modes, "mode", "render_mode")
    return given


def _rgb(text: str) -> Colour:
    red, green, blue = bytes.fromhex(text.removeprefix("#"))
    return red, green, blue


_COLOURS = tuple(map(_rgb, GREYLESS))
_LIGHTER = tuple(
    ((red + 255) // 2, (green + 255) // 2, (blue + 255) // 2) for red, green, blue in _COLOURS[1:5]
)
PALETTE: tuple[Colour, ...] = (*_COLOURS, *_LIGHTER)
"""The colours of reports, which people with colour blindness can tell apart, then four lighter ones. Jobs or
minipods share a colour if there are more of them than colours."""


def choose_colour(number: int) -> Colour:
    """Return the colour in which the job or minipod with this number is drawn."""
    return PALETTE[number % len(PALETTE)]


def choose_ink(colour: Colour) -> Colour:
    """Return the colour of text, white or dark, that is easier to read on a background colour."""
    red, green, blue = colour
    return WHITE if 299 * red + 587 * green + 114 * blue < 150_000 else INK


class Size(NamedTuple):
    """Width and height of a rectangle, in pixels."""

    width: int
    height: int


class Picture:
    """An image on which rectangles and text can be drawn.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (height, width, 3), or (int, int)
        What it starts from, or the height and width of a white one.
    """

    def __init__(self, pixels: Pixels | tuple[int, int]) -> None:
        instead = ", or give render_mode='ansi'"
        with require_extra("pictures need Pillow, which is not installed", "render", "render_mode", instead):
            from PIL import Image, ImageDraw
        if isinstance(pixels, tuple):
            self._image = Image.new("RGB", (pixels[1], pixels[0]), WHITE)
        else:
            self._image = Image.fromarray(pixels)
        self._draw = ImageDraw.Draw(self._image)

    def box(
        self, left: float, top: float, width: float, height: float, fill: Colour, line: Colour | None = None
    ) -> None:
        """Draw a filled rectangle, rounded to whole pixels; draw nothing if it is smaller than one."""
        if width >= 1 and height >= 1:
            corners = (left, top, left + width - 1, top + height - 1)
            self._draw.rectangle(corners, fill=fill, outline=line)

    def bar(
        self, left: int, top: int, width: int, height: int, parts: Sequence[tuple[float, Colour]]
    ) -> None:
        """Draw a bar of coloured parts, given each one's share of the width; the rest stays empty."""
        self.box(left, top, width, height, EMPTY)
        end = 0.0
        for share, colour in parts:
            start, end = end, end + share
            first, last = round(start * width), round(end * width)
            self.box(left + first, top, last - first, height, colour)

    def text(
        self, left: float, top: float, text: str, size: int = 13, colour: Colour = INK, anchor: str = "la"
    ) -> None:
        """Draw a line of text; `anchor` is the point of the text placed at (left, top), as in Pillow."""
        stamp, right, down = _stamp(text, size, anchor)
        self._draw.bitmap((round(left) + right, round(top) + down), stamp, colour)

    def pixels(self) -> Pixels:
        """Return the picture as an array of colours, shape (height, width, 3)."""
        return np.array(self._image, dtype=np.uint8)


@lru_cache(maxsize=4096)
def _stamp(text: str, size: int, anchor: str) -> tuple[Image.Image, int, int]:
    """Return the opacity of a text's pixels and their offset; kept, because drawing them takes 0.3 ms."""
    from PIL import Image, ImageDraw

    # Pillow draws from fractions of a pixel: whole ones are needed to put a stamp anywhere.
    left, top, right, bottom = font(size).getbbox(text, anchor=anchor)
    left, top = math.floor(left), math.floor(top)
    stamp = Image.new("L", (math.ceil(right) - left, math.ceil(bottom) - top))
    ImageDraw.Draw(stamp).text((-left, -top), text, 255, font(size), anchor)
    return stamp, left, top


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return Pillow's built-in font in a size in pixels."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


@lru_cache(maxsize=4096)
def measure_width(text: str, size: int) -> float:
    """Return the width in pixels of a line of text in a font size."""
    return float(font(size).getlength(text))


def clock(seconds: float) -> str:
    """Return a simulated time in seconds as text: `day 1  02:30:00`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"day {hours // 24}  {hours % 24:02d}:{minute:02d}:{second:02d}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as text: right-aligned columns under a header."""
    lines = [[str(item) for item in row] for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(item.rjust(width) for item, width in zip(line, widths, strict=True)) for line in lines
    )
