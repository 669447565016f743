"""Load scenarios of conf/scenario by name and overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clustergym.scenario.scenario import Scenario


def compose(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the configuration that `python -m clustergym.run` would use with these overrides."""
    from clustergym.scenario.configuration.hydra_edge import compose_config

    return compose_config("config", overrides)


def load_scenario(name: str = "testbed", overrides: Sequence[str] = (), seed: int = 0) -> Scenario:
    """Build a scenario by its name in conf/scenario, with configuration overrides and a seed.

    Parameters
    ----------
    name : str
    overrides : sequence of str
        As on the command line: `cluster=arena-sim`, `horizon_s=3600`.
    seed : int
        An override `seed=N` comes before it.
    """
    from clustergym.scenario.scenario_config import build_scenario

    return build_scenario(compose([f"scenario={name}", f"seed={seed}", *overrides]))
