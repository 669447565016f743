"""Actions, rewards and ends of the scheduling environments, on cases worked out by hand."""

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from refusals import refused
from scheduling_episodes import legal_episode

import clustergym
from clustergym.common.errors import InputError
from clustergym.envs.driver import drive, driving_parameters, edits, random_action
from clustergym.envs.families import DeadlineEnv, ElasticEnv, FairEnv
from clustergym.envs.scheduling_costs import COSTS, Outcomes, ReferenceCostTimes
from clustergym.scenario.policy import Decision

SMALL = {"cluster": "arena-16", "jobs": 12}
LONG = {"min_duration_s": 36000.0, "round_s": 60.0}


def clairvoyant(**parameters):
    """Nothing is profiled: every job can be launched when it comes."""
    usual = {"information": "clairvoyant", "rows": 12, "mask_stop_while_idle": False}
    return ElasticEnv(**{**SMALL, **usual, **parameters})


def test_layout_of_actions():
    # arena-16 has 8 GPUs of each of two types: counts 1, 2, 4, 8. A row has 2 x 4 + 1 actions.
    env = clairvoyant()
    assert env.action_space.n == 12 * 9 + 1
    assert env.actions.stop == 108
    assert env.actions.index(2, 1, 4) == 2 * 9 + 1 * 4 + 2
    assert env.actions.index(2, 0, 0) == 2 * 9 + 8
    assert env.actions.describe(2 * 9 + 6) == "row 2: assign 4 A10"
    assert env.actions.describe(26) == "row 2: preempt"
    deadline = DeadlineEnv(**SMALL, rows=12, mask_stop_while_idle=False)
    assert deadline.action_space.n == 12 * 10 + 1
    assert deadline.actions.describe(19) == "row 1: reject"


def first_fit(env, row=0):
    return int(np.flatnonzero(env.action_masks()[row * 9 : row * 9 + 8])[0]) + row * 9


def test_an_edit_takes_gpus_and_a_job_is_edited_once():
    env = clairvoyant()
    _, info = env.reset(seed=1)
    now, free = info["now_s"], env.actions.free.copy()
    observation, reward, *_, info = env.step(first_fit(env))
    assert (info["now_s"], reward) == (now, 0.0)
    assert free.sum() - env.actions.free.sum() >= 1
    assert not info["action_mask"][:8].any()
    assert not info["action_mask"][8]
    assert info["action_mask"][-1]
    row = observation["jobs"].reshape(12, -1)[0]
    assert row[2] > 0
    assert row[3] == 0
    assert row[4] == 1
    _, reward, *_, info = env.step(env.actions.stop)
    assert info["now_s"] > now
    assert reward < 0


def test_a_preempted_job_may_be_assigned_once_more_but_not_preempted():
    env = clairvoyant(**LONG)
    env.reset(seed=1)
    action = first_fit(env)
    env.step(action)
    env.step(env.actions.stop)
    assert env.view.gpus[0] > 0
    assert not env.action_masks()[action]  # it holds that already
    assert env.action_masks()[8]
    env.step(8)
    assert env.action_masks()[action]
    assert not env.action_masks()[8]
    env.step(action)
    assert not env.action_masks()[:9].any()
    env.step(env.actions.stop)
    assert "preempt" not in [event.event_type.value for event in env.log.events]


def test_all_masked_actions_are_legal_for_the_simulator():
    env = DeadlineEnv(cluster="arena-16", jobs=25, loads=[2.0])
    for seed in range(3):
        info = legal_episode(env, seed)[3]
        metrics = info["metrics"]
        assert metrics["jobs_finished"] + metrics["jobs_dropped"] == 25


def test_stop_is_masked_while_a_waiting_job_fits():
    env = clairvoyant(mask_stop_while_idle=ElasticEnv().parameters.mask_stop_while_idle)
    _, info = env.reset(seed=1)
    assert not info["action_mask"][-1]
    while not info["action_mask"][-1]:
        waiting = np.flatnonzero(env.actions.target_gpus == 0)
        *_, info = env.step(np.flatnonzero(info["action_mask"])[0])
        assert len(waiting) > (env.actions.target_gpus == 0).sum()
    assert clairvoyant().reset(seed=1)[1]["action_mask"][-1]


def test_rejection_is_for_the_first_point_only():
    env = DeadlineEnv(**SMALL, rows=12, mask_stop_while_idle=False)
    _, info = env.reset(seed=1)
    jobs = len(env.view)
    assert info["action_mask"][9]
    env.step(env.actions.stop)
    assert not env.action_masks()[9]
    env = DeadlineEnv(**SMALL, rows=12, actions="drop", mask_stop_while_idle=False)
    env.reset(seed=1)
    env.step(env.actions.stop)
    assert env.action_masks()[9]
    env.step(9)
    assert not env.action_masks()[:10].any()
    env.step(env.actions.stop)
    assert env.outcomes.left >= 1
    assert jobs >= 1


