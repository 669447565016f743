"""Compiled episodes are the SimPy engine's, event by event and to the microsecond.

AGREEMENT_CASES=100000 python -m pytest tests/compiled/test_agreement.py -s -p no:xdist
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from agreement_scenarios import agreement_scenarios
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from scenarios import Job, small_scenario
from side_by_side import SideBySide, Targets

from clustergym.interface.policy import InformationClass, View
from clustergym.scenarios.scenario import Scenario

CASES = int(os.environ.get("AGREEMENT_CASES", "2000"))
BATCH = 250
STEPS = 40
"""Most decisions of a case."""

HABITS = (
    (1.0, 0.0, 0.0),
    (1.0, 1.0, 0.0),
    (0.9, 0.8, 0.0),
    (0.2, 0.8, 0.0),
    (0.5, 0.0, 0.0),
    (0.9, 0.6, 0.15),
)
"""Shares of running jobs that keep what they hold, of others that get an allotment, and of drops."""

words = st.lists(st.integers(0, 2**16), min_size=1, max_size=12)
informed = st.sampled_from([*InformationClass, InformationClass.PROFILED])
counted: Counter[str] = Counter()


def decision(view: View, word: int) -> tuple[Targets, list[int]]:
    """Return a legal decision that a number stands for."""
    stays, gets, drops = HABITS[word % len(HABITS)]
    draw, free, counts = random.Random(word), view.available.tolist(), view.setting.counts
    targets: Targets = {}
    changing: list[int] = []
    dropped: list[int] = []
    for at, row in enumerate(view.job.tolist()):
        if draw.random() < drops:
            dropped.append(row)
        elif view.gpus[at] and draw.random() < stays:
            targets[row] = int(view.gpu_type[at]), int(view.gpus[at])
            free[view.gpu_type[at]] -= int(view.gpus[at])
        else:
            changing.append(at)
    draw.shuffle(changing)
    for at in changing:
        fits = view.feasible[at] & (counts <= np.array(free)[:, None])
        options = np.argwhere(fits).tolist()
        if options and draw.random() < gets:
            kind, level = draw.choice(options)
            targets[int(view.job[at])] = kind, int(counts[level])
            free[kind] -= int(counts[level])
    return targets, dropped


def run(test: Callable[..., None], cases: int, **drawn: st.SearchStrategy[Any]) -> None:
    """Run a test on so many drawn cases; show how far it is if they are many."""
    began, counted_before = time.process_time(), counted.copy()
    for batch in range(-(-cases // BATCH)):
        rules = settings(
            max_examples=min(BATCH, cases - batch * BATCH),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
        )
        seed(batch)(rules(given(**drawn)(test)))()
        if cases > 5000 and batch % 20 == 19:
            print(f"{(batch + 1) * BATCH} cases in {time.process_time() - began:.0f} s of CPU", flush=True)
    print(f"\n{dict(counted - counted_before)} in {time.process_time() - began:.0f} s of CPU")


def agrees(scenario: Scenario, information: InformationClass, decisions: list[int]) -> None:
    """Both engines make the same of the same decisions."""
    both: Any = SideBySide(scenario, information)
    counted["cases"] += 1
    while both.view is not None and both.step < STEPS:
        both.decide(*decision(both.view, decisions[both.step % len(decisions)]))
    counted["decisions"] += both.step
    counted["ended"] += both.view is None
    counted["events"] += len(both.simulation.log.events)
    counted.update(event.kind for event in both.simulation.log.events)


def test_many_jobs_start_on_a_node_at_once() -> None:
    """The log has room for 16 nodes of as many jobs, on a cluster of two nodes."""
    many = [Job(f"j{at}", 0.0, 10) for at in range(16)]
    scenario = small_scenario(many, {"X": (2, 8)}, {"m": {"X": {1: 3.0}}})
    both: Any = SideBySide(scenario, InformationClass.NONE)
    both.decide({row: (0, 1) for row in range(16)}, [])
    assert both.view is None


def test_decisions() -> None:
    run(agrees, CASES, scenario=agreement_scenarios(), information=informed, decisions=words)
