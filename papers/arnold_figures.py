"""All figures of `clustergym bench placement`; the command's help is there before its solvers are loaded."""

from __future__ import annotations

from typing import Any

STATES, QUICK_STATES, FEWEST_STATES = 20, 3, 3


def placement_figures(quick: bool, states: int, seed: int) -> dict[str, Any]:
    """Return all results of the placement benchmark on random cluster states; fewer cases if `quick`."""
    from clustergym.envs.placement.drawing import ALPHAS

    from .arnold_ablation import ablate
    from .arnold_benchmark import QUICK_ALPHAS, by_fullness, run_benchmark, say
    from .arnold_characterisation import characterise

    figures = run_benchmark(QUICK_ALPHAS if quick else ALPHAS, states, seed)
    figures["fullness"] = by_fullness(states, seed, quick)
    say("fullness")
    figures["characterisation"] = characterise(states, seed)
    figures["ablation"] = ablate(states, seed)
    return figures
