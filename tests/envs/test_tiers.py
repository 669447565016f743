"""Environments in which agents learn from scratch: bursts, priorities of jobs, and knobs of an auction."""

import math

import gymnasium
import numpy as np
import pytest
from same_values import assert_same
from scheduling_episodes import legal_episode

import clustergym
from clustergym.agents import auction_features as features
from clustergym.common.errors import InputError
from clustergym.envs.auction_actions import BARRED, BASE_OF_DOUBLING, PER_PRIORITY, fill_bias
from clustergym.envs.episodes import SPLITS, TRACES_OF
from clustergym.envs.vector.environment import SchedulingVectorEnv
from clustergym.scenario.registry import parse_policy

COMPILED = pytest.mark.compiled
PRIOR = "learned checkpoint=prior round_s=300"
HEADER = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpu_type,gpus\n"
TIERS = (
    ("Priority-16-v0", {"jobs": 12}),
    ("Knobs-16-v0", {"jobs": 12}),
    ("Knobs-16-v0", {"jobs": 12, "hold": 5}),
    ("Burst-16-v0", {}),
)


@COMPILED
@pytest.mark.parametrize(("name", "parameters"), TIERS)
def test_both_engines_play_the_same_episode(name, parameters):
    simpy, compiled = (
        legal_episode(gymnasium.make(f"ClusterGym/{name}", engine=engine, **parameters), 3)
        for engine in ("simpy", "compiled")
    )
    assert_same(simpy, compiled, "episode")


