"""One run of a policy on a board's scenario: its metrics, its digest and, where it is kept, its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal, NamedTuple

from clustergym.benchmark.leaderboard import DECISION_LIMIT_S
from clustergym.benchmark.leaderboard.cell_logs import pack
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.guard import StepWatchdog

Log = Literal["none", "decisions", "schedule"]
"""What is kept of a run: nothing, the policy's decisions, or also the nodes that the placer chose."""


class PlayedRun(NamedTuple):
    """What came out of a run.

    Attributes
    ----------
    digest : str
        Of its events.
    metrics : dict of str to float or None
    log : bytes
        Compressed; empty where none is kept.
    """

    digest: str
    metrics: Mapping[str, float | None]
    log: bytes


def play(
    scenario: Scenario,
    policy: Policy,
    placer: Placer,
    seed: int,
    log: Log = "none",
    limit_s: float | None = DECISION_LIMIT_S,
) -> PlayedRun:
    """Run a policy and a placer on a scenario; what is not of this project, in a process of its own.

    Raises
    ------
    StalledError, StoppedError
        If jobs wait for ever, or the policy exits or takes longer than `limit_s` for a decision.
    InputError
        If the scenario lacks what the policy needs, or something is not installed.
    """
    from clustergym.sim.child import run_supervised

    return run_supervised(partial(_play, scenario, policy, placer, seed, log), policy, placer, limit_s)


def _play(
    scenario: Scenario, policy: Policy, placer: Placer, seed: int, log: Log, watch: StepWatchdog
) -> PlayedRun:
    from clustergym.results.measured_run import make_result, simulate
    from clustergym.results.placement_log import simulate_recorded
    from clustergym.results.result_writing import decision_lines, make_content
    from clustergym.results.schedule_log import schedule_lines

    lines: Iterable[object] = ()
    if log == "schedule":
        run, recorded = simulate_recorded(scenario, policy, placer, seed, watch)
        content = make_content(make_result(run), policy, placer, seed)
        lines = schedule_lines(run.simulation, recorded.answers, content, placer.defragment_s)
    else:
        result = simulate(scenario, policy, placer, seed, watch=watch)
        content = make_content(result, policy, placer, seed)
        lines = decision_lines(result.run.simulation, content)
    return PlayedRun(content["digest"], content["metrics"], b"" if log == "none" else pack(lines))
