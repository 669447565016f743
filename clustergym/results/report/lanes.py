"""On which part of which GPU each holding is drawn, in runs whose jobs share GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clustergym.cluster.parts import WHOLE
from clustergym.results.report.event_curves import Holding


class Box(NamedTuple):
    """A part of one GPU of a node, in thousandths of it from the top."""

    gpu: int
    top: int
    height: int


class _Taken(NamedTuple):
    box: Box
    until_s: float


def shares(held: Iterable[Holding]) -> bool:
    """Whether some job has a part of a GPU, or shares GPUs with another."""
    return any(holding.beside or holding.devices is not None for holding in held)


def boxes_of(held: Sequence[Holding], node_gpus: Sequence[int]) -> list[list[list[Box]]]:
    """Return the boxes of each holding on each of its nodes.

    A part of a GPU takes what is free of its device from the top, in several boxes if need be. Of a pair
    each job has half of every GPU while it has a partner. Other jobs have the first free GPUs of a node.

    Parameters
    ----------
    held : sequence of Holding
        Sorted by start.
    node_gpus : sequence of int
        GPUs of each node; jobs that find no room on a node have no boxes there.
    """
    lanes = _Lanes(node_gpus)
    order = sorted(range(len(held)), key=lambda at: (held[at].start_s, not held[at].goes_on))
    found: list[list[list[Box]]] = [[] for _ in held]
    for at in order:
        found[at] = [lanes.place(held[at], node, gpus) for node, gpus in held[at].nodes]
    return found


class _Lanes:
    """The GPUs of all nodes, of each of which boxes are taken until some time."""

    def __init__(self, node_gpus: Sequence[int]) -> None:
        self._node_gpus = node_gpus
        self._taken: dict[tuple[int, int], list[_Taken]] = {}
        self._last: dict[tuple[int, str], tuple[list[Box], float]] = {}

    def place(self, holding: Holding, node: int, gpus: int) -> list[Box]:
        if holding.devices is not None:
            boxes = [box for gpu in holding.devices for box in self._part(node, gpu, holding)]
        else:
            boxes = self._whole_or_half(holding, node, gpus)
        boxes = [box for box in boxes if box.gpu < self._gpus(node)]
        for box in boxes:
            self._held(node, box.gpu, holding.start_s).append(_Taken(box, holding.end_s))
        self._last[node, holding.job] = boxes, holding.end_s
        return boxes

    def _part(self, node: int, gpu: int, holding: Holding) -> list[Box]:
        """Return the first free box that a share of a device fits into, or several that add up to it."""
        left = holding.gpu_milli
        gaps = self._gaps(node, gpu, holding.start_s)
        whole = next((gap for gap in gaps if gap.height >= left), None)
        found = []
        for gap in gaps if whole is None else [whole]:
            height = min(gap.height, left)
            if height > 0:
                found.append(gap._replace(height=height))
                left -= height
        return found

    def _gaps(self, node: int, gpu: int, start_s: float) -> list[Box]:
        """Return what is free of a GPU from a time on, from the top."""
        found, top = [], 0
        for box in sorted(taken.box for taken in self._held(node, gpu, start_s)):
            if box.top > top:
                found.append(Box(gpu, top, box.top - top))
            top = max(top, box.top + box.height)
        return [*found, Box(gpu, top, WHOLE - top)] if top < WHOLE else found

    def _whole_or_half(self, holding: Holding, node: int, gpus: int) -> list[Box]:
        own = self._last[node, holding.job][0] if holding.goes_on else []
        theirs, until_s = self._last.get((node, holding.beside), ([], -1.0))
        if own:
            places, top = [box.gpu for box in own], own[0].top
        elif holding.beside and until_s > holding.start_s:
            places, top = [box.gpu for box in theirs], 0 if theirs and theirs[0].top else WHOLE // 2
        else:
            free = (gpu for gpu in range(self._gpus(node)) if not self._held(node, gpu, holding.start_s))
            places, top = [gpu for gpu, _ in zip(free, range(gpus), strict=False)], 0
        if holding.beside:
            return [Box(gpu, top, WHOLE // 2) for gpu in places]
        return [Box(gpu, 0, WHOLE) for gpu in places]

    def _gpus(self, node: int) -> int:
        return self._node_gpus[node] if node < len(self._node_gpus) else 0

    def _held(self, node: int, gpu: int, start_s: float) -> list[_Taken]:
        """Return what is taken of a GPU from a time on; later calls are of no earlier times."""
        held = [taken for taken in self._taken.get((node, gpu), ()) if taken.until_s > start_s]
        self._taken[node, gpu] = held
        return held
