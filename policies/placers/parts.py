"""A placer of parts of GPUs, by the scores that FGD's paper compares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from clustergym.cluster.allocation import PartAllocations
from clustergym.cluster.parts import Place
from clustergym.cluster.spec import ClusterSpec
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Infeasible

from ..shared.part_placing import PartScores
from .buddy import Buddy


@dataclass
class PartPlacer(Buddy):
    """A placer for divisible GPUs, which gives each job the node that is best by the rule `score`.

    FGD (Weng et al., USENIX ATC 2023, section 5) keeps the idle GPUs that a usual request of the trace cannot
    use from growing; section 6 has the others. On a cluster of whole GPUs it places as `Buddy`.

    Parameters
    ----------
    defragment_s : float or None
        Seconds between calls of `Buddy`'s `defragment`, on a cluster of whole GPUs; None: never.
    score : str
        `fgd`, `best-fit`, `dot-product`, `gpu-clustering`, `gpu-packing` or `random-fit`.
    """

    name: ClassVar[str] = "parts"
    defragment_s: Period | None = None
    score: Literal["fgd", "best-fit", "dot-product", "gpu-clustering", "gpu-packing", "random-fit"] = "fgd"
    _scores: PartScores | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def places_parts(self) -> bool:
        """True: this placer places parts of GPUs."""
        return True

    def reset(self, cluster: ClusterSpec, rng: np.random.Generator) -> None:
        """Prepare for a run on a cluster; only the score `random-fit` uses `rng`."""
        super().reset(cluster, rng)
        self._scores = PartScores(self.score, rng)

    def place_part(self, allocations: PartAllocations, job: int) -> Place | Infeasible:
        """Choose the node with the highest score for a job, and a GPU there."""
        assert self._scores is not None
        return self._scores.place(allocations, job)
