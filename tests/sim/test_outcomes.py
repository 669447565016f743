"""Jobs that end where their log ends them; the small cases are worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, Script, replays, small_scenario

import clustergym
from clustergym.results.bounds.bounds import lower_bounds
from clustergym.results.measured_run import measure_run
from clustergym.results.metrics.catalogue import OF_OUTCOMES
from clustergym.scenario.disturbances.failures import Failures, NodeFailure
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.registry import make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled.scenario_arrays import UncoveredError, check_covered
from clustergym.sim.drive import simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventType
from clustergym.trace.trace import Trace

TIMES = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}}
NONE = InformationClass.NONE


def with_outcomes(scenario: Scenario, ends: dict[str, tuple[str, int]]) -> Scenario:
    """Return a scenario whose jobs end as `ends` says (job id -> outcome, iterations); others complete."""
    trace = scenario.trace
    found = [
        ends.get(name, ("completed", int(asked)))
        for name, asked in zip(trace.job_id, trace.iterations, strict=True)
    ]
    kept = replace(
        trace,
        outcome=tuple(outcome for outcome, _ in found),
        end_iterations=np.array([end for _, end in found], dtype=np.int64),
    )
    return replace(scenario, trace=kept)


def two_jobs() -> Scenario:
    """a asks for 100 iterations and is killed after 30; b completes its 10."""
    plain = small_scenario([Job("a", 0, 100), Job("b", 0, 10)], {"X": (1, 4)}, TIMES)
    return with_outcomes(plain, {"a": ("killed", 30)})


SCRIPT = {0.0: {"a": ("X", 1), "b": ("X", 1)}, 40.0: {"a": ("X", 2)}}


@pytest.mark.parametrize(
    ("information", "asked", "left"),
    [(information, 100.0, 90.0) for information in InformationClass if information != "clairvoyant"]
    + [(InformationClass.CLAIRVOYANT, 30.0, 20.0)],
)
def test_a_job_ends_where_its_log_ends_it_and_only_a_clairvoyant_policy_knows(
    information: InformationClass, asked: float, left: float
) -> None:
    # b ends at 40 s. By then a has done 10 of its 30 iterations; the other 20 take 40 s on 2 GPUs.
    scenario = two_jobs()
    script = Script(scenario, SCRIPT, information)
    run = simulate(scenario, script, Buddy(defragment_s=None))
    ended = [event for event in run.simulation.log.events if event.event_type == EventType.COMPLETE]
    assert [(event.time_s, event.job, event.reason) for event in ended] == [
        (40.0, 1, ""),
        (80.0, 0, "killed"),
    ]
    first, second = script.views[0], script.views[1]
    assert first.iterations.tolist() == first.remaining_iterations.tolist() == [asked, 10.0]
    assert (second.iterations[0], second.remaining_iterations[0]) == (asked, left)


class Looks(FirstComeFirstServed):
    """Keeps the trace that it is shown."""

    seen: Trace

    def check(self, trace: Trace, setting: object) -> None:
        type(self).seen = trace


@pytest.mark.parametrize("information", InformationClass)
def test_the_trace_that_a_policy_checks_does_not_tell_it_either(
    information: InformationClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Looks, "information_class", information)
    simulate(two_jobs(), Looks(), Buddy())
    knows = information == InformationClass.CLAIRVOYANT
    assert (Looks.seen.outcome is None) != knows
    assert Looks.seen.work_iterations.tolist() == ([30, 10] if knows else [100, 10])


def test_metrics_by_outcome_are_there_only_where_outcomes_are_kept() -> None:
    scenario = two_jobs()
    run = simulate(scenario, Script(scenario, SCRIPT), Buddy(defragment_s=None))
    metrics = measure_run(run.simulation).metrics
    assert (metrics["jobs_completed"], metrics["jobs_killed"], metrics["jobs_failed"]) == (1, 1, 0)
    assert (metrics["jct_mean_completed"], metrics["jct_mean_killed"]) == (40.0, 80.0)
    assert metrics["jct_mean_failed"] is None
    # a holds 1 GPU for 40 s and 2 for 40 s, b 1 for 40 s.
    assert metrics["gpu_hours_killed"] == pytest.approx(120 / 3600)
    assert metrics["gpu_hours_completed"] == pytest.approx(40 / 3600)
    plain = replace(scenario, trace=scenario.trace.as_ran())
    found = measure_run(simulate(plain, Script(plain, SCRIPT), Buddy(defragment_s=None)).simulation).metrics
    assert not found.keys() & {metric.name for metric in OF_OUTCOMES}


@pytest.mark.slow
def test_a_policy_that_counts_no_work_schedules_as_if_outcomes_were_ignored() -> None:
    kept = clustergym.load_scenario("testbed", ["trace.outcomes=philly"])
    plain = clustergym.load_scenario("testbed")
    assert kept.sha256 != plain.sha256
    for name in ("fcfs", "srtf"):
        ran, before = clustergym.simulate(kept, name), clustergym.simulate(plain, name)
        # FCFS looks at no work and SRTF is clairvoyant: neither can tell the two apart.
        assert ran.metrics["jct_mean"] == before.metrics["jct_mean"], name
        assert ran.run.simulation.changes == before.run.simulation.changes
    profiled = [clustergym.simulate(scenario, make_policy({"name": "gavel"})) for scenario in (kept, plain)]
    assert profiled[0].metrics["jct_mean"] != profiled[1].metrics["jct_mean"]


def test_lower_bounds_and_fairness_count_the_work_that_is_done() -> None:
    kept = two_jobs()
    ran = replace(kept, trace=kept.trace.as_ran())
    assert lower_bounds(kept) == lower_bounds(ran)
    results = [
        measure_run(simulate(scenario, Script(scenario, SCRIPT), Buddy(defragment_s=None)).simulation)
        for scenario in (kept, ran)
    ]
    assert results[0].metrics["ftf_mean"] == results[1].metrics["ftf_mean"]


def test_a_node_failure_undoes_work_of_a_job_that_its_log_kills() -> None:
    # a: 1 GPU at 4 s. The node fails at 60 s for 100 s: with checkpoints every 40 s, 20 s of work are undone,
    # 10 iterations kept; the other 20 of 30 take 80 s from 160 s on.
    plain = small_scenario([Job("a", 0, 100)], {"X": (1, 4)}, TIMES)
    scenario = with_outcomes(plain, {"a": ("failed", 30)})
    failures = Failures(schedule=(NodeFailure(60.0, 0, 100.0),), checkpoint_every_s=40.0)
    scenario = replace(scenario, disturbances=(failures,))
    script = Script(scenario, {0.0: {"a": ("X", 1)}, 160.0: {"a": ("X", 1)}})
    run = simulate(scenario, script, Buddy(defragment_s=None))
    last = run.simulation.log.events[-1]
    assert (last.event_type, last.time_s, last.reason) == (EventType.COMPLETE, 240.0, "failed")


def test_a_run_with_outcomes_is_rebuilt_from_its_decisions() -> None:
    scenario = two_jobs()
    run = simulate(scenario, Script(scenario, SCRIPT), Buddy(defragment_s=None))
    assert replays(run.simulation, Buddy(defragment_s=None))


def test_compiled_episodes_refuse_them_in_a_line_that_names_the_setting() -> None:
    with pytest.raises(UncoveredError, match=r"^trace\.outcomes: .* keeps the outcomes .*engine=simpy"):
        check_covered(two_jobs(), NONE, Buddy())


@pytest.mark.compiled
def test_an_environment_steps_them_in_the_simulator_and_a_vector_of_them_refuses() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("ClusterGym/Elastic-16-v1", disable_env_checker=True).unwrapped
    drawn = env.episodes.choose({"trace_seed": 0}, env.np_random)
    end = np.maximum(drawn.trace.iterations // 2, 1)
    kept = with_outcomes(drawn, dict.fromkeys([drawn.trace.job_id[0]], ("killed", int(end[0]))))
    env.reset(seed=0, options={"scenario": kept})
    assert isinstance(env.simulation, Simulation)
    assert env.view.iterations[0] == drawn.trace.iterations[0]
    vector = gymnasium.make_vec("ClusterGym/Elastic-16-v1", num_envs=1)
    with pytest.raises(UncoveredError, match=r"^trace\.outcomes: "):
        vector.reset(seed=0, options={"scenario": kept})
