"""What an episode of the Sharing environment is, on cases small enough to follow by hand."""

import hashlib
import pickle

import gymnasium
import numpy as np
import pytest
from clustergym.papers.filling import fill
from gymnasium.error import ResetNeeded
from scheduling_episodes import begun_vector, check_pictures, check_without_a_warning

from clustergym.cluster.parts import Requests, empty_nodes
from clustergym.common.errors import InputError
from clustergym.envs.driver import random_action
from clustergym.envs.sharing import environment
from clustergym.envs.sharing.environment import SharingEnv
from clustergym.envs.sharing.episode import SHAPE, choose, play, start_episode
from clustergym.envs.sharing.streams import Source, Stream, draw_stream, generate_source
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.sim.parts.fragmentation import UsualRequests
from clustergym.sim.parts.placement import compute_fragments, score_nodes
from clustergym.sim.parts.placers import PLACERS

IDS = [row.id for row in ENVIRONMENTS if "/Sharing" in row.id]
SMALL = "ClusterGym/Sharing-small-v1"
HALF, WHOLE, CPU_ONLY = range(3)
REQUESTS = Requests(
    cpu_milli=np.array([1000, 8000, 2000]),
    memory_mib=np.array([1024, 2048, 0]),
    gpus=np.array([1, 1, 0]),
    gpu_milli=np.array([500, 1000, 0]),
    models=np.ones(3, dtype=np.int64),
)
USUAL = UsualRequests(
    REQUESTS.cpu_milli, REQUESTS.gpus, REQUESTS.gpu_milli, REQUESTS.models, np.array([0.5, 0.25, 0.25])
)


@pytest.fixture
def two_nodes(monkeypatch):
    """Let environments have a node of 8 cores and 2 GPUs, and one of 10 cores and 1 GPU."""
    source = Source(made_nodes(), REQUESTS, REQUESTS, np.arange(3), USUAL)
    monkeypatch.setattr(environment, "generate_source", lambda nodes: source)


def made_nodes():
    return empty_nodes(np.array([8000, 10000]), np.array([4096] * 2), np.array([2, 1]), np.array([0, 0]))


def stream_of(*kinds):
    """Return a stream of those two nodes."""
    return Stream(made_nodes(), REQUESTS, np.array(kinds), USUAL)


def put_by(env, placer):
    """Place the request as a placer would; `random-fit` takes the first node in the order of ranks."""
    episode, state = env.state.episode, env.state
    value, device = score_nodes(episode.nodes, episode.requests, state.request, placer, episode.usual)
    node = int(np.lexsort((episode.nodes.rank, -value))[0])
    state.put(node, int(device[node]))


def legal_episode(env, seed, **options):
    """Play legal actions at random; return the observations, rewards and the last info."""
    observation, info = env.reset(seed=seed, **options)
    rng, seen, rewards, over = np.random.default_rng(seed), [observation], [], False
    while not over:
        observation, reward, over, truncated, info = env.step(random_action(env, info, rng))
        assert not truncated
        seen.append(observation)
        rewards.append(reward)
    return seen, rewards, info


