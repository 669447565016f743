"""Decisions at events that are kept apart by a least time, on both engines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.results.measured_run import simulate
from clustergym.scenario.by_name import compose
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario_config import build_scenario
from clustergym.sim.compiled.coverage import UncoveredError, check_covered


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
    keys = ["scenario=testbed", "trace=philly-like", "trace.jobs=40"]
    scenario = build_scenario(compose([*keys, "scenario.rounds=event", "scenario.apart_s=60"]))
    assert (scenario.round_s(1920.0), scenario.apart_s) == (None, 60.0)
