"""Other names of modules: `clustergym.run` is `clustergym.commands.run`.

So `python -m clustergym.COMMAND` runs every command, and what pickles, plugins and recorded configurations
name by an earlier place of its module is found where the module is. Nothing is imported unasked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

PACKAGES = {
    "compiled": "sim.compiled",
    "compiled.policies": "agents.compiled_policies",
    "configuration": "scenario.configuration",
    "envs.benchmark": "benchmark.speed",
    "inputs": "common",
    "interface": "scenario",
    "leaderboard": "benchmark.leaderboard",
    "learn": "training",
    "metrics": "results.metrics",
    "models": "oracle.models",
    "oracle.commands": "commands.oracle",
    "placement": "envs.placement",
    "report": "results.report",
    "reproduction": "benchmark.papers",
    "scenarios": "scenario",
    "sharing": "envs.sharing",
    "study": "benchmark.study",
    "tenants": "scenario.tenants",
    "terminal": "common",
    "workload": "trace",
}
"""Other names of packages below `clustergym`; their modules are found below the package's own name."""

MODULES = {
    "arrays": "common.arrays",
    "bench": "commands.bench",
    "bound": "commands.bound",
    "cluster.__main__": "commands.cluster",
    "collect": "commands.collect",
    "compiled.auction": "agents.auction",
    "compiled.auction_episode": "agents.auction_episode",
    "compiled.auction_features": "agents.auction_features",
    "compiled.beliefs": "agents.beliefs",
    "compiled.biased_auction": "agents.biased_auction",
    "compiled.lookahead": "agents.lookahead",
    "compiled.minipods": "agents.minipods",
    "compiled.move_queue": "agents.move_queue",
    "compiled.policies.speedup": "agents.speedup",
    "compiled.priced_jobs": "results.bounds.priced_jobs",
    "configuration.command_help": "commands.command_help",
    "envs.drawing": "envs.placement.drawing",
    "envs.placement_options": "envs.placement.options",
    "envs.placement_parameters": "envs.placement.parameters",
    "envs.placement_picture": "envs.placement.picture",
    "envs.placement_state": "envs.placement.state",
    "envs.policy_text": "scenario.policy_text",
    "envs.sharing_observation": "envs.sharing.observation",
    "envs.sharing_options": "envs.sharing.options",
    "envs.sharing_parameters": "envs.sharing.parameters",
    "envs.sharing_picture": "envs.sharing.picture",
    "envs.sharing_state": "envs.sharing.state",
    "envs.step_time_cost": "envs.placement.step_time_cost",
    "evaluate": "commands.evaluate",
    "leaderboard.__main__": "commands.leaderboard",
    "learn.auction_checkpoints": "agents.auction_checkpoints",
    "learn.checkpoints": "agents.checkpoints",
    "learn.job_tables": "agents.job_tables",
    "learn.lookahead": "agents.drawn_arrivals",
    "learn.plan": "agents.plan",
    "live.__main__": "commands.live",
    "metrics.bounds": "results.bounds.bounds",
    "metrics.certificates": "results.bounds.certificates",
    "metrics.price_search": "results.bounds.price_search",
    "offline": "commands.offline",
    "oracle.__main__": "commands.oracle",
    "placement.ablation": "benchmark.papers.arnold_ablation",
    "placement.ablation_report": "benchmark.papers.arnold_ablation_report",
    "placement.benchmark": "benchmark.papers.arnold_benchmark",
    "placement.benchmark_figures": "benchmark.papers.arnold_figures",
    "placement.benchmark_plot": "benchmark.papers.arnold_plot",
    "placement.benchmark_report": "benchmark.papers.arnold_report",
    "placement.characterisation": "benchmark.papers.arnold_characterisation",
    "placement.fullness": "benchmark.papers.arnold_fullness",
    "replay": "commands.replay",
    "report.__main__": "commands.report",
    "reproduce": "commands.reproduce",
    "results.engine_benchmark": "benchmark.speed.engine",
    "run": "commands.run",
    "scenarios.parts": "scenario.part_requests",
    "sharing.course": "results.metrics.part_course",
    "sharing.filling_curve": "benchmark.papers.fgd_filling_curve",
    "sharing.fragmentation": "sim.parts.fragmentation",
    "sharing.known_scores": "sim.parts.known_scores",
    "sharing.placement": "sim.parts.placement",
    "sharing.placers": "sim.parts.placers",
    "sharing.tuned_arrivals": "benchmark.papers.fgd_tuned_arrivals",
    "study.__main__": "commands.study",
    "trace.__main__": "commands.trace",
    "train": "commands.train",
    "workload.convert": "commands.trace.convert",
    "workload.generate": "commands.trace.generate",
    "workload.pairs": "commands.trace.pairs",
}
"""Other names of modules that the names of their packages do not lead to."""


def own_name(name: str) -> str | None:
    """Return the own name of a module of `clustergym`; None: the name that is given is its own.

    >>> own_name("clustergym.run"), own_name("clustergym.interface.policy")
    ('clustergym.commands.run', 'clustergym.scenario.policy')
    """
    package, _, below = name.partition(".")
    if package != "clustergym":
        return None
    found, rest = MODULES.get(below), ""
    while found is None and below:
        found = PACKAGES.get(below)
        if found is None:
            below, _, last = below.rpartition(".")
            rest = f".{last}{rest}"
    return None if found is None else f"clustergym.{found}{rest}"


def find_other_names() -> None:
    """Let imports find modules by their other names."""
    if not any(getattr(finder, "finds_other_names", False) for finder in sys.meta_path):
        # First: below a package that is imported by another name, its folder would give a second copy.
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """An import hook for other names."""

    finds_other_names = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        own = own_name(name)
        if own is None:
            return None
        from importlib.machinery import ModuleSpec
        from importlib.util import find_spec

        found = find_spec(own)
        if found is None:
            return None
        # A command with files of its own is a package, and Python runs none of the name `__main__`.
        is_package = found.submodule_search_locations is not None and not name.endswith(".__main__")
        # With its origin `__main__` has a file under `python -m`, by which Ray names its driver.
        loader = _Loader(found)
        return ModuleSpec(name, loader, origin=found.origin, is_package=is_package)  # type: ignore[arg-type]


class _Loader:
    """Gives the module that has the own name, the same one for all names."""

    def __init__(self, own: ModuleSpec) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make a module, which `exec_module` puts another in place of."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module in place of the new one; Python takes what stands in `sys.modules` afterwards."""
        sys.modules[module.__name__] = import_module(self._own.name)

    def get_code(self, name: str) -> CodeType | None:
        """Return what `python -m NAME` runs."""
        code: CodeType | None = self._own.loader.get_code(self._own.name)  # type: ignore[union-attr]
        return code
