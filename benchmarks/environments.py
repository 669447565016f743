"""Steps and resets a second of every registered environment, bare and as `gymnasium.make` wraps it.

    python benchmarks/environments.py [--seconds S] [--only TEXT] [--json FILE]
    python benchmarks/environments.py --training ppo,job_credit [--set WORD …] [--steps N] [--json FILE]

Actions are legal ones drawn at random; only the time inside the environment is counted.
With `--training`: steps that an agent learns from in a second, and what share of it the environment takes, as
its configuration is, changed by `--set` (as env.jobs=50 agent.n_envs=64), in two halves of the steps; the
traces of the second are those of the first, where there are as many. Processor time, which other programs on
the machine do not change much. One process, one thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from clustergym.envs.driver import random_action
from clustergym.envs.registration import register_envs
from clustergym.scenario.environments import ENVIRONMENTS


def steps_per_s(env: gymnasium.Env[Any, Any], seconds: float) -> float:
    """Play legal actions for some seconds, resets included; return steps a second."""
    _, info = env.reset(seed=0)
    rng, spent, steps = np.random.default_rng(0), 0.0, 0
    while spent < seconds:
        action = random_action(env, info, rng)
        started = time.perf_counter()
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            _, info = env.reset()
        spent, steps = spent + time.perf_counter() - started, steps + 1
    return steps / spent


def resets_per_s(env: gymnasium.Env[Any, Any], seconds: float) -> float:
    """Return resets a second."""
    env.reset(seed=0)
    started, resets = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        env.reset()
        resets += 1
    return resets / elapsed


def frames_per_s(name: str, seconds: float) -> float:
    """Return pictures a second, in the middle of an episode."""
    env = gymnasium.make(name, render_mode="rgb_array")
    _, info = env.reset(seed=0)
    env.step(random_action(env, info, np.random.default_rng(0)))
    started, frames = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        env.render()
        frames += 1
    return frames / elapsed


def import_s(code: str, repeats: int = 5) -> float:
    """Return the least wall seconds of a fresh interpreter running `code`, less those of an empty one."""

    def least(source: str) -> float:
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", source], check=True)
            times.append(time.perf_counter() - started)
        return min(times)

    return least(code) - least("")


def measure(name: str, seconds: float) -> dict[str, float]:
    """Return the rates of one id."""
    started = time.perf_counter()
    env = gymnasium.make(name)
    made_s = time.perf_counter() - started
    return {
        "make_s": made_s,
        "steps_per_s": steps_per_s(env.unwrapped, seconds),
        "steps_per_s_wrapped": steps_per_s(env, seconds),
        "steps_per_s_flat": steps_per_s(gymnasium.make(name, observation="flat").unwrapped, seconds),
        "resets_per_s": resets_per_s(env.unwrapped, seconds),
        "frames_per_s": frames_per_s(name, seconds),
    }


@dataclass
class Spent:
    """Processor seconds in environments: steps, masks and costs; beginnings of episodes in them; calls."""

    step_s: float = 0.0
    reset_s: float = 0.0
    steps: int = 0

    def wrap(self, envs: Any) -> None:
        """Count what a vector environment takes, one of Stable-Baselines3 or our own."""

        def timed(function: Any, name: str) -> Any:
            def call(*args: Any, **given: Any) -> Any:
                began = time.process_time()
                found = function(*args, **given)
                setattr(self, name, getattr(self, name) + time.process_time() - began)
                self.steps += envs.num_envs * (function.__name__ in ("step", "step_wait"))
                return found

            return call

        ours = ("step", "reset", "action_masks", "job_costs", "row_jobs", "all_jobs")
        names = ("step_wait", "env_method") if hasattr(envs, "step_wait") else ours
        for name in names:
            setattr(envs, name, timed(getattr(envs, name), "step_s"))
        begins = "_begin" if hasattr(envs, "_begin") else "reset"
        setattr(envs, begins, timed(getattr(envs, begins), "reset_s"))


def training_shares(name: str, words: list[str], steps: int, engine: str) -> list[dict[str, float]]:
    """Return what a training of some steps spends, in two halves on the same traces."""
    from clustergym.scenario.configuration.hydra_edge import compose_config
    from clustergym.training.agents import make_agent
    from clustergym.training.job_credit_agent import JobCreditAgent
    from clustergym.training.network_agent import needs_torch
    from clustergym.training.stable_baselines import Ppo

    given = [f"++{word}" if word.startswith("env.") else word for word in words]
    config = compose_config("train", [f"agent={name}", *given])
    agent = make_agent({**config["agent"], "env": {**config["env"], "engine": engine}})
    assert isinstance(agent, Ppo | JobCreditAgent)
    needs_torch()
    rows = []
    with agent.envs() as envs:
        model, spent = agent.model(envs, 0), Spent()
        spent.wrap(envs)
        # Compiled before the clock starts.
        envs.reset()
        for _ in range(2):
            agent.begin(model, 1)
            spent.step_s, spent.reset_s, spent.steps = 0.0, 0.0, 0
            started = time.process_time()
            if isinstance(agent, JobCreditAgent):
                model.learn(model.num_timesteps + steps // 2, steps)
            else:
                model.learn(steps // 2, reset_num_timesteps=False)
            whole_s = time.process_time() - started
            rows.append(
                {
                    "steps_per_s": spent.steps / whole_s,
                    "learning_us_per_step": 1e6 * (whole_s - spent.step_s) / spent.steps,
                    "step_us": 1e6 * spent.step_s / spent.steps,
                    "share_of_steps": (spent.step_s - spent.reset_s) / whole_s,
                    "share_of_resets": spent.reset_s / whole_s,
                }
            )
    return rows


def report_training(names: list[str], words: list[str], steps: int, engine: str, path: Path | None) -> int:
    """Print and write the shares of some agents."""
    found = {}
    for name in names:
        rows = found[name] = training_shares(name, words, steps, engine)
        for half, row in zip(("first", "second"), rows, strict=True):
            line = ", ".join(f"{key} {value:.3g}" for key, value in row.items())
            print(f"{name}, {half} half: {line}", flush=True)
    if path is not None:
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(f"wrote {path}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Print one row per id."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--only", default="", metavar="TEXT", help="ids that have it in them")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--training", metavar="AGENT,…", help="measure the shares of agents instead")
    parser.add_argument("--set", nargs="+", default=[], metavar="WORD", help="as of clustergym train")
    parser.add_argument("--engine", default="auto", help="of the environments that are trained in")
    parser.add_argument("--steps", type=int, default=20_000, help="of each training")
    options = parser.parse_args(argv)
    register_envs()
    if options.training is not None:
        names = options.training.split(",")
        return report_training(names, options.set, options.steps, options.engine, options.json)
    imports = {
        "import_clustergym_s": import_s("import clustergym"),
        "import_gymnasium_s": import_s("import gymnasium"),
        "import_both_s": import_s("import clustergym, gymnasium"),
    }
    print(", ".join(f"{name.removesuffix('_s')} {value * 1e3:.1f} ms" for name, value in imports.items()))
    columns = ("steps/s", "wrapped", "flat", "resets/s", "frames/s")
    print(f"{'id':>40}" + "".join(f"{column:>12}" for column in columns))
    rows = []
    for row in (row for row in ENVIRONMENTS if options.only in row.id):
        rates = measure(row.id, options.seconds)
        rows.append({"id": row.id, **rates})
        print(f"{row.id:>40}" + "".join(f"{rate:>12,.0f}" for rate in list(rates.values())[1:]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({**imports, "rows": rows}, indent=2) + "\n", encoding="utf-8")
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