def test_an_episode_by_hand(two_nodes):
    env = SharingEnv(reward={"allocated": 1.0, "fragments": 0.0, "rejected": 0.0})
    _, info = env.reset(options={"stream": stream_of(HALF, WHOLE, HALF, WHOLE, WHOLE)})
    # The empty nodes: a CPU request uses none of 3,000, 0.25; HALF and WHOLE can use all.
    assert (info["action_mask"].tolist(), info["fragments"]) == ([1, 1], 0.25)
    # 7 cores are left on node 0, so WHOLE fits on node 1 alone.
    _, first, _, _, info = env.step(0)
    assert (first, info["action_mask"].tolist()) == (pytest.approx(500 / 3000), [0, 1])
    observation, second, _, _, info = env.step(1)
    assert (second, info["action_mask"].tolist()) == (pytest.approx(1000 / 3000), [1, 0])
    # On node 0 1,500 are idle: neither WHOLE, for which 7 cores are too few, nor CPU_ONLY uses them: 750.
    # With HALF on GPU 0 as well 1,000 are idle, of which HALF can use all: 500, so 250 less.
    seen = {name: part.tolist() for name, part in observation.items()}
    assert seen == {
        "alike": [1, 0],
        # 6 cores for a GPU; usual: (0.5 x 1 + 0.25 x 8) / (0.5 x 0.5 + 0.25 x 1) = 5 cores.
        "balance_after": [pytest.approx(6 / 11), 0],
        "cpu": [7 / 8, pytest.approx(0.2)],
        "cpu_after": [6 / 8, 0],
        "device_after": [0, 0],
        "devices": [1, 0.5],
        "fits": [1, 0],
        "fragments": [750 / 2000, 0],
        "fragments_after": [500 / 2000, 0],
        "gpu": [1500 / 2000, 0],
        "gpu_after": [1000 / 2000, 0],
        "growth": [-250 / 2000, 0],
        "memory": [0.75, 0.5],
        "memory_after": [0.5, 0],
        "request": [pytest.approx(0.1), 0.25, 0.5, 0.5],
        # Requests usually ask for 0.5 x 0.5 + 0.25 x 1 = 0.5 GPUs: 6 fill the 3 GPUs, and 2 have come.
        "stream": [2 / (2 + 6), 0.5],
        "untouched": [0.5, 0],
        "untouched_after": [0.5, 0],
    }
    # The last two requests fit nowhere: 6 cores, and no GPU.
    _, third, terminated, truncated, info = env.step(0)
    assert (third, terminated, truncated) == (pytest.approx(500 / 3000), True, False)
    assert (info["rejected"], info["allocated"]) == (2, pytest.approx(2000 / 3000))
    assert info["rewards"]["rejected"] == -2 / 5
    assert env.state.episode.node.tolist() == [0, 1, 0, -1, -1]
    assert env.state.episode.nodes.gpu_milli.tolist() == [[0, 1000], [0, 0]]
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_what_cannot_fit_ends_at_once(two_nodes):
    env = SharingEnv()
    stream = stream_of(WHOLE)
    _, info = env.reset(
        options={"stream": stream._replace(requests=REQUESTS._replace(cpu_milli=np.full(3, 20000)))}
    )
    assert info["action_mask"].tolist() == [1, 1]
    _, reward, terminated, _, info = env.step(1)
    assert (reward, terminated, info["rejected"]) == (0, True, 1)


@pytest.mark.parametrize("placer", PLACERS[1:])
def test_placers_in_the_environment_are_those_of_the_experiment(placer):
    env = SharingEnv(nodes=16)
    stream = draw_stream(env.source, 1.3, np.random.default_rng(3))
    env.reset(options={"stream": stream})
    alone = fill(stream.nodes.copy(), stream.requests, stream.arrivals, stream.usual, placer, 0)
    while not env.state.over:
        put_by(env, placer)
    episode = env.state.episode
    assert (episode.node == alone.node).all()
    assert (episode.devices == alone.devices).all()
    assert episode.fragments.tolist() == compute_fragments(episode.nodes, stream.usual).tolist()
    assert env.state.allocated == alone.used_milli[-1] / stream.nodes.installed_milli


def test_the_learned_placer_plays_the_environment():
    weights = np.random.default_rng(1).normal(size=SHAPE)
    env = SharingEnv(nodes=16, on_illegal="raise")
    stream = draw_stream(generate_source(16), 1.3, np.random.default_rng(2))
    env.reset(options={"stream": stream})
    while not env.state.over:
        env.step(choose(env.state.episode, weights))
    episode = start_episode(stream)
    play(episode, weights)
    assert (episode.node == env.state.episode.node).all()
    assert set(episode.node.tolist()) == {-1, *range(16)}
    # What is free and what is held is what there is.
    held = np.zeros_like(stream.nodes.gpu_milli)
    for arrival in range(len(episode.node)):
        if episode.node[arrival] >= 0:
            bits = (episode.devices[arrival] >> np.arange(8)) & 1
            held[episode.node[arrival]] += bits * stream.requests.gpu_milli[episode.arrivals[arrival]]
    assert (held + episode.nodes.gpu_milli == stream.nodes.gpu_milli).all()


@pytest.mark.parametrize("name", IDS[:2])
@pytest.mark.parametrize("parameters", [{}, {"observation": "flat"}])
def test_checkers_have_nothing_to_say(name, parameters):
    check_without_a_warning(name, **parameters)


