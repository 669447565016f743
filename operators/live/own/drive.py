"""Drive a user's scripts on his cluster: submit them held, start, stop and resize them as a policy decides.

All that must not be forgotten is in the ledger and in Slurm itself: a run that is killed goes on.
"""

import csv
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from clustergym.common.errors import InputError, visible
from clustergym.common.writing import atomic_path
from clustergym.scenario.policy import Placer, Policy

from ..backend import NoAnswerError
from ..checks import LiveOptions
from ..slurm import Slurm
from .decide import Nodes, OwnJob, decide_now, read_nodes
from .ledger import Entry, Ledger, open_ledger
from .queue import HELD, RUNNING, WAITING, OwnQueue, QueuedJob
from .script import Script, read_scripts

AGAIN_S = 30.0
"""Seconds after which a policy is asked again though nothing of the run's own jobs has changed."""
LOST = ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED")
"""Ends that are no fault of a script, which is then submitted again."""
COLUMNS = (
    *("script", "account", "partition", "attempts", "number", "state", "submit_s", "start_s", "end_s"),
    *("nodes", "gpus", "gpu_type"),
)
JOBS_CSV = "jobs.csv"


class ScriptRun:
    """A run that submits the Slurm scripts of a folder, and starts and stops them as a policy decides.

    Parameters
    ----------
    scripts : sequence of Script
    queue : OwnQueue
    ledger : Ledger
    make : callable
        Returns a new policy and placer.
    queues : str or None
        File of queues, by account.
    """

    def __init__(
        self,
        scripts: Sequence[Script],
        queue: OwnQueue,
        ledger: Ledger,
        make: Callable[[], tuple[Policy, Placer]],
        queues: str | None = None,
    ) -> None:
        self.scripts, self.queue, self.ledger = {one.name: one for one in scripts}, queue, ledger
        self._make, self._queues = make, queues
        self._wanted: dict[str, int] = {}
        self._cancel_at: dict[str, float] = {}
        self._released: dict[str, float] = {}
        self._gone_since: dict[str, float] = {}
        self._jobs: dict[str, QueuedJob] = {}
        self._seen: object = None
        self._decided = -AGAIN_S
        self._take_up()
        self._check_unchanged()

    def _take_up(self) -> None:
        """After a killed run, find the job numbers of scripts that were being submitted."""
        for name, entry in list(self.ledger.entries.items()):
            if entry.number or entry.ended:
                continue
            if number := self.queue.find(name, entry.attempt):
                self.ledger.note("submitted", name, number=number)
            elif entry.attempt == 1:
                del self.ledger.entries[name]

    def _check_unchanged(self) -> None:
        for name, entry in self.ledger.entries.items():
            if name not in self.scripts and not entry.ended:
                remedy = "put it back: it was submitted"
                raise InputError(f"script {name} is missing", field="live.jobs", remedy=remedy)
            if name in self.scripts and self.scripts[name].sha256 != entry.sha256:
                message, remedy = "was changed since it was submitted", "give it another name"
                raise InputError(message, file=self.scripts[name].path, field="live.jobs", remedy=remedy)

    @property
    def open(self) -> list[Entry]:
        """The recorded states of the scripts that have not ended."""
        return [entry for entry in self.ledger.entries.values() if not entry.ended]

    @property
    def done(self) -> bool:
        """Whether every script has ended."""
        return len(self.ledger.entries) == len(self.scripts) and not self.open

    def step(self) -> None:
        """Read Slurm's queue once: submit new scripts, record ends, stop jobs, and decide after a change."""
        self._submit_new()
        self._jobs = self.queue.poll([entry.number for entry in self.open])
        self._note_ends()
        self._go_on_stopping()
        self._hold_again()
        now = time.monotonic()
        states = {entry.number: self._state(entry) for entry in self.open if entry.number in self._jobs}
        if states and (states != self._seen or now - self._decided >= AGAIN_S):
            self._seen, self._decided = states, now
            self._decide()

    def _state(self, entry: Entry) -> str:
        return self._jobs[entry.number].state if entry.number in self._jobs else ""

    # Submissions

    def _submit_new(self) -> None:
        for name, script in self.scripts.items():
            entry = self.ledger.entries.get(name)
            if entry is None:
                self._submit(script, 1, script.gpus)
            elif not entry.ended and not entry.number:
                # The run was killed after it had begun to submit it.
                number = self.queue.find(name, entry.attempt)
                number = number or self.queue.submit(script, entry.attempt, entry.gpus)
                self.ledger.note("submitted", name, number=number)

    def _submit(self, script: Script, attempt: int, gpus: int) -> None:
        given = {"attempt": attempt, "gpus": gpus, "sha256": script.sha256, "at_s": time.time()}
        self.ledger.note("submitting", script.name, **given)
        try:
            number = self.queue.submit(script, attempt, gpus)
        except NoAnswerError:
            # It may be there nevertheless: the next step looks for it first.
            self.queue.read("sinfo", "-h")
            return
        self.ledger.note("submitted", script.name, number=number)

    # Ends

    def _note_ends(self) -> None:
        missing = [entry for entry in self.open if entry.number and entry.number not in self._jobs]
        ends = self.queue.ends([entry.number for entry in missing]) if missing else {}
        for entry in missing:
            end, script = ends.get(entry.number), self.scripts[entry.script]
            if end is None:
                self._await_record(entry)
                continue
            self._gone_since.pop(entry.number, None)
            self._cancel_at.pop(entry.script, None)
            stopped = entry.stopping and end["state"] != "COMPLETED"
            if stopped or end["state"] in LOST:
                size = self._wanted.get(entry.script, 0) or entry.gpus
                self._submit(script, entry.attempt + 1, size)
            else:
                self.ledger.note("ended", entry.script, **end)
                print(f"{entry.script}: {str(end['state']).lower()} on {end['nodes']}", flush=True)

    def _await_record(self, entry: Entry) -> None:
        """Wait for the record of a job that is gone; the database may have it later than the queue."""
        since = self._gone_since.setdefault(entry.number, time.monotonic())
        if time.monotonic() - since > max(self.queue.patience_s, 60.0):
            message = f"job {entry.number} is not in Slurm's queue, and sacct shows no end of it"
            remedy = "is slurmdbd running? The run goes on if it is started again"
            raise InputError(message, field=entry.script, remedy=remedy)

    # Stops

    def _stop(self, entry: Entry, wanted: int) -> None:
        """End a job that is to be submitted anew, with so many GPUs (0: as many as it has)."""
        self._wanted[entry.script] = wanted
        self.ledger.note("stopping", entry.script)
        if self._state(entry) == RUNNING:
            script = self.scripts[entry.script]
            self.queue.send_signal(entry.number, script)
            self._cancel_at[entry.script] = time.monotonic() + script.grace_s
        else:
            self.queue.cancel(entry.number)

    def _go_on_stopping(self) -> None:
        """Cancel the jobs that were asked to end and have not done so within their grace time."""
        now = time.monotonic()
        for entry in self.open:
            if entry.stopping and entry.number in self._jobs:
                # A run that was killed meanwhile gives it the whole grace again.
                grace_s = self.scripts[entry.script].grace_s
                if now >= self._cancel_at.setdefault(entry.script, now + grace_s):
                    self.queue.cancel(entry.number)

    def _hold_again(self) -> None:
        """Put jobs on hold again that were released and do not start in time."""
        now = time.monotonic()
        for entry in self.open:
            job = self._jobs.get(entry.number)
            if job is None or job.state != WAITING:
                self._released.pop(entry.number, None)
            elif now - self._released.setdefault(entry.number, now) > self.queue.patience_s:
                self.queue.control("hold", entry.number)
                print(f"note: {entry.script} does not start: {visible(job.reason)}", file=sys.stderr)

    # Decisions

    def _decide(self) -> None:
        """Ask the policy for each partition, and do what it decides: all stops, then the starts."""
        nodes, now_s = read_nodes(self.queue), time.time()
        for entry in self.open:
            if self._state(entry) == WAITING:
                # What was released has no nodes yet, but is about to.
                nodes.take(self.scripts[entry.script], entry.gpus, now_s)
        asked: dict[str, list[Entry]] = {}
        # The partition whose waiting job is the oldest comes first: partitions can share nodes.
        for entry in sorted(self.open, key=lambda one: (self._state(one) != HELD, one.begun_s)):
            if entry.number in self._jobs and not entry.stopping:
                asked.setdefault(self.scripts[entry.script].partition, []).append(entry)
        for partition, mine in asked.items():
            self._decide_partition(mine, nodes, partition, now_s)

    def _decide_partition(self, mine: Sequence[Entry], nodes: Nodes, partition: str, now_s: float) -> None:
        usable = {
            name: state
            for name, state in nodes.of_partition(partition).items()
            if not nodes.is_reserved(name, now_s, now_s + 1.0)
        }
        jobs = []
        for entry in mine:
            known_s = {RUNNING: self._jobs[entry.number].start_s, WAITING: now_s}
            begun_s = known_s.get(self._state(entry), float("nan"))
            jobs.append(OwnJob(self.scripts[entry.script], entry.begun_s, begun_s, entry.gpus))
        decided = decide_now(jobs, usable, now_s, self._make, self._queues) if usable else {}
        starts = []
        for entry in sorted(mine, key=lambda one: one.begun_s):
            script, wanted, state = self.scripts[entry.script], decided.get(entry.script), self._state(entry)
            if wanted is None:
                continue
            if wanted not in script.sizes:
                wanted = max((size for size in script.sizes if size <= wanted), default=0)
            if state == RUNNING and wanted != entry.gpus and script.signal:
                self._stop(entry, wanted)
            elif state == HELD and wanted:
                starts.append((entry, script, wanted))
        for entry, script, wanted in starts:
            if not nodes.take(script, wanted, now_s):
                # Whoever comes later does not take what it waits for.
                break
            if wanted != entry.gpus:
                # Slurm does not take another number of nodes for a job that it has: it is submitted anew.
                self._stop(entry, wanted)
            else:
                self.queue.control("release", entry.number)
                self._released[entry.number] = time.monotonic()


