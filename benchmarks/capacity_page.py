"""What rules, learned agents, look-ahead and hindsight cost in `Capacity-16-v0`: the figures of its page.

    python benchmarks/capacity_page.py rules "reactive"     tunes a rule on training days by CMA-ES
    python benchmarks/capacity_page.py learn PPO 0          trains one of `AGENTS`, and plays the test traces
    python benchmarks/capacity_page.py ahead 0 50           plays test traces 0 to 49 by look-ahead
    python benchmarks/capacity_page.py further 0 50         the same over `linear`, on more futures
    python benchmarks/capacity_page.py hindsight 0 50       improves plans of `ahead`, knowing the traces
    python benchmarks/capacity_page.py write                writes docs/learned-agents/capacity.md

Each adds its figures to benchmarks/capacity_page.json, cost in USD of each test trace, without which
`write` stops.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.tables import table
from clustergym.envs.capacity import world as worlds
from clustergym.envs.capacity.planning import improve_plan, plan_traces
from clustergym.envs.capacity.rules import CLOCKS, PRICES, RECENT, fill, list_used
from clustergym.envs.capacity.world import HOURS, World

FIGURES = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "learned-agents" / "capacity.md"
NAME = "ClusterGym/Capacity-16-v0"
GPUS, TRACES, TUNING = 16, 200, 128
BOTH = "reactive, clock, prices"
GUESS = (0.3, 0.3, 0.2, -0.3, 0.2, 0.3, -0.3)
"""Where the search for the rule `reactive` begins."""
DROPPED = {
    "clock": CLOCKS,
    "prices": PRICES,
    "arrivals of late": RECENT,
    "contracts that are ordered and that end": (15, 16, 17),
    "jobs near their due time": (3,),
}
"""Pieces of state that `linear` is tuned without, as `without NAME`."""
OF_PPO: dict[str, Any] = {
    "n_steps": 24,
    "batch_size": 2048,
    "n_epochs": 10,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "gae_lambda": 0.95,
}
FALLING = OF_PPO | {"learning_rate": lambda left: 1e-3 * left}
SHORT = OF_PPO | {"batch_size": 512, "n_epochs": 6, "gamma": 0.95, "gae_lambda": 0.9}
OF_SAC: dict[str, Any] = {
    "batch_size": 256,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "ent_coef": 0.01,
    "train_freq": 1,
    "gradient_steps": 8,
    "learning_starts": 4608,
}
SMALL: dict[str, Any] = {"net_arch": [32, 32]}
NOISY = SMALL | {"log_std_init": -1.0}


class Learner(NamedTuple):
    """An agent of Stable-Baselines3 or sb3-contrib, with all that it was trained with but the defaults."""

    made: str
    given: dict[str, Any]
    network: dict[str, Any]
    envs: int
    steps: int
    observation: str = "flat"


AGENTS = {
    "PPO": Learner("stable_baselines3.PPO", OF_PPO, NOISY, 256, 700_000),
    "PPO, longer": Learner("stable_baselines3.PPO", FALLING, NOISY, 256, 4_000_000),
    "PPO, gamma 0.95": Learner("stable_baselines3.PPO", SHORT, SMALL | {"log_std_init": -1.5}, 64, 800_000),
    "SAC": Learner("stable_baselines3.SAC", OF_SAC, SMALL, 64, 100_000),
    "PPO on history": Learner("stable_baselines3.PPO", OF_PPO, NOISY, 256, 700_000, "history"),
    "recurrent PPO on history": Learner(
        "sb3_contrib.RecurrentPPO", OF_PPO, NOISY | {"lstm_hidden_size": 32}, 256, 700_000, "history"
    ),
}
REACH = 1.0
PLANNERS = {"ahead": (BOTH, 12), "further": ("linear", 96)}
"""The rule that look-ahead changes at each hour, and the futures on which it tries the changes."""
AHEAD = "look-ahead over linear"
PLANS = {f"look-ahead over {BOTH}": "ahead", AHEAD: "further", "hindsight (a bound, no optimum)": "hindsight"}


def make_traces(split: str, number: int) -> World:
    """Return a world of the first traces of a split; the seeds are 0 and up."""
    envs: Any = gymnasium.make_vec(
        NAME, num_envs=number, vectorization_mode="vector_entry_point", split=split
    )
    envs.reset(seed=0)
    found: World = envs.episodes.rows.world
    return found


def play(world: World, weights: Floats) -> Floats:
    """Return what a linear rule costs on each trace."""
    costs = np.zeros(len(world.at))
    worlds.play_rule(world, weights, costs)
    return costs


def tune(name: str, generations: int) -> None:
    """Tune a rule on training days, and note what it costs there and on dev days."""
    from clustergym.training.evolution import start_search

    dropped, used, known = name.removeprefix("without "), _used(name), read()["rules"]
    # From what was found with less, or with more.
    start = {"reactive": "guess", "linear": BOTH}.get(name, "linear" if dropped in DROPPED else "reactive")
    weights = GUESS if start == "guess" or name == "constant" else known[start]["weights"]
    of = "reactive" if weights is GUESS else start
    begin = fill(list_used(of), np.array(weights))
    train, began = make_traces("train", TUNING), time.process_time()
    population = 12 if used.sum() < 25 else 16
    search = start_search(
        begin[used], 0.2 if name in ("constant", "reactive") else 0.05, population, 0, False
    )
    for _ in range(generations):
        candidates = search.ask()
        search.tell(candidates, [float(play(train, fill(used, one)).mean()) for one in candidates])
    weights = fill(used, search.mean)
    found = {
        "weights": np.round(search.mean, 4).tolist(),
        "train": float(play(train, weights).mean()),
        "dev": float(play(make_traces("dev", TRACES), weights).mean()),
        "cpu_s": round(time.process_time() - began, 1),
    }
    print(name, found)
    add("rules", name, found)


def learn(name: str, seed: int) -> None:
    """Train an agent on training days, and play the dev and test traces."""
    import torch

    from clustergym.training.vector_envs import SchedulingVecEnv

    torch.set_num_threads(1)
    own, began = AGENTS[name], time.process_time()
    module, _, of = own.made.rpartition(".")
    policy = "MlpLstmPolicy" if of.startswith("Recurrent") else "MlpPolicy"
    envs = SchedulingVecEnv(make_residual(own.observation, own.envs, autoreset_mode="Disabled"))
    agent = getattr(importlib.import_module(module), of)(
        policy, envs, seed=seed, device="cpu", policy_kwargs=own.network, **own.given
    )
    agent.learn(own.steps)
    cpu_s = round(time.process_time() - began, 1)
    found = {split: play_agent(agent, own.observation, split) for split in ("dev", "test")}
    print(name, seed, np.mean(found["dev"]), cpu_s)
    add("agents", f"{name} {seed}", {"dev": float(np.mean(found["dev"])), "cpu_s": cpu_s})
    add("test", f"{name} {seed}", found["test"])


def make_residual(observation: str, number: int, **given: Any) -> Any:
    """Return environments in which actions add to the reactive rule's."""
    entry: Any = {"vectorization_mode": "vector_entry_point", "residual": True, "reach": REACH}
    return gymnasium.make_vec(NAME, num_envs=number, observation=observation, **entry, **given)


