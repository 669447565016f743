"""What an episode of the Rack environment is, on cases small enough to follow by hand."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.common.errors import InputError
from clustergym.envs.racks.environment import RackEnv
from clustergym.envs.racks.gangs import Gangs, RackParameters, episode_gangs

NAME = "ClusterGym/Rack-576-v0"


def gangs_of(*jobs: tuple[float, float, int, int]) -> Gangs:
    """Return gangs of (submit_s, duration_s, trays of a segment, segments)."""
    submit_s, duration_s, trays, segments = zip(*jobs, strict=True)
    return Gangs(np.array(submit_s), np.array(duration_s), np.array(trays), np.array(segments))


def legal_of(info: dict) -> list[int]:
    return np.flatnonzero(info["action_mask"]).tolist()


def small(**parameters: object) -> RackEnv:
    """Two racks of four trays, of which a gang may have three; a move stands still for 10 s."""
    return RackEnv(**{"racks": 2, "trays": 4, "gang_trays": 3, "restart_s": 10.0} | parameters)


def test_a_move_makes_room() -> None:
    env = small()
    # a and b have two trays each, c wants three of one rack.
    gangs = gangs_of((0, 100, 2, 1), (0, 100, 2, 1), (60, 50, 3, 1))
    observation, info = env.reset(options={"gangs": gangs})
    # a has room in both racks and nobody to move; it may wait, as b is to come.
    assert legal_of(info) == [0, 1, 4]
    assert observation["gang"].tolist() == [0.5, 0.25, 0.0]
    env.step(0)
    observation, reward, _, _, info = env.step(1)
    # b is placed and 60 s later c comes, for which two and two trays are free: stranded. Nobody waited.
    assert (reward, info["now_s"], info["stranded_trays"]) == (0.0, 60.0, 4)
    assert legal_of(info) == [2, 3, 4]
    assert observation["free"].tolist() == [0.5, 0.5]
    assert observation["leaves"].tolist() == [0.5, 0.5]
    # a joins b: its two trays stand still for 10 s, of seven in all.
    _, reward, _, _, info = env.step(2)
    assert reward == pytest.approx(-2 * 10 / 7 / 3600)
    assert legal_of(info) == [0, 4]
    _, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated, info["moves"]) == (0.0, True, False, 1)
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_without_a_move_it_waits() -> None:
    env = small(reward={"waiting": 1.0})
    env.reset(options={"gangs": gangs_of((0, 100, 2, 1), (0, 120, 2, 1), (60, 50, 3, 1))})
    env.step(0)
    env.step(1)
    # c waits 40 s with its three trays, until a ends at 100 s.
    _, reward, terminated, _, info = env.step(4)
    assert (info["now_s"], legal_of(info)) == (100.0, [0, 4])
    assert reward == pytest.approx(-3 * 40 / 7 / 3600)
    assert not terminated


def test_a_moved_gang_ends_later() -> None:
    env = small()
    env.reset(options={"gangs": gangs_of((0, 100, 2, 1), (0, 100, 2, 1), (60, 50, 3, 1), (61, 9, 3, 1))})
    for action in (0, 1, 2, 0):
        env.step(action)
    # a and b are in rack 1 and c in rack 0: d waits from 61 s on. b ends at 100 s, a 10 s later because it
    # was moved, and c at 110 s as well; a first: d starts in rack 1.
    assert env.state.over is False
    assert (env.state.now_s, env.state.offered) == (110.0, 3)
    _, _, terminated, _, _ = env.step(1)
    assert terminated
    assert env.state.waited_tray_s == 3 * 49


def test_segments_lie_in_racks_and_a_gang_keeps_to_its_trays() -> None:
    env = small(on_illegal="noop")
    # Two segments of two trays: of four trays a gang may have three, so they lie in both racks.
    _, info = env.reset(options={"gangs": gangs_of((0, 100, 2, 2), (5, 100, 1, 1))})
    assert legal_of(info) == [0, 1, 4]
    observation, _, _, _, info = env.step(0)
    assert observation["own"].tolist() == [0.5, 0.0]
    # Its first segment is placed: the second has to follow, and nobody moves meanwhile.
    assert legal_of(info) == [1]
    _, reward, _, _, info = env.step(0)
    assert (reward, info["illegal"]) == (0.0, True)
    _, _, terminated, _, info = env.step(1)
    assert (terminated, info["now_s"], legal_of(info)) == (False, 5.0, [0, 1, 4])


def test_moves_are_an_hours() -> None:
    # Half a move an hour is never a whole one: c is offered only when a has ended.
    env = small(moves_per_hour=0.5)
    env.reset(options={"gangs": gangs_of((0, 100, 2, 1), (0, 120, 2, 1), (60, 50, 3, 1))})
    env.step(0)
    _, _, _, _, info = env.step(1)
    assert (info["now_s"], legal_of(info)) == (100.0, [0, 4])


@pytest.mark.parametrize("observation", ["dict", "flat"])
def test_both_checkers_find_nothing(observation: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(NAME, observation=observation).unwrapped)
        checker = pytest.importorskip("stable_baselines3.common.env_checker")
        checker.check_env(gymnasium.make(NAME, observation=observation))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 99), racks=st.integers(1, 4), trays=st.integers(1, 20), most=st.integers(1, 20))
def test_legal_play_keeps_the_books_and_ends(seed: int, racks: int, trays: int, most: int) -> None:
    env = RackEnv(racks=racks, trays=trays, gang_trays=most, jobs=15)
    observation, info = env.reset(seed=seed)
    rng, over, total = np.random.default_rng(seed), False, 0.0
    while not over:
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, info = env.step(int(rng.choice(legal_of(info))))
        over, total, state = terminated, total + reward, env.state
        assert not truncated
        for rack, free in enumerate(state.free):
            held = [here[rack] for here in state.held.values()]
            assert free + sum(held) == trays
            assert max(held, default=0) <= min(trays, most)
    assert total == pytest.approx(-state.waiting_cost - state.moved_cost)
    assert not state.waiting


def test_what_is_to_come_is_not_shown() -> None:
    parameters = RackParameters(jobs=40)
    gangs = episode_gangs(parameters, {}, np.random.default_rng(3))
    at = 20
    # All that come from the twentieth on are others, and what runs then has other ends that lie beyond.
    trays, segments, duration_s = gangs.trays.copy(), gangs.segments.copy(), gangs.duration_s.copy()
    trays[at:], segments[at:] = 1, 1
    comes_s = float(gangs.submit_s[at])
    duration_s[gangs.duration_s > comes_s] *= 2.0
    changed = gangs._replace(trays=trays, segments=segments, duration_s=duration_s)
    mine, other = RackEnv(jobs=40), RackEnv(jobs=40)
    seen, info = mine.reset(options={"gangs": gangs})
    then, _ = other.reset(options={"gangs": changed})
    rng = np.random.default_rng(0)
    for _ in range(500):
        assert {name: part.tolist() for name, part in seen.items()} == {
            name: part.tolist() for name, part in then.items()
        }
        action = int(rng.choice(legal_of(info)))
        seen, *_, info = mine.step(action)
        then, *_, told = other.step(action)
        if max(info["now_s"], told["now_s"]) >= comes_s:
            break
    else:
        raise AssertionError("the twentieth gang never came")


def test_pictures() -> None:
    env = gymnasium.make(NAME, render_mode="ansi")
    env.reset(seed=1)
    env.step(0)
    assert "free trays" in env.render()
    env = gymnasium.make(NAME, render_mode="rgb_array")
    env.reset(seed=1)
    before = env.render()
    env.step(0)
    assert before.shape == env.render().shape == (540, 960, 3)
    assert (before != env.render()).any()


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"gang": 1}, "unknown option 'gang'"),
        ({"gangs": 3}, "is not a Gangs"),
        ({"gangs": gangs_of((0, 1, 17, 1))}, "1 segments of 17 trays"),
        ({"gangs": gangs_of((0, 1, 16, 9))}, "9 segments of 16 trays"),
        ({"gangs": gangs_of((1, 1, 1, 1), (0, 1, 1, 1))}, "not by time"),
        ({"gangs": gangs_of((0, 0, 1, 1))}, "for 0 s"),
    ],
)
def test_bad_options_are_one_line(given: dict, line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        gymnasium.make(NAME).reset(options=given)
    assert len(str(caught.value).splitlines()) == 1


def test_bad_parameters_and_actions_are_one_line() -> None:
    with pytest.raises(InputError, match=r"env\.racks"):
        gymnasium.make(NAME, racks=0)
    with pytest.raises(InputError, match=r"reward\.wait"):
        gymnasium.make(NAME, reward={"wait": 1.0})
    env = RackEnv(on_illegal="raise")
    env.reset(options={"gangs": gangs_of((0, 10, 1, 1))})
    with pytest.raises(InputError, match=r"16 is not possible.*legal: 0, 1"):
        env.step(16)
