"""Boards of agents: environments on whose test traces recorded actions are played again.

A board is `agents.yaml` of a folder; what random play, the best known and heuristics come to on each of its
traces stands in `constants.json` beside it, which `measure_constants` measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import gymnasium
import numpy as np
from pydantic import AfterValidator, Field

from clustergym.benchmark.leaderboard.board import NAME, InFolder, Name, boards_dir
from clustergym.benchmark.leaderboard.entry import Line
from clustergym.cluster.schema import StrictSchema, validate_content
from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats
from clustergym.common.errors import InputError, nearest
from clustergym.common.reading import read_json
from clustergym.common.writing import write_json
from clustergym.common.yaml_file import read_mapping
from clustergym.envs.episodes import TRACES_OF, trace_seed
from clustergym.scenario.environments import ENVIRONMENTS

FILE, CONSTANTS = "agents.yaml", "constants.json"
LARGEST_CONSTANTS_BYTES = 1_000_000
HEURISTICS = ("hesrpt", "srtf elastic=true")
ENDS = 1_000_000
"""Steps after which an episode is given up."""


def _known(name: str) -> str:
    """Return the id of an environment that has a compiled form; raise a `ValueError` for others."""
    known = [row.id for row in ENVIRONMENTS if row.schedules]
    if name not in known:
        raise ValueError(f"is no environment with a compiled form: {nearest(name, known)}")
    return name


class AgentEnvironment(StrictSchema):
    """One of the Gymnasium environments of a leaderboard on which trained agents are compared.

    Attributes
    ----------
    name : str
        Its name on the board.
    id : str
        Gymnasium's.
    jobs : int, optional
        Jobs of an episode, where they are not those of the id.
    """

    name: Name
    id: Annotated[str, AfterValidator(_known)]
    jobs: Annotated[int, Field(ge=1, le=10_000)] | None = None

    def make(self, number: int) -> Any:
        """Make a vector environment of `number` copies, with observations as flat arrays."""
        from clustergym.envs.registration import register_envs

        register_envs()
        own: dict[str, Any] = {} if self.jobs is None else {"jobs": self.jobs}
        return gymnasium.make_vec(
            self.id, num_envs=number, observation="flat", autoreset_mode="Disabled", **own
        )


class AgentBoard(InFolder):
    """A leaderboard of agents, as its file agents.yaml defines it.

    Attributes
    ----------
    name, version, title, summary
    traces : int
        Traces of the split `test` that are played.
    environments : list of AgentEnvironment
    """

    name: Name
    version: Annotated[int, Field(ge=1)]
    title: Line
    summary: Annotated[str, Field(min_length=1, max_length=2000)]
    traces: Annotated[int, Field(ge=1, le=TRACES_OF["test"])]
    environments: Annotated[list[AgentEnvironment], Field(min_length=1, max_length=50)]

    @property
    def seeds(self) -> list[int]:
        """The seeds of the test traces (lists of jobs) that every agent plays."""
        return [trace_seed("test", at) for at in range(self.traces)]

    def environment(self, name: str) -> AgentEnvironment:
        """Return one of the board's environments by its name; raise an `InputError` for another name."""
        known = {one.name: one for one in self.environments}
        if name not in known:
            remedy = nearest(name, list(known))
            raise InputError(f"{name!r} is no environment of {self.name}", field="environment", remedy=remedy)
        return known[name]


class Constants(StrictSchema):
    """Mean job completion times (s) of random play, the best known agent and heuristics, on each trace."""

    random: list[Annotated[float, Field(gt=0.0)]]
    best_known: list[Annotated[float, Field(gt=0.0)]]
    heuristics: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_ =]{0,60}$")], list[float]]


class BoardConstants(StrictSchema):
    """The content of constants.json: reference results on the test traces, by environment."""

    version: int
    environments: dict[Name, Constants]


def load_agent_board(name: str, root: Path | None = None) -> AgentBoard:
    """Read a leaderboard of agents from its file agents.yaml."""
    folder = (boards_dir() if root is None else root) / name
    if not re.fullmatch(NAME, name) or not (folder / FILE).is_file():
        known = sorted(path.parent.name for path in folder.parent.glob(f"*/{FILE}"))
        raise InputError(f"no board of agents {name!r}", field="board", remedy=nearest(name, known))
    source = read_mapping(folder / FILE)
    board = validate_content(AgentBoard, source.content, file=source.path, source=source)
    names = [one.name for one in board.environments]
    if len(set(names)) < len(names):
        remedy = "name each environment once"
        raise InputError("names an environment twice", file=source.path, field="environments", remedy=remedy)
    return board.in_folder(folder)