def test_edits_swap_two_jobs_on_a_full_cluster():
    # Jobs 0 and 1 hold all 8 GPUs of a type each; to swap them one must be preempted first.
    env = clairvoyant(**LONG, engine="simpy")
    env.reset(seed=1)
    while len(env.view) < 2:
        env.step(env.actions.stop)
    env.simulation.apply(Decision.of([(int(env.view.job[0]), 0, 8), (int(env.view.job[1]), 1, 8)]))
    view = env.simulation.advance()
    env.episode.view = view
    env.episode._begin(view)
    target = Decision.of([(int(view.job[0]), 1, 8), (int(view.job[1]), 0, 8)])
    made, lost = edits(env.actions, view, target)
    assert [env.actions.describe(action) for action in made] == [
        "row 0: preempt",
        "row 1: assign 8 A40",
        "row 0: assign 8 A10",
    ]
    assert lost == 0
    for action in made:
        env.step(action)
    assert env.actions.target_gpus[:2].tolist() == [8, 8]


@pytest.mark.parametrize("policy", ["fcfs", "srtf"])
def test_the_return_is_mean_jct_and_the_baseline_its_difference(policy):
    env = clairvoyant(**driving_parameters(policy))
    driven = drive(env, policy, seed=4)
    hours = driven.metrics["jct_mean"] / 3600
    assert driven.total_reward == pytest.approx(-hours)
    reference = clustergym.simulate(env.scenario, "las").metrics["jct_mean"] / 3600
    gain = drive(clairvoyant(**driving_parameters(policy), baseline="las"), policy, seed=4)
    assert gain.total_reward == pytest.approx(reference - hours)
    assert gain.digest == driven.digest
    same = drive(clairvoyant(**driving_parameters(policy), baseline=policy), policy, seed=4)
    assert same.total_reward == pytest.approx(0.0, abs=1e-12)


def yardsticks():
    # Submitted at 0 and 100 s, deadlines 300 and 200 s, 900 s and 1 s alone, fair JCT 150 and 50 s.
    return ReferenceCostTimes(
        *(np.array(pair, dtype=float) for pair in ([0, 100], [300, 200], [900, 1], [150, 50]))
    )


@pytest.mark.parametrize(
    ("now", "leave", "completed", "costs"),
    [
        # At 50 s one job is 50 s old: 50 s / 3600 / 2; slowdown 50/900/2.
        (50, [np.inf, np.inf], [0, 0], (50 / 7200, 50 / 1800, 0, 0, 0)),
        # At 250 s: 250 and 150 s old; the second counts as 600 s alone; rho 5/3 and 3; one is late.
        (250, [np.inf, np.inf], [0, 0], (400 / 7200, (250 / 900 + 0.25) / 2, (2 / 3 + 2) / 2, 0, 0.5)),
        # The first completed at 120 s in time, the second was dropped at 150 s.
        (999, [120, 150], [1, 0], (170 / 7200, (120 / 900 + 50 / 600) / 2, 0, -0.5, 0)),
    ],
)
def test_costs(now, leave, completed, costs):
    outcomes = Outcomes(yardsticks())
    outcomes.now_s, outcomes.leave_s = float(now), np.array(leave, dtype=float)
    outcomes.completed = np.array(completed, dtype=bool)
    names = ("jobs_in_system", "slowdown", "unfairness", "deadlines_met", "broken_promises")
    found = [COSTS[name](outcomes) for name in names]
    assert found == pytest.approx(costs)


def test_outcomes_as_they_were_known_earlier():
    # The first job completed at 120 s in time, the second was dropped at 150 s.
    last = Outcomes(yardsticks())
    last.now_s, last.leave_s = 999.0, np.array([120.0, 150.0])
    last.completed = np.array([True, False])
    for at_s, left, completed in ((119.0, 0, [False, False]), (130.0, 1, [True, False])):
        then = last.rewind(at_s)
        assert (then.now_s, then.left, then.completed.tolist()) == (at_s, left, completed)
    # At 130 s of 120 and 30 s each; one of two has met its deadline.
    assert COSTS["jobs_in_system"](last.rewind(130.0)) == pytest.approx((120 + 30) / 7200)
    assert COSTS["deadlines_met"](last.rewind(130.0)) == -0.5
    assert COSTS["deadlines_met"](last.rewind(119.0)) == 0.0


