"""The commands of a Slurm cluster in memory, as their output is printed: names of jobs as they are."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from subprocess import CompletedProcess

from clustergym.operators.live.slurm import Slurm

OWN = os.geteuid()
EVE = 4242


@dataclass
class PrintedJob:
    """A job that squeue shows."""

    number: int
    name: str
    nodes: tuple[str, ...] = ()
    cpus: int = 1
    user: int = OWN
    comment: str = "(null)"
    state: str = "RUNNING"

    def format_call(self, form: str) -> str:
        """Return the job in a format of squeue."""
        told = {
            **{"A": self.number, "i": self.number, "U": self.user, "T": self.state, "C": self.cpus},
            **{"u": "eve" if self.user == EVE else "ann", "b": "N/A", "N": ",".join(self.nodes)},
            **{"j": self.name, "k": self.comment},
        }
        return re.sub(r"%(\w)", lambda found: str(told[found[1]]), form) + "\n"


class PrintedSlurm(Slurm):
    """A cluster of nodes with some CPUs each.

    Attributes
    ----------
    jobs : list of PrintedJob
    states : dict of str to str
        The nodes' states, as sinfo shows them.
    calls : list of tuple of str
        What was run.
    before : dict of str to callable
        Called with the words of a command, by its name, before it does anything; what it returns, unless
        None, is what the command prints on stdout and stderr, and its status.
    """

    def __init__(self, nodes: dict[str, int]) -> None:
        super().__init__({})
        self.cpus, self.states = nodes, dict.fromkeys(nodes, "idle")
        self.jobs: list[PrintedJob] = []
        self.calls: list[tuple[str, ...]] = []
        self.before: dict[str, Callable[[tuple[str, ...]], tuple[str, str, int] | None]] = {}
        self._next = 1

    def add(self, name: str, nodes: tuple[str, ...] = (), **more) -> PrintedJob:
        """Add a job."""
        self.jobs.append(PrintedJob(self._next, name, nodes, **more))
        self._next += 1
        return self.jobs[-1]

    def run(self, *words: str) -> CompletedProcess[str]:
        """Run a command."""
        if not all(type(word) is str for word in words):
            raise TypeError(f"words of a command are texts, not {words}")
        self.calls.append(words)
        told = self.before.get(words[0], lambda words: None)(words)
        if told is None:
            told = getattr(self, f"_{words[0]}")(words)
        return CompletedProcess(words, told[2], told[0], told[1])

    def _squeue(self, words):
        form, found = words[words.index("-o") + 1], self.jobs
        for option, column in (("-n", "name"), ("-u", "user"), ("-j", "number")):
            if option in words:
                wanted = words[words.index(option) + 1]
                found = [job for job in found if str(getattr(job, column)) == wanted]
        head = "" if "-h" in words else "HEADER\n"
        return head + "".join(job.format_call(form) for job in found), "", 0

    def _sinfo(self, words):
        if "--version" in words:
            return "slurm-wlm 22.05.8\n", "", 0
        return "".join(f"{node}|{state}\n" for node, state in self.states.items()), "", 0

    def _salloc(self, words):
        each = next(int(word.partition("=")[2]) for word in words if word.startswith("--ntasks-per-node"))
        nodes = tuple(words[words.index("-w") + 1].split(","))
        for node in nodes:
            held = sum(job.cpus // len(job.nodes) for job in self.jobs if node in job.nodes)
            if held + each > self.cpus[node] or self.states[node] != "idle":
                busy = "salloc: error: Unable to allocate resources: Requested nodes are busy\n"
                return "", busy, 1
        job = self.add(words[words.index("-J") + 1], nodes, cpus=each * len(nodes))
        return "", f"salloc: Granted job allocation {job.number}\n", 0

    def _sbatch(self, words):
        comment = next(word for word in words if word.startswith("--comment=")).partition("=")[2]
        job = self.add(words[words.index("-J") + 1], comment=comment, state="PENDING")
        return f"{job.number}\n" if "--parsable" in words else f"Submitted batch job {job.number}\n", "", 0

    def _scancel(self, words):
        """Cancel as root does: anybody's job, unless a user is named."""
        rest = list(words[1:])
        user = rest.pop(rest.index("-u") + 1) if "-u" in rest else ""
        names = [word.partition("=")[2].split(",") for word in rest if word.startswith("--name")]
        numbers = [word for word in rest if word.isdigit()]
        self.jobs = [
            job
            for job in self.jobs
            if (user and str(job.user) != user)
            or not (str(job.number) in numbers or any(job.name in some for some in names))
        ]
        return "", "", 0

    def _sacct(self, words):
        return ("", "sacct: error: Slurm accounting storage is disabled\n", 1)

    def _scontrol(self, words):
        return "JobCompType = jobcomp/none\n", "", 0
