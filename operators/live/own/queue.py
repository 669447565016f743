"""Submit, release, signal and look up a user's scripts as jobs of Slurm.

Jobs are known by the numbers that `sbatch` gave. Their comments name run, script and attempt, by which a run
that was killed between a submission and its answer finds what it submitted.
"""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from clustergym.common.errors import InputError
from clustergym.common.writing import plain

from ..backend import NoAnswerError
from ..slurm import Slurm, last_line, parse_time
from .script import Script

HELD = "held"
WAITING = "waiting"
RUNNING = "running"
"""What a job that has not ended does: it is held, released but not started, or it has nodes."""
ROW = re.compile(r"(\d+)\|([A-Z_]+)\|(\d+)\|([^|]*)\|([^|]*)")
ENDED = re.compile(r"(\d+)\|([A-Z_]+)[^|]*\|([^|]*)\|([^|]*)\|([^|]*)")
ALIVE = ("PENDING", "REQUEUED", "RUNNING", "SUSPENDED", "RESIZING", "COMPLETING", "CONFIGURING", "STOPPED")
"""States in sacct of jobs that have not ended, or that Slurm starts again."""
MOST_AT_ONCE = 500


@dataclass(frozen=True)
class QueuedJob:
    """A job in Slurm's queue: state, start, and why it waits.

    Attributes
    ----------
    state : str
        `HELD`, `WAITING` or `RUNNING`.
    start_s : float
        Since 1970; NaN: it has not started.
    reason : str
        Why it waits.
    """

    state: str
    start_s: float
    reason: str


class OwnQueue:
    """Submits, holds, releases and ends a user's scripts as jobs in Slurm's queue.

    Parameters
    ----------
    slurm : Slurm
    run : str
        The run's name.
    patience_s : float
        Seconds for which a scheduler that does not answer is asked again, as when it is started anew.
    """

    def __init__(self, slurm: Slurm, run: str, patience_s: float) -> None:
        self.slurm, self.run, self.patience_s = slurm, run, patience_s
        self.slurm.environment["SLURM_TIME_FORMAT"] = "%s"
        self._user = str(os.geteuid())

    def read(self, *words: str) -> list[str]:
        """Run a command that only reads, repeat it while it fails, and return the lines that it prints."""
        until = time.monotonic() + self.patience_s
        while True:
            try:
                return self.slurm.read(*words)
            except NoAnswerError:
                if time.monotonic() > until:
                    raise
                time.sleep(min(1.0, self.patience_s / 10))

    def submit(self, script: Script, attempt: int, gpus: int) -> str:
        """Submit a script for the `attempt`-th time, as a held job with `gpus` GPUs; return its job number.

        Raises a `NoAnswerError` if Slurm does not answer.
        """
        words = ["sbatch", "--parsable", "--hold", f"--comment={self._comment(script.name, attempt)}"]
        if not script.folder:
            words.append(f"--chdir={script.path.parent.absolute()}")
        if gpus != script.gpus:
            nodes, each = script.shape(gpus)
            prefix = f"{script.gpu_type}:" if script.gpu_type else ""
            words += [f"--nodes={nodes}", f"--gres=gpu:{prefix}{each}"]
        words.append(f"--export=ALL,CLUSTERGYM_ATTEMPT={attempt},CLUSTERGYM_GPUS={gpus}")
        done = self.slurm.run(*words, str(script.path.absolute()))
        found = re.match(r"\d+", done.stdout)
        if done.returncode or not found:
            told = last_line(done.stderr) or f"exit status {done.returncode}"
            if re.search(r"contact|connect|timed out|temporar", told, re.IGNORECASE):
                raise NoAnswerError(told, file=script.path, remedy="is slurmctld running?")
            raise InputError(f"sbatch: {told}", file=script.path, remedy="mend the script, or move it away")
        return found[0]

    def find(self, script: str, attempt: int) -> str:
        """Return the job number of a script's submission `attempt` in Slurm's queue; empty: not in it."""
        words = ("squeue", "-h", "-a", "-u", self._user, "-o", "%A|%k")
        wanted = self._comment(script, attempt)
        for line in self.read(*words):
            number, _, comment = line.partition("|")
            if comment == wanted and number.isdigit():
                return number
        return ""

    def _comment(self, script: str, attempt: int) -> str:
        return f"clustergym:{self.run}:{script}:{attempt}"

    def poll(self, numbers: Sequence[str]) -> dict[str, QueuedJob]:
        """Return those of the jobs with these numbers that are in Slurm's queue, by number."""
        found, wanted = {}, set(numbers)
        for line in self.read("squeue", "-h", "-a", "-u", self._user, "-o", "%A|%T|%Q|%S|%r"):
            row = ROW.fullmatch(line)
            if row is None or row[1] not in wanted:
                continue
            if row[2] == "PENDING":
                state = HELD if row[3] == "0" or "Held" in row[5] else WAITING
                found[row[1]] = QueuedJob(state, float("nan"), row[5])
            else:
                found[row[1]] = QueuedJob(RUNNING, parse_time(row[4]), "")
        return found

    def ends(self, numbers: Sequence[str]) -> dict[str, dict[str, object]]:
        """Ask Slurm's `sacct` how jobs ended, by job number; jobs that have not ended are left out."""
        found: dict[str, dict[str, object]] = {}
        for at in range(0, len(numbers), MOST_AT_ONCE):
            some = ",".join(numbers[at : at + MOST_AT_ONCE])
            words = ("sacct", "-n", "-X", "-P", "-j", some, "-o", "JobIDRaw,State,Start,End,NodeList")
            for line in self.read(*words):
                row = ENDED.fullmatch(line)
                if row and row[2] not in ALIVE:
                    times = {"start_s": plain(parse_time(row[3])), "end_s": plain(parse_time(row[4]))}
                    found[row[1]] = {"state": row[2], **times, "nodes": row[5]}
        return found

    def check_accounting(self) -> None:
        """Raise an `InputError` if Slurm's accounting (`sacct`) does not answer."""
        done = self.slurm.run("sacct", "-n", "-X", "-S", "now", "-o", "JobID")
        if done.returncode:
            message, remedy = f"sacct: {last_line(done.stderr)}", "live.jobs needs Slurm's accounting"
            raise InputError(message, field="live.jobs", remedy=remedy)

    def control(self, verb: str, number: str) -> None:
        """`release` a held job, which Slurm then starts when it can, or `hold` one that has not started."""
        self.slurm.run("scontrol", verb, number)

    def send_signal(self, number: str, script: Script) -> None:
        """Send a running job its signal to save its state and end."""
        batch = ["--batch"] if script.batch else []
        self.slurm.run("scancel", "-u", self._user, f"--signal={script.signal}", *batch, number)

    def cancel(self, number: str) -> None:
        """Cancel one of the user's jobs in Slurm (`scancel`), given its number."""
        self.slurm.run("scancel", "-u", self._user, number)