def made_for(tmp_path, gpus: int, text: str) -> gymnasium.Env:
    """Return a priority environment on one node of so many GPUs, with rows of `text` as its trace."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        f"name: small\nnodes: [{{count: 1, gpu_type: A100, gpus_per_node: {gpus}}}]\n", encoding="utf-8"
    )
    trace = tmp_path / "trace.csv"
    trace.write_text(HEADER + text, encoding="utf-8")
    return gymnasium.make(
        "ClusterGym/Priority-16-v0",
        cluster=str(cluster),
        trace=str(trace),
        costs="free",
        round_s=None,
        engine="simpy",
    )


def test_the_job_of_higher_priority_starts_first(tmp_path):
    """Two jobs of one GPU each wait for the only GPU: whichever row has the higher first number runs."""
    rows = "".join(f"{job},0,resnet18,,4096,1000,A100,1\n" for job in ("a", "b"))
    for first in (0, 1):
        env = made_for(tmp_path, 1, rows)
        env.reset(seed=0)
        action = np.zeros(env.action_space.shape, np.float32)
        action[2 * first] = 1.0
        env.step(action)
        starts = [event.job for event in env.unwrapped.log.events if event.event_type == "start"]
        assert starts[0] == first


def test_a_second_priority_below_0_forbids_doubling(tmp_path):
    """One job on four GPUs: with q = -1 it holds one of them, with q = 1 as many as make it faster."""
    text = "a,0,resnet18,,4096,1000,A100,1\n"
    held = {}
    for second in (-1.0, 1.0):
        env = made_for(tmp_path, 4, text)
        env.reset(seed=0)
        action = np.full(env.action_space.shape, second, np.float32)
        env.step(action)
        held[second] = next(event.gpus for event in env.unwrapped.log.events if event.event_type == "start")
    assert held == {-1.0: 1, 1.0: 4}


def test_knobs_at_zero_are_the_known_auction():
    """The return is the logarithm of a ratio of equal mean JCTs, and the run is that of the policy."""
    env = gymnasium.make("ClusterGym/Knobs-16-v0", engine="simpy", jobs=12)
    env.reset(seed=1)
    scenario = env.unwrapped.scenario
    _, reward, terminated, _, info = env.step(np.zeros(28, np.float32))
    assert terminated
    assert reward == 0.0
    known = clustergym.simulate(scenario, parse_policy(PRIOR, "policy"))
    assert info["digest"] == known.digest


def test_the_return_of_knobs_is_the_logarithm_of_the_ratio_of_mean_jcts():
    """However long an action holds, the returns of an episode add up to it."""
    for hold in (None, 10):
        env = gymnasium.make("ClusterGym/Knobs-16-v0", engine="simpy", jobs=12, hold=hold)
        _, rewards, _, info = legal_episode(env, 2)
        known = clustergym.simulate(env.unwrapped.scenario, parse_policy(PRIOR, "policy"))
        ratio = known.metrics["jct_mean"] / info["metrics"]["jct_mean"]
        assert sum(rewards) == pytest.approx(math.log(ratio), abs=1e-9)
        assert (len(rewards) == 1) == (hold is None)


def test_an_action_of_knobs_is_added_to_the_known_weights():
    env = gymnasium.make("ClusterGym/Knobs-16-v0", engine="simpy")
    action = np.zeros((2, 28))
    action[1, features.KNOBS.index("rate")] = 0.5
    weights = env.unwrapped.actions.deciding(action)
    assert dict(zip(features.NAMES, weights[0], strict=True)) == {
        name: features.PRIOR.get(name, 0.0) for name in features.NAMES
    }
    assert (weights[1] - weights[0]).nonzero()[0].tolist() == [features.NAMES.index("rate")]
    assert weights[1][features.NAMES.index("rate")] == 1.5


def test_scores_hold_for_one_decision_point():
    with pytest.raises(InputError, match="hold"):
        gymnasium.make("ClusterGym/Auction-16-v1", hold=3)


@pytest.mark.parametrize("split", SPLITS)
def test_traces_of_a_split_have_seeds_of_that_split(split):
    env = gymnasium.make("ClusterGym/Burst-16-v0", split=split, engine="simpy")
    seeds = set()
    for at in range(60):
        seeds.add(drawn_seed(env, at))
    assert {seed % 3 for seed in seeds} == {SPLITS.index(split)}
    if split in TRACES_OF:
        assert max(seeds) < 3 * TRACES_OF[split]


def drawn_seed(env: gymnasium.Env, seed: int) -> int:
    """Return the trace seed of the episode that a seed draws, without building its scenario."""
    found: list[int] = []
    episodes = env.unwrapped.episodes
    episodes._keep = lambda trace, trace_seed: found.append(trace_seed)
    episodes.choose({}, np.random.default_rng(seed))
    return found[0]


def test_training_refuses_the_test_split():
    from clustergym.training.agents import make_agent

    pytest.importorskip("torch", reason="torch is not installed")
    agent = make_agent({"name": "ppo", "env": {"id": "ClusterGym/Burst-16-v0", "split": "test"}})
    assert agent.leak() == ("env.split", "the agent would be trained on the traces that it is measured on")


@COMPILED
def test_many_environments_of_knobs_take_whole_episodes():
    envs = gymnasium.make_vec("ClusterGym/Knobs-16-v0", num_envs=3, jobs=12)
    assert isinstance(envs, SchedulingVectorEnv)
    envs.reset(seed=1)
    _, rewards, terminated, _, infos = envs.step(np.zeros((3, 28)))
    assert terminated.all()
    assert rewards.tolist() == [0.0, 0.0, 0.0]
    for row in range(3):
        single = gymnasium.make("ClusterGym/Knobs-16-v0", engine="simpy", jobs=12)
        single.reset(seed=1 + row)
        assert infos["digest"][row] == single.step(np.zeros(28, np.float32))[4]["digest"]


def test_the_prior_checkpoint_is_the_prior():
    from clustergym.agents.auction import make_weights
    from clustergym.agents.auction_checkpoints import load

    assert load("prior").weights.tolist() == make_weights(features.PRIOR).tolist()


def test_a_doubling_score_of_zero_bars_nothing_and_one_below_bars_all():
    bias = np.empty((3, 1, 2))
    fill_bias(np.array([0.5, 1.0, 0.0, 0.0, -1.0, -0.01]), bias)
    assert bias[:, 0, 0].tolist() == [PER_PRIORITY * 0.5, 0.0, -PER_PRIORITY]
    assert bias[:, 0, 1].tolist() == [PER_PRIORITY + BASE_OF_DOUBLING, BASE_OF_DOUBLING, BARRED]
