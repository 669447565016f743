"""Score a program from a file on drawn traces of a split: mean JCT over that of srtf on the same traces."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.errors import InputError, require_known
from clustergym.common.parameter_types import PositiveInt
from clustergym.common.parameters import check_value
from clustergym.envs.episodes import SPLITS, TRACES_OF, Episodes, trace_seed
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.scenario.policy import Policy
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import simulate
from clustergym.sim.engine import StalledError
from clustergym.sim.program import Limits, Program, read_program

ENVIRONMENT = "ClusterGym/Elastic-16-v1"
"""Whose traces are drawn."""
TRACES = 8
SRTF_S = {
    "dev": (
        *(12224.33478915, 7824.20153912, 9527.04364335, 11628.13923722),
        *(9528.3420001, 11477.07890018, 10114.57562208, 8116.03194962),
    )
}
"""Mean JCTs of srtf on the first traces of a split, which need not be simulated again for every program."""


def score_program(
    file: Path, split: str = "dev", traces: int = TRACES, limits: Limits | None = None
) -> dict[str, Any]:
    """Run a policy program on a split's first traces, and score its mean JCT relative to that of srtf.

    Returns
    -------
    dict
        `score`: geometric mean over traces of mean JCT / that of srtf, lower is better; null where the
        program fails, and `error` then says why in one line. `traces`: the figures of each trace.

    Raises
    ------
    InputError
        If the file cannot be read, or for the split test: its scores come from a leaderboard alone.
    """
    _check_split(split, traces)
    text, began_s = read_program(file), _cpu_s()
    outcome: dict[str, Any] = {"file": str(file), "split": split, "environment": ENVIRONMENT}
    outcome |= {"score": None, "error": None, "information_class": None, "traces": []}
    rows: list[dict[str, Any]] = outcome["traces"]
    try:
        with Program(text, limits or Limits()) as program:
            outcome["information_class"] = program.information_class.value
            for scenario, reference_s in zip(*_references(split, traces), strict=True):
                mean_s = _mean_jct_s(scenario, program)
                rows.append(
                    {"seed": trace_seed(split, len(rows)), "jct_mean_s": mean_s, "srtf_s": reference_s}
                )
        ratios = [row["jct_mean_s"] / row["srtf_s"] for row in rows]
        outcome["score"] = float(np.exp(np.log(ratios).mean()))
    except (InputError, StalledError) as error:
        outcome["error"] = " ".join(str(error).split())
    outcome["cpu_s"] = round(_cpu_s() - began_s, 3)
    return outcome


def _check_split(split: str, traces: int) -> None:
    require_known(split, SPLITS, "split", "split")
    if split == "test":
        message = "is scored by a leaderboard alone, so that nothing is fitted to it"
        raise InputError(message, field="split test", remedy="give --split dev")
    check_value(traces, PositiveInt, "traces")
    most = TRACES_OF.get(split, 2**31)
    if traces > most:
        raise InputError(f"has {most} traces, not {traces}", field=f"split {split}", remedy="give fewer")


def draw(split: str, traces: int) -> list[Scenario]:
    """Return the scenarios of a split's first traces in the environment in which programs are scored."""
    (row,) = (one for one in ENVIRONMENTS if one.id == ENVIRONMENT)
    episodes = Episodes(SchedulingParameters(**row.kwargs))
    rng = random_streams.FIRST_EPISODE.generator(0)
    return [episodes.choose({"trace_seed": trace_seed(split, at)}, rng) for at in range(traces)]


def _references(split: str, traces: int) -> tuple[Sequence[Scenario], Sequence[float]]:
    """Return the scenarios of the first traces of a split, and the mean JCT of srtf on each."""
    # Those of more traces than are known are simulated, in order.
    scenarios, known = draw(split, traces), SRTF_S.get(split, ())[:traces]
    return scenarios, [*known, *(srtf_s(one) for one in scenarios[len(known) :])]


def srtf_s(scenario: Scenario) -> float:
    """Return the mean JCT in seconds of the policy srtf on a scenario."""
    return _mean_jct_s(scenario, make_policy({"name": "srtf"}))


def _mean_jct_s(scenario: Scenario, policy: Policy) -> float:
    """Return the mean JCT of all jobs, which all complete."""
    run = simulate(scenario, policy, make_placer({"name": "buddy"}))
    log = run.simulation.log
    jcts = [
        one.time_s - scenario.trace.submit_s[one.job] for one in log.events if one.event_type == "complete"
    ]
    return float(np.mean(jcts))


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of those it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
