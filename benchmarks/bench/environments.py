"""How fast the environments step: what `clustergym bench environments` measures.

Parts of a step, compiled to be repeated on their own.

The report of `clustergym bench environments`, in Markdown.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from clustergym.common import random_streams
from clustergym.common.processes import cores
from clustergym.common.tables import table
from clustergym.envs.driver import random_action
from clustergym.envs.registration import register_envs
from clustergym.envs.vector import edits, observation
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.auction_batch import AuctionBatch
from clustergym.envs.vector.environment import SchedulingVectorEnv
from clustergym.envs.vector.episode_state import EpisodeRules, EpisodeState
from clustergym.envs.vector.step import select_state
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.sim.compiled import batch
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place
from clustergym.sim.compiled.scenario_arrays import ClusterArrays

SCHEMA = "clustergym.bench.environments/1"
NUMBERS = (1, 16, 256)
TRACES = 16
"""Episodes are drawn among so many traces, which are built before the clock starts."""
SAMPLED = 8
"""How often the parts of a step are repeated on their own, during a run."""
OTHERS = ("CartPole-v1", "MiniGrid-Empty-8x8-v0")


@dataclass(frozen=True)
class EnvironmentOptions:
    """What is measured.

    Attributes
    ----------
    only : str
        Ids that have it in them, or one of several texts with commas between.
    numbers : sequence of int
        Environments of a vector environment.
    seconds : float
        Least processor time of each measurement.
    """

    only: str = ""
    numbers: Sequence[int] = NUMBERS
    seconds: float = 1.0


def rate(
    play: Callable[[int], None], seconds: float, clock: Callable[[], float] = time.process_time
) -> float:
    """Return how often a second `play` repeats something, from one run of at least that many seconds."""
    times = 1
    while True:
        began = clock()
        play(times)
        spent = clock() - began
        if spent >= seconds:
            return times / spent
        times = max(2 * times, int(1.2 * times * seconds / max(spent, 1e-9))) if spent > 0 else 10 * times


def names(only: str) -> list[str]:
    """Return the ids of the environments with compiled episodes that have a text in them."""
    known = (row.id for row in ENVIRONMENTS if row.schedules)
    return [name for name in known if _has(name, only) and name.split("-")[-2].isdigit()]


def plain_names(only: str) -> list[str]:
    """Return the ids of the environments without compiled episodes that have a text in them."""
    known = (row.id for row in ENVIRONMENTS if not row.schedules)
    return [name for name in known if _has(name, only)]


def _has(name: str, only: str) -> bool:
    return any(part in name.lower() for part in only.lower().split(","))


def environment_figures(options: EnvironmentOptions, say: Callable[[str], None]) -> dict[str, Any]:
    """Return all figures as plain values; `say` is told each row when it is there."""
    register_envs()
    rows, singles, others = [], [], []
    for name in names(options.only):
        gc.collect()
        singles.append(single_row(name, options.seconds))
        say(f"{name}: a single one {singles[-1]['compiled']:,.0f} steps a CPU-second")
        for row in vector_rows(name, options):
            gc.collect()
            rows.append(row)
            say(f"{name}, {row['environments']}: {row['steps_per_s']:,.0f} steps a CPU-second")
    for name in (*plain_names(options.only), *OTHERS):
        others.append(other_row(name, options))
        found = others[-1]["steps_per_s"]
        say(f"{name}: " + ("not installed" if found is None else f"{found:,.0f} steps a CPU-second"))
    return {
        "schema": SCHEMA,
        "cores": cores(),
        "load": os.getloadavg()[0],
        "rows": rows,
        "single": singles,
        "others": others,
    }


def single_row(name: str, seconds: float) -> dict[str, Any]:
    """Return steps a CPU-second of a single environment on both engines, actions drawn by NumPy."""
    found: dict[str, Any] = {"id": name}
    for engine in ("simpy", "compiled"):
        try:
            env = gymnasium.make(name, observation="flat", engine=engine, traces=TRACES).unwrapped
        except ValueError:
            found[engine] = None
            continue
        rng = random_streams.BENCHMARK_ACTIONS.generator(0)
        for trace in range(TRACES):
            _, info = env.reset(seed=0, options={"trace_seed": trace})
        last = [info]

        def play(times: int, env: Any = env, rng: Any = rng, last: Any = last) -> None:
            for _ in range(times):
                _, _, terminated, truncated, last[0] = env.step(random_action(env, last[0], rng))
                if terminated or truncated:
                    _, last[0] = env.reset()

        play(50)
        found[engine] = rate(play, seconds)
    return found


def vector_rows(name: str, options: EnvironmentOptions) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of environments; none where no compiled episodes step them."""
    for number in options.numbers:
        envs = _made(name, number, summaries=False)
        if not isinstance(envs, SchedulingVectorEnv):
            return
        row: dict[str, Any] = {"id": name, "environments": number}
        row["steps_per_s"] = number * rate(_player(envs), options.seconds)
        row["decisions_a_step"] = _count_decisions(envs) / number
        episodes, _, states, _ = envs.batch.arrays
        row["bytes"] = sum(array.nbytes for array in (*episodes, *states)) / number
        if not isinstance(envs.batch, AuctionBatch):
            row |= _shares(envs)
        row["copies_per_s"] = number * rate(_copier(envs), options.seconds / 10)
        with_summaries = _made(name, number, summaries=True)
        row["steps_per_s_summaries"] = number * rate(_player(with_summaries), options.seconds)
        if number > 1 and cores() > 1:
            wall = [_made(name, number, summaries=False, threads=threads) for threads in (1, 2)]
            one, two = (rate(_player(made), options.seconds / 2, time.perf_counter) for made in wall)
            row["two_threads"] = two / one
        yield row