def test_unfairness_is_what_the_metrics_say():
    env = FairEnv(
        cluster="ares-16", jobs=20, reward={"unfairness": 1.0}, rows=20, **driving_parameters("las")
    )
    driven = drive(env, "las", seed=2)
    jobs = clustergym.simulate(env.scenario, "las").jobs
    fair = ReferenceCostTimes.from_scenario(env.scenario).fair_s
    assert driven.total_reward == pytest.approx(-np.maximum(jobs.jct_s / fair - 1, 0).mean())


def test_a_horizon_truncates():
    env = clairvoyant(horizon_s=4000.0)
    env.reset(seed=1)
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(env.actions.stop)
        over = terminated or truncated
    assert (terminated, truncated, info["stalled"]) == (False, True, False)
    assert info["metrics"]["jobs_finished"] == 0


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_doing_nothing_stalls_which_ends_the_episode_at_a_penalty(engine):
    env = clairvoyant(round_s=None, engine=engine, mask_stop_while_idle=False, stall_penalty=50.0)
    env.reset(seed=1)
    over, total = False, 0.0
    while not over:
        _, reward, terminated, truncated, info = env.step(env.actions.stop)
        over, total = terminated or truncated, total + reward
    assert (terminated, truncated, info["stalled"]) == (True, False, True)
    # Nothing can happen after the last job has come: each has waited since it came, and none has left.
    submit = env.scenario.trace.submit_s
    waited_s = submit[-1] - submit
    assert total == pytest.approx(-waited_s.sum() / 3600 / 12 - 50.0)
    metrics = info["metrics"]
    assert metrics["jct_mean"] == pytest.approx(waited_s.mean())
    assert metrics["makespan"] == pytest.approx(submit[-1] - submit[0])
    assert (metrics["jobs_finished"], metrics["jobs_unfinished"], metrics["restarts_mean"]) == (0, 12, 0.0)
    # No job has a deadline, so that none can be met: in no episode of theirs is this a number.
    assert [name for name, value in metrics.items() if value is None] == ["deadline_satisfaction"]
    with pytest.raises(ResetNeeded, match="over"):
        env.step(env.actions.stop)
    with pytest.raises(ResetNeeded, match="no episode yet"):
        clairvoyant().step(0)


def test_episodes_are_drawn_by_the_seed_or_given():
    env = clairvoyant(loads=[0.5, 1.5])
    shas = []
    for seed in (1, 2, 1):
        env.reset(seed=seed)
        shas.append(env.scenario.trace.sha256)
    assert shas[0] == shas[2] != shas[1]
    env.reset(seed=1, options={"trace_seed": 5, "load": 1.0})
    first = env.scenario.trace.sha256
    clairvoyant().reset(seed=9)
    env.reset(seed=7, options={"trace_seed": 5, "load": 1.0})
    assert env.scenario.trace.sha256 == first
    few = clairvoyant(traces=2)
    seen = set()
    for seed in range(12):
        few.reset(seed=seed)
        seen.add(few.scenario.trace.sha256)
    assert len(seen) == 2


def test_scenario_and_trace_fix_the_jobs():
    by_name = ElasticEnv(scenario="testbed")
    scenario = clustergym.load_scenario("testbed")
    for seed in (1, 2):
        by_name.reset(seed=seed)
        assert by_name.scenario.sha256 == scenario.sha256
    by_file = ElasticEnv(trace="philly-like-244")
    by_file.reset(seed=3)
    assert by_file.scenario.trace.sha256 == scenario.trace.sha256
    given = ElasticEnv(cluster="arena-a")
    given.reset(options={"scenario": scenario})
    assert given.scenario is scenario


@refused("episode-options")
def test_mistakes_in_options(given, said):
    with said.of_error():
        clairvoyant().reset(seed=0, options=given)


def test_a_scenario_of_another_cluster():
    with pytest.raises(InputError, match="other GPU types or counts"):
        clairvoyant().reset(options={"scenario": clustergym.load_scenario("ares")})


@pytest.mark.parametrize("action", [-1, 109, 1.5, "0", None])
def test_what_is_no_action(action):
    env = clairvoyant()
    env.reset(seed=1)
    with pytest.raises(InputError, match="is not an action"):
        env.step(action)


