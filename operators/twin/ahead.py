"""Simulate a cluster from now on: when each waiting job starts, and what a policy would do now.

Run times of jobs are drawn from the past jobs of their users in a log.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.cluster.hosts import Pools
from clustergym.cluster.slurm_text import host_names
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import DAY_S
from clustergym.common.errors import InputError
from clustergym.common.left_out import leave_out
from clustergym.common.writing import write_text
from clustergym.scenario.by_name import compose
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.scenario_config import Conditions
from clustergym.sim.from_now import MARK, Moment, list_moments
from clustergym.trace.log_files import write_log
from clustergym.trace.present import Present, log_job, waiting_job
from clustergym.trace.readers.sacct import SlurmJob
from clustergym.trace.records import RecordedJobs
from clustergym.trace.trace import Trace

from .folder import CLUSTER, QUEUES, TwinFolder

PRIOR_RUNS = 5.0
"""Runs of one's own beside which those of more jobs count as much."""
MOST_RUNS = 2000
"""Past runs that count of a pool: the last ones."""
LEAST_LEFT_S = 60.0
"""What is left of a job that has run for longer than any before it."""
LIMITS = "trace.time_limits"
QOS = re.compile(r"-?\d{1,18}", re.ASCII)


class Pool(NamedTuple):
    """Run times of similar past jobs in ascending order, and the positions of those jobs among all."""

    values: Floats
    rows: Ints


class PastRuns:
    """Run times of past jobs, from which the run times of present jobs are estimated.

    Parameters
    ----------
    trace : Trace
        A log whose jobs do an iteration a second; only jobs that had ended by `until_s` count.
    until_s : float
    """

    def __init__(self, trace: Trace, until_s: float = np.inf) -> None:
        run_s = trace.work_iterations.astype(np.float64)
        begun = trace.submit_s if trace.start_s is None else trace.start_s
        ended = begun + run_s <= until_s
        self._run_s, self._users = run_s[ended], np.array(trace.user, dtype=object)[ended]
        limits = np.full(len(trace), np.nan) if trace.time_limit_s is None else trace.time_limit_s
        self._limits = limits[ended]
        self._pools: dict[tuple[str, float | None], list[Pool]] = {}

    def __len__(self) -> int:
        return len(self._run_s)

    def draw(self, generator: np.random.Generator) -> DrawnRunTimes:
        """Sample random distributions of run times that are consistent with the past runs."""
        return DrawnRunTimes(self, generator)

    def find_limit(self, job: SlurmJob) -> float | None:
        """Return a job's time limit, s; None if run times are not estimated relative to time limits."""
        return job.limit_s if job.limit_s > 0 and bool(np.isfinite(self._limits).any()) else None

    def pools(self, user: str, limit_s: float | None) -> list[Pool]:
        """Return groups of past runs, from those most similar to a job of this user and limit to all runs.

        They are the user's with a limit that is neither twice nor half as long, all of the user's, all with
        such limits, all; without limits the user's and all.
        """
        if (user, limit_s) not in self._pools:
            mine = self._users == user
            if limit_s is None:
                pools, values = [mine, np.ones_like(mine)], self._run_s
            else:
                known = np.isfinite(self._limits)
                near = known & (self._limits < 2 * limit_s) & (self._limits > limit_s / 2)
                pools, values = [mine & near, mine & known, near, known], self._run_s / self._limits
            self._pools[user, limit_s] = found = list[Pool]()
            for rows in (np.flatnonzero(alike)[-MOST_RUNS:] for alike in pools):
                ordered = rows[np.lexsort((rows, values[rows]))]
                found.append(Pool(values[ordered], ordered))
        return self._pools[user, limit_s]


