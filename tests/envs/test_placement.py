"""What an episode of the Placement environment is, on cases small enough to follow by hand."""

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from scheduling_episodes import legal_episode

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common.errors import InputError
from clustergym.envs.placement.drawing import SETTINGS as BENCHMARK
from clustergym.envs.placement.drawing import draw_free_nodes, minipod_sizes
from clustergym.envs.placement.environment import PlacementEnv
from clustergym.scenario.placement_problem import Instance, PretrainingJob, Spread, score, spread

SETTINGS = ("i", "ii", "iii")


def small(**parameters):
    """Six PP groups of two nodes over three minipods of six nodes."""
    return PlacementEnv(setting="i", **parameters)


def play(env, actions):
    """Step through actions; return rewards, and the last step."""
    rewards, last = [], None
    for action in actions:
        last = env.step(action)
        rewards.append(last[1])
    return rewards, last


def test_an_episode_by_hand():
    env = small(alpha=0.25)
    _, info = env.reset(options={"free_nodes": [6, 3, 5]})
    assert info["action_mask"].tolist() == [True, True, True]
    # The first node: one minipod for the job and for its group, 0.25 x 1 + 0.75 x 1. The group's second
    # node in another minipod: 0.25 x 2 + 0.75 x 2. Groups 1 and 2 fill minipod 0 to five nodes and stay
    # whole: no increase. Group 3 takes its sixth node and one of minipod 1; groups 4, 5 use minipod 2:
    # one more minipod for the job, 0.25.
    rewards, (observation, _, terminated, truncated, info) = play(env, [0, 1, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2])
    assert rewards == [-1.0, -1.0, 0, 0, 0, 0, 0, 0, -0.25, 0, 0, 0]
    assert (terminated, truncated, info["placed"]) == (True, False, True)
    assert (info["dp_spread"], info["pp_spread"], info["score"]) == (3, 2, 0.25 * 3 + 0.75 * 2)
    counts = [[1, 1, 0], [2, 0, 0], [2, 0, 0], [1, 1, 0], [0, 0, 2], [0, 0, 2]]
    assert env.assignment().counts.tolist() == counts
    assert observation["free"].tolist() == pytest.approx([0, 1 / 6, 1 / 6])


def test_the_observation_by_hand():
    env = small(alpha=0.25)
    env.reset(options={"free_nodes": [6, 3, 5]})
    observation = env.step(1)[0]
    seen = {name: part.tolist() for name, part in observation.items()}
    assert seen == {
        "alpha": [0.25],
        "free": pytest.approx([6 / 6, 2 / 6, 5 / 6]),
        "group": pytest.approx([0, 1 / 2, 0]),
        "job": pytest.approx([0, 1 / 12, 0]),
        "left": pytest.approx([1 / 2, 6 / 6]),
        "spread": pytest.approx([1 / 3, 1 / 3]),
    }
    flat = small(alpha=0.25, observation="flat")
    flat.reset(options={"free_nodes": [6, 3, 5]})
    assert flat.step(1)[0].tolist() == np.concatenate(list(observation.values())).tolist()


@pytest.mark.parametrize(("on_illegal", "reward"), [("penalty", -0.25), ("noop", 0.0)])
def test_a_full_minipod(on_illegal, reward):
    env = small(on_illegal=on_illegal, illegal_penalty=0.25)
    env.reset(options={"free_nodes": [6, 1, 6]})
    before = env.step(1)
    assert before[-1]["action_mask"].tolist() == [True, False, True]
    after = env.step(1)
    assert after[1:4] == (reward, False, False)
    assert after[4]["illegal"]
    assert not before[4]["illegal"]
    for name, part in after[0].items():
        assert part.tolist() == before[0][name].tolist()


def test_a_full_minipod_can_be_an_error():
    env = small(on_illegal="raise")
    env.reset(options={"free_nodes": [6, 0, 6]})
    with pytest.raises(InputError, match=r"action: minipod 1 is full \(legal: 0, 2\)"):
        env.step(1)
    assert env.step(0)[-1]["score"] == 1.0


@pytest.mark.parametrize("action", [-1, 3, 1.5, "0", None, np.array([0])])
def test_what_is_no_action_is_an_error_always(action):
    env = small()
    env.reset(seed=0)
    with pytest.raises(InputError, match="is not an action"):
        env.step(action)


