"""What rules, look-ahead, hindsight and an agent reach in `Rack-told-v0`: the table of its page.

    python benchmarks/rack_told.py tune measure learn page

`tune` goes on from the rule's weights by CMA-ES on episodes of the split train, and keeps those that cost
least on dev; `measure` plays the 100 test traces; `learn` trains sb3-contrib's MaskablePPO. All of it stands
in docs/environments/rack-told.json, from which `page` writes the table of docs/environments/rack-told.md,
with the programs that have entered it (leaderboards/rack-told/).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import clustergym  # noqa: F401  registers the environments
from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.tables import table
from clustergym.envs.episodes import trace_seed
from clustergym.envs.racks.gangs import TRACES, RackParameters, episode_gangs
from clustergym.envs.racks.planning import BEST_FIT, HINDSIGHT, RULE, RackPlanner
from clustergym.sim.program import read_program
from clustergym.training.agent_task import compare_hours
from clustergym.training.evolution import start_search

PAGE = Path(__file__).parents[1] / "docs/environments/rack-told.md"
KEPT = PAGE.with_suffix(".json")
ENTERED = PAGE.parents[2] / "leaderboards/rack-told"
LISTS = {"test": "open", "sealed": "sealed"}
"""What the page calls the traces of each mode of `clustergym evaluate`."""
PARAMETERS = RackParameters(told_error=0.05)
CANDIDATES, EPISODES, GENERATIONS = 16, 64, 40
START = BEST_FIT.copy()
START[[8, 9, 16]] = -3.0, -5.0, 10.0
"""Best fit that lets longer gangs wait for shorter ones, the less the more wait: the first search's begin."""
STEPS, PARTS = 200_000, 4
ROWS = {
    "best fit": "best fit with moves",
    "rule": "best static rule",
    "agent": "MaskablePPO",
    "look-ahead": "look-ahead, true model, 16 worlds",
    "look-ahead-128": "look-ahead, true model, 128 worlds",
    "hindsight": "look-ahead, hindsight",
}
WORLDS = {"look-ahead": 16, "look-ahead-128": 128, "hindsight": HINDSIGHT}
"""In how many drawn worlds a row looks ahead."""


def play(split: str, numbers: range, weights: Floats, worlds: int = RULE) -> list[float]:
    """Return the hours that gangs waited or stood still in episodes of a split, by a planner."""
    planner, rng = RackPlanner(PARAMETERS, weights, worlds), random_streams.COMPARISON.generator(1)
    drawn = (episode_gangs(PARAMETERS, {"trace_seed": trace_seed(split, at)}, rng) for at in numbers)
    return [sum(planner.play(gangs, rng)) for gangs in drawn]


def tune(start: Floats, step: float, seed: int = 0) -> list[float]:
    """Return the weights of the rule that costs least on dev, among those that CMA-ES comes to on train."""
    search = start_search(start, step, CANDIDATES, seed, diagonal=False)
    best, best_cost = start, np.inf
    for generation in range(GENERATIONS + 1):
        if generation % 8 == 0:
            cost = float(np.mean(play("dev", range(TRACES), search.mean)))
            print(f"generation {generation}: {cost:.3f} h on dev", file=sys.stderr, flush=True)
            if cost < best_cost:
                best, best_cost = np.array(search.mean), cost
        numbers, candidates = range(generation * EPISODES, (generation + 1) * EPISODES), search.ask()
        search.tell(candidates, [float(np.mean(play("train", numbers, one))) for one in candidates])
    return [round(float(weight), 4) for weight in best]