class DrawnRunTimes:
    """A sampler of jobs' run times from past runs, each of which has a random weight.

    Of n past runs each has a weight drawn as in the Bayesian bootstrap (Rubin, The Annals of Statistics
    1981), the same for all jobs: what is not known of a user's run times is common to all of his jobs. The
    next larger pool has a weight of about `PRIOR_RUNS` runs (the posterior of a Dirichlet process whose base
    is that pool; Ferguson, The Annals of Statistics 1973), so that few runs of one's own count little.
    """

    def __init__(self, past: PastRuns, generator: np.random.Generator) -> None:
        self._past, self._generator = past, generator
        self._weights = generator.exponential(size=len(past))
        self._drawn: dict[tuple[str, float | None], list[tuple[Floats, float]]] = {}

    def run_s(self, job: SlurmJob, elapsed_s: float) -> float:
        """Sample the total run time in seconds of a job that has already run for `elapsed_s` seconds.

        Where none was longer, what is left is `LEAST_LEFT_S`.
        """
        limit_s = self._past.find_limit(job)
        unit, pools = limit_s or 1.0, self._past.pools(job.user, limit_s)
        # From all runs to those most like the job's: what share of a pool and its base is longer.
        longer, owns, rests = 0.0, list[float](), list[float]()
        firsts = [int(np.searchsorted(pool.values, elapsed_s / unit, side="right")) for pool in pools]
        weights = self._weigh(job.user, limit_s)
        for first, (sums, base) in zip(reversed(firsts), reversed(weights), strict=True):
            owns.append(float(sums[-1] - sums[first]))
            rests.append(base * longer)
            total = float(sums[-1]) + base
            longer = (owns[-1] + rests[-1]) / total if total else 0.0
        for pool, first, (sums, _), own, rest in zip(
            pools, firsts, weights, reversed(owns), reversed(rests), strict=True
        ):
            at = self._generator.random() * (own + rest)
            if at < own:
                row = int(np.searchsorted(sums, sums[first] + at, side="right")) - 1
                return float(pool.values[min(max(row, first), len(pool.values) - 1)] * unit)
        return elapsed_s + LEAST_LEFT_S

    def _weigh(self, user: str, limit_s: float | None) -> list[tuple[Floats, float]]:
        """Return, for each pool, the sums of its runs' weights, shape (runs + 1,), and its base's weight."""
        if (user, limit_s) not in self._drawn:
            pools = self._past.pools(user, limit_s)
            bases = [float(self._generator.gamma(PRIOR_RUNS)) for _ in pools[1:]] + [0.0]
            sums = [np.append(0.0, np.cumsum(self._weights[pool.rows])) for pool in pools]
            self._drawn[user, limit_s] = list(zip(sums, bases, strict=True))
        return self._drawn[user, limit_s]


QUANTILES = (0.1, 0.5, 0.9)


