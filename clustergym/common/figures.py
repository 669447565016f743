"""Figures of Matplotlib, an extra: the same figure gives the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.paths import require_extra
from clustergym.common.writing import write_files

FORMATS: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None},
}
"""Suffixes, and what would make two drawings of one figure differ."""

SETTINGS = {"svg.hashsalt": "clustergym", "svg.fonttype": "none"}
"""Without a salt an SVG's identifiers are random; its text stays text."""


def check_figure(path: Path | None, option: str | None = None) -> None:
    """Raise an `InputError` if a file's suffix is no picture format, or Matplotlib is not installed."""
    if path is None:
        return
    if path.suffix.lower() not in FORMATS:
        message, remedy = f"{path.suffix!r} is no format of a picture", f"end it in {', '.join(FORMATS)}"
        raise InputError(message, file=path, field=option, remedy=remedy)
    with require_extra("needs Matplotlib, which is not installed", "report", option):
        import matplotlib.figure  # noqa: F401


def draw_figure(
    path: Path,
    size: tuple[float, float],
    fill: Callable[[Any], object],
    option: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Draw a Matplotlib figure by a function, and write it to a file completely or not at all.

    Parameters
    ----------
    path : Path
        The file; its suffix is the format.
    size : tuple of float
        Width and height, inches.
    fill : callable
        Draws into the empty `matplotlib.figure.Figure`.
    option : str, optional
        The option that names the file, for the message.
    settings : mapping, optional
        Settings of Matplotlib (rcParams) beside `SETTINGS`.
    """
    check_figure(path, option)
    import matplotlib

    # Without pyplot there is no window, no back-end to choose and no global state.
    from matplotlib.figure import Figure

    suffix, content = path.suffix.lower(), io.BytesIO()
    context: dict[Any, Any] = {**SETTINGS, **(settings or {})}
    with matplotlib.rc_context(context):
        figure = Figure(figsize=size, layout="constrained")
        fill(figure)
        figure.savefig(content, format=suffix[1:], dpi=150, metadata=FORMATS[suffix])
    write_files({path: content.getvalue()}, option)