def play_agent(agent: Any, observation: str, split: str) -> list[float]:
    """Return what an agent costs on each trace of a split, by its most likely actions."""
    envs = make_residual(observation, TRACES, split=split)
    seen, _ = envs.reset(seed=0)
    costs, state = np.zeros(TRACES), None
    for hour in range(HOURS):
        begins = np.full(TRACES, hour == 0)
        actions, state = agent.predict(seen, state=state, episode_start=begins, deterministic=True)
        seen, _, _, _, infos = envs.step(actions)
        costs += infos["cost"]
    found: list[float] = np.round(costs, 2).tolist()
    return found


def look_ahead(begin: int, end: int, stage: str) -> None:
    """Play some test traces by look-ahead with the true model, or improve its plans in hindsight."""
    world, began = make_traces("test", TRACES), time.process_time()
    name, futures = PLANNERS.get(stage, (BOTH, 1))
    rule = fill(list_used(name), np.array(read()["rules"][name]["weights"]))
    drawn, days = worlds.make_world(futures, GPUS), worlds.day_profiles("train")
    for row in range(begin, end):
        plan = np.zeros((HOURS, 2), dtype=np.int64)
        if stage == "hindsight":
            plan[:] = read()["plans"][str(row)]
            cost = improve_plan(world, row, worlds.make_world(1, GPUS), plan)
        else:
            rng = random_streams.CAPACITY_PLANS.generator(0, row)
            cost = plan_traces(rng, days, world, row, drawn, rule, plan)
        if stage == "ahead":
            add("plans", str(row), plan.tolist())
        add(stage, str(row), round(cost, 2))
    print(begin, end, "CPU-s a trace", (time.process_time() - began) / (end - begin))


def read() -> dict[str, Any]:
    """Return the figures so far."""
    parts = ("rules", "agents", "test", "ahead", "plans", "further", "hindsight")
    found: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return {part: found.get(part, {}) for part in parts}