class Ahead:
    """A simulation of a real cluster from now on, under a policy, with random run times and arrivals.

    Parameters
    ----------
    twin : TwinFolder
        Whose log says how long users run, and what arrives at which hours.
    present : Present
        Times on the log's clock, if `past` is cut, or since 1970.
    policy : str, optional
        `NAME KEY=VALUE …` or a YAML file; None: the rules of the folder.
    more : sequence of str
        Further overrides.
    until_s : float
        Jobs of the log that ended later are not known.

    Attributes
    ----------
    pools : Pools
        Of the cluster's partitions.
    """

    def __init__(
        self,
        twin: TwinFolder,
        present: Present,
        policy: str | None = None,
        more: Sequence[str] = (),
        until_s: float = np.inf,
    ) -> None:
        self.twin, self.log = twin, twin.log
        self.pools = Pools(twin.content(CLUSTER), "" if twin.queues is None else str(twin.content(QUEUES)))
        with tempfile.TemporaryDirectory() as folder:
            path = None
            if (content := self.pools.split_cluster()) is not None:
                path = Path(folder) / CLUSTER
                write_text(path, json.dumps(content))
            words = ["scenario=own-log", *twin.policy_words(policy)]
            given = twin.words(cluster=path, more=more)
            self.config = compose([*words, *(word for word in given if not word.startswith(LIMITS))])
            self.conditions = Conditions.from_config(self.config)
        self.past, self.until_s = PastRuns(twin.log, until_s), until_s
        cluster = self.conditions.cluster
        self._most = dict(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))
        self._look(present)

    def replace_present(self, present: Present) -> Ahead:
        """Return the simulation of the same cluster with other jobs."""
        other = copy(self)
        other._look(present)
        return other

    def _look(self, present: Present) -> None:
        self.present = present
        self._running = self._with_types(part for job in present.running for part in self._on_hosts(job))
        self._waiting = self._with_types(present.waiting)
        self._hosts = {job.job_id: host_names(job.hosts) for job in self._running}
        self.base_s = min([*(job.submit_s for job in self._waiting), present.now_s])
        self._now_s = present.now_s - self.base_s

    def _on_hosts(self, job: SlurmJob) -> list[SlurmJob]:
        """Return a running job with the type of its hosts; with several types, a job for each of them."""
        hosts, by_type = host_names(job.hosts), self.pools.hosts_by_type(job.hosts)
        if sum(map(len, by_type.values())) < len(hosts) or (len(by_type) > 1 and job.gpus % len(hosts)):
            return [job]
        parts = list[SlurmJob]()
        for gpu_type, on in by_type.items():
            name = f"{job.job_id} on {gpu_type}" if parts else job.job_id
            gpus = job.gpus * len(on) // len(hosts)
            parts.append(replace(job, job_id=name, gpu_type=gpu_type, hosts=",".join(on), gpus=gpus))
        return parts or [job]

    def _with_types(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        """Return those jobs that the cluster has GPUs for, with the type that they have or can have."""
        found = []
        for job in jobs:
            known = job.gpu_type in self._most
            gpu_type = job.gpu_type if known else self.pools.find_type(job.gpu_type, job.partition)
            if gpu_type is None:
                leave_out("job", f"asks for {job.gpu_type}, which the cluster or its partition does not have")
            elif job.gpus > self._most.get(gpu_type, max(self._most.values())):
                leave_out("job", "asks for more GPUs than there are of its type")
            else:
                found.append(replace(job, gpu_type=gpu_type))
        return found

    def starts(self, draw: int, seed: int = 0) -> dict[str, float]:
        """Simulate draw number `draw` of run times; return the seconds until waiting jobs start, or NaN."""
        generator = random_streams.REMAINING_RUN_TIMES.generator(seed, draw)
        arrivals = self._arrivals(generator)
        scenario = self._scenario(self.past.draw(generator).run_s, arrivals)
        waiting = {job.job_id for job in self._waiting}
        found = {name: float("nan") for name in waiting}
        for moment in self._moments(scenario):
            for row in moment.started:
                name = moment.job_id[row]
                if name in waiting and found[name] != found[name]:
                    found[name] = moment.view.now_s - self._now_s
            if all(start == start for start in found.values()):
                break
        return found

    def now(self) -> Moment | None:
        """Return the policy's decision for the jobs that are present now; None if there are none.

        None where no job runs or waits.
        """
        generator = random_streams.REMAINING_RUN_TIMES.generator(0, 0)
        draws = [self.past.draw(generator) for _ in range(25)]

        def usual(job: SlurmJob, elapsed_s: float) -> float:
            return float(np.median([drawn.run_s(job, elapsed_s) for drawn in draws]))

        scenario = self._scenario(usual, [])
        return next(self._moments(scenario), None)

    def _moments(self, scenario: Scenario) -> Iterator[Moment]:
        policy, placer = make_policy(self.config["policy"]), make_placer(self.config["placer"])
        at_once = self.present.at_once
        return list_moments(scenario, policy, placer, self._hosts.keys(), self._now_s, self._hosts, at_once)

    def _arrivals(self, generator: np.random.Generator, days: float = 1.0) -> list[tuple[int, float]]:
        """Return rows of the log and when they arrive from now: what came after this hour of another day."""
        log = self.log
        known_s = min(self.until_s, float(log.submit_s[-1]))
        # A moment of the log itself is on the log's clock, any other since 1970.
        clock = self.present.now_s - (log.clock_start_s if self.until_s == np.inf else 0.0)
        whole = int((known_s - days * DAY_S - clock % DAY_S) // DAY_S)
        if whole < 1:
            return []
        begin = clock % DAY_S + DAY_S * int(generator.integers(0, whole + 1))
        rows = np.flatnonzero((log.submit_s > begin) & (log.submit_s <= begin + days * DAY_S))
        return list(zip(rows.tolist(), (log.submit_s[rows] - begin).tolist(), strict=True))

    def _scenario(
        self, run_s: Callable[[SlurmJob, float], float], arrivals: Sequence[tuple[int, float]]
    ) -> Scenario:
        """Return the scenario of the jobs now and random arrivals; running jobs begin with its clock."""
        jobs, now_s, log = list[SlurmJob](), self._now_s, self.log
        for job in self._running:
            elapsed_s = max(self.present.now_s - job.start_s, 0.0)
            left_s = max(run_s(job, elapsed_s) - elapsed_s, 1.0)
            limit_s = max(job.limit_s - elapsed_s, LEAST_LEFT_S) if job.limit_s > 0 else np.nan
            # How many nodes it asked for is no matter where its hosts are known; where they are not, as many
            # may not be free once the others are placed in another order.
            jobs.append(replace(job, nodes=0, submit_s=0.0, duration_s=now_s + left_s, limit_s=limit_s))
        for job in self._waiting:
            submit_s, duration_s = job.submit_s - self.base_s, max(run_s(job, 0.0), 1.0)
            jobs.append(replace(job, submit_s=submit_s, duration_s=duration_s))
        for row, delay_s in arrivals:
            job, duration_s = log_job(log, row), float(log.work_iterations[row])
            job = replace(job, job_id=f"later-{job.job_id}", submit_s=now_s + delay_s, duration_s=duration_s)
            gpu_type = self.pools.find_type(job.gpu_type, job.partition) or ""
            if job.gpus > self._most.get(gpu_type, max(self._most.values())):
                leave_out("arrival", "a job of the log asks for more GPUs than there are of its type")
            else:
                jobs.append(replace(job, gpu_type=gpu_type))
        user, account = (jobs[0].user, jobs[0].account) if jobs else ("", "")
        mark = waiting_job(
            **{"job_id": MARK, "user": user, "account": account, "partition": "", "qos": "0"},
            **{"submit_s": now_s, "limit_s": 1.0, "gpus": 1, "gpu_type": ""},
        )
        return self._read([*jobs, replace(mark, duration_s=1.0)])

    def _read(self, unsorted: Sequence[SlurmJob]) -> Scenario:
        """Return the scenario of jobs with times on its clock, which are read as any log is."""
        jobs = sorted(unsorted, key=lambda job: job.submit_s)
        log = RecordedJobs(
            path=self.present.path,
            format="now",
            sha256="",
            row=np.arange(len(jobs)),
            line=[job.line for job in jobs],
            job_id=[job.job_id for job in jobs],
            submit_s=np.array([job.submit_s for job in jobs]),
            duration_s=np.array([job.duration_s for job in jobs]),
            gpus=np.array([job.gpus for job in jobs]),
            gpu_type=[job.gpu_type for job in jobs],
            user=[job.user for job in jobs],
            virtual_cluster=[job.account for job in jobs],
            partition=[job.partition for job in jobs],
            time_limit_s=np.array([job.limit_s for job in jobs]),
            priority=np.array([int(job.qos) if QOS.fullmatch(job.qos) else 0 for job in jobs]),
            nodes=np.array([job.nodes for job in jobs]),
            outcome=["completed"] * len(jobs),
            left_out=Counter(),
        )
        given = {**self.config["trace"], "time_limits": "keep"}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "now.csv"
            write_log(log, path)
            try:
                return self.conditions.scenario({**given, "path": str(path)}, 0)
            except InputError as error:
                # The user knows the job by the line of the queue's file.
                line = jobs[error.line - 2].line if error.file == path and error.line else None
                file, field, remedy = self.present.path, error.field, error.remedy
                told = InputError(error.message, file=file, line=line or None, field=field, remedy=remedy)
                raise told from error