def learn(seed: int = 0) -> dict[str, Any]:
    """Train MaskablePPO on the split train; return its costs on the test traces, and how long it took."""
    import torch
    from sb3_contrib import MaskablePPO

    from clustergym.training.vector_envs import SchedulingVecEnv

    torch.set_num_threads(1)
    given = {"observation": "flat", "autoreset_mode": "Disabled", "split": "train"}
    envs = SchedulingVecEnv(gymnasium.make_vec("ClusterGym/Rack-told-v0", num_envs=16, **given))
    began = time.process_time()
    agent = MaskablePPO("MlpPolicy", envs, seed=seed, gamma=0.999, n_steps=256, batch_size=512, verbose=0)
    agent.learn(STEPS)
    spent, costs = time.process_time() - began, []
    env = gymnasium.make("ClusterGym/Rack-told-v0", observation="flat")
    for at in range(TRACES):
        seen, info = env.reset(options={"trace_seed": trace_seed("test", at)})
        over, cost = False, 0.0
        while not over:
            action, _ = agent.predict(seen, action_masks=info["action_mask"], deterministic=True)
            seen, reward, terminated, truncated, info = env.step(action)
            over, cost = terminated or truncated, cost - float(reward)
        costs.append(cost)
    return {"costs": costs, "steps": STEPS, "cpu_s": round(spent)}


def measure(weights: Floats, worlds: int, part: int) -> list[float]:
    """Return the cost of a quarter of the test traces by look-ahead; say how long it took."""
    began, number = time.process_time(), TRACES // PARTS
    found = play("test", range(part * number, (part + 1) * number), weights, worlds)
    print(f"{(time.process_time() - began) / number:.2f} CPU-seconds a trace", file=sys.stderr, flush=True)
    return found


def read_entered(folder: Path) -> dict[str, tuple[list[float], list[float]]]:
    """Return hours of entered programs, and of the best static rule on the same traces, by their titles."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        told = json.loads(file.read_text(encoding="utf-8"))["artifacts"]
        sha256 = hashlib.sha256(read_program(file.with_suffix(".py")).encode()).hexdigest()
        if (told["sha256"], len(told.get("hours", ()))) != (sha256, TRACES) or told["mode"] not in LISTS:
            message = "is not of the program beside it, on all traces of mode test or of a beacon"
            raise InputError(message, file=file, remedy="evaluate the program anew")
        found[f"{file.stem}, {LISTS[told['mode']]}"] = told["hours"], told["reference_hours"]
    return found


def describe(kept: dict[str, Any]) -> str:
    """Return the page's table: hours waited, and the paired ratio to the best static rule."""
    costs, rows = kept["costs"], []
    played = {ROWS[name]: (costs[name], costs["rule"]) for name in ROWS if name in costs}
    for title, (own, rule) in {**played, **read_entered(ENTERED)}.items():
        ratio, low, high = compare_hours(own, rule)
        told = "1" if own is rule else f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
        rows.append((title, f"{np.mean(own):.3f}", told))
    return table(("play", "hours waited", "over the best static rule"), rows, words=(0,))


def main(parts: list[str]) -> None:
    """Do the parts that are named, and keep what they find."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {"costs": {}}
    if "tune" in parts:
        known = kept.get("weights")
        kept["weights"] = tune(START, 1.0) if known is None else tune(np.array(known), 0.5)
    weights = np.array(kept.get("weights", BEST_FIT))
    if "measure" in parts:
        for name, own in (("best fit", BEST_FIT), ("rule", weights)):
            kept["costs"][name] = play("test", range(TRACES), own)
        for name, worlds in WORLDS.items():
            with ProcessPoolExecutor(PARTS) as pool:
                made = [pool.submit(measure, weights, worlds, part) for part in range(PARTS)]
                kept["costs"][name] = [cost for one in made for cost in one.result()]
    if "learn" in parts:
        kept["agent"] = learn()
        kept["costs"]["agent"] = kept["agent"].pop("costs")
    kept["costs"] = {name: [round(cost, 4) for cost in found] for name, found in kept["costs"].items()}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if "page" in parts:
        text = PAGE.read_text(encoding="utf-8")
        made = re.sub(
            r"(<!-- table -->\n).*?(<!-- end -->)", rf"\1\n{describe(kept)}\n\n\2", text, flags=re.DOTALL
        )
        PAGE.write_text(made, encoding="utf-8")
    print(f"wrote {KEPT}")
    print(describe(kept))


if __name__ == "__main__":
    main(sys.argv[1:])
