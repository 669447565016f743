"""Scores of a board's agents: their recorded actions are played again, beside random play and the best known.

A score is (random - x) / (random - best known) on a trace, of mean JCTs. Those of an environment have an
interquartile mean over runs and traces, and environments the mean of these (Agarwal et al., NeurIPS '21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.benchmark.leaderboard.agent_board import AgentBoard, Constants, read_constants
from clustergym.benchmark.leaderboard.agent_entry import AgentEntry, agent_names, read_agent_entry, replay_run
from clustergym.benchmark.leaderboard.score import interval
from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.processes import Processes, in_order
from clustergym.common.tables import table
from clustergym.common.writing import write_text
from clustergym.results.metrics.statistics import RESAMPLES, Aggregate, interquartile_mean

RULES = """\
On a trace a score is 0 for what random play reaches and 1 for the best known, which are weights that an
evolution strategy found on other traces; in between and beyond it is on a line: (random - x) / (random -
best known), of mean JCTs. An environment's is the interquartile mean over runs of training and traces, with a
95 % bootstrap interval that resamples runs and traces in each environment (Agarwal et al., NeurIPS '21), and
says nothing of seeds where there is one run; *all* is the mean over environments, of agents that play all of
them.
"""


class RankedAgent(NamedTuple):
    """An agent or heuristic on a leaderboard, with its scores.

    Attributes
    ----------
    name, title : str
    entry : AgentEntry or None
        None: a heuristic, which is of the board.
    scores : dict of str to ndarray, shape (runs, traces)
        By environment.
    found : dict of str to Aggregate
        The score in each environment, and `all`, where it plays all.
    """

    name: str
    title: str
    entry: AgentEntry | None
    scores: Mapping[str, Floats]
    found: Mapping[str, Aggregate]


def compute_agent_scores(jct_s: Floats, constants: Constants) -> Floats:
    """Return a score for each mean JCT, shape (runs, traces): 0 is random play, 1 the best known agent."""
    random, known = np.array(constants.random), np.array(constants.best_known)
    return np.asarray((random - jct_s) / (random - known))


def aggregate_agents(scores: Sequence[Floats]) -> Aggregate:
    """Average each environment's interquartile mean score; return the average with its bootstrap interval.

    Parameters
    ----------
    scores : sequence of ndarray, shape (runs, traces)
        One of each environment. Runs and traces are resampled in each by itself.
    """
    # Runs and traces are drawn apart (a two-way bootstrap): a trace that is hard for one run is for all.
    rng = random_streams.COMPARISON.generator(0)
    value = np.mean([interquartile_mean(one.ravel()) for one in scores])
    drawn = np.empty((len(scores), RESAMPLES))
    for at, one in enumerate(scores):
        runs, traces = one.shape
        rows = rng.integers(runs, size=(RESAMPLES, runs, 1))
        columns = rng.integers(traces, size=(RESAMPLES, 1, traces))
        drawn[at] = interquartile_mean(one[rows, columns].reshape(RESAMPLES, -1))
    low, high = np.percentile(drawn.mean(0), [2.5, 97.5])
    return Aggregate(float(value), float(low), float(high))


def replay_entry(board: AgentBoard, name: str) -> RankedAgent:
    """Replay and score an entry's recorded actions; raise an `InputError` if they do not fit the traces."""
    entry, runs = read_agent_entry(board, name)
    constants, scores = read_constants(board), dict[str, Floats]()
    for environment in dict.fromkeys(run.environment for run in runs):
        own = [replay_run(board, name, run) for run in runs if run.environment == environment]
        scores[environment] = compute_agent_scores(np.stack(own), constants[environment])
    return _standing(board, name, entry.title, entry, scores)


def _standing(
    board: AgentBoard, name: str, title: str, entry: AgentEntry | None, scores: Mapping[str, Floats]
) -> RankedAgent:
    found = {environment: aggregate_agents([own]) for environment, own in scores.items()}
    # A mean over the environments that an agent chose to play would rank the choice.
    if len(scores) == len(board.environments):
        found["all"] = aggregate_agents(list(scores.values()))
    return RankedAgent(name, title, entry, scores, found)


def list_heuristics(board: AgentBoard) -> list[RankedAgent]:
    """Return the leaderboard's heuristic policies with their scores, from its stored reference results."""
    constants = read_constants(board)
    policies = next(iter(constants.values())).heuristics
    return [
        _standing(
            board,
            policy,
            f"`{policy}`",
            None,
            {
                name: compute_agent_scores(np.array([one.heuristics[policy]]), one)
                for name, one in constants.items()
            },
        )
        for policy in policies
    ]


def rank_agents(board: AgentBoard, workers: Processes = 1) -> list[RankedAgent]:
    """Return all agents and heuristics, ordered by the number of environments played, then by mean score."""
    replayed = in_order(partial(replay_entry, board), agent_names(board), workers)
    # First by how much was played: a mean of one environment is no match for one of all.
    found = [*replayed, *list_heuristics(board)]
    return sorted(
        found,
        key=lambda one: (-len(one.scores), -float(np.mean([own.value for own in one.found.values()]))),
    )


def agent_rows(board: AgentBoard, found: Sequence[RankedAgent]) -> list[list[str]]:
    """Return the leaderboard table's rows as text: title, runs, CPU time of training, scores."""
    rows = []
    for one in found:
        runs = "" if one.entry is None else str(max(len(own) for own in one.scores.values()))
        spent = "" if one.entry is None else f"{one.entry.training_cpu_s:.0f}"
        names = [*(environment.name for environment in board.environments), "all"]
        each = [interval(one.found[name]) if name in one.found else "" for name in names]
        rows.append([one.title, runs, spent, *each])
    return rows


def agent_columns(board: AgentBoard) -> list[str]:
    """Return the column headings of the leaderboard table of agents."""
    return ["agent", "runs", "training, CPU-s", *(one.name for one in board.environments), "all"]


def write_agent_page(board: AgentBoard, found: Sequence[RankedAgent]) -> Path:
    """Write the leaderboard of agents as a README.md; return its path."""
    ids = ", ".join(
        f"`{one.name}` ({one.id}" + ("" if one.jobs is None else f", {one.jobs} jobs") + ")"
        for one in board.environments
    )
    rows = agent_rows(board, found)
    made = [f"- {one.title}: `{one.entry.command}`" for one in found if one.entry is not None]
    lines = [
        f"# {board.title}",
        "",
        board.summary,
        "",
        RULES,
        f"Version {board.version}: the first {board.traces} traces of the split `test` of {ids}.",
        "",
        table(agent_columns(board), rows),
        "",
        "Made by",
        "",
        *made,
        "",
        "`clustergym leaderboard agents "
        + board.name
        + "` plays all recorded actions again and prints the table.",
        "",
    ]
    path = board.folder / "README.md"
    write_text(path, "\n".join(lines))
    return path
