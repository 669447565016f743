"""Batches as part of the allotment, worked out by hand: work is counted in iterations at the request."""

import gzip
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from batches import batch_scenario
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import Job

from clustergym.common.errors import InputError
from clustergym.oracle.base import statistical_efficiency
from clustergym.results.decision_log import read_decisions
from clustergym.results.measured_run import measure_run
from clustergym.results.result_writing import decision_lines
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import BatchOptions, Decision, InformationClass, Policy, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import Run, replay, simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventType

K = EventType
SECONDS = {32: 2.0, 128: 4.0}
NOISE = (32.0, 160.0)
"""At batch 128 efficiency is (32 + 32) / (32 + 128) = 0.4, then (160 + 32) / (160 + 128) = 2/3. An iteration
does the work of 4 x 0.4 = 1.6 requested ones, then of 8/3; one of them takes 4 / 1.6 = 2.5 s, then 1.5 s."""


class Chooser(Policy):
    """Keeps every job on one X; at each decision point gives it the batch of the last time passed."""

    name = "chooser"
    information_class = InformationClass.CLAIRVOYANT

    def __init__(self, batches: Mapping[float, int], round_s: float | None = None) -> None:
        self.batches, self.round_s = dict(batches), round_s
        self.views: list[View] = []
        self.options: list[BatchOptions | None] = []

    def schedule(self, view: View) -> Decision:
        self.views.append(view)
        self.options.append(view.batch_options())
        batch = [size for time_s, size in sorted(self.batches.items()) if time_s <= view.now_s][-1]
        one = np.ones_like(view.job)
        return Decision(view.job, 0 * one, one, batch=batch * one)


def rates(run: Run) -> list[tuple[float, str, float, int]]:
    """Return time, kind, seconds an iteration and batch of every event that sets a pace."""
    events = run.simulation.log.events
    return [(e.time_s, e.event_type.value, e.iteration_time_s, e.batch) for e in events if e.iteration_time_s]


def jct_s(run: Run) -> float:
    return float(measure_run(run.simulation).metrics["jct_mean"])


def test_efficiency_is_pollux_formula() -> None:
    # phi 100 at requested batch 50: (100 + 50) / (100 + 200) = 0.5 at 200, 1 at 50, (150) / (110) at 10.
    found = statistical_efficiency(np.array([200, 50, 10]), np.array(50), np.array(100.0))
    assert found.tolist() == [0.5, 1.0, 150 / 110]


def test_requested_batch_is_as_without_a_choice() -> None:
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE)
    run = simulate(scenario, Chooser({0: 0}), Buddy())
    assert jct_s(run) == 200
    assert rates(run) == [(0, "start", 2.0, 0)]
    assert run.simulation.changes[0].batch == ()


def test_other_batch_goes_at_the_pace_of_each_segment() -> None:
    # 50 x 2.5 s, then 50 x 1.5 s.
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE)
    run = simulate(scenario, Chooser({0: 128}), Buddy())
    assert jct_s(run) == 200
    assert rates(run) == [(0, "start", 2.5, 128), (125, "rate", 1.5, 128)]
    assert run.simulation.changes[0].batch == ((0, 128),)


def test_batch_alone_changes_without_a_restart() -> None:
    # 30 x 2 s at 32 to 60 s; 128 from then: 20 x 2.5 s to 110 s, 10 x 1.5 s of the second half to 125 s. The
    # next round is at 140 s: 20 of it done; back at 32 the last 30 take 60 s.
    scenario = batch_scenario(
        [Job("a", 0, 100)], SECONDS, NOISE, checkpoint_s={"m": 7.0}, rounds=20.0, costs=Costs(search="proxy")
    )
    policy = Chooser({0: 32, 60: 128, 140: 32})
    run = simulate(scenario, policy, Buddy())
    assert rates(run) == [
        (0, "start", 2.0, 0),
        (60, "rate", 2.5, 128),
        (110, "rate", 1.5, 128),
        (140, "rate", 2.0, 0),
    ]
    assert jct_s(run) == 200
    assert measure_run(run.simulation).metrics["restarts_mean"] == 0
    assert [change.batch for change in run.simulation.changes] == [(), ((0, 128),), ((0, 32),)]
    assert {view.now_s: view.batch.tolist() for view in policy.views}[120] == [128]
    assert {view.now_s: view.remaining_iterations.tolist() for view in policy.views}[80] == pytest.approx(
        [62]
    )


def test_view_offers_sizes_efficiency_and_times() -> None:
    scenario = batch_scenario(
        [Job("a", 0, 100), Job("b", 0, 100)], SECONDS, NOISE, counts=(1, 2), rounds=60.0
    )
    policy = Chooser({0: 128})
    simulate(scenario, policy, Buddy())
    first, later = policy.options[0], policy.options[3]
    assert first.sizes.tolist() == [[32, 128]] * 2
    assert first.efficiency.tolist() == [[1.0, 0.4]] * 2
    assert later.efficiency.tolist() == [[1.0, pytest.approx(2 / 3)]] * 2
    assert first.iteration_time_s[0, 0].tolist() == [[2, 4], [2, 4], [np.inf, np.inf]]


def test_bootstrap_has_the_same_batch_on_each_gpu() -> None:
    # 128 on 2 GPUs as 64 on one, a third of the way from 32 to 128; 32 as long as the least batch.
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE, counts=(1, 2))
    known = scenario.get_known_batch_times(InformationClass.BOOTSTRAP)
    assert known[0, 0].tolist() == [[2, 4], [2, 2.66667], [np.inf, np.inf]]