def _made(name: str, number: int, **given: Any) -> Any:
    made: Any = gymnasium.make_vec(name, num_envs=number, observation="flat", traces=TRACES, **given)
    if isinstance(made, SchedulingVectorEnv):
        for trace in range(TRACES):
            made.reset(seed=0, options={"trace_seed": trace, "reset_mask": np.arange(number) == 0})
        made.reset(seed=0)
        _spread_phases(made)
    return made


def _spread_phases(envs: Any, most_s: float = 2.0) -> None:
    """Step environments, so that their episodes end at different times: 200 times, or for `most_s` seconds.

    In `Knobs` a step is a whole episode.
    """
    began, play = time.process_time(), _player(envs)
    for _ in range(200):
        play(1)
        if time.process_time() - began > most_s:
            return


def _player(envs: Any) -> Callable[[int], None]:
    def play(times: int) -> None:
        for _ in range(times):
            envs.step(envs.sample_actions())

    return play


def _count_decisions(envs: SchedulingVectorEnv, rounds: int = 50) -> float:
    """Return in how many environments a step moves the clock, which edits, as of `Elastic`, do not."""
    moved, play = 0, _player(envs)
    for _ in range(rounds):
        play(1)
        moved += int(np.count_nonzero(envs.batch.outcomes != steps.EDITED))
    return moved / rounds


def _copier(envs: SchedulingVectorEnv) -> Callable[[int], None]:
    """Return what copies the observations and masks of all environments: what no step can fall below."""
    episode_states = envs.batch.episode_states

    def play(times: int) -> None:
        for _ in range(times):
            episode_states.observation.copy()
            episode_states.mask.copy()

    return play


