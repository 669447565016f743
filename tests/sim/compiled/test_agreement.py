"""Compiled episodes are the SimPy engine's, event by event and to the microsecond.

AGREEMENT_CASES=100000 python -m pytest tests/sim/compiled/test_agreement.py -s -p no:xdist
"""

import random
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import yaml
from agreement_scenarios import KINDS, agreement_scenarios, tenants
from drawn_cases import CASES, counted, run
from hypothesis import strategies as st
from same_values import assert_same
from scenarios import Job, small_scenario
from side_by_side import SideBySide, Targets

from clustergym.common.errors import InputError
from clustergym.envs.families import DeadlineEnv, ElasticEnv, FairEnv, TenantsEnv
from clustergym.scenario.policy import InformationClass, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import StalledError

STEPS = 40
"""Most decisions of a case."""

HABITS = (
    (1.0, 0.0, 0.0),
    (1.0, 1.0, 0.0),
    (0.9, 0.8, 0.0),
    (0.2, 0.8, 0.0),
    (0.5, 0.0, 0.0),
    (0.9, 0.6, 0.15),
    (0.9, 0.9, 0.3),
)
"""Shares of running jobs that keep what they hold, of others that get an allotment, and of drops."""

words = st.lists(st.integers(0, 2**16), min_size=1, max_size=12)
informed = st.sampled_from(
    [*InformationClass, InformationClass.PROFILED, InformationClass.PROFILED, InformationClass.BOOTSTRAP]
)

SHAPES = (([(2, 8)], 1), ([(5, 2), (3, 4)], 2), ([(1, 4)], 16), ([(3, 3), (7, 1), (2, 4)], 3), ([(9, 4)], 4))
"""Nodes and GPUs of each node by type, and nodes of a leaf."""

ENVIRONMENTS: tuple[tuple[Any, dict[str, Any]], ...] = (
    (ElasticEnv, {"rows": 5, "information": "profiled"}),
    (ElasticEnv, {"rows": 2, "information": "bootstrap", "observation": "flat"}),
    (ElasticEnv, {"rows": 30, "information": "none", "features": "summary"}),
    (FairEnv, {"rows": 6, "information": "profiled", "mask_stop_while_idle": True}),
    (DeadlineEnv, {"rows": 4, "information": "data_parallel"}),
    (
        DeadlineEnv,
        {"actions": "drop", "rows": 7, "reward": {"slowdown": 0.3, "unfairness": 1.0, "deadlines_met": 2.0}},
    ),
    (TenantsEnv, {"rows": 5, "information": "bootstrap"}),
    (TenantsEnv, {"rows": 6, "information": "profiled", "actions": "drop", "reward": {"owed": 0.3}}),
    (TenantsEnv, {"rows": 4, "baseline": "srtf", "reward": {"owed": 2.0}}),
)
"""Kinds of environments; each is made once for each cluster."""


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


def agrees(scenario: Scenario, information: InformationClass, decisions: list[int]) -> None:
    """Both engines make the same of the same decisions."""
    both: Any = SideBySide(scenario, information)
    counted["cases"] += 1
    while both.view is not None and both.step < STEPS:
        both.decide(*decision(both.view, decisions[both.step % len(decisions)]))
    counted["decisions"] += both.step
    counted["ended"] += both.view is None
    counted["events"] += len(both.simulation.log.events)
    counted.update(event.event_type for event in both.simulation.log.events)


def test_many_jobs_start_on_a_node_at_once() -> None:
    """The log has room for 16 nodes of as many jobs, on a cluster of two nodes."""
    many = [Job(f"j{at}", 0.0, 10) for at in range(16)]
    scenario = small_scenario(many, {"X": (2, 8)}, {"m": {"X": {1: 3.0}}})
    both: Any = SideBySide(scenario, InformationClass.NONE)
    both.decide({row: (0, 1) for row in range(16)}, [])
    assert both.view is None


@cache
def cluster_file(shape: int) -> Path:
    """Return a YAML file of one of the SHAPES."""
    nodes, nodes_per_leaf = SHAPES[shape]
    path = Path(mkdtemp(), f"shape{shape}.yaml")
    content = {
        "name": path.stem,
        "nodes": [
            {"gpu_type": name, "count": count, "gpus_per_node": gpus}
            for name, (count, gpus) in zip(KINDS, nodes, strict=False)
        ],
        "fabric": {"nodes_per_leaf": nodes_per_leaf, "leaves_per_minipod": 2},
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@cache
def environments(shape: int, kind: int) -> tuple[Any, Any]:
    """Return an environment on the compiled episodes, and the same on the SimPy engine."""
    made, parameters = ENVIRONMENTS[kind]
    given_parameters = {**parameters, "cluster": str(cluster_file(shape))}
    return (made(engine="compiled", **given_parameters), made(engine="simpy", **given_parameters))


@st.composite
def episodes(draw: st.DrawFn) -> tuple[tuple[Any, Any], Scenario]:
    """Draw an environment in both engines, and a scenario on its cluster."""
    shape, kind = draw(st.integers(0, len(SHAPES) - 1)), draw(st.integers(0, len(ENVIRONMENTS) - 1))
    both = environments(shape, kind)
    scenario = draw(agreement_scenarios(cluster=both[1].episodes.cluster))
    if both[1].parameters.features == "tenants":
        scenario = replace(scenario, tenants=draw(tenants(len(scenario.trace))))
    return both, scenario


def action(mask: Any, draw: random.Random) -> int:
    """Return an action that stops, or any legal one, and now and then any at all."""
    chance = draw.random()
    if chance < 0.05:
        return draw.randrange(len(mask))
    legal = np.flatnonzero(mask).tolist()
    return int(legal[-1] if chance < 0.3 else draw.choice(legal))


def acts_the_same(episode: tuple[tuple[Any, Any], Scenario], decisions: list[int]) -> None:
    """An environment returns the same in both engines, for the same actions."""
    (mine, other), scenario = episode
    counted["episodes"] += 1
    try:
        expected = other.reset(seed=1, options={"scenario": scenario})
    except InputError as refusal:
        with pytest.raises(InputError, match=re.escape(str(refusal))):
            mine.reset(seed=1, options={"scenario": scenario})
        return
    except StalledError:
        return
    assert_same(mine.reset(seed=1, options={"scenario": scenario}), expected, "reset")
    draw = random.Random(repr(decisions))
    for step in range(2 * STEPS):
        taken = action(other.action_masks(), draw)
        got, expected = mine.step(taken), other.step(taken)
        assert_same(got, expected, f"step {step}")
        counted["steps"] += 1
        if expected[2] or expected[3]:
            counted["episodes ended"] += 1
            break
    if other.outcomes.queues is not None:
        counted["with queues"] += 1
        missed = mine.outcomes.queues.list_missed()
        assert_same(missed, other.outcomes.queues.list_missed(), "what queues have missed")


def test_actions() -> None:
    run(acts_the_same, CASES // 4, episode=episodes(), decisions=words)


def test_idle_rounds_end() -> None:
    """Nobody starts the one job: both engines give up at the same round."""
    scenario = small_scenario([Job("a", 0.0, 10)], {"X": (1, 1)}, {"m": {"X": {1: 3.0}}}, rounds=10.0)
    both: Any = SideBySide(scenario, InformationClass.NONE)
    while both.view is not None:
        both.decide({}, [])
    assert both.step > 1000


def test_decisions() -> None:
    run(agrees, CASES, scenario=agreement_scenarios(), information=informed, decisions=words)