def test_illegal_actions_alone_are_truncated():
    env = small(on_illegal="noop", max_steps=5)
    env.reset(options={"free_nodes": [6, 0, 6]})
    ends = [env.step(1)[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]
    with pytest.raises(ResetNeeded):
        env.step(0)
    assert env.assignment().counts.sum() == 0


def test_legal_play_is_never_truncated_at_exactly_the_last_step():
    env = small(max_steps=12)
    env.reset(options={"free_nodes": [6, 6, 0]})
    assert play(env, [0] * 6 + [1] * 6)[1][2:4] == (True, False)


def test_an_instance_that_does_not_fit():
    env = small()
    _, info = env.reset(options={"free_nodes": [4, 0, 5]})
    assert (info["shortfall_nodes"], info["action_mask"].tolist()) == (3, [True] * 3)
    _, reward, terminated, truncated, info = env.step(1)
    assert (reward, terminated, truncated, info["placed"], info["score"]) == (0.0, True, False, False, 0.0)
    assert (env.assignment().shortfall, env.assignment().counts.sum()) == (3, 0)
    env.assignment().check(env.instance)


@pytest.mark.parametrize("setting", SETTINGS)
def test_generated_instances_fit(setting):
    env = PlacementEnv(setting=setting)
    env.reset(seed=5)
    for _ in range(200):
        env.reset()
        assert env.instance.shortfall == 0
        assert (env.instance.free_nodes <= env.problem.minipod_nodes).all()


@pytest.mark.parametrize("row", BENCHMARK, ids=lambda row: row.name)
def test_episodes_are_states_of_the_benchmark(row):
    env = PlacementEnv(setting=row.name)
    env.reset(seed=8)
    sizes = minipod_sizes(load_cluster(row.cluster))
    drawn = draw_free_nodes(sizes, row.job.nodes, np.random.Generator(np.random.PCG64(8)))
    assert env.instance.job == row.job
    assert env.instance.free_nodes.tolist() == drawn.tolist()


def test_alpha_is_drawn_where_it_is_not_fixed():
    env = small(alpha=None)
    env.reset(seed=2)
    drawn = set()
    for _ in range(200):
        env.reset()
        drawn.add(env.instance.alpha)
    assert drawn == {tenth / 10 for tenth in range(11)}
    env.reset(options={"alpha": 0.33})
    assert env.instance.alpha == 0.33


def test_masks_are_fresh_copies():
    env = small()
    _, info = env.reset(seed=1)
    info["action_mask"][:] = False
    env.action_masks()[:] = False
    assert env.action_masks().any()
    assert env.step(int(np.flatnonzero(env.action_masks())[0]))[-1]["action_mask"].any()


@given(
    st.sampled_from(SETTINGS),
    st.sampled_from(["pp", "dp"]),
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.3, 1.0]),
)
@settings(max_examples=30, deadline=None)
def test_random_play(setting, unit, seed, alpha):
    env = PlacementEnv(setting=setting, unit=unit, alpha=alpha, on_illegal="raise")
    _, rewards, _, info = legal_episode(env, seed)
    made, instance = env.assignment(), env.instance
    made.check(instance)
    assert info["score"] == score(made, instance)
    assert Spread(info["dp_spread"], info["pp_spread"]) == spread(made, instance.job, unit)
    assert sum(rewards) == pytest.approx(-info["score"])
    assert len(rewards) == instance.job.nodes
    # The actions that the placement is read back as lead to it again.
    actions = env.list_actions(made)
    env.reset(options={"instance": instance})
    for action in actions:
        env.step(action)
    assert (env.assignment().counts == made.counts).all()


def test_rewards_are_named_terms_with_weights():
    env = small(reward={"spread": 2.0, "pp_spread": 10.0, "dp_spread": 0.0}, alpha=0.5)
    env.reset(options={"free_nodes": [6, 6, 6]})
    assert env.step(0)[1] == -2.0 - 10.0
    _, reward, _, _, info = env.step(1)
    # One more minipod for the group and the job.
    assert info["rewards"] == {"spread": -1.0, "pp_spread": -1.0, "dp_spread": -1.0}
    assert reward == -2.0 - 10.0


def test_no_step_before_reset_nor_after_the_end():
    env = small()
    for early in (lambda: env.step(0), env.action_masks, env.assignment, lambda: env.instance):
        with pytest.raises(ResetNeeded):
            early()
    legal_episode(env, 0)
    with pytest.raises(ResetNeeded):
        env.step(0)


JOB = PretrainingJob.from_gpus(96, 4, 2)
BAD_INSTANCES = [
    ({"instance": Instance(JOB, np.array([6, 6, 6])), "alpha": 0.1}, "goes with no other option"),
    (
        {"instance": Instance(PretrainingJob.from_gpus(64, 4, 2), np.array([6, 6, 6]))},
        "of another job or unit",
    ),
    ({"instance": Instance(JOB, np.array([6, 6, 6]), unit="dp")}, "of another job or unit"),
]


@refused("placement-options")
def test_bad_options_leave_the_episode_as_it_is(given, said):
    env = small()
    env.reset(options={"free_nodes": [6, 3, 6]})
    env.step(0)
    with said.of_error():
        env.reset(options=given)
    assert env.step(0)[-1]["group"] == 1


@pytest.mark.parametrize(("options", "line"), BAD_INSTANCES)
def test_instances_of_something_else_are_refused(options, line):
    with pytest.raises(InputError, match=line):
        small().reset(options=options)
