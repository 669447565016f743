"""The environment of tenants: what it shows of queues, what its terms cost, and who refuses queues."""

from dataclasses import replace

import numpy as np
import pytest
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.envs.driver import drive, driving_parameters
from clustergym.envs.families import ElasticEnv, TenantsEnv
from clustergym.envs.scheduling_costs import Outcomes, ReferenceCostTimes
from clustergym.scenario.tenants.queue_tree import Tenants
from clustergym.sim.compiled.coverage import UncoveredError
from clustergym.sim.log import Event, EventType

TIMES = {"m": {"X": {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}}}


@pytest.fixture
def scenario(tmp_path):
    """Eight GPUs, of which a deserves 2 and b 6, and a job of 8 GPUs of each."""
    (tmp_path / "queues.yaml").write_text("queues: {a: {quota: 2}, b: {quota: 6}}")
    made = small_scenario([Job("a1", 0, 400, gpus=8), Job("b1", 100, 100, gpus=8)], {"X": (1, 8)}, TIMES)
    trace = replace(made.trace, virtual_cluster=("a", "b"))
    tenants = Tenants.from_queues(str(tmp_path / "queues.yaml"), trace, ("X",))
    return replace(made, trace=trace, tenants=tenants)


def test_costs_by_hand(scenario):
    outcomes = Outcomes(ReferenceCostTimes.from_scenario(scenario))
    events = [
        Event(0.0, EventType.SUBMIT, 0),
        Event(0.0, EventType.START, 0, 0, 8),
        Event(3600.0, EventType.SUBMIT, 1),
        Event(7200.0, EventType.RESCALE, 0, 0, 4),
        Event(7200.0, EventType.START, 1, 0, 4),
        Event(10800.0, EventType.COMPLETE, 0),
    ]
    outcomes.read(events, 10800.0)
    queues = outcomes.queues
    # In the second hour b lacks its 6 GPUs of 8, in the third 2, in the fourth, alone, 2 again.
    assert [queues.compute_owed(3600.0 * hour) for hour in range(5)] == [0, 0, 6 / 8, 8 / 8, 10 / 8]
    assert queues.compute_owed(5400.0) == 3 / 8
    assert outcomes.rewind(5400.0).queues.compute_owed(5400.0) == 3 / 8


def test_its_rows_show_the_queue_of_each_job(scenario):
    env = TenantsEnv(jobs=6, rows=4)
    observation, info = env.reset(seed=2)
    table = env.features.unpack(observation)["tenants"]
    view, rules = env.view, env.outcomes.queues.rules
    leaf = view.queue[env.actions.shown]
    assert table[: len(leaf), 1] == pytest.approx(rules.quota[leaf] / 64)
    asked = float(view.requested_gpus[view.queue == leaf[0]].sum())
    assert table[0, 2] == pytest.approx(min(asked, 64) / 64)
    assert not table[:, 0].any()
    assert not table[len(leaf) :].any()
    action = int(np.flatnonzero(info["action_mask"])[0])
    kinds, counts = env.features.types, env.features.levels
    row, choice = divmod(action, kinds * counts + 1)
    observation, *_ = env.step(action)
    edited = env.features.unpack(observation)["tenants"]
    assert edited[row, 0] == env.features.setting.counts[choice % counts] / 64


def driven(policy, reward, **given):
    """Play a policy in the environment; return its drive and the environment."""
    rest = {"jobs": 30, "loads": [1.4], **driving_parameters(policy)}
    env = TenantsEnv(reward={reward: 1.0}, **rest, **given)
    return drive(env, policy, seed=1), env


def test_what_it_costs_is_what_the_metrics_say():
    found, _ = driven("fcfs", "owed")
    owed = found.metrics["tenant_owed_gpu_hours"] / 64
    assert owed > 0
    assert found.total_reward == pytest.approx(-owed)


def test_a_baseline_is_subtracted():
    own, _ = driven("srtf", "owed")
    beside, env = driven("srtf", "owed", baseline="fcfs")
    reference = env.reference_outcomes(env.scenario, 0)
    cost = reference.queues.compute_owed(reference.end_s)
    assert cost > 0
    assert beside.total_reward == pytest.approx(own.total_reward + cost)


def test_who_hides_queues_refuses_them(scenario):
    queued = {
        "cluster": "ares-64",
        "rule": "ares",
        "costs": "ares-profiled-free",
        "queues": "philly",
        "jobs": 6,
    }
    for engine in ("auto", "compiled"):
        with pytest.raises(InputError, match=r"has queues of tenants, which features=jobs hide .*Tenants-v1"):
            ElasticEnv(**queued, engine=engine).reset(seed=1)
    with pytest.raises(InputError, match=r"scenario episode has no queues .*queues=virtual_cluster"):
        TenantsEnv(queues=None, jobs=6).reset(seed=1)
    with pytest.raises(InputError, match=r"env\.reward\.owed: is of queues, and the scenario has none"):
        ElasticEnv(**{**queued, "queues": None}, reward={"owed": 1.0}).reset(seed=1)


def test_compiled_episodes_count_what_queues_miss_only_where_an_agent_edits():
    env = TenantsEnv(cluster="ares-16", queues="philly-16", jobs=6, reward={"owed": 1.0})
    env.reset(seed=3)
    assert env.episode.engine == "compiled"
    over = False
    while not over:
        *_, terminated, truncated, _ = env.step(int(np.flatnonzero(env.action_masks())[-1]))
        over = terminated or truncated
    missed = Outcomes(ReferenceCostTimes.from_scenario(env.scenario))
    missed.read(env.log.events, env.log.events[-1].time_s)
    assert (env.outcomes.queues.list_missed() == missed.queues.list_missed()).all()
    with pytest.raises(UncoveredError, match=r"actions=weights with features=tenants is not covered"):
        TenantsEnv(cluster="ares-16", queues="philly-16", actions="weights", engine="compiled")