def test_preempted_job_waits_at_its_requested_batch() -> None:
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE, rounds=50.0)
    simulation = Simulation(scenario, Buddy(), InformationClass.CLAIRVOYANT)
    one = np.array([1])
    simulation.advance()
    simulation.apply(Decision(np.array([0]), np.array([0]), one, batch=np.array([128])))
    simulation.advance()
    simulation.apply(Decision.of([]))
    view = simulation.advance()
    assert view.batch.tolist() == [32]
    assert view.remaining_iterations.tolist() == [80]  # 50 s / 2.5 s done


def test_first_launch_pays_the_restart_where_asked_to() -> None:
    costs = Costs(search="proxy", profile={}, first_launch=True)
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE, checkpoint_s={"m": 7.0}, costs=costs)
    policy = Chooser({0: 32})
    run = simulate(scenario, policy, Buddy())
    assert jct_s(run) == 207
    assert policy.views[0].restart_cost_s()[0, 0, 0] == 7
    # A scenario without either keeps the digest it had before there was a choice.
    assert "first_launch" not in Costs().fingerprint()
    assert replace(scenario, costs=Costs(search="proxy", profile={})).sha256 != scenario.sha256


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from([8, 32, 128, 512])), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_work_is_conserved_over_changes_of_batch(changes: list[tuple[int, int]]) -> None:
    """The samples trained, each times the efficiency of its batch and segment, are those of the request."""
    seconds = {8: 1.0, 32: 2.0, 128: 4.0, 512: 11.0}
    noise = (10.0, 64.0, 640.0)
    scenario = batch_scenario([Job("a", 0, 90)], seconds, noise, rounds=1.0)
    starts = np.cumsum([0, *(length for length, _ in changes[:-1])]).tolist()
    run = simulate(scenario, Chooser(dict(zip(starts, (size for _, size in changes), strict=True))), Buddy())
    events = [e for e in run.simulation.log.events if e.iteration_time_s or e.event_type == K.COMPLETE]
    samples = 0.0
    for event, after in itertools.pairwise(events):
        batch = event.batch or 32
        trained = (after.time_s - event.time_s) / seconds[batch] * batch
        # Which of the 3 equal parts of 90 x 32 samples it is in; work done is known to a microsecond.
        phi = noise[min(int(samples / 960 + 1e-4), 2)]
        samples += trained * (phi + 32) / (phi + batch)
    assert samples == pytest.approx(90 * 32, abs=0.01)


def test_replay_reads_batches_from_the_log(tmp_path: Path) -> None:
    scenario = batch_scenario([Job("a", 0, 100), Job("b", 5, 80)], SECONDS, NOISE, rounds=20.0)
    run = simulate(scenario, Chooser({0: 32, 60: 128, 140: 32}), Buddy())
    changes = written(run, tmp_path / "decisions.jsonl.gz", scenario)
    assert changes == run.simulation.changes
    again = replay(scenario, Buddy(), InformationClass.CLAIRVOYANT, None, 0, changes)
    assert again.log.digest == run.simulation.log.digest
    assert again.changes == run.simulation.changes


def pack(path: Path, lines: Iterable[object]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


def written(run: Run, path: Path, scenario: Scenario) -> list[object]:
    result = {"policy": {"name": "chooser"}, "placer": {"name": "buddy", "parameters": {}}, "seed": 0}
    pack(path, decision_lines(run.simulation, result))
    return list(read_decisions(path, scenario)[1])


@pytest.mark.parametrize(
    "batch", [[["a", 0]], [["a", 1.5]], [["a", True]], [["b", 32]], [["a"]], [["a", 128], ["a", 32]], 3]
)
def test_log_with_a_wrong_batch_is_one_line(batch: object, tmp_path: Path) -> None:
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE)
    header = {"schema": "clustergym.decisions/1"}
    line = {"time_s": 0.0, "launch": [["a", "X", 1]], "batch": batch}
    pack(tmp_path / "d.jsonl.gz", [header, line])
    with pytest.raises(InputError, match=r"d\.jsonl\.gz:2.*is not a decision of this scenario"):
        read_decisions(tmp_path / "d.jsonl.gz", scenario)


@pytest.mark.parametrize(("batch", "with_choice"), [(64, True), (-1, True), (128, False)])
def test_unknown_batch_names_the_job(batch: int, with_choice: bool) -> None:
    sizes = SECONDS if with_choice else {32: 2.0}
    scenario = batch_scenario([Job("first", 0, 100)], sizes, NOISE)
    with pytest.raises(
        DecisionError, match=f"job first: trains at global batch {batch}, .*view.batch_options"
    ):
        simulate(scenario, Chooser({0: batch}), Buddy())


def test_a_segment_may_end_one_iteration_before_the_end() -> None:
    # At 128 the first of two iterations' work takes 2.5 s, the second's 1.5 s.
    run = simulate(batch_scenario([Job("a", 0, 2)], SECONDS, NOISE), Chooser({0: 128}), Buddy())
    assert [e.time_s for e in run.simulation.log.events if e.event_type == EventType.COMPLETE] == [4.0]


def test_batch_column_of_another_length() -> None:
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE)
    simulation = Simulation(scenario, Buddy(), InformationClass.CLAIRVOYANT)
    simulation.advance()
    one = np.array([1])
    with pytest.raises(DecisionError, match="differ in length"):
        simulation.apply(Decision(np.array([0]), np.array([0]), one, batch=np.array([32, 32])))
