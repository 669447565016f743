"""Animated GIFs, every frame in the same few colours."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustergym.envs.rendering import Pixels

COLOURS = 48


def gif_of(frames: Sequence[Pixels], palette_at: int, **options: Any) -> bytes:
    """Return a GIF in the colours of the frame at `palette_at`; `options` are Pillow's."""
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames]
    palette = pictures[palette_at].quantize(COLOURS, dither=Image.Dither.NONE)
    first, *others = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    made = io.BytesIO()
    first.save(made, format="GIF", save_all=True, append_images=others, loop=0, **options)
    return made.getvalue()
