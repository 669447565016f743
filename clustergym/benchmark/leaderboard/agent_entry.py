"""Entries of boards of agents: actions recorded in every episode, read without trusting any of them.

An entry is a folder with `entry.yaml` and a file of actions for each run of training and environment,
`ENVIRONMENT-RUN.jsonl.gz`: a line that says what it is of, then a line for each trace. Only whole numbers are
read; nothing is unpickled or imported. No figures are claimed: playing the actions again gives all of them.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pydantic import Field

from clustergym.benchmark.leaderboard.agent_board import (
    AgentBoard,
    AgentEnvironment,
    Played,
    play_traces,
)
from clustergym.benchmark.leaderboard.board import NAME, Name
from clustergym.benchmark.leaderboard.entry import ELSEWHERE, TUNING, Line
from clustergym.cluster.schema import StrictSchema, validate_content
from clustergym.common.arrays import Bools, Floats
from clustergym.common.errors import InputError, nearest
from clustergym.common.reading import read_json_lines
from clustergym.common.writing import write_files
from clustergym.common.yaml_file import read_mapping

ENTRY, SCHEMA = "entry.yaml", "clustergym.actions/1"
UNIT = 1.0 / 64.0
"""Numbers of an action are recorded, and played, as multiples of this."""
MOST_RUNS, MOST_STEPS = 10, 10_000
LARGEST_RUN_BYTES, LONGEST_LINE_BYTES = 50_000_000, 10_000_000
REMEDY = "record it anew with clustergym.benchmark.leaderboard.agent_entry.record_run"
Decide = Callable[[Any, Any], Any]
"""(Observations, masks) -> actions."""
Actions = npt.NDArray[np.int64] | npt.NDArray[np.int16]


class AgentEntry(StrictSchema):
    """The content of entry.yaml, which describes an agent on a leaderboard of agents.

    Attributes
    ----------
    board, board_version, title, authors
    trained_on : list of str
        `train`, `dev` or `elsewhere`; the board's own traces, `test`, are refused.
    training_cpu_s : float
        Processor time of a training, mean over runs and environments; 0: nothing was trained.
    hardware, licence, command : str
    """

    board: Name
    board_version: Annotated[int, Field(ge=1)]
    title: Line
    authors: Annotated[list[Line], Field(min_length=1, max_length=100)]
    trained_on: list[Literal["train", "dev", "elsewhere"]] = Field(default_factory=list)
    training_cpu_s: Annotated[float, Field(ge=0.0)]
    hardware: Line
    licence: Line
    command: Line


assert {*TUNING, ELSEWHERE} == {"train", "dev", "elsewhere"}


class Header(StrictSchema):
    """The first line of a file of recorded actions: its format, its environment and its number of traces."""

    schema_name: Annotated[Literal["clustergym.actions/1"], Field(alias="schema")]
    environment: Name
    traces: int


class Episode(StrictSchema):
    """The actions of one episode: any line but the first in a file of recorded actions.

    An action is a whole number, or the numbers of a box in units of `UNIT`, without zeros at their end.
    """

    actions: Annotated[list[int] | list[list[int]], Field(min_length=1, max_length=MOST_STEPS)]


class Run(NamedTuple):
    """A training run of an agent in one environment; its recorded actions are in a file."""

    environment: str
    run: int

    @property
    def file(self) -> str:
        """Name of the file with the run's recorded actions."""
        return f"{self.environment}-{self.run}.jsonl.gz"


def agent_names(board: AgentBoard) -> list[str]:
    """Return the names of a board's folders that have an entry.yaml."""
    return sorted(path.parent.name for path in board.folder.glob(f"*/{ENTRY}"))


def read_agent_entry(board: AgentBoard, name: str) -> tuple[AgentEntry, list[Run]]:
    """Read an entry; return its entry.yaml and recorded training runs, in the board's order of environments.

    Raises
    ------
    InputError
        If the name is not allowed, entry.yaml is missing or malformed or of another board, or the folder is
        or has a link, or has what does not belong there.
    """
    folder = board.folder / name
    if not re.fullmatch(NAME, name) or folder.is_symlink() or not folder.is_dir():
        remedy = nearest(name, agent_names(board))
        raise InputError(f"{name!r} is no entry of {board.name}", field="entry", remedy=remedy)
    names = [one.name for one in board.environments]
    runs = [Run(one, run) for one in names for run in range(MOST_RUNS)]
    files = {one.file: one for one in runs}
    for path in sorted(folder.iterdir()):
        if path.name not in (ENTRY, *files) or path.is_symlink() or not path.is_file():
            message = "is a link, no plain file, or does not belong in an entry"
            raise InputError(message, file=path, remedy=f"an entry has {ENTRY} and ENVIRONMENT-RUN.jsonl.gz")
    source = read_mapping(folder / ENTRY)
    entry = validate_content(AgentEntry, source.content, file=source.path, source=source)
    if (entry.board, entry.board_version) != (board.name, board.version):
        message = f"is of {entry.board} version {entry.board_version}"
        remedy = f"record it anew for {board.name} version {board.version}"
        raise InputError(message, file=source.path, field="board", remedy=remedy)
    found = [run for file, run in files.items() if (folder / file).is_file()]
    if not found:
        raise InputError("has no actions", file=folder, remedy=REMEDY)
    return entry, found