def test_an_illegal_action_raises_or_changes_nothing():
    env = clairvoyant(on_illegal="raise")
    env.reset(seed=1)
    with pytest.raises(InputError, match=r"8 \(row 0: preempt\) is illegal now"):
        env.step(8)
    env = clairvoyant()
    before, info = env.reset(seed=1)
    after, reward, terminated, truncated, then = env.step(8)
    assert then["illegal"]
    assert (reward, terminated, truncated, then["now_s"]) == (0.0, False, False, info["now_s"])
    assert all((after[key] == part).all() for key, part in before.items())


def test_a_thousand_illegal_actions_in_a_row_end_the_episode():
    env = clairvoyant()
    env.reset(seed=1)
    for _ in range(999):
        assert env.step(8)[2:4] == (False, False)
    env.step(first_fit(env))
    preempt = 11 * 9 + 8
    for _ in range(999):
        *_, info = env.step(preempt)
        assert "stalled" not in info
    _, reward, terminated, truncated, info = env.step(preempt)
    assert (terminated, truncated, info["stalled"], info["illegal"]) == (True, False, True, True)
    # The clock has not moved, and none of the jobs has left: each costs from when it comes until all twelve
    # could have run one after another.
    times = ReferenceCostTimes.from_scenario(env.scenario)
    end_s = times.submit_s.max() + times.run_s.sum()
    assert reward == pytest.approx(-(end_s - times.submit_s).sum() / 3600 / 12)


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_stall_never_pays_however_long_the_jobs_are(engine):
    given = {"engine": engine, "jobs": 4, "min_duration_s": 100 * 3600.0, "max_duration_s": 200 * 3600.0}
    env = clairvoyant(**given)
    env.reset(seed=1)
    over, total = False, 0.0
    while not over:
        _, reward, over, _, _ = env.step(8)
        total += reward
    works = clairvoyant(**given, **driving_parameters("fcfs"))
    worked = drive(works, "fcfs", seed=1).total_reward
    # A fixed penalty of 24 hours would have been less than what working costs.
    assert total < worked < -24.0


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_an_illegal_action_costs_a_penalty_or_is_repaired(engine):
    env = clairvoyant(engine=engine, on_illegal="penalty", illegal_penalty=0.25)
    env.reset(seed=1)
    *_, info = env.step(8)
    assert env.step(8)[1] == -0.25
    env = clairvoyant(engine=engine, on_illegal="repair")
    _, info = env.reset(seed=1)
    legal = np.flatnonzero(info["action_mask"])
    row = legal[legal < 9]
    # The first row's job holds no GPUs to be preempted; the sixth row has no job.
    for action, taken in ((8, row[-1]), (5 * 9, env.actions.stop)):
        other = clairvoyant(engine=engine, on_illegal="raise")
        other.reset(seed=1)
        expected, *_ = other.step(int(taken))
        env.reset(seed=1)
        seen, _, _, _, info = env.step(action)
        assert info["illegal"]
        assert all((seen[key] == part).all() for key, part in expected.items())


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize("family", ["Elastic", "Auction"])
def test_the_last_observation_is_of_the_horizon(engine, family):
    env = gymnasium.make(f"ClusterGym/{family}-16-v1", jobs=5, horizon_s=3600.0, engine=engine).unwrapped
    rng, over = np.random.default_rng(0), False
    _, info = env.reset(seed=1)
    while not over:
        seen, _, terminated, over, info = env.step(random_action(env, info, rng))
    # The first job left at 297 s, the second comes at 3,924 s: at the horizon there is none.
    assert not terminated
    assert info["now_s"] == 3600.0
    assert seen["jobs"].any() == seen["options"].any() == False  # noqa: E712
    assert seen["queue"].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    assert seen["cluster"].tolist() == [1, 1, 1, 1, 0.5, 0.5]


@pytest.mark.parametrize("features", ["jobs", "summary"])
def test_unpacked_observations(features):
    env, flat = (ElasticEnv(**SMALL, features=features, observation=form) for form in ("dict", "flat"))
    tables = env.features.unpack(env.reset(seed=1)[0])
    again = flat.features.unpack(np.stack([flat.reset(seed=1)[0]] * 3))
    assert tables["cluster"].shape == (3, 2)
    assert tables["cluster"][2].tolist() == [0.5, 0.5]
    for name, table in tables.items():
        assert again[name].shape == (3, *table.shape)
        assert (again[name][1] == table).all()
    if features == "jobs":
        # A first job waits alone: one row is present, and its fastest option has speed 1.
        assert tables["jobs"][:, 0].sum() == len(env.view)
        assert tables["options"].shape == (48, 2, 4, 3)
        assert tables["options"][0, ..., 0].max() == 1.0


def test_the_page_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "environments" / "README.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"mean JCT [\d.]+ h, [+-][\d.]+ h against SRTF", first)
    assert float(second) > 0
