"""Which engine simulates a run."""

from dataclasses import replace
from pathlib import Path

import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.placers.minipod import MinipodPlacer
from scenarios import Job, small_scenario

from clustergym.scenario.disturbances.failures import Failures
from clustergym.scenario.registry import make_policy
from clustergym.sim.compiled import coverage, numba_cache
from clustergym.sim.engines import MANY, chosen_engine, expected_steps


class OwnBuddy(Buddy):
    """Another placer, by the same name."""


def scenario_of(jobs=3, gap_s=10.0, **other):
    trace = [Job(f"j{at}", at * gap_s, 10) for at in range(jobs)]
    return small_scenario(trace, {"X": (1, 2)}, {"m": {"X": {1: 3.0}}}, **other)


FCFS = make_policy({"name": "fcfs"})


def test_many_decisions_are_expected_of_many_jobs_or_rounds():
    assert expected_steps(scenario_of(jobs=7), None) == 14
    assert expected_steps(scenario_of(jobs=7, gap_s=600.0, rounds=60.0), None) == 60
    assert expected_steps(scenario_of(jobs=7, gap_s=600.0, rounds=60.0, horizon_s=900.0), None) == 15


@pytest.mark.compiled
def test_auto_takes_the_compiled_engine_for_many_decisions_only():
    many = scenario_of(jobs=MANY // 2)
    assert chosen_engine(many, FCFS, Buddy(), "auto") == "compiled"
    assert chosen_engine(many, FCFS, Buddy(), "simpy") == "simpy"
    assert chosen_engine(scenario_of(), FCFS, Buddy(), "auto") == "simpy"
    assert chosen_engine(scenario_of(), FCFS, Buddy(None), "compiled") == "compiled"


def test_auto_takes_simpy_where_the_compiled_engine_cannot_run(monkeypatch):
    many = scenario_of(jobs=MANY // 2)
    assert chosen_engine(replace(many, disturbances=(Failures(),)), FCFS, Buddy(), "auto") == "simpy"
    assert chosen_engine(many, FCFS, OwnBuddy(), "auto") == "simpy"
    monkeypatch.setattr(coverage, "find_spec", lambda _: None)
    assert chosen_engine(many, FCFS, Buddy(), "auto") == "simpy"


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("changes", "placer", "line"),
    [
        ({"disturbances": (Failures(),)}, Buddy(), "scenario: scenario small has disturbances, which"),
        ({}, OwnBuddy(), "placer: scenario small is placed by another placer, which"),
        ({}, MinipodPlacer(), "placer: scenario small is placed by another placer, which"),
    ],
)
def test_the_compiled_engine_says_what_it_does_not_cover(changes, placer, line):
    with pytest.raises(coverage.UncoveredError) as refusal:
        chosen_engine(replace(scenario_of(), **changes), FCFS, placer, "compiled")
    assert str(refusal.value).startswith(line)
    assert str(refusal.value).endswith("the compiled engine does not cover (choose run.engine=simpy)")


def test_the_compiled_engine_says_that_it_needs_numba(monkeypatch):
    monkeypatch.setattr(coverage, "find_spec", lambda _: None)
    with pytest.raises(coverage.UncoveredError, match=r"^run\.engine: .* needs the package numba .*learn"):
        chosen_engine(scenario_of(), FCFS, Buddy(), "compiled")


def test_machine_code_is_kept_by_all_sources_that_it_is_of() -> None:
    house = Path(numba_cache.__file__).parents[2]
    for folder in numba_cache.FOLDERS:
        for path in (house / folder).glob("*.py"):
            lines = path.read_text(encoding="utf-8").splitlines()
            if any(line.startswith(("@compile_", "@entry_in_place")) for line in lines):
                name = ".".join(("clustergym", *path.relative_to(house).with_suffix("").parts))
                assert name in numba_cache._sources(), name
