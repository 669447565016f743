"""Simulate a cluster from now on: when each waiting job starts, and what a policy would do now."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.benchmark.twin.folder import TwinFolder
from clustergym.benchmark.twin.present import Present
from clustergym.benchmark.twin.run_times import LEAST_LEFT_S, PastRuns
from clustergym.cluster.node_lists import host_names
from clustergym.common import random_streams
from clustergym.common.columns import DAY_S
from clustergym.scenario.by_name import compose
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.scenario_config import Conditions
from clustergym.sim.from_now import MARK, Moment, list_moments
from clustergym.trace.log_files import write_log
from clustergym.trace.readers.sacct import SlurmJob
from clustergym.trace.records import RecordedJobs

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
    """

    def __init__(
        self,
        twin: TwinFolder,
        present: Present,
        policy: str | None = None,
        more: Sequence[str] = (),
        until_s: float = np.inf,
    ) -> None:
        words = ["scenario=own-log", *twin.policy_words(policy)]
        words += [word for word in twin.words(more=more) if not word.startswith("trace.time_limits")]
        self.config = compose(words)
        self.conditions, self.present, self.log = Conditions.from_config(self.config), present, twin.log
        self.past, self.until_s = PastRuns(twin.log, until_s), until_s
        self._hosts = {job.job_id: host_names(job.hosts) for job in present.running}
        first = [job.submit_s for job in present.waiting]
        self.base_s = min([*first, present.now_s])

    def starts(self, draw: int, seed: int = 0) -> dict[str, float]:
        """Simulate draw number `draw` of run times; return the seconds until waiting jobs start, or NaN."""
        generator = random_streams.REMAINING_RUN_TIMES.generator(seed, draw)
        arrivals = self._arrivals(generator)
        scenario = self._scenario(self.past.draw(generator).run_s, arrivals)
        waiting = {job.job_id for job in self.present.waiting}
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
        return list_moments(scenario, policy, placer, self._hosts.keys(), self._now_s, self._hosts)

    @property
    def _now_s(self) -> float:
        return self.present.now_s - self.base_s

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
        rows: list[tuple[Any, ...]] = []
        now_s = self._now_s
        for job in self.present.running:
            elapsed_s = max(self.present.now_s - job.start_s, 0.0)
            left_s = max(run_s(job, elapsed_s) - elapsed_s, 1.0)
            limit_s = max(job.limit_s - elapsed_s, LEAST_LEFT_S) if job.limit_s > 0 else np.nan
            # How many nodes it asked for is no matter where its hosts are known; where they are not, as many
            # may not be free once the others are placed in another order.
            rows.append((replace(job, nodes=0), 0.0, now_s + left_s, limit_s))
        for job in self.present.waiting:
            rows.append((job, job.submit_s - self.base_s, max(run_s(job, 0.0), 1.0), job.limit_s))
        log = self.log
        table = [
            (
                *(job.job_id, submit_s, duration_s, job.gpus, job.gpu_type, job.user, job.account),
                *(job.partition, limit_s, int(job.qos) if job.qos.lstrip("-").isdigit() else 0, job.nodes),
            )
            for job, submit_s, duration_s, limit_s in rows
        ]
        limits = log.time_limit_s
        for row, delay_s in arrivals:
            at = now_s + delay_s
            table.append(
                (
                    *(f"later-{log.job_id[row]}", at, float(log.work_iterations[row]), int(log.gpus[row])),
                    *(log.gpu_type[row], log.user[row], log.virtual_cluster[row]),
                    *("" if log.partition is None else log.partition[row],),
                    *(np.nan if limits is None else float(limits[row]), int(log.priority[row])),
                    0 if log.nodes is None else int(log.nodes[row]),
                )
            )
        someone = table[0] if table else ("", 0.0, 1.0, 1, "", "", "", "", np.nan, 0, 0)
        table.append((MARK, now_s, 1.0, 1, "", someone[5], someone[6], "", 1.0, 0, 0))
        return self._read(table)

    def _read(self, table: Sequence[tuple[Any, ...]]) -> Scenario:
        """Return the scenario of a table of jobs, which is read as any log is."""
        table = sorted(table, key=lambda row: row[1])
        columns = list(zip(*table, strict=True))
        log = RecordedJobs(
            path=Path("now"),
            format="now",
            sha256="",
            row=np.arange(len(table)),
            line=[0] * len(table),
            job_id=list(columns[0]),
            submit_s=np.array(columns[1], dtype=np.float64),
            duration_s=np.array(columns[2], dtype=np.float64),
            gpus=np.array(columns[3], dtype=np.int64),
            gpu_type=list(columns[4]),
            user=list(columns[5]),
            virtual_cluster=list(columns[6]),
            partition=list(columns[7]),
            time_limit_s=np.array(columns[8], dtype=np.float64),
            priority=np.array(columns[9], dtype=np.int64),
            nodes=np.array(columns[10], dtype=np.int64),
            outcome=["completed"] * len(table),
            left_out=Counter(),
        )
        given = {**self.config["trace"], "time_limits": "keep"}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "now.csv"
            write_log(log, path)
            return self.conditions.scenario({**given, "path": str(path)}, 0)
