"""A search by CMA-ES (Hansen and Ostermeier, 2001) that a killed training can go on with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from annotated_types import Ge

from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import PositiveFloat, PositiveInt
from clustergym.common.paths import require_extra
from clustergym.common.reading import read_json
from clustergym.common.writing import atomic_path
from clustergym.training.agents import Agent, Progress

SCHEMA = "clustergym.evolution/1"
LARGEST_BYTES = 2**28
REMEDY = "delete it, or give another output="


def start_search(mean: Floats, sigma: float, population: int, seed: int, diagonal: bool) -> Any:
    """Make a CMA-ES search that starts from a mean and step size `sigma`, with its own random stream."""
    with require_extra("needs the package cma", "learn", "agent"):
        import cma
    # cma draws from NumPy's global stream, unless `randn` says otherwise; a seed of NaN leaves that alone.
    # Each generation meets other episodes, so that a flat stretch says nothing: it must not stop the search.
    rng = random_streams.EVOLUTION.generator(seed)
    options = {
        "popsize": population,
        "verbose": -9,
        "seed": float("nan"),
        "randn": lambda *shape: rng.standard_normal(shape),
        "tolstagnation": 10**9,
        "CMA_diagonal": diagonal,
    }
    return cma.CMAEvolutionStrategy(mean, sigma, options)


@dataclass
class History:
    """All fitness values of a search, from which the CMA-ES state is rebuilt when a killed run continues.

    Attributes
    ----------
    key : dict
        Seed and parameters; a state of another key is refused.
    fitness : list of list of float
        Of each generation's candidates.
    validated : list of list of float
        Generation, objective on the dev split, weights.
    """

    key: dict[str, Any]
    fitness: list[list[float]] = field(default_factory=list)
    validated: list[list[float]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, key: dict[str, Any]) -> Self:
        """Read the progress of a training with these parameters (`key`); it is empty if there is no file."""
        # As it comes back from JSON, with lists for tuples.
        key = json.loads(json.dumps(key))
        if not path.is_file():
            return cls(key)
        try:
            found = read_json(path, LARGEST_BYTES, REMEDY)
            ours = found.pop("schema") == SCHEMA and found["key"] == key
            history = cls(**found)
            if ours:
                history.check()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError("is not a state of a training", file=path, remedy=REMEDY) from error
        if not ours:
            raise InputError("is of a training with other parameters", file=path, remedy=REMEDY)
        return history

    def write(self, path: Path) -> None:
        """Write the progress to a file, atomically."""
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps({"schema": SCHEMA, **asdict(self)}), encoding="utf-8")

    def check(self) -> None:
        """Raise a ValueError if the history cannot come from a training with the parameters in its `key`."""
        every, last = int(self.key["validate_every"]), int(self.key["generations"])
        done = range(1, len(self.fitness) + 1)
        numbers = np.array(self.fitness, dtype=np.float64).reshape(len(self.fitness), self.key["population"])
        validated = [[float(value) for value in row] for row in self.validated]
        # By the parameters: no training writes a state that misses a validation.
        due = [number for number in done if number % every == 0 or number == last]
        if [row[0] for row in validated] != due or len(done) > last or not np.isfinite(numbers).all():
            raise ValueError("values that no training has written")
        if len({len(row) for row in validated}) > 1 or not np.isfinite(validated).all():
            raise ValueError("values that no training has written")

    def figures(self, generation: int, search: Any) -> dict[str, float]:
        """Return the objective, step size and, if measured, validation after a generation, by name."""
        figures = {"objective": float(np.mean(self.fitness[generation - 1])), "sigma": float(search.sigma)}
        validated = {int(row[0]): row[1] for row in self.validated}
        return figures | ({"validation": validated[generation]} if generation in validated else {})

    def outcome(self) -> tuple[Floats, dict[str, Any]]:
        """Return the weights with the best validation, and the objective and validation over time."""
        best = min(self.validated, key=lambda row: row[1])
        curves = {
            "objective": [float(np.mean(row)) for row in self.fitness],
            "validation": [[int(row[0]), float(row[1])] for row in self.validated],
        }
        return np.array(best[2:]), curves


def evolve(
    history: History,
    search: Any,
    compute_fitness: Callable[[int, Sequence[Floats]], Sequence[float]],
    validated: Callable[[Floats], tuple[float, Floats]],
    state: Path,
    progress: Progress,
) -> tuple[Floats, dict[str, Any]]:
    """Run a CMA-ES search, or continue a stored one; return the best weights and the figures over time.

    Parameters
    ----------
    history : History
        Its key has the numbers of `generations` and of generations between validations, `validate_every`.
    search : cma.CMAEvolutionStrategy
        At its start; it is brought to where the history ends.
    compute_fitness : callable
        Takes the number of a generation, from 0, and its candidates; returns the objective of each.
    validated : callable
        Takes the distribution's mean; returns its objective on the dev split, and the weights it stands for.
    state : Path
        Where the history is written after every generation.
    progress : callable
    """
    generations, every = int(history.key["generations"]), int(history.key["validate_every"])
    progress(0, generations, {})
    # The search is not pickled: asked and told again, it stands where it stood, to the last bit.
    for number, fitness in enumerate(history.fitness, start=1):
        search.tell(search.ask(), fitness)
        progress(number, generations, history.figures(number, search))
    for number in range(len(history.fitness) + 1, generations + 1):
        began = time.monotonic()
        candidates = search.ask()
        history.fitness.append(list(compute_fitness(number - 1, candidates)))
        search.tell(candidates, history.fitness[-1])
        # The mean, not the best candidate: that was best on a few noisy episodes.
        if number % every == 0 or number == generations:
            value, weights = validated(search.mean)
            history.validated.append([number, value, *weights.tolist()])
        history.write(state)
        took = {"seconds": time.monotonic() - began}
        progress(number, generations, {**history.figures(number, search), **took})
    return history.outcome()


@dataclass
class EvolutionAgent(Agent):
    """Base of the agents whose weights CMA-ES searches.

    Parameters
    ----------
    generations, population, episodes : int
        Candidates a generation, episodes that each of them plays.
    validate_every, validation : int
        Generations between validations; episodes of each.
    sigma : float
        Initial step.
    """

    generations: PositiveInt = 60
    population: Annotated[int, Ge(4)] = 16
    episodes: PositiveInt = 32
    validate_every: PositiveInt = 5
    validation: PositiveInt = 64
    sigma: PositiveFloat = 0.3
    split = "train"

    def read_history(self, state: Path, seed: int, **key: Any) -> History:
        """Return the progress that a killed run of the same training saved; empty if there is none."""
        return History.read(state, {"agent": self.name, "seed": seed, **key, **asdict(self)})