def read_actions(path: Path, environment: AgentEnvironment, traces: int, space: Any) -> list[Actions]:
    """Read a run's recorded actions, one array per trace, shape (steps,) or (steps, numbers per action)."""
    lines = read_json_lines(
        path, largest_bytes=LARGEST_RUN_BYTES, longest_line_bytes=LONGEST_LINE_BYTES, remedy=REMEDY
    )
    _, first = next(lines, (1, {}))
    header = validate_content(Header, first, file=path)
    if (header.environment, header.traces) != (environment.name, traces):
        message = f"is of {header.traces} traces of {header.environment}"
        raise InputError(message, file=path, line=1, remedy=REMEDY)
    found: list[Actions] = []
    for number, line in lines:
        episode = validate_content(Episode, line, file=path)
        found.append(_as_array(path, number, episode.actions, space))
    if len(found) != traces:
        raise InputError(f"has {len(found)} episodes, not {traces}", file=path, remedy=REMEDY)
    return found


def _as_array(path: Path, number: int, actions: Sequence[Any], space: Any) -> Actions:
    """Return an episode's actions; raise an `InputError` if one is not of the space."""
    if isinstance(space, spaces.Discrete):
        if all(isinstance(one, int) and 0 <= one < int(space.n) for one in actions):
            return np.array(actions, dtype=np.int64)
    else:
        size = int(np.prod(space.shape))
        most = round(float(space.high.min()) / UNIT)
        if all(
            isinstance(one, list) and len(one) <= size and all(-most <= part <= most for part in one)
            for one in actions
        ):
            filled = np.zeros((len(actions), size), dtype=np.int16)
            for at, one in enumerate(actions):
                filled[at, : len(one)] = one
            return filled
    raise InputError("an action is not of the environment's space", file=path, line=number, remedy=REMEDY)


def replay_run(board: AgentBoard, name: str, run: Run) -> Floats:
    """Replay the recorded actions of a run; return the mean JCT on each trace, seconds."""
    environment = board.environment(run.environment)
    path = board.folder / name / run.file
    envs = environment.make(board.traces)
    try:
        space = envs.single_action_space
        actions = read_actions(path, environment, board.traces, space)
        lengths = np.array([len(one) for one in actions])
        at = np.zeros(board.traces, dtype=np.int64)

        def decide(_: Any, __: Any, over: Bools) -> Any:
            at[:] += 1
            short = np.flatnonzero(~over & (at > lengths))
            if len(short):
                _refuse(path, int(short[0]), f"goes on after its {lengths[short[0]]} actions")
            chosen = np.stack([one[(step - 1) % len(one)] for one, step in zip(actions, at, strict=True)])
            return chosen if isinstance(space, spaces.Discrete) else (chosen * UNIT).astype(np.float32)

        played = play_traces(envs, board.seeds, decide)
    finally:
        envs.close()
    for trace in range(board.traces):
        if played.steps[trace] != lengths[trace]:
            _refuse(path, trace, f"ends before its {lengths[trace]} actions")
        if not played.complete[trace]:
            _refuse(path, trace, "ends before all jobs have left")
    return played.jct_s


def _refuse(path: Path, trace: int, message: str) -> None:
    remedy = "record what the agent plays on the board's own traces"
    raise InputError(f"the episode on trace {trace} {message}", file=path, line=trace + 2, remedy=remedy)


def record_run(board: AgentBoard, name: str, run: Run, decide: Decide) -> Played:
    """Let an agent play the board's traces, and write its actions to a file of its leaderboard entry.

    Numbers are rounded to multiples of `UNIT` before they are played.

    Parameters
    ----------
    board : AgentBoard
    name : str
        Of the entry's folder.
    run : Run
        The environment's name on the board, and which run of the training it is, from 0.
    decide : callable
        (observations, masks) -> actions, of the vector environment that `AgentEnvironment.make` makes.
    """
    envs = board.environment(run.environment).make(board.traces)
    discrete = isinstance(envs.single_action_space, spaces.Discrete)
    kept: list[list[Any]] = [[] for _ in range(board.traces)]

    def play(observations: Any, masks: Any, over: Bools) -> Any:
        given = np.asarray(decide(observations, masks))
        # Rounded before it is played: what is stored is what was played, and is replayed to the last bit.
        played = given if discrete else np.rint(given / UNIT).astype(np.int64)
        for row in np.flatnonzero(~over).tolist():
            kept[row].append(int(played[row]) if discrete else np.trim_zeros(played[row], "b").tolist())
        return played if discrete else (played * UNIT).astype(np.float32)

    found = play_traces(envs, board.seeds, play)
    envs.close()
    path = board.folder / name / run.file
    if not found.complete.all():
        _refuse(path, int(np.argmin(found.complete)), "ends before all jobs have left")
    header = {"schema": SCHEMA, "environment": run.environment, "traces": board.traces}
    lines: list[Mapping[str, Any]] = [header, *({"actions": one} for one in kept)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_files({path: gzip.compress(text.encode(), 9, mtime=0)})
    return found
