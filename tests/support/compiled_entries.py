"""The compiled clock, callable from Python, and the Python of compiled functions."""

from collections.abc import Callable
from typing import Any

from clustergym.sim.compiled import batch, clock
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_entry
from clustergym.sim.compiled.scenario_arrays import ClusterArrays


@compile_entry
def advance(episodes: Episode, cluster: ClusterArrays) -> int:
    """Move the first episode of a batch to its next decision point."""
    return clock.advance(batch.select_episode(episodes, 0), cluster)


@compile_entry
def enact(episodes: Episode, cluster: ClusterArrays) -> int:
    """Give each job of the first episode its target."""
    return clock.enact(batch.select_episode(episodes, 0), cluster)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python of a compiled function; the function itself where Numba compiles nothing."""
    return getattr(function, "py_func", function)  # type: ignore[no-any-return]
