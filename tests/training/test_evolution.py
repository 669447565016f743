"""A search that goes on from its history."""

from pathlib import Path

import cma
import numpy as np

from clustergym.common.arrays import Floats
from clustergym.training.evolution import History, evolve


def test_generations_of_the_history_and_new_ones_are_counted_alike(tmp_path: Path) -> None:
    def search() -> cma.CMAEvolutionStrategy:
        return cma.CMAEvolutionStrategy([1.0, 2.0], 0.5, {"seed": 1, "verbose": -9, "popsize": 4})

    def validate(mean: Floats) -> tuple[float, Floats]:
        return float(mean @ mean), mean

    def fitness(number: int, candidates: object) -> list[float]:
        return [float(one @ one) for one in np.asarray(candidates)]

    shown: list[tuple[int, int, list[str]]] = []
    key = {"generations": 2, "validate_every": 1, "population": 4}
    history = History(key)
    evolve(history, search(), fitness, validate, tmp_path / "state.json", lambda *_: None)
    key = {**key, "generations": 3}
    more = History(key, fitness=history.fitness, validated=history.validated)
    evolve(
        more, search(), fitness, validate, tmp_path / "state.json",
        lambda done, of, figures: shown.append((done, of, sorted({*figures} - {"seconds"}))),
    )  # fmt: skip
    columns = ["objective", "sigma", "validation"]
    # Two of the history, then the third.
    assert shown == [(0, 3, []), (1, 3, columns), (2, 3, columns), (3, 3, columns)]