def read_constants(board: AgentBoard) -> dict[str, Constants]:
    """Read the results of random play, the best known agent and heuristics, by environment."""
    path, remedy = board.folder / CONSTANTS, "measure them with `leaderboard agents --freeze`"
    content = validate_content(BoardConstants, read_json(path, LARGEST_CONSTANTS_BYTES, remedy), file=path)
    if content.version != board.version or list(content.environments) != [
        one.name for one in board.environments
    ]:
        raise InputError("is of another version of the board", file=path, remedy=remedy)
    for name, one in content.environments.items():
        rows = (one.random, one.best_known, *one.heuristics.values())
        below = [known < drawn for known, drawn in zip(one.best_known, one.random, strict=False)]
        if any(len(row) != board.traces for row in rows) or not all(below):
            message = f"does not have {board.traces} traces, or random play is not worse than the best known"
            raise InputError(message, file=path, field=name, remedy=remedy)
    return content.environments


class Played(NamedTuple):
    """Results of episodes that were played on several traces: arrays with an element for each trace.

    Attributes
    ----------
    jct_s, steps, moves : ndarray of float, shape (traces,)
        Mean JCT; steps; steps at which the clock moved.
    returns : ndarray of float, shape (traces,)
        Sums of rewards.
    complete : ndarray of bool, shape (traces,)
        All jobs have left: the episode neither stalled nor was cut short.
    """

    jct_s: Floats
    steps: Floats
    moves: Floats
    returns: Floats
    complete: Bools


def play_traces(envs: Any, seeds: list[int], decide: Callable[[Any, Any, Bools], Any]) -> Played:
    """Play one episode on each trace with the actions of `decide`; return the episodes' results.

    Parameters
    ----------
    envs : SchedulingVectorEnv
        With as many environments as seeds, and `autoreset_mode="Disabled"`.
    seeds : list of int
        Of the traces.
    decide : callable
        (observations, masks, which episodes are over) -> actions. Those of episodes that are over count for
        nothing: the environment plays its trace again beside the others.
    """
    observations, _ = envs.reset(seed=0, options={"trace_seed": seeds})
    jct_s, steps, moves, returns = np.zeros((4, len(seeds)))
    complete, over = np.zeros((2, len(seeds)), dtype=np.bool_)
    found = Played(jct_s, steps, moves, returns, complete)
    for _ in range(ENDS):
        before = envs.core.reached
        actions = decide(observations, envs.action_masks(), over)
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        found.steps[:] += ~over
        found.returns[:] += np.where(over, 0.0, rewards)
        found.moves[:] += ~over & (envs.core.reached > before)
        ended = terminated | truncated
        for row in np.flatnonzero(ended & ~over).tolist():
            found.jct_s[row] = infos["metrics"]["jct_mean_censored"][row]
            found.complete[row] = terminated[row] and not infos["stalled"][row]
        over |= ended
        if over.all():
            break
        if ended.any():
            observations, _ = envs.reset(options={"reset_mask": ended, "trace_seed": seeds})
    return found


def simulate_policy(envs: Any, seeds: list[int], policy: str) -> Floats:
    """Simulate a policy on each seed's trace, deciding at the times set by `envs`; return mean JCTs (s)."""
    import clustergym
    from clustergym.scenario.registry import parse_policy

    episodes, rng = envs.single.episodes, random_streams.FIRST_EPISODE.generator(0)
    chosen = parse_policy(f"{policy} round_s={envs.single.parameters.round_s}", "policy")
    scenarios = (episodes.choose({"trace_seed": seed}, rng) for seed in seeds)
    return np.array([clustergym.simulate(one, chosen).metrics["jct_mean"] for one in scenarios])


@cache
def best_known_weights() -> Floats:
    """Return the best known agent's weights, one for each feature by which it scores giving GPUs to a job.

    They are those of the shipped checkpoint `elastic`.
    """
    from clustergym.agents import auction_features
    from clustergym.agents.auction_checkpoints import load

    weights = np.zeros(auction_features.COUNT)
    known = load("elastic").weights[: auction_features.COUNT]
    weights[: len(known)] = known
    return weights


def play_best_known(parameters: Any, seeds: list[int]) -> Floats:
    """Play the best known agent with the jobs, loads and cluster of `parameters`; return mean JCTs (s)."""
    same = {name: getattr(parameters, name) for name in ("jobs", "loads", "cluster")}
    envs: Any = gymnasium.make_vec(
        "ClusterGym/Auction-v1",
        num_envs=len(seeds),
        observation="flat",
        autoreset_mode="Disabled",
        actions="weights",
        features="summary",
        rows=1,
        **same,
    )
    repeated = np.tile(best_known_weights(), (len(seeds), 1))
    found = play_traces(envs, seeds, lambda *_: repeated)
    envs.close()
    return found.jct_s


def measure_constants(board: AgentBoard) -> Path:
    """Play random actions, the best known agent and heuristics; write their results to constants.json."""
    found: dict[str, Any] = {}
    for one in board.environments:
        envs = one.make(board.traces)
        drawn = play_traces(envs, board.seeds, lambda *_, envs=envs: envs.sample_actions())
        found[one.name] = {
            "random": drawn.jct_s,
            "best_known": play_best_known(envs.single.parameters, board.seeds),
            "heuristics": {policy: simulate_policy(envs, board.seeds, policy) for policy in HEURISTICS},
        }
        envs.close()
    path = board.folder / CONSTANTS
    write_json(path, {"version": board.version, "environments": found}, None)
    return path