def _shares(envs: SchedulingVectorEnv, rounds: int = 200) -> dict[str, float]:
    """Return the shares of a step's processor time.

    The steps are timed as a whole, and within them the compiled step; features and masks are timed by
    repeating them on copies of states of the run, times how often the run had decision points and edits.
    `core` is the rest of the compiled step: the simulation and the rewards. `python` is all that is not in
    the compiled step: random actions, checks, and the copies handed out.
    """
    batch, spent, decided, edited = envs.batch, np.zeros(5), 0, 0
    compiled_s, whole_s, act = 0.0, 0.0, batch.apply

    def timed(actions: Any, *copies: Any) -> None:
        nonlocal compiled_s
        began = time.process_time()
        act(actions)
        compiled_s += time.process_time() - began
        for own, other in zip(
            (batch.episode_states.observation, batch.episode_states.mask), copies, strict=True
        ):
            other[:] = own

    batch.apply = timed  # type: ignore[method-assign]
    rounds = max(rounds, 5_000 // envs.num_envs)
    for at in range(rounds):
        began = time.process_time()
        envs.step(envs.sample_actions())
        whole_s += time.process_time() - began
        decided += int((batch.outcomes == steps.DECIDED).sum())
        edited += int((batch.outcomes == steps.EDITED).sum())
        if at % (rounds // SAMPLED) == 0:
            spent += [_part_s(envs, part) for part in range(5)]
    batch.apply = act  # type: ignore[method-assign]
    each_s = np.maximum(spent / SAMPLED / envs.num_envs - spent[NOTHING] / SAMPLED / envs.num_envs, 0.0)
    features_s = decided * each_s[FEATURES] + edited * each_s[FEATURES_OF_EDIT]
    masks_s = decided * each_s[MASKS] + edited * each_s[MASKS_OF_EDIT]
    shares = {"features": features_s, "masks": masks_s, "core": compiled_s - features_s - masks_s}
    shares["python"] = whole_s - compiled_s
    return {f"share_{name}": float(value / whole_s) for name, value in shares.items()}


def _part_s(envs: SchedulingVectorEnv, part: int) -> float:
    """Return the seconds that a part takes for all environments, on copies of their states."""
    episodes, cluster, episode_states, rules = envs.batch.arrays
    copies = episodes._replace(job=episodes.job.copy())
    changed = {
        field: getattr(episode_states, field).copy()
        for field in ("state", "shown", "free", "target", "assignable", "room", "waits")
    }
    changed |= {field: getattr(episode_states, field).copy() for field in ("mask", "observation")}
    given = (copies, cluster, episode_states._replace(**changed), rules, part)
    repeat(*given)

    def play(times: int) -> None:
        for _ in range(times):
            repeat(*given)

    return 1.0 / rate(play, 0.01)


def other_row(name: str, options: EnvironmentOptions) -> dict[str, Any]:
    """Return steps a CPU-second of an environment with random actions, legal where it has masks.

    Also those of as many of them as the largest of `numbers`, where it has a vector form.
    """
    try:
        if name.startswith("MiniGrid"):
            import minigrid  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
        env = gymnasium.make(name).unwrapped
    except (ImportError, gymnasium.error.Error):
        return {"id": name, "steps_per_s": None}
    last, rng = [env.reset(seed=0)[1]], random_streams.BENCHMARK_ACTIONS.generator(0)
    env.action_space.seed(0)

    def play(times: int) -> None:
        for _ in range(times):
            masked = "action_mask" in last[0]
            action = random_action(env, last[0], rng) if masked else env.action_space.sample()
            _, _, terminated, truncated, last[0] = env.step(action)
            if terminated or truncated:
                last[0] = env.reset()[1]

    play(1)

    row = {"id": name, "steps_per_s": rate(play, options.seconds)}
    if any(one.id == name and one.vector_entry_point for one in ENVIRONMENTS):
        number = max(options.numbers)
        envs = gymnasium.make_vec(name, num_envs=number, observation="flat")
        envs.reset(seed=0)
        # Compilation is no part of a step.
        _player(envs)(1)
        row |= {"environments": number, "vector_steps_per_s": number * rate(_player(envs), options.seconds)}
    return row


NOTHING, FEATURES, MASKS, FEATURES_OF_EDIT, MASKS_OF_EDIT = range(5)
"""What is repeated: nothing; what a decision point, and what an edit of the first row, does to features and
masks."""


@compile_entry
def repeat(
    episodes: Episode, cluster: ClusterArrays, episode_states: EpisodeState, rules: EpisodeRules, part: int
) -> None:
    """Do a part of a step once for each episode of a batch, at a decision point."""
    _repeat(episodes, cluster, episode_states, rules, part)


@compile_in_place
def _repeat(
    episodes: Episode, cluster: ClusterArrays, episode_states: EpisodeState, rules: EpisodeRules, part: int
) -> None:
    for at in range(len(episodes.clock)):
        episode, episode_state = batch.select_episode(episodes, at), select_state(episode_states, at)
        if part == FEATURES:
            observation.begin(episode, cluster, episode_state, rules)
        elif part == MASKS:
            edits.begin(episode, cluster, episode_state, rules)
        elif part == FEATURES_OF_EDIT:
            observation.update_edited_row(episode, cluster, episode_state, rules, 0)
        elif part == MASKS_OF_EDIT:
            edits.refresh(episode_state, rules, len(episode_state.assignable))


HEADERS = (
    *("environment", "number", "steps/s", "decisions/s", "with summaries", "copies/s", "kB each"),
    *("simulation", "features", "masks", "Python", "2 threads"),
)

SINGLE_HEADERS = ("one environment", "steps/s", "compiled", "many together")


def report(figures: dict[str, Any]) -> str:
    """Return the tables of what was measured."""
    singles = [
        [row["id"], *("" if row[name] is None else _rate(row[name]) for name in ("simpy", "compiled")), ""]
        for row in figures["single"]
    ]
    singles += [
        [row["id"], "" if row["steps_per_s"] is None else _rate(row["steps_per_s"]), "", _many(row)]
        for row in figures["others"]
    ]
    missing = [row["id"] for row in figures["others"] if row["steps_per_s"] is None]
    said = "".join(f"\n{name} is not installed.\n" for name in missing)
    vectors = table(HEADERS, [_vector_cells(row) for row in figures["rows"]])
    return f"{vectors}\n\n{table(SINGLE_HEADERS, singles)}\n{said}"


def _many(row: dict[str, Any]) -> str:
    """Return the speed of many environments together, of those that have no table of their own."""
    many = row.get("vector_steps_per_s")
    return "" if many is None else f"{_rate(many)} ({row['environments']})"


def _vector_cells(row: dict[str, Any]) -> list[str]:
    cells = [row["id"], str(row["environments"]), _rate(row["steps_per_s"])]
    cells.append(_rate(row["steps_per_s"] * row["decisions_a_step"]) if "decisions_a_step" in row else "")
    cells += [_rate(row["steps_per_s_summaries"]), _rate(row["copies_per_s"]), f"{row['bytes'] / 1000:,.0f}"]
    # The parts of an auction's step are not timed.
    shares = [row.get(f"share_{part}") for part in ("core", "features", "masks", "python")]
    cells += ["" if share is None else f"{100 * share:.0f} %" for share in shares]
    return [*cells, f"{row['two_threads']:.2f}" if "two_threads" in row else ""]


def _rate(per_s: float) -> str:
    """Return a rate to three digits."""
    digits = max(len(str(int(per_s))) - 3, 0)
    return f"{round(per_s, -digits):,.0f}"
