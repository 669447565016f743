"""A job that is not submitted yet: when it would start, what refuses it, what smaller one starts sooner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.errors import InputError, nearest
from clustergym.common.kubernetes import looks_like_objects
from clustergym.common.text_files import first_lines
from clustergym.scenario.registry import make_policy
from clustergym.scenario.tenants.queue_tree import get_most_gpus, load_queues
from clustergym.sim.from_now import MARK, Moment, drop_rows
from clustergym.trace.present import waiting_job
from clustergym.trace.readers import kueue
from clustergym.trace.readers.sacct import SlurmJob

from ..live.own.script import read_script
from ..policies.kueue import Kueue
from .advice import advise, estimate_starts
from .ahead import Ahead

SOONER_S = 60.0
"""A smaller request counts as sooner if half of the draws start it earlier by more than this."""


@dataclass(frozen=True)
class Request:
    """A job that is not submitted yet.

    Attributes
    ----------
    job : SlurmJob
        As one that waits since now.
    segment : int
        GPUs of each block that must lie in one NVLink domain; 0: they lie anywhere.
    """

    job: SlurmJob
    segment: int = 0

    def list_smaller(self) -> Iterator[Request]:
        """Yield the request with a half, a quarter, ... of its GPUs, on fewer nodes where it names nodes."""
        gpus, nodes = self.job.gpus, self.job.nodes
        while gpus % 2 == 0:
            gpus, nodes = gpus // 2, max(nodes // 2, 1) if nodes else 0
            if not nodes or gpus % nodes == 0:
                job = replace(self.job, gpus=gpus, nodes=nodes)
                yield replace(self, job=job, segment=min(self.segment, gpus))


def read_request(path: Path, now_s: float, user: str = "") -> Request:
    """Read a job from an sbatch script's options, or from a Kueue Workload (JSON or YAML).

    Parameters
    ----------
    path : Path
        A LocalQueue beside the Workload, in the same file, says of which ClusterQueue its queue is.
    now_s : float
        When it is submitted, since 1970.
    user : str
        Whose past run times a script's job has; a Workload names its namespace.
    """
    if looks_like_objects(first_lines(path)):
        jobs, parts, _ = kueue.read_rows(path)
        if len(jobs) != 1 or parts or not jobs[0].gpus:
            told = f"has {len(jobs) + sum(parts.values())} Workloads" if len(jobs) != 1 else "asks for no GPU"
            raise InputError(told, file=path, remedy="give one Workload, of whole GPUs")
        waiting = replace(jobs[0], state="PENDING", start_s=float("nan"), end_s=float("nan"), submit_s=now_s)
        # What it names in place of a partition is a local queue.
        return Request(replace(waiting, partition=""))
    script = read_script(path)
    job = waiting_job(
        job_id=script.name,
        user=user,
        account=script.account,
        partition=script.partition,
        qos="0",
        submit_s=now_s,
        limit_s=script.limit_s,
        gpus=script.gpus,
        gpu_type=script.known_type,
        nodes=0 if script.any_nodes else script.nodes,
    )
    return Request(job, script.segment * script.gpus // script.nodes)


class Admission:
    """Questions about jobs that are not submitted yet, to a twin of the cluster as it is now.

    Parameters
    ----------
    ahead : Ahead
        The simulation of the cluster with the jobs of now.
    """

    def __init__(self, ahead: Ahead) -> None:
        self.ahead, self._cluster, self._pools = ahead, ahead.conditions.cluster, ahead.pools

    def _look_ahead(self, job: SlurmJob, alone: bool = False) -> Ahead:
        """Return the simulation of the cluster with the job in the queue, or of the job alone."""
        present = self.ahead.present
        running, waiting = ((), ()) if alone else (present.running, present.waiting)
        return self.ahead.replace_present(replace(present, running=running, waiting=(*waiting, job)))

    def find_refusal(self, request: Request) -> str:
        """Return why a job would never start, however long it waits; empty if it could."""
        job = request.job
        found = self._pools.find_type(job.gpu_type, job.partition)
        partitions = self._pools.pool_of
        if job.partition and partitions and job.partition not in partitions:
            return f"there is no partition {job.partition} ({nearest(job.partition, partitions)})"
        if found is None:
            return f"{job.partition or 'the cluster'} has no {job.gpu_type}"
        return self._refuse_by_size(request, found) or self._refuse_by_queue(job) or self._refuse_alone(job)

    def _refuse_by_size(self, request: Request, gpu_type: str) -> str:
        job, cluster = request.job, self._cluster
        types = [at for at, name in enumerate(cluster.gpu_types) if not gpu_type or name == gpu_type]
        most = max(int(cluster.capacity[at]) for at in types)
        if job.gpus > most:
            return f"asks for {job.gpus} GPUs, and there are {most} {gpu_type or 'of one type'}"
        each = job.gpus // job.nodes if job.nodes else 0
        fitting = np.isin(cluster.node_type, types) & (cluster.node_gpus >= each)
        if np.count_nonzero(fitting) < job.nodes:
            return f"asks for {job.nodes} nodes of {each} GPUs, and there are {np.count_nonzero(fitting)}"
        domain = max(int(cluster.domain_gpus[at]) for at in types)
        if request.segment > domain:
            return f"a segment of {request.segment} GPUs is larger than an NVLink domain of {domain}"
        return ""

    def _refuse_by_queue(self, job: SlurmJob) -> str:
        if self.ahead.twin.queues is None:
            return ""
        tree = load_queues(self.ahead.twin.queues)
        member = job.user if tree.settings.assign_by == "user" else job.account
        try:
            path = tree.path(tree.leaf(member, job.job_id))
        except InputError as error:
            return error.message
        for name in reversed(path):
            most = max(get_most_gpus(tree.queues[name], one) for one in self._cluster.gpu_types)
            if most < job.gpus:
                return f"asks for {job.gpus} GPUs, and queue {name} may have {most:g} of one type"
        return ""

    def _refuse_alone(self, job: SlurmJob) -> str:
        """Refuse what the rules do not start on an empty cluster either."""
        answer = self._answer_now(self._look_ahead(job, alone=True), job)
        return "" if answer["what"] == "start" else f"would not start on an empty cluster: {answer['why']}"

    def decide_now(self, request: Request) -> dict[str, Any]:
        """Return what the rules do with a job now: `what` (start, wait, ... or refuse) and `why`."""
        if refused := self.find_refusal(request):
            return {"what": "refuse", "why": refused}
        return self._answer_now(self._look_ahead(request.job), request.job)

    def _answer_now(self, ahead: Ahead, job: SlurmJob) -> dict[str, Any]:
        moment = ahead.now()
        rows = [] if moment is None else advise(_as_admitted(ahead, moment), ahead.present)
        wait = {"what": "wait", "why": "the rules leave it in the queue"}
        found = next((row for row in rows if row["job_id"] == job.job_id), wait)
        return {key: found[key] for key in ("what", "why")}

    def answer(self, request: Request, draws: int, seed: int) -> dict[str, Any]:
        """Return all that is asked of a job, with the largest smaller request that starts sooner.

        Returns
        -------
        dict
            `refused` (empty: it is not), `now`, `requests` (GPUs, nodes, `refused`, quantiles), the first of
            which is the job's own, and `sooner`: the GPUs of the largest request that starts sooner, or None.
        """
        described = [self._describe(one, draws, seed) for one in (request, *request.list_smaller())]
        rows, ahead = [row for row, _ in described], described[0][1]
        own = np.inf if rows[0]["p50_s"] is None else rows[0]["p50_s"]
        sooner = [
            row["gpus"] for row in rows[1:] if row["p50_s"] is not None and row["p50_s"] < own - SOONER_S
        ]
        refused = rows[0]["refused"]
        now = self._answer_now(ahead, request.job) if ahead else {"what": "refuse", "why": refused}
        return {"refused": refused, "now": now, "requests": rows, "sooner": max(sooner, default=None)}

    def _describe(self, request: Request, draws: int, seed: int) -> tuple[dict[str, Any], Ahead | None]:
        """Return when a request would start, s from now (None: not in 30 days), and the simulation of it."""
        job, refused, ahead, found = request.job, self.find_refusal(request), None, dict[str, Any]()
        if not refused:
            ahead = self._look_ahead(job)
            rows = estimate_starts(ahead, draws, seed)
            found = next(row for row in rows if row["job_id"] == job.job_id)
        starts = {name: found.get(name) for name in ("p10_s", "p50_s", "p90_s")}
        return {"gpus": job.gpus, "nodes": job.nodes, "refused": refused} | starts, ahead


def _as_admitted(ahead: Ahead, moment: Moment) -> Moment:
    """Return the moment as Kueue decides it with the times at which jobs were created and admitted.

    A simulation begins with the jobs that run, so that it does not know them; other rules do not ask.
    """
    policy = make_policy(ahead.config["policy"])
    if not isinstance(policy, Kueue):
        return moment
    now_s, jobs = ahead.present.now_s, {job.job_id: job for job in ahead.present.running}
    view = moment.view
    running = {row: jobs[moment.job_id[row]] for row in view.job.tolist() if moment.job_id[row] in jobs}
    submit_s = [
        running[row].submit_s - now_s if row in running else float(view.submit_s[at]) - view.now_s
        for at, row in enumerate(view.job.tolist())
    ]
    policy.reset(view.setting, random_streams.POLICY.generator(0))
    # Admissions during the run are counted from 0 on.
    policy.note_admissions({row: job.start_s - now_s - 1.0 for row, job in running.items()})
    shown = view.with_columns({"submit_s": np.array(submit_s)})
    marks = [row for row in view.job.tolist() if moment.job_id[row] == MARK]
    decision = policy.schedule(drop_rows(shown, marks))
    given = set(decision.job.tolist())
    waited = view.job[view.gpus == 0].tolist()
    return replace(moment, decision=decision, started=frozenset(given.intersection(waited)))
