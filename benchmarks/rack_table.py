"""What heuristics, random play and an agent reach in `ClusterGym/Rack-576-v0`: the table of its page.

    python benchmarks/rack_table.py [--episodes 40] [--hindsight 10] [--evolve 3] [--steps 100000 --seeds 1]

plays the episodes of seeds 0, 1, … by each rule. `hindsight` knows what is to come: at each action it plays
the episode to its end by best fit with moves after each other action that is legal, and takes the best. Two
agents learn from episodes of seeds from 1,000,000 on: scores of actions by CMA-ES (rack_agent.py), and
sb3-contrib's MaskablePPO.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np
from rack_agent import NAME, evolve, play

import clustergym  # noqa: F401  registers the environments
from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.tables import table
from clustergym.envs.racks.environment import RackEnv
from clustergym.envs.racks.gangs import episode_gangs
from clustergym.envs.racks.state import RackState

Rule = Callable[[RackState, np.random.Generator], int]


def list_legal(state: RackState) -> list[int]:
    """Return the legal actions."""
    racks = range(len(state.free))
    found = [rack for rack in racks if state.has_room(rack)]
    found += [len(state.free) + rack for rack in racks if state.find_move(rack)]
    return [*found, 2 * len(state.free)] if state.may_wait() else found


def act(state: RackState, action: int) -> None:
    """Carry out a legal action."""
    kind, rack = divmod(action, len(state.free))
    if kind == 2:
        state.wait()
    else:
        (state.move if kind else state.place)(rack)


def play_random(state: RackState, rng: np.random.Generator) -> int:
    """Return any legal action."""
    return int(rng.choice(list_legal(state)))


def fit_by(order: Callable[[int, int], float], moves: bool = False) -> Rule:
    """Return the rule that places in the rack of least order, of (free trays, rack), and waits otherwise.

    With moves, it lets gangs leave the rack in which the fewest have to, if that makes room for a gang of one
    segment.
    """

    def choose(state: RackState, rng: np.random.Generator) -> int:
        racks = [rack for rack in range(len(state.free)) if state.has_room(rack)]
        if racks:
            return min(racks, key=lambda rack: order(state.free[rack], rack))
        cleared = count_moves(state) if moves and state.left == 1 else {}
        if cleared:
            return len(state.free) + min(cleared, key=lambda rack: (cleared[rack], rack))
        return 2 * len(state.free)

    return choose


def count_moves(state: RackState) -> dict[int, int]:
    """Return how many gangs leave each rack in which room can be made for a gang of one segment."""
    found = {}
    for rack in range(len(state.free)):
        tried = copy.copy(state)
        tried.free, tried.held = list(state.free), dict(state.held)
        tried.end_s, tried._ends = dict(state.end_s), list(state._ends)
        tried.told_end_s = dict(state.told_end_s)
        while not tried.has_room(rack) and tried.find_move(rack):
            tried.move(rack)
        if tried.has_room(rack):
            found[rack] = tried.moves - state.moves
    return found


BEST_FIT = fit_by(lambda free, rack: free)
MOVING = fit_by(lambda free, rack: free, moves=True)
RULES: dict[str, Rule] = {
    "random play": play_random,
    "worst fit": fit_by(lambda free, rack: -free),
    "first fit": fit_by(lambda free, rack: rack),
    "best fit": BEST_FIT,
    "best fit with moves": MOVING,
}


def make_state(seed: int) -> RackState:
    """Return the episode of a seed."""
    env = gymnasium.make(NAME).unwrapped
    assert isinstance(env, RackEnv)
    rng, _ = gymnasium.utils.seeding.np_random(seed)
    return RackState(env.parameters, episode_gangs(env.parameters, {}, rng))


def finish(state: RackState, rule: Rule, rng: np.random.Generator) -> RackState:
    """Play an episode to its end."""
    while not state.over:
        act(state, rule(state, rng))
    return state


def cost(state: RackState) -> float:
    """Return minus the return of an episode that is over."""
    return state.waiting_cost + state.moved_cost


def look_ahead(state: RackState, rng: np.random.Generator) -> int:
    """Return the action after which best fit with moves costs least; racks alike are tried once."""
    alike: dict[tuple[object, ...], int] = {}
    for action in list_legal(state):
        kind, rack = divmod(action, len(state.free))
        held = tuple(sorted((row, racks[rack]) for row, racks in state.held.items() if racks[rack]))
        alike.setdefault((kind, held if kind < 2 else ()), action)
    if len(alike) == 1:
        return next(iter(alike.values()))
    costs = {}
    for action in alike.values():
        tried = copy.deepcopy(state, {id(state.gangs): state.gangs})
        act(tried, action)
        costs[action] = cost(finish(tried, MOVING, rng))
    default = MOVING(state, rng)
    return min(costs, key=lambda action: (costs[action], action != default))


def evolve_scores(seed: int, episodes: int) -> list[RackState]:
    """Find weights by CMA-ES, and return the episodes that their agent plays."""
    weights = evolve(seed, 25, 24, lambda line: print(line, file=sys.stderr, flush=True))
    print(f"seed {seed}: weights {np.round(weights, 3).tolist()}", file=sys.stderr)
    env, played = gymnasium.make(NAME, observation="flat").unwrapped, []
    assert isinstance(env, RackEnv)
    for at in range(episodes):
        play(env, weights, at)
        played.append(env.state)
    return played


def train(steps: int, seed: int, episodes: int) -> list[RackState]:
    """Train an agent, and return the episodes that it plays."""
    from sb3_contrib import MaskablePPO

    env = gymnasium.make(NAME, observation="flat")
    env.reset(seed=1_000_000 + seed)
    agent = MaskablePPO(
        "MlpPolicy", env, seed=seed, gamma=1.0, n_steps=2048, batch_size=256, learning_rate=5e-4
    )
    agent.learn(steps)
    played = []
    for at in range(episodes):
        observation, info = env.reset(seed=at)
        over = False
        while not over:
            action, _ = agent.predict(observation, action_masks=info["action_mask"], deterministic=True)
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        core = env.unwrapped
        assert isinstance(core, RackEnv)
        played.append(core.state)
    return played


def describe(name: str, states: Sequence[RackState], random: Floats) -> tuple[str, ...]:
    """Return a row of the table: hours waited, with a bootstrap interval over episodes."""
    costs = np.array([cost(state) for state in states])
    rows = random_streams.COMPARISON.generator(0).integers(0, len(costs), (5000, len(costs)))
    low, high = np.percentile(costs[rows].mean(axis=1), [2.5, 97.5])
    moves = np.mean([state.moves for state in states])
    ratio = costs.sum() / random[: len(costs)].sum()
    return (
        name,
        str(len(costs)),
        f"{costs.mean():.3f} [{low:.3f}, {high:.3f}]",
        f"{ratio:.2f}",
        f"{moves:.1f}",
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Play all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--hindsight", type=int, default=10, help="episodes that hindsight plays")
    parser.add_argument("--evolve", type=int, default=0, metavar="SEEDS", help="searches by CMA-ES")
    parser.add_argument("--steps", type=int, default=0, help="steps that an agent trains for")
    parser.add_argument("--seeds", type=int, default=1, help="agents that are trained")
    args = parser.parse_args(argv)
    rng = random_streams.RANDOM_EPISODES.generator(0)
    played = {
        name: [finish(make_state(seed), rule, rng) for seed in range(args.episodes)]
        for name, rule in RULES.items()
    }
    for seed in range(args.evolve):
        played[f"scores by CMA-ES, seed {seed}"] = evolve_scores(seed, args.episodes)
    for seed in range(args.seeds if args.steps else 0):
        played[f"MaskablePPO, seed {seed}"] = train(args.steps, seed, args.episodes)
    if args.hindsight:
        played["hindsight"] = [finish(make_state(seed), look_ahead, rng) for seed in range(args.hindsight)]
    random = np.array([cost(state) for state in played["random play"]])
    rows = [describe(name, states, random) for name, states in played.items()]
    print(table(("rule", "episodes", "hours waited", "over random play", "moves"), rows, words=(0,)))


if __name__ == "__main__":
    main()
