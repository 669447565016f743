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
    "configuration": "scenario.configuration",
    "benchmark.speed": "benchmark.bench",
    "envs.benchmark": "benchmark.bench",
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
    "envs.placement.instances": "scenario.placement_problem",
    "envs.placement.communication": "scenario.placement_problem",
    "common.ray_workers": "common.processes",
    "results.policy_run": "results.run_job",
    "trace.readers.slurm_archive": "trace.readers.slurmdbd",
    "trace.cluster_options": "trace.records",
    "trace.names": "trace.records",
    "scenario.tenants.kueue_rules": "scenario.tenants.cohorts",
    "scenario.tenants.slurm_priority": "scenario.tenants.slurm_rules",
    "scenario.part_requests": "scenario.gpu_requests",
    "benchmark.papers.arnold_ablation_report": "benchmark.papers.arnold_ablation",
    "arrays": "common.arrays",
    "bench": "commands.bench",
    "bound": "commands.bound",
    "tune": "commands.tune",
    "cluster.__main__": "commands.cluster",
    "collect": "commands.collect",
    "compiled.auction": "agents.auction",
    "compiled.auction_episode": "agents.auction_episode",
    "compiled.auction_features": "agents.auction_features",
    "compiled.beliefs": "agents.beliefs",
    "compiled.biased_auction": "agents.plan",
    "compiled.lookahead": "agents.lookahead",
    "compiled.minipods": "agents.minipods",
    "compiled.move_queue": "agents.move_queue",
    "compiled.policies.speedup": "policies.hesrpt",
    "compiled.priced_jobs": "results.bounds.priced_jobs",
    "configuration.command_help": "commands.command_help",
    "envs.drawing": "envs.placement.drawing",
    "envs.placement_options": "envs.placement.drawing",
    "envs.placement_parameters": "envs.placement.drawing",
    "envs.placement_picture": "envs.placement.state",
    "envs.placement_state": "envs.placement.state",
    "envs.policy_text": "scenario.registry",
    "envs.sharing_observation": "envs.sharing.state",
    "envs.sharing_options": "envs.sharing.parameters",
    "envs.sharing_parameters": "envs.sharing.parameters",
    "envs.sharing_picture": "envs.sharing.state",
    "envs.sharing_state": "envs.sharing.state",
    "envs.step_time_cost": "envs.placement.environment",
    "evaluate": "commands.evaluate",
    "leaderboard.__main__": "commands.leaderboard",
    "learn.auction_checkpoints": "agents.auction_checkpoints",
    "learn.checkpoints": "agents.checkpoints",
    "learn.job_tables": "training.windows",
    "learn.lookahead": "agents.lookahead",
    "learn.plan": "agents.plan",
    "live.__main__": "commands.live",
    "metrics.bounds": "results.bounds.bounds",
    "metrics.certificates": "results.bounds.bounds",
    "metrics.price_search": "results.bounds.price_search",
    "offline": "commands.offline",
    "oracle.__main__": "commands.oracle",
    "placement.ablation": "benchmark.papers.arnold_ablation",
    "placement.ablation_report": "benchmark.papers.arnold_ablation",
    "placement.benchmark": "benchmark.papers.arnold_benchmark",
    "placement.benchmark_figures": "benchmark.papers.arnold_figures",
    "placement.benchmark_plot": "benchmark.papers.arnold_report",
    "placement.benchmark_report": "benchmark.papers.arnold_report",
    "placement.characterisation": "benchmark.papers.arnold_characterisation",
    "placement.fullness": "benchmark.papers.arnold_benchmark",
    "replay": "commands.replay",
    "report.__main__": "commands.report",
    "reproduce": "commands.reproduce",
    "results.engine_benchmark": "benchmark.bench.engine",
    "run": "commands.run",
    "scenarios.parts": "scenario.gpu_requests",
    "sharing.course": "results.metrics.parts",
    "sharing.filling_curve": "benchmark.papers.fgd",
    "sharing.fragmentation": "sim.parts.fragmentation",
    "sharing.known_scores": "sim.parts.placers",
    "sharing.placement": "sim.parts.placement",
    "sharing.placers": "sim.parts.placers",
    "sharing.tuned_arrivals": "benchmark.papers.fgd",
    "study.__main__": "commands.study",
    "trace.__main__": "commands.trace",
    "train": "commands.train",
    "twin": "commands.twin",
    "workload.convert": "commands.trace.convert",
    "workload.generate": "commands.trace.generate",
    "workload.pairs": "commands.trace.pairs",
    "agents.drawn_arrivals": "agents.lookahead",
    "cluster.fabric_plot": "cluster.fabric_tree",
    "envs.placement.settings": "envs.placement.drawing",
    "envs.placement.spread": "scenario.placement_problem",
    "oracle.measured.estimate": "oracle.measured.table_oracle",
    "oracle.models.model_schema": "oracle.models.catalog",
    "oracle.grid.partition": "oracle.grid.search",
    "oracle.roofline.memory_fit": "oracle.roofline.work",
    "results.metrics.part_course": "results.metrics.parts",
    "results.metrics.standing": "results.metrics.preemptions",
    "results.metrics.takings": "results.metrics.preemptions",
    "envs.sharing.desk": "envs.sharing.episode",
    "envs.vector.desk": "envs.vector.episode_state",
    "envs.vector.desks": "envs.vector.episode_states",
    "sim.compiled.happenings": "sim.compiled.episode",
    "results.metrics.states": "results.metrics.jobs",
    "results.metrics.fluid": "results.metrics.fairness",
    "results.report.lanes": "results.report.payload",
    "scenario.batch_choices": "scenario.scenario",
    "scenario.failure_files": "scenario.failure_draws",
    "scenario.tenants.capacity": "scenario.tenants.division",
    "scenario.tenants.assigned": "scenario.tenants.queue_tree",
    "training.baselines": "training.stable_baselines",
    "training.maskable_ppo": "training.imitating_agent",
    "training.imitation": "training.imitating_agent",
    "training.objective": "training.auction_evolution",
    "training.training_log": "training.training",
    "training.compiled_episodes": "training.simulated_episodes",
    "training.trace_files": "training.windows",
    "envs.reference_costs": "envs.scheduling_costs",
    "envs.placement.step_time_cost": "envs.placement.environment",
    "results.bounds.certificates": "results.bounds.bounds",
    "results.metrics.aggregates": "results.metrics.statistics",
    "sim.parts.known_scores": "sim.parts.placers",
    "oracle.models.model_class": "oracle.models.model_spec",
    "oracle.stacks.plan": "oracle.models.shape",
    "results.metrics.losses": "results.metrics.jobs",
    "scenario.tenants.history": "scenario.tenants.fair_share",
    "envs.placement.parameters": "envs.placement.drawing",
    "oracle.stacks.machine": "oracle.models.shape",
    "oracle.stacks.shape": "oracle.models.shape",
    "cluster.divisible": "cluster.parts",
    "cluster.part_allocations": "cluster.allocation",
    "envs.placement.core": "envs.placement.step_time",
    "envs.queue_costs": "envs.scheduling_costs",
    "envs.vector.single": "envs.vector.compiled_episode",
    "sim.compiled.cluster_arrays": "sim.compiled.scenario_arrays",
    "scenario.decision": "scenario.policy",
}
"""Other names of modules that the names of their packages do not lead to."""

