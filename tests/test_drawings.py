"""What pictures show and where, and the tables in their place: the same on every machine, whatever its fonts.

`GOLDEN=write python -m pytest -n 0 tests/test_drawings.py` writes `golden/drawings.txt` anew.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from golden_texts import check_lines

from clustergym.envs import rendering, scheduling_picture
from clustergym.envs.families import ElasticEnv
from clustergym.envs.placement.environment import PlacementEnv
from clustergym.envs.racks.environment import RackEnv
from clustergym.envs.sharing.environment import SharingEnv

EPISODES: dict[str, tuple[Any, dict[str, Any], int]] = {
    "a cluster with a queue": (ElasticEnv, {"cluster": "arena-16", "jobs": 12, "loads": (8.0,)}, 60),
    "a cluster whose jobs are profiled": (
        ElasticEnv,
        {"cluster": "arena-16", "jobs": 8, "loads": (8.0,), "costs": "default"},
        24,
    ),
    "a placement": (PlacementEnv, {"setting": "i"}, 5),
    "racks": (RackEnv, {}, 12),
    "shared GPUs": (SharingEnv, {"nodes": 16}, 40),
}
"""An environment, its parameters, and how many steps to take, each the last legal action."""


def plainly(value: object) -> str:
    """Return the text of a value, numbers as Python has them, whatever the version of NumPy."""
    return re.sub(r"np\.\w+\(([^()]*)\)", r"\1", repr(value))


class Pen:
    """Writes down what is drawn: every text, and a digest of all rectangles."""

    def __init__(self) -> None:
        self.texts = list[str]()
        self.boxes = list[tuple[Any, ...]]()
        self.box_of = rendering.Picture.box

    def text(self, picture: Any, left: float, top: float, text: str, size: int = 13, *more: Any) -> None:
        self.texts.append(f"{left:g}, {top:g}: {text!r}, {size} {plainly(more) if more else ''}".rstrip())

    def box(self, picture: Any, *given: Any) -> None:
        self.boxes.append(tuple(map(plainly, given)))
        self.box_of(picture, *given)


def drawn_by(env: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield what a picture of an environment shows."""
    pen = Pen()
    with monkeypatch.context() as patched:
        patched.setattr(rendering.Picture, "text", lambda *given: pen.text(*given))
        patched.setattr(rendering.Picture, "box", lambda *given: pen.box(*given))
        for module in (rendering, scheduling_picture):
            patched.setattr(module, "measure_width", lambda text, size: 6.0 * len(text))
        scheduling_picture._background.cache_clear()
        pixels = env.render()
    scheduling_picture._background.cache_clear()
    yield from pen.texts
    digest = hashlib.sha256(repr(pen.boxes).encode()).hexdigest()[:12]
    yield f"{len(pen.boxes)} rectangles, {digest}"
    yield f"{pixels.shape} pixels without texts, {hashlib.sha256(pixels.tobytes()).hexdigest()[:12]}"


@pytest.mark.parametrize("name", EPISODES)
def test_a_picture_and_a_table_of_an_episode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    made, parameters, steps = EPISODES[name]
    lines = []
    for mode in ("rgb_array", "ansi"):
        env = made(mode, **parameters)
        env.reset(seed=4)
        for _ in range(steps):
            legal = np.flatnonzero(env.action_masks())
            env.step(int(legal[-1] if len(legal) < 3 else legal[1]))
        lines += drawn_by(env, monkeypatch) if mode == "rgb_array" else env.render().splitlines()
    check_lines(f"drawings/{name.replace(' ', '-')}.txt", lines)
