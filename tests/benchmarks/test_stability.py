"""Scores between chance and the best known, and rankings under changed conditions."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from benchmarks.stability_rules import (
    compute_tau,
    list_changes,
    measure_cells,
    scale_restarts,
)
from clustergym.results.measured_run import simulate
from clustergym.scenario.by_name import compose
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario_config import build_scenario
from clustergym.sim.compiled.coverage import UncoveredError, check_covered

SHORT = ["scenario=testbed", "trace=philly-like", "trace.jobs=40", "trace.load=3", "trace.requests=arena"]
SHORT += ["trace.max_duration_s=3600", "trace.max_gpus=32"]


def test_tau_of_one_swap_of_three() -> None:
    # Of three pairs two stay and one turns: (2 - 1) / 3.
    assert compute_tau({"a": 1, "b": 2, "c": 3}, {"a": 2, "b": 1, "c": 3}) == pytest.approx(1 / 3)
    assert compute_tau({"a": 1, "b": 2}, {"a": 5, "b": 9}) == 1


def test_restarts_take_a_multiple() -> None:
    scenario = build_scenario(compose(SHORT))
    slower = scale_restarts(2.0)(scenario, 0)
    assert np.allclose(slower.checkpoint_s, 2 * scenario.checkpoint_s)
    counts = np.array([1, 2, 64])
    assert np.allclose(slower.costs.search_s(counts), 2 * scenario.costs.search_s(counts))
    changes = {change.name: change for change in list_changes(0.8, 7200.0, 30.0)}
    for name, factor in (("restarts x 0.5", 0.5), ("restarts x 2", 2.0)):
        made = changes[name].adapt(scenario, 0)
        assert np.allclose(made.checkpoint_s, factor * scenario.checkpoint_s)
    assert changes["estimates off by 10 %"].overrides == ("scenario.estimates_off=0.1",)
    assert changes["load"].overrides == ("trace.load=0.8",)
    assert changes["longest duration"].overrides == ("trace.max_duration_s=7200",)
    assert changes["common clock"].overrides == ("scenario.rounds=event", "scenario.apart_s=30")
    assert changes["other seeds"].seeds == 500


def test_decisions_at_events_are_apart() -> None:
    # One GPU; jobs of 10 s come at 0, 5, 20 and 100 s.
    jobs = [Job(str(row), at, 10) for row, at in enumerate((0.0, 5.0, 20.0, 100.0))]
    plain = small_scenario(jobs, {"X": (1, 1)}, {"m": {"X": {1: 1.0}}})
    apart = replace(plain, apart_s=60.0)
    # At once: 0-10, 10-20, 20-30, 100-110. Apart: decisions at 0, 60 (for what came at 5), 120 and 180: job 0
    # has 0-10, job 1 60-70, job 2 120-130, job 3 180-190.
    assert simulate(plain, FirstComeFirstServed(), Buddy()).metrics["jct_mean"] == pytest.approx(45 / 4)
    found = simulate(apart, FirstComeFirstServed(), Buddy()).metrics
    assert found["jct_mean"] == pytest.approx((10 + 65 + 110 + 90) / 4)
    compiled, events = (
        simulate(apart, FirstComeFirstServed(), Buddy(), engine=engine) for engine in ("compiled", "simpy")
    )
    assert compiled.digest == events.digest
    with pytest.raises(UncoveredError, match="keeps decisions apart"):
        check_covered(apart, InformationClass.NONE, Buddy())
    scenario = build_scenario(compose([*SHORT, "scenario.rounds=event", "scenario.apart_s=60"]))
    assert (scenario.round_s(1920.0), scenario.apart_s) == (None, 60.0)


def test_cells_are_measured_under_a_change() -> None:
    load, *_ = changes = list_changes(0.8, 7200.0)
    assert len({change.name.partition(" x ")[0] for change in changes}) == 6
    base, lighter = (list(measure_cells(SHORT, change, ["fcfs", "srtf"], [0])) for change in (None, load))
    assert [row[:2] for row in base] == [row[:2] for row in lighter] == [("fcfs", 0), ("srtf", 0)]
    # A load of 0.8 in place of 3 leaves queues shorter.
    assert all(less < more for (_, _, less), (_, _, more) in zip(lighter, base, strict=True))