CLASSES: dict[str, dict[str, str]] = {
    "agents.auction": {"Facts": "FeatureInputs", "Room": "AuctionBuffers"},
    "agents.beliefs": {"Observed": "RunStats", "Shown": "JobsView"},
    "agents.checkpoints": {"Stored": "CheckpointContent"},
    "agents.plan": {"Planned": "PlanPolicy"},
    "benchmark.leaderboard.agent_scores": {"AgentStanding": "RankedAgent"},
    "benchmark.leaderboard.best_known": {"Searched": "SearchOutcome"},
    "benchmark.leaderboard.entry": {"Chosen": "ComponentChoice"},
    "benchmark.leaderboard.retrain": {"Retrained": "RetrainingOutcome"},
    "benchmark.leaderboard.score": {"Standing": "RankedEntry"},
    "benchmark.papers.arena_claims": {"Compared": "RunComparison"},
    "benchmark.papers.arnold_benchmark": {"Solved": "SolverAnswer"},
    "benchmark.papers.fgd": {"Fill": "FillCurves"},
    "cluster.schema": {"Checked": "StrictSchema"},
    "envs.queue_imbalance": {"QueueCourse": "QueueImbalance"},
    "envs.scheduling_costs": {"QueueCourse": "QueueImbalance", "Yardsticks": "ReferenceCostTimes"},
    "envs.sharing.episode": {"Desk": "SharingEpisode"},
    "envs.vector.episode_state": {"Desk": "EpisodeState", "DeskRules": "EpisodeRules"},
    "envs.vector.episode_states": {"Desks": "EpisodeStates"},
    "live.backend": {"Finished": "FinishedAllocation", "Seen": "BackendStatus"},
    "results.metrics.parts": {"Course": "PartUsageHistory", "PartCourse": "PartUsage"},
    "results.metrics.preemptions": {"Standing": "QueueUsage", "Takings": "Preemptions"},
    "scenario.disturbance": {"Course": "ActiveDisturbance"},
    "scenario.disturbances.job_failures": {"Tries": "PendingJobFailures"},
    "scenario.disturbances.maintenance": {"Rota": "ActiveMaintenance"},
    "scenario.disturbances.reservations": {"Book": "ActiveReservations"},
    "sim.guard": {"Watch": "StepWatchdog"},
    "sim.parts.fragmentation": {"Usual": "UsualRequests"},
    "sim.parts.placement": {"Placed": "PlacedRequest"},
    "trace.draw": {"Drawn": "DrawnJobs"},
    "training.agents": {"Trained": "TrainingOutcome"},
}
"""Other names of classes, by module below `clustergym`; they are attributes of the module too."""


def own_name(name: str) -> str | None:
    """Return the present name of a module, given an earlier one; None if `name` is a present one.

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
    if found is None:
        return None
    later = f"clustergym.{found}{rest}"
    return own_name(later) or later


def find_other_names() -> None:
    """Install an import hook, so that modules can be imported by their earlier names."""
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
            return _with_other_classes(name, path)
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


def _with_other_classes(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return the spec of a module whose classes have other names; None: it has no such class."""
    classes = CLASSES.get(name.removeprefix("clustergym."))
    if classes is None:
        return None
    from importlib.machinery import PathFinder

    found = PathFinder.find_spec(name, path)
    if found is None or found.loader is None:
        return None
    run = found.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        for other, own in classes.items():
            setattr(module, other, getattr(module, own))

    found.loader.exec_module = exec_module  # type: ignore[method-assign]
    return found


class _Loader:
    """A loader that imports the real module, the same one for all of its names."""

    def __init__(self, own: ModuleSpec) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that Python makes a module; `exec_module` then replaces it."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the real module into `sys.modules` under its other name, where Python's import looks it up."""
        sys.modules[module.__name__] = import_module(self._own.name)

    def get_code(self, name: str) -> CodeType | None:
        """Return the code that `python -m NAME` runs."""
        code: CodeType | None = self._own.loader.get_code(self._own.name)  # type: ignore[union-attr]
        return code
