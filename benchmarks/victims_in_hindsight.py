"""What other choices of the jobs to stop could save, by trying each in hindsight.

    python benchmarks/victims_in_hindsight.py [--board tenants] [--policy TEXT] [--cells CELL …]

plays cells of a board with `victims=cheapest`. At each decision that stops jobs, in the order of time, every
other job that the policy's rules let it choose there is preferred in turn, and the run played to its end with
the cheapest victims from then on. The choice with which the run loses fewest GPU-hours is kept. So the table
has what some choices reach; better ones may exist: no two choices are varied together.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from clustergym.policies.shared import kueue_victims, queue_shares
from stopping import Cells, format_table, measure_loss

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.results.measured_run import simulate
from clustergym.scenario.policy import Decision, Policy, View
from clustergym.scenario.registry import make_placer, parse_policy
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.view import StopCosts

PREFERRED_GPU_S = -1e12
"""What a preferred job loses, so that it is the cheapest."""


class SameDecisionError(Exception):
    """Raised if preferring another job changes nothing, so that the run need not go on."""


@dataclass(frozen=True)
class Choice:
    """A decision that stops jobs: its number in the run, those jobs, and all that might have been stopped."""

    at: int
    stopped: frozenset[int]
    candidates: frozenset[int]


class Watch:
    """What one run prefers at which of its decisions, and the choices that it met.

    Parameters
    ----------
    preferred : dict of int to int
        The job to prefer, by the number of the decision.
    known : Choice, optional
        The last of these decisions as it is without the preference: where it is the same, the run ends.
    """

    def __init__(self, preferred: dict[int, int], known: Choice | None = None) -> None:
        self.preferred, self.known = preferred, known
        self.at, self.candidates, self.choices = -1, set[int](), list[Choice]()

    def begin(self) -> None:
        """Note that the next decision begins."""
        self.at, self.candidates = self.at + 1, set()

    def end(self, view: View, decision: Decision) -> None:
        """Note whom the decision stops."""
        stopped = frozenset(view.job[view.gpus > 0].tolist()) - frozenset(decision.job.tolist())
        if self.known is not None and self.at == self.known.at and stopped == self.known.stopped:
            raise SameDecisionError
        if stopped:
            self.choices.append(Choice(self.at, stopped, frozenset(self.candidates)))

    def change(self, view: View, costs: StopCosts) -> StopCosts:
        """Return what stops cost, with the preferred job as the cheapest."""
        job = self.preferred.get(self.at)
        if job is None:
            return costs
        return replace(costs, lost_gpu_s=np.where(view.job == job, PREFERRED_GPU_S, costs.lost_gpu_s))


def play(scenario: Scenario, policy: Policy, watch: Watch) -> dict[str, float]:
    """Play a run under a watch; return what it lost."""
    decide, costs = type(policy).schedule, View.stop_costs
    order, victim = kueue_victims._victim_order, queue_shares.ReclaimPlan._victim

    def schedule(self: Policy, view: View) -> Decision:
        watch.begin()
        decision: Decision = decide(self, view)
        watch.end(view, decision)
        return decision

    def noted_order(job: Any) -> Any:
        key = order(job)

        def noted(other: Any) -> Any:
            watch.candidates.add(other.row)
            return key(other)

        return noted

    def noted_victim(self: Any, rows: Any, gpu_type: int, missing: float) -> Any:
        watch.candidates.update(self.view.job[rows].tolist())
        return victim(self, rows, gpu_type, missing)

    changed: Any = type("Watched", (type(policy),), {"schedule": schedule})
    played = replace(policy)  # type: ignore[type-var]
    played.__class__ = changed
    with (
        mock.patch.object(View, "stop_costs", lambda view: watch.change(view, costs(view))),
        mock.patch.object(kueue_victims, "_victim_order", noted_order),
        mock.patch.object(queue_shares.ReclaimPlan, "_victim", noted_victim),
    ):
        return measure_loss(simulate(scenario, played, make_placer({"name": "buddy"})).metrics)


def search(scenario: Scenario, policy: Policy) -> tuple[dict[str, float], int, int]:
    """Return what the best run found lost, how many choices it changed, and how many runs were tried."""
    preferred: dict[int, int] = {}
    watch = Watch({})
    best, tried, done = play(scenario, policy, watch), 1, -1
    while waiting := [choice for choice in watch.choices if choice.at > done]:
        choice = waiting[0]
        done = choice.at
        for job in sorted(choice.candidates - choice.stopped):
            trial = Watch({**preferred, done: job}, choice)
            try:
                found = play(scenario, policy, trial)
            except SameDecisionError:
                continue
            tried += 1
            if found["lost"] < best["lost"]:
                best, watch, preferred = found, trial, trial.preferred
    return best, len(preferred), tried


def main(argv: Sequence[str] | None = None) -> None:
    """Search in each cell and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", default="tenants")
    parser.add_argument("--policy", default="quotas reclaim=stop")
    parser.add_argument("--cells", nargs="+", help="all by default")
    parser.add_argument("--json", type=Path, help="write what was found to a file")
    args = parser.parse_args(argv)
    board = load_board(args.board)
    rows: dict[str, Cells] = {"most recent": [], "cheapest": [], "in hindsight": []}
    for cell in board.cells:
        if args.cells and str(cell) not in args.cells:
            continue
        scenario = board.scenario(cell)
        rows["most recent"].append(play(scenario, parse_policy(args.policy, "policy"), Watch({})))
        cheapest = parse_policy(f"{args.policy} victims=cheapest", "policy")
        rows["cheapest"].append(play(scenario, cheapest, Watch({})))
        best, changed, tried = search(scenario, cheapest)
        rows["in hindsight"].append(best)
        lost = ", ".join(f"{name} {cells[-1]['lost']:.2f}" for name, cells in rows.items())
        print(f"{cell}: {lost}; {changed} choices changed, {tried} runs", file=sys.stderr, flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows), encoding="utf-8")
    print(format_table({args.policy: rows}))


if __name__ == "__main__":
    main()
