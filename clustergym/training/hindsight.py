"""The search in hindsight: a schedule of a known trace, by the auction with a bias for each job.

The searcher knows the whole trace, every time a job will really run at and all failures, and plays the same
trace again and again: simulated annealing (Kirkpatrick et al., Science 1983) of the auction's weights and of
the biases, from the best checkpoint of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from clustergym.agents.auction_checkpoints import load
from clustergym.agents.plan import Plan
from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats
from clustergym.envs.scheduling_costs import ReferenceCostTimes
from clustergym.results.bounds.bounds import compute_weights
from clustergym.scenario.scenario import Scenario
from clustergym.training.simulated_episodes import plan_episodes

STARTS = (
    "elastic",
    "elastic-linear",
    "elastic-seed-1",
    "elastic-seed-2",
    "elastic-384",
    "elastic-sia",
    "elastic-sia-seed-1",
    "elastic-sia-seed-2",
    "fair",
    "deadline",
)
"""Checkpoints whose weights are played first; the search goes on from the best."""

LEANINGS = tuple((factor, factor * share) for factor in (1.0, 3.0) for share in (1.0, 0.3, 0.0))
"""Biases of a job's start and of its doublings, by the log of its weight over the geometric mean of all."""
WEIGHTS_CHANGED = 0.15
"""Share of the weights that a proposal changes, if it changes weights."""
JOBS_CHANGED, BIAS_STEP = 3.0, 0.7
"""Mean number of jobs whose biases a proposal changes; its step, times 2 to the power of -2 to 2."""
LATE_S = 600.0
"""Lateness that counts half of all there can be."""


class Proposals(NamedTuple):
    """What a search tries next to the plan that it has come to.

    Attributes
    ----------
    types : float
        Share of the proposals that keep a job off a GPU type, or no longer, where there are several.
    weights : float
        Share of the others that change weights, and not biases of jobs. On traces of many jobs a change of
        a few jobs' biases gains little.
    step : float
        Of the weights, over 1 + their absolute values.
    """

    types: float = 0.4
    weights: float = 0.2
    step: float = 0.05


USUAL = Proposals()

Judge = Callable[[Scenario], Callable[[Floats], float]]


def _deadlines_missed(jct_s: Floats, yardsticks: ReferenceCostTimes) -> float:
    """Return the share of missed deadlines, plus a tie-break below one job's share for how late they are."""
    late_s = yardsticks.submit_s + jct_s - yardsticks.deadline_s
    late_s = late_s[late_s > 0]
    n = len(jct_s)
    return float(len(late_s) + (late_s / (late_s + LATE_S)).sum() / n) / n


def _by_yardsticks(value: Callable[[Floats, ReferenceCostTimes], float]) -> Judge:
    def judge(scenario: Scenario) -> Callable[[Floats], float]:
        yardsticks = ReferenceCostTimes.from_scenario(scenario)
        return lambda jct_s: value(jct_s, yardsticks)

    return judge


def _of_tenants(scenario: Scenario) -> Callable[[Floats], float]:
    weight = compute_weights(scenario, "tenant_ftf_mean")
    return lambda jct_s: float(np.log(weight @ jct_s))


class Goal(NamedTuple):
    """What the search for a trace's best schedule minimises, and its simulated annealing's temperature.

    Attributes
    ----------
    judge : callable
        From a scenario to a function of its jobs' JCTs.
    temperature : float
    weighed : bool
        Whether the search also starts from biases by what a second of each job's JCT adds to the metric.
    """

    judge: Judge
    temperature: float
    weighed: bool = False


GOALS = {
    "jct_mean": Goal(_by_yardsticks(lambda jct_s, _: float(np.log(jct_s.mean()))), 0.0003),
    "ftf_mean": Goal(
        _by_yardsticks(lambda jct_s, yardsticks: float(np.log((jct_s / yardsticks.fair_s).mean()))), 0.0003
    ),
    "tenant_ftf_mean": Goal(_of_tenants, 0.0003, weighed=True),
    "deadline_satisfaction": Goal(_by_yardsticks(_deadlines_missed), 0.001),
}
"""By the metric that is to be the best."""