def add(part: str, name: str, value: Any) -> None:
    """Add a figure to the file, which several processes may do."""
    with FIGURES.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = read()
        found[part][name] = value
        FIGURES.write_text(json.dumps(found, separators=(",", ":")) + "\n")


def compare_costs(costs: Floats, base: Floats) -> str:
    """Return the ratio of mean costs, and its 95 % interval by a bootstrap paired over traces (and seeds).

    `costs` has shape (seeds, traces), `base` (traces,).
    """
    rng = random_streams.RATIO_BOOTSTRAP.generator(0)
    found = []
    for _ in range(2000):
        seeds, traces = (rng.integers(0, size, size) for size in costs.shape)
        found.append(costs[seeds][:, traces].mean() / base[traces].mean())
    low, high = np.percentile(found, [2.5, 97.5])
    return f"{costs.mean() / base.mean():.3f} [{low:.3f}, {high:.3f}]"


def list_trainings(runs: dict[str, Any]) -> str:
    """Return the table of what each agent was trained with, and what it costs on the traces of dev."""
    rows = []
    for name, own in AGENTS.items():
        found = [one for run, one in runs.items() if run.rpartition(" ")[0] == name]
        if found:
            dev, cpu_s = (np.mean([one[part] for one in found]) for part in ("dev", "cpu_s"))
            rows.append((name, f"{len(found)}", f"{own.steps:,}", f"{cpu_s:.0f}", f"{dev:,.0f}"))
    return table(("agent", "seeds", "steps", "CPU-s a seed", "USD a dev trace"), rows)


def list_pieces(rules: dict[str, Floats]) -> str:
    """Return the table of what `linear` loses without each piece of state."""
    lost = [(name, rules[f"without {name}"]) for name in DROPPED if f"without {name}" in rules]
    rows = [(name, compare_costs(costs[None], rules["linear"])) for name, costs in lost]
    return table(("`linear` without", "over `linear`"), rows)


def list_costs(figures: dict[str, Any], rules: dict[str, Floats]) -> str:
    """Return the table of what rules, agents and plans cost on the test traces."""
    columns = {name: costs[None] for name, costs in rules.items() if not name.startswith("without ")}
    for name in AGENTS:
        seeds = [costs for run, costs in figures["test"].items() if run.rpartition(" ")[0] == name]
        if seeds:
            columns[f"{name}, {len(seeds)} seed{'s' * (len(seeds) > 1)}"] = np.array(seeds)
    for name, part in PLANS.items():
        columns[name] = np.array([[figures[part].get(str(row), np.nan) for row in range(TRACES)]])
    ahead, rows = columns[AHEAD][0], []
    for name, costs in columns.items():
        done = np.isfinite(costs[0])
        both = done & np.isfinite(ahead)
        scale = (rules[BOTH][both] - ahead[both]).mean()
        score = (rules[BOTH][both] - costs[:, both].mean(axis=0)).mean() / scale
        over = (compare_costs(costs[:, done], rules[base][done]) for base in ("reactive", BOTH))
        rows.append((name, f"{costs[:, done].mean():,.0f} ({done.sum()} traces)", *over, f"{score:.2f}"))
    return table(("", "USD a trace", "over reactive", "over reactive + clock + prices", "score"), rows)


def write() -> None:
    """Write the page from the figures."""
    figures, test = read(), make_traces("test", TRACES)
    rules = {
        name: play(test, fill(_used(name), np.array(one["weights"])))
        for name, one in figures["rules"].items()
    }
    text = PAGE.read_text(encoding="utf-8")
    for mark, block in (
        ("costs", list_costs(figures, rules)),
        ("pieces", list_pieces(rules)),
        ("time", list_trainings(figures["agents"])),
    ):
        begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        head, _, rest = text.partition(begin)
        text = head + begin + "\n" + block + "\n\n" + end + rest.partition(end)[2]
        print(block, end="\n\n")
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE}")


def _used(name: str) -> Any:
    dropped = name.removeprefix("without ")
    used = list_used("linear" if dropped in DROPPED else name)
    if dropped in DROPPED:
        used[:, [1 + part for part in DROPPED[dropped]]] = False
    return used


def main() -> None:
    """Run one of the stages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=["rules", "learn", *PLANNERS, "hindsight", "write"])
    parser.add_argument("of", nargs="*")
    parser.add_argument("--generations", type=int, default=30)
    given = parser.parse_args()
    if given.stage == "rules":
        tune(given.of[0], given.generations)
    elif given.stage == "learn":
        learn(given.of[0], int(given.of[1]))
    elif given.stage == "write":
        write()
    else:
        look_ahead(int(given.of[0]), int(given.of[1]), given.stage)


if __name__ == "__main__":
    main()
