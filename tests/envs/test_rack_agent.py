"""The agent of benchmarks/rack_agent.py: what its scores prefer, and that it learns to prefer it."""

import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import clustergym  # noqa: F401  registers the environments
from clustergym.envs.racks.gangs import Gangs

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import rack_agent

WAIT = 16


def observe(free: list[float], trays: float, leaves: float = 0.0) -> np.ndarray:
    """An observation whose gang has one segment; a gang of `leaves` trays may leave each of eight racks."""
    return np.array([*free, trays / 18, 0.25, 0.0, *([leaves] * 8), 1.0, *([0.0] * 8), *([0.0] * 6)])


def test_it_begins_with_best_fit() -> None:
    # Of racks with 18, 6 and 9 free trays, the six waste least for a gang of four; a move (8 to 15) or
    # waiting scores less: -4 * 2/18 = -0.44 against -6 - ... and -7 + 6 - ...
    free = [1.0, 6 / 18, 9 / 18, 0, 0, 0, 0, 0]
    scores = rack_agent.score_actions(observe(free, 4), rack_agent.START)
    assert scores.shape == (17,)
    possible = [0, 1, 2, WAIT]
    assert max(possible, key=lambda action: scores[action]) == 1
    assert scores[1] == pytest.approx(-4 * 2 / 18)


def test_it_begins_with_moves_that_make_room() -> None:
    # A gang of 16 trays has no room. Eight trays may leave each rack: 8 + 8 are enough in rack 0 alone.
    free = [8 / 18, 4 / 18, 0, 0, 0, 0, 0, 0]
    scores = rack_agent.score_actions(observe(free, 16, leaves=8 / 18), rack_agent.START)
    assert scores[8] == pytest.approx(-7 - 4 * 8 / 18 + 6)
    assert scores[9] == pytest.approx(-7 - 4 * 8 / 18)
    assert scores[8] > scores[WAIT] > scores[9]


def test_an_episode_costs_what_its_gangs_wait() -> None:
    env = gymnasium.make(rack_agent.NAME, observation="flat", racks=8)
    gangs = Gangs(np.zeros(9), np.full(9, 3600.0), np.full(9, 16), np.ones(9, dtype=np.int64))
    reset = env.reset
    env.reset = lambda **given: reset(options={"gangs": gangs})
    # Eight gangs of 16 trays start at once, the ninth an hour later: one of nine waits an hour.
    assert rack_agent.play(env, rack_agent.START, 0) == pytest.approx(1 / 9)
    # One that prefers to wait does so as long as a gang runs, so that they run one after the other, and wait
    # 0 + 1 + ... + 8 hours.
    assert rack_agent.play(env, np.eye(23)[5] * 100, 0) == pytest.approx(36 / 9)


def test_a_search_is_the_same_again() -> None:
    told: list[str] = []
    first, second = (rack_agent.evolve(3, 1, 1, told.append) for _ in range(2))
    assert first.tolist() == second.tolist() != rack_agent.START.tolist()