def test_observations_are_in_their_space_to_the_end():
    env, flat = (gymnasium.make(SMALL, observation=form) for form in ("dict", "flat"))
    seen, rewards, info = legal_episode(env, 4)
    one, same, _ = legal_episode(flat, 4)
    assert rewards == same
    assert sum(rewards) == pytest.approx(info["allocated"])
    for parts, numbers in zip(seen, one, strict=True):
        assert env.observation_space.contains(parts)
        assert flat.observation_space.contains(numbers)
        assert list(parts) == sorted(parts)
        assert np.concatenate(list(parts.values())).tolist() == numbers.tolist()


GOLDEN = "f89751b0404eab17"
"""Of rewards and observations; where it changes the environment gets another version."""


def test_an_episode_is_the_same_on_any_machine():
    seen, rewards, info = legal_episode(gymnasium.make(SMALL, observation="flat"), 0)
    digest = hashlib.sha256(np.array(rewards).tobytes() + np.stack(seen).tobytes())
    digest.update(str((info["arrival"], info["rejected"], info["allocated"])).encode())
    assert digest.hexdigest()[:16] == GOLDEN


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors(mode):
    with begun_vector(SMALL, mode) as (envs, info):
        _, rewards, terminated, truncated, info = envs.step(info["action_mask"].argmax(axis=1))
        assert not (terminated | truncated | info["illegal"]).any()
        assert (rewards >= 0).all()


def test_a_copy_goes_on_by_itself():
    env = SharingEnv(nodes=4)
    _, info = env.reset(seed=9)
    copy = pickle.loads(pickle.dumps(env))
    actions = np.flatnonzero(info["action_mask"])[[0, -1]]
    copy.step(int(actions[1]))
    env.step(int(actions[0]))
    assert env.state.episode.node[0] == actions[0]
    assert copy.state.episode.node[0] == actions[1]


@pytest.mark.parametrize("name", IDS)
def test_pictures(name):
    check_pictures(name, "0 rejected")


def test_text_by_hand(two_nodes):
    env = SharingEnv("ansi")
    env.reset(options={"stream": stream_of(HALF, WHOLE, CPU_ONLY)})
    env.step(0)
    assert env.render().splitlines() == [
        "request 1 of 3: 1 GPU, 8 cores, 2 GiB",
        "node  free cores  free GiB  free thousandths of each GPU  fits",
        "   0           7         3                      500 1000    no",
        "   1          10         4                          1000   yes",
        "allocated 16.67 %, fragments 33.33 %, 0 rejected",
    ]
    assert SharingEnv(nodes=2).render() is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"orders": 1}, r"options\.orders: unknown option 'orders'"),
        ({"stream": 3}, r"options\.stream: is not a Stream"),
        ({"stream": stream_of(HALF)}, r"options\.stream: has 2 nodes of up to 2 GPUs .*give 4 nodes"),
    ],
)
def test_bad_options_are_told_in_a_line(given, message):
    with pytest.raises(InputError, match=message):
        SharingEnv(nodes=4).reset(options=given)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (stream_of(3), r"arrivals: names a request that is not one of its 3 .*give 0 to 2"),
        (
            stream_of(0)._replace(requests=REQUESTS._replace(gpus=np.array([2, 1, 0]))),
            r"gpu_milli: request 0 asks for 500 thousandths of 2 GPUs",
        ),
    ],
)
def test_bad_streams_are_told_in_a_line(stream, message, two_nodes):
    with pytest.raises(InputError, match=message):
        SharingEnv().reset(options={"stream": stream})


def test_illegal_actions(two_nodes):
    for how, reward in (("penalty", -2.0), ("noop", 0.0)):
        env = SharingEnv(on_illegal=how, illegal_penalty=2.0, max_steps=3)
        env.reset(options={"stream": stream_of(WHOLE, WHOLE, HALF)})
        env.step(0)
        assert [env.step(0)[1:4] for _ in range(2)] == [(reward, False, False), (reward, False, True)]
    env = SharingEnv(on_illegal="raise")
    env.reset(options={"stream": stream_of(WHOLE, WHOLE)})
    env.step(0)
    with pytest.raises(InputError, match=r"does not fit at 0 .*legal: 1"):
        env.step(0)
    with pytest.raises(InputError, match="7 is not an action"):
        env.step(7)
