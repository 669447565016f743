"""Small pictures of an environment as text and as pixels, with NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from clustergym.report.colours import COLOURS

Pixels = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]

WHITE: Colour = (255, 255, 255)
INK: Colour = (40, 40, 40)
EMPTY: Colour = (232, 232, 232)


def _rgb(text: str) -> Colour:
    red, green, blue = bytes.fromhex(text.removeprefix("#"))
    return red, green, blue


_COLOURS = tuple(map(_rgb, COLOURS))
_LIGHTER = tuple(
    ((red + 255) // 2, (green + 255) // 2, (blue + 255) // 2) for red, green, blue in _COLOURS[1:5]
)
PALETTE: tuple[Colour, ...] = (*_COLOURS, *_LIGHTER)
"""The reports' colours, told apart with any kind of colour blindness, then four of them lighter; of more
minipods or jobs than colours, some share one."""

# Each character is five rows of three pixels, a row being a number of three bits.
_FONT = {
    **{"0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711"},
    **{"5": "74717", "6": "74757", "7": "71122", "8": "75757", "9": "75717"},
    **{"A": "75755", "C": "74447", "D": "65556", "E": "74647", "F": "74644", "G": "74557", "L": "44447"},
    **{"N": "65555", "O": "75557", "P": "75744", "Q": "75573", "R": "65655", "S": "74717", "T": "72222"},
    "U": "55557",
    **{" ": "00000", ".": "00002", "/": "11244", "-": "00700"},
}


def canvas(height: int, width: int) -> Pixels:
    """Return a white picture of shape (height, width, 3)."""
    return np.full((height, width, 3), WHITE, dtype=np.uint8)


def fill(picture: Pixels, top: int, left: int, height: int, width: int, colour: Colour) -> None:
    """Fill a rectangle; what lies outside the picture is left out."""
    picture[max(top, 0) : top + height, max(left, 0) : left + width] = colour


def write(picture: Pixels, top: int, left: int, text: str, scale: int = 2, colour: Colour = INK) -> None:
    """Write digits and capitals, three by five pixels each times `scale`; unknown ones stay blank."""
    for position, character in enumerate(text.upper()):
        glyph = _FONT.get(character, _FONT[" "])
        for row, bits in enumerate(int(digit) for digit in glyph):
            for column in range(3):
                if bits >> (2 - column) & 1:
                    x = left + (position * 4 + column) * scale
                    fill(picture, top + row * scale, x, scale, scale, colour)


def cells(values: npt.NDArray[np.int64], pixels: int) -> Pixels:
    """Return a grid of coloured squares with one pixel of white between them.

    Parameters
    ----------
    values : ndarray of int, shape (rows, columns)
        Index of a colour; below 0: empty.
    pixels : int
        Side of a square with its border.

    Returns
    -------
    ndarray of uint8, shape (rows * pixels, columns * pixels, 3)
    """
    colours = np.array(PALETTE, dtype=np.uint8)[values % len(PALETTE)]
    colours[values < 0] = EMPTY
    picture = np.repeat(np.repeat(colours, pixels, axis=0), pixels, axis=1)
    picture[pixels - 1 :: pixels] = WHITE
    picture[:, pixels - 1 :: pixels] = WHITE
    return picture


def bars(
    parts: Sequence[Sequence[int]], colours: Sequence[Sequence[Colour]], height: int, width: int
) -> Pixels:
    """Return stacked horizontal bars, one for each row of `parts`, the longest as wide as the picture."""
    picture = canvas(height * len(parts), width)
    longest = max((sum(row) for row in parts), default=0) or 1
    for line, (row, shades) in enumerate(zip(parts, colours, strict=True)):
        edges = np.rint(np.cumsum([0, *row]) * width / longest).astype(int).tolist()
        for start, end, colour in zip(edges[:-1], edges[1:], shades, strict=True):
            fill(picture, line * height + 1, start, height - 2, end - start, colour)
    return picture


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return right-aligned columns under a header."""
    lines = [[str(item) for item in row] for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(item.rjust(width) for item, width in zip(line, widths, strict=True)) for line in lines
    )
