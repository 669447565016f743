"""Steps and resets a second of every registered environment, bare and as `gymnasium.make` wraps it.

    python benchmarks/environments.py [--seconds S] [--only TEXT] [--json FILE]

Actions are legal ones drawn at random; only the time inside the environment is counted.
One process, one thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from clustergym.envs.registration import ENVIRONMENTS, register_envs


def steps_per_s(env: gymnasium.Env[Any, Any], seconds: float) -> float:
    """Play legal actions for some seconds, resets included; return steps a second."""
    _, info = env.reset(seed=0)
    rng, spent, steps = np.random.default_rng(0), 0.0, 0
    while spent < seconds:
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
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
    env.step(int(info["action_mask"].argmax()))
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


def main(argv: list[str] | None = None) -> int:
    """Print one row per id."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--only", default="", metavar="TEXT", help="ids that have it in them")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    register_envs()
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
