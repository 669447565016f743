"""`python -m clustergym.training.play FILE`: compares a network with policies on its environment's traces."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arguments import Parser
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.markdown import table
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.scenario.policy import InformationError, Policy
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation, StalledError
from clustergym.training.comparison import ratio
from clustergym.training.windows import SPLITS

FIGURES = ("jct_mean", "jct_p99", "restarts_mean", "gpu_utilization")
HEADERS = (
    "policy",
    "mean JCT, h (geometric mean)",
    "first / this: mean JCT",
    "p99 JCT",
    "restarts a job",
    "GPUs at work",
)


def compare(checkpoint: str, policies: Sequence[str], split: str, traces: int) -> str:
    """Run a network and policies in the simulator on the first traces of a split.

    All have the information and the decision points of the network's environment.

    Returns
    -------
    str
        A Markdown table; ratios are geometric means with 95 % bootstrap intervals.

    Raises
    ------
    InputError
        If the checkpoint or a policy is not valid, or a policy leaves a job.
    """
    from clustergym.training.network_checkpoints import load
    from clustergym.training.split_env import SplitEnv

    loaded = load(checkpoint)
    env = SplitEnv(loaded.env, split, traces)
    labels = ["learned", *policies]
    if loaded.about.get("trained_on_test"):
        labels[0] += " (trained on test traces)"
    if not isinstance(env.unwrapped, SchedulingEnv):
        raise InputError("schedules no jobs", file=checkpoint, remedy="give a checkpoint of a scheduler")
    texts = [f"learned checkpoint={checkpoint}", *policies]
    figures = np.array([_figures(env, index, texts) for index in range(traces)])
    rows = []
    for at, label in enumerate(labels):
        mean, p99 = (ratio(figures[:, 0, k], figures[:, at, k]) for k in (0, 1))
        hours = np.exp(np.log(figures[:, at, 0]).mean()) / 3600
        rest = figures[:, at, 2:].mean(axis=0)
        cells = [f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]" for found in (mean, p99)]
        rows.append([label, f"{hours:.3f}", *cells, f"{rest[0]:.2f}", f"{rest[1]:.3f}"])
    return table(HEADERS, rows)


def _figures(env: Any, index: int, policies: Sequence[str]) -> Floats:
    """Return `FIGURES` of each policy on a trace, shape (policies, figures)."""
    from clustergym.results.measured_run import measurement_of
    from clustergym.scenario.policy_text import policy_of

    env.reset(options={"index": index})
    core = env.unwrapped
    rows = []
    for text in policies:
        simulation = _run(core.scenario, policy_of(text, "--policy"), core.parameters)
        metrics = measurement_of(simulation).metrics
        rows.append([float(metrics[name] or 0.0) for name in FIGURES])
    return np.array(rows)


def _run(scenario: Scenario, policy: Policy, parameters: SchedulingParameters) -> Simulation:
    """Run a policy with the information and at the decision points of an environment."""
    placer = make_placer({"name": parameters.placer})
    simulation = Simulation(scenario, placer, parameters.information_class, parameters.round_s, 0)
    policy.check(simulation.known_trace, simulation.setting)
    policy.reset(simulation.setting, random_streams.POLICY.generator(0))
    try:
        while (view := simulation.advance()) is not None:
            simulation.apply(policy.schedule(view))
    except (StalledError, InformationError) as error:
        raise InputError(str(error), field=f"policy {policy.name}", remedy="leave it out") from error
    return simulation


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = Parser(prog="python -m clustergym.training.play", description=__doc__)
    parser.add_argument("checkpoint", help="a .safetensors file of ppo, dqn, maskable_ppo or masked_group_pg")
    parser.add_argument(
        "--policy", action="append", default=[], help="as 'ares work_conserving=true'; repeat"
    )
    parser.add_argument("--split", default="test", choices=SPLITS)
    parser.add_argument("--traces", type=int, default=20)
    given = parser.parse_args(sys.argv[1:] if argv is None else argv)
    if given.traces < 1:
        raise InputError(f"{given.traces} traces", field="--traces", remedy="give at least 1")
    print(compare(given.checkpoint, given.policy, given.split, given.traces))
    return 0


if __name__ == "__main__":
    sys.exit(main())
