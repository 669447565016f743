"""Processor seconds, peak memory and rates that asv follows from commit to commit.

    pip install asv && asv run --environment existing:python --set-commit-hash $(git rev-parse HEAD)
    asv run main~20..main --steps 5 && asv publish

asv installs each commit in an environment of its own. Names of this file stay: asv compares by name.
"""

from __future__ import annotations

import subprocess
import sys
import time

from clustergym.bench.engine import benchmark_scenario
from clustergym.bench.environments import EnvironmentOptions, names, vector_rows

import clustergym
from clustergym.envs.registration import register_envs


class Simulation:
    """A policy on a Philly-like trace at load 1.2, a job per two GPUs, for two days."""

    params = (("fcfs", "srtf", "arena", "ares"), (256, 1280))
    param_names = ("policy", "gpus")
    timeout = 600.0
    timer = time.process_time
    rounds, repeat, number, warmup_time = 1, (1, 3, 30.0), 1, 0.0

    def setup(self, policy: str, gpus: int) -> None:
        """Build the scenario before the clock starts."""
        self.scenario = benchmark_scenario(gpus)

    def time_run(self, policy: str, gpus: int) -> None:
        """Time a run with its metrics."""
        clustergym.simulate(self.scenario, policy)

    def peakmem_run(self, policy: str, gpus: int) -> None:
        """Measure the most memory of the process."""
        clustergym.simulate(self.scenario, policy)


class Environment:
    """Random play in 64 environments at once, over the ends of episodes."""

    params = ("Elastic-16", "Elastic-64", "Priority-16")
    param_names = ("environment",)
    unit = "steps per CPU-second"
    timeout = 600.0

    def track_steps(self, environment: str) -> float:
        """Return the rate with a summary of each episode, as by default."""
        register_envs()
        options = EnvironmentOptions(numbers=(64,), seconds=2.0)
        (name,) = names(f"{environment}-v")
        (row,) = vector_rows(name, options)
        return float(row["steps_per_s_summaries"])


class Start:
    """A process of its own, from the command line to its last line."""

    params = ("run policy=fcfs", "run policy=arena", "--help")
    param_names = ("command",)
    unit = "s"
    timeout = 600.0

    def track_command(self, command: str) -> float:
        """Return the wall time."""
        begun_s = time.perf_counter()
        words = [sys.executable, "-m", "clustergym", *command.split()]
        subprocess.run(words, check=True, capture_output=True)
        return time.perf_counter() - begun_s