def write_jobs(run: ScriptRun, folder: Path) -> dict[str, int]:
    """Write the outcome of each script to a CSV file; return how many had each outcome."""
    entries = run.ledger.entries
    with atomic_path(folder / JOBS_CSV) as path, path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name, entry in sorted(entries.items()):
            script, end = run.scripts.get(name), entry.ended
            whose = (script.account, script.partition) if script else ("", "")
            times = (entry.begun_s, end.get("start_s"), end.get("end_s"), end.get("nodes", ""), entry.gpus)
            cells = (name, *whose, entry.attempt, entry.number, end.get("state", ""), *times)
            writer.writerow((*cells, script.known_type if script else ""))
    return dict(Counter(str(entry.ended["state"]) for entry in entries.values() if entry.ended))


def drive_scripts(
    options: LiveOptions,
    folder: Path,
    make: Callable[[], tuple[Policy, Placer]],
    slurm: Slurm,
    queues: str | None = None,
) -> dict[str, int]:
    """Run the scripts of `live.jobs` as a policy decides until all have ended; return how many, by outcome.

    It does nothing if they already have.

    Parameters
    ----------
    options : LiveOptions
    folder : Path
        Of the run: its ledger and `jobs.csv`.
    make : callable
        Returns a new policy and placer.
    slurm : Slurm
    queues : str, optional
        File of queues, by account.

    Raises
    ------
    InputError
        If a script or the cluster lacks what a run needs. Jobs stay as they are: held, or running.
    """
    assert options.jobs is not None
    scripts = read_scripts(Path(options.jobs))
    with open_ledger(folder) as ledger:
        queue = OwnQueue(slurm, ledger.run, options.patience_s)
        run = ScriptRun(scripts, queue, ledger, make, queues)
        if run.done:
            print(f"all {len(scripts)} scripts have ended: nothing is submitted ({folder / JOBS_CSV})")
        else:
            queue.check_accounting()
        while not run.done:
            run.step()
            if not run.done:
                time.sleep(options.poll_s)
        return write_jobs(run, folder)