def search(
    scenario: Scenario, metric: str, evaluations: int, seed: int, index: int = 0, proposals: Proposals = USUAL
) -> Plan:
    """Try `evaluations` plans (auction weights and biases) on a scenario; return the best by `metric`.

    Parameters
    ----------
    scenario : Scenario
    metric : str
        One of `GOALS`.
    evaluations : int
        Episodes, those of the starts among them.
    seed, index : int
        A search draws from a stream of its own for each index, such as the place of a cell.
    proposals : Proposals
    """
    rng, goal = random_streams.HINDSIGHT_SEARCH.generator(seed, index), GOALS[metric]
    fits = np.any(scenario.feasible[scenario.class_of], axis=2)
    jct_s_of, judged = plan_episodes(scenario), goal.judge(scenario)

    def compute_value(plan: Plan) -> float:
        return judged(jct_s_of(plan))

    starts = _starts(scenario, metric)[:evaluations]
    value, here = min(((compute_value(plan), plan) for plan in starts), key=lambda pair: pair[0])
    best_value, best = value, here
    for left in range(evaluations - len(starts), 0, -1):
        # Down to 0 on a line; worse plans are accepted with probability exp((value - found) / temperature).
        temperature = goal.temperature * left / evaluations
        plan = _near(here, fits, proposals, rng)
        found = compute_value(plan)
        if found <= value or rng.random() < np.exp((value - found) / temperature):
            value, here = found, plan
        if value < best_value:
            best_value, best = value, here
    return best


def _starts(scenario: Scenario, metric: str) -> list[Plan]:
    """Return the plans with which the search begins: each of `STARTS`, with and without biases if asked."""
    biases = [np.zeros((len(scenario.trace), len(scenario.cluster.gpu_types), 2))]
    if GOALS[metric].weighed:
        weight = compute_weights(scenario, metric)
        counts = weight > 0
        shown = np.zeros(len(weight))
        shown[counts] = np.log(weight[counts]) - np.log(weight[counts]).mean()
        biases += [biases[0] + shown[:, None, None] * leaning for leaning in LEANINGS]
    return [Plan(load(name).weights, bias) for bias in biases for name in STARTS]


def _propose_type_change(bias: Floats, fits: Bools, rng: np.random.Generator) -> Floats:
    """Return biases that keep one job off one more GPU type, or allow it that type again."""
    changed, job, gpu_type = bias.copy(), rng.integers(len(bias)), rng.integers(bias.shape[1])
    off = np.isneginf(bias[job, :, 0])
    if off[gpu_type]:
        changed[job, gpu_type, 0] = 0.0
    # A job keeps one type that it fits on, or it would never run.
    elif (fits[job] & ~off).sum() > 1:
        changed[job, gpu_type, 0] = -np.inf
    return changed


def _near(plan: Plan, fits: Bools, proposals: Proposals, rng: np.random.Generator) -> Plan:
    """Return a random neighbour of a plan, with some weights or biases changed."""
    if proposals.types > 0.0 and fits.shape[1] > 1 and rng.random() < proposals.types:
        return Plan(plan.weights, _propose_type_change(plan.bias, fits, rng))
    if rng.random() < proposals.weights:
        changed = rng.random(plan.weights.size) < WEIGHTS_CHANGED
        step = proposals.step * (1.0 + np.abs(plan.weights)) * rng.normal(size=plan.weights.size)
        return Plan(plan.weights + changed * step, plan.bias)
    jobs, *moves = plan.bias.shape
    rows = rng.choice(jobs, min(int(rng.geometric(1.0 / JOBS_CHANGED)), jobs), replace=False)
    # Half of the proposals move a job's start and doublings on all types together: priority, not placement.
    alike = rng.random() < 0.5
    drawn = rng.normal(size=(len(rows), 1, 1) if alike else (len(rows), *moves))
    changed = rng.random(moves) < rng.choice([0.3, 1.0])
    bias = plan.bias.copy()
    bias[rows] += BIAS_STEP * 2.0 ** rng.uniform(-2.0, 2.0) * changed * drawn
    return Plan(plan.weights, bias)
