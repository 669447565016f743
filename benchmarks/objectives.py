"""What credit by job learns from scratch where the reward is more than a low mean JCT.

    nice python benchmarks/objectives.py deadline-16 --steps 1000000 --policies elasticflow hesrpt
    nice python benchmarks/objectives.py fair-16 --policies ares hesrpt --env round_s=300
    nice python benchmarks/objectives.py tenants-16 --env round_s=300 'reward={"jobs_in_system": 1.0}'

Trains on the split `train` with the agent's settings, and prints mean returns on the 40 traces of the
split `test`, with percentiles of 10,000 resamplings of seeds and traces: of greedy play, of random play, and
of policies, simulated on the same traces, with what they know and at their own decision points. A score is
0 for random play and 1 for the best of the policies. The curve is of the split `dev`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tiers import POINTS, TRACES, CurveRecorder, Decide, Judge, envs_of, find_tier, interval, read_values

from clustergym.common.errors import exits_on_bad_input
from clustergym.common.writing import atomic_path
from clustergym.training.job_credit import JobCreditLearner
from clustergym.training.job_credit_agent import JobCreditAgent

Returns = npt.NDArray[np.float64]


def find_returns(name: str, policy: str, parameters: dict[str, Any], agent: Decide, own: Returns) -> Returns:
    """Compute a policy's return on each test trace: an agent's, `own`, less what the agent gains over it."""
    return own - Judge(name, "test", TRACES, **{**parameters, "baseline": policy}).play(agent).returns


def train(name: str, seed: int, given: argparse.Namespace, dev: Judge) -> tuple[Decide, list[Any]]:
    """Train with credit by job; return how it plays, and its curve of CPU-seconds, steps and dev returns."""
    envs = envs_of(name, 32, split="train", summaries=False, **given.parameters)
    learner = JobCreditLearner(envs, JobCreditAgent(), seed)
    recorder = CurveRecorder(seed, given.steps, lambda: float(dev.play(learner.decide).returns.mean()))
    # Not before the first tenth: greedy play of an agent that has learned nothing takes long to end.
    for point in range(1, POINTS + 1):
        if learner.num_timesteps < given.steps * point // POINTS:
            learner.learn(given.steps * point // POINTS, given.steps)
        recorder.measure(learner.num_timesteps, last=True)
    envs.close()
    return learner.decide, recorder.curve


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tier", help="as deadline-16")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the environments, each seed")
    parser.add_argument("--env", nargs="+", default=[], metavar="NAME=VALUE", help="parameters, as jobs=50")
    parser.add_argument("--policies", nargs="+", default=["hesrpt"], metavar="POLICY")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(argv)
    name, given.parameters = find_tier(given.tier), {"jobs": 50, **read_values("--env", given.env)}
    dev, test = (Judge(name, split, TRACES, **given.parameters) for split in ("dev", "test"))
    found = {"random play": test.play(test.draw).returns[None]}
    curves: list[list[Any]] = []
    played: list[Returns] = []
    for seed in range(given.seeds):
        decide, curve = train(name, seed, given, dev)
        played.append(test.play(decide).returns)
        curves.append(curve)
    for policy in given.policies:
        found[policy] = find_returns(name, policy, given.parameters, decide, played[-1])[None]
    found["credit by job"] = np.stack(played)
    best = max(float(found[policy].mean()) for policy in given.policies)
    random = float(found["random play"].mean())
    for label, returns in found.items():
        mean, low, high = interval(returns)
        print(f"{label}: {mean:.3f} [{low:.3f}, {high:.3f}], score {(mean - random) / (best - random):.2f}")
    if given.json is not None:
        figures = {label: returns.tolist() for label, returns in found.items()} | {"curves": curves}
        with atomic_path(given.json) as temporary:
            temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {given.json}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
