"""A Slurm in memory to which scripts can be submitted held: its commands as their output is printed."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

from clustergym.operators.live.own.script import Script, read_script
from clustergym.operators.live.slurm import Slurm

OWN = str(os.geteuid())


@dataclass
class SubmittedJob:
    """A job of the run's user."""

    number: str
    script: Script
    comment: str
    shape: tuple[int, int]
    state: str = "PENDING"
    held: bool = True
    nodes: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)


class ScriptedSlurm(Slurm):
    """Nodes with GPUs of type a40 in partitions; others' jobs hold some of them.

    Attributes
    ----------
    gpus, others : dict of str to int
        GPUs of each node, and those that others hold.
    partitions : dict of str to str
        Of each node, with commas between.
    reservations : list of str
        Lines of `scontrol show reservation`.
    jobs : dict of str to SubmittedJob
        By number.
    down : int
        So many further commands are not answered.
    records : bool
        Whether sacct has records of what has ended.
    submissions : list of str
        Names of scripts, in order.
    """

    def __init__(self, gpus: dict[str, int], partitions: dict[str, str] | None = None) -> None:
        super().__init__({})
        self.gpus, self.others = gpus, dict.fromkeys(gpus, 0)
        self.partitions = partitions or dict.fromkeys(gpus, "main")
        self.reservations: list[str] = []
        self.jobs: dict[str, SubmittedJob] = {}
        self.submissions: list[str] = []
        self.down, self.records, self.cut_off = 0, True, False

    def run(self, *words: str) -> CompletedProcess[str]:
        """Run a command."""
        if self.down:
            self.down -= 1
            return CompletedProcess(words, 1, "", f"{words[0]}: error: Unable to contact slurm controller\n")
        return CompletedProcess(words, 0, getattr(self, f"_{words[0]}")(words), "")

    def hosts(self, listed: str) -> tuple[str, ...]:
        """Return the names in a list of hosts without brackets."""
        return tuple(listed.split(","))

    def used(self, node: str) -> int:
        """Return the GPUs of a node that are held."""
        ours = sum(job.shape[1] for job in self.jobs.values() if node in job.nodes)
        return self.others[node] + ours

    def start_released(self) -> None:
        """Start what was released and fits, as Slurm does."""
        for job in self.jobs.values():
            if job.state == "PENDING" and not job.held:
                count, each = job.shape
                mine = [
                    node for node in self.gpus if (job.script.partition or "main") in self.partitions[node]
                ]
                free = [node for node in mine if self.gpus[node] - self.used(node) >= each]
                if len(free) >= count:
                    job.state, job.nodes = "RUNNING", free[:count]

    def finish(self, name: str, state: str = "COMPLETED") -> None:
        """End the running job of a script."""
        (job,) = (one for one in self.jobs.values() if one.script.name == name and one.state == "RUNNING")
        job.state, job.nodes = state, []

    def running(self) -> list[str]:
        """Return the names of the scripts that run."""
        return [job.script.name for job in self.jobs.values() if job.state == "RUNNING"]

    def _sbatch(self, words):
        script = read_script(Path(words[-1]))
        options = dict(word.removeprefix("--").partition("=")[::2] for word in words if word.startswith("--"))
        shape = script.shape(script.gpus)
        if "nodes" in options:
            shape = int(options["nodes"]), int(options["gres"].rpartition(":")[2])
        number = str(len(self.jobs) + 1)
        self.jobs[number] = SubmittedJob(number, script, options["comment"], shape)
        self.submissions.append(script.name)
        if self.cut_off:
            raise KeyboardInterrupt
        return f"{number}\n"

    def _squeue(self, words):
        lines = []
        for job in self.jobs.values():
            if job.state not in ("PENDING", "RUNNING"):
                continue
            if words[-1] == "%A|%k":
                lines.append(f"{job.number}|{job.comment}")
            else:
                priority, reason = (0, "JobHeldUser") if job.held else (5, "Resources")
                start = "N/A" if job.state == "PENDING" else "1000"
                lines.append(f"{job.number}|{job.state}|{priority}|{start}|{reason}")
        return "".join(line + "\n" for line in lines)

    def _sacct(self, words):
        if not self.records or "-j" not in words:
            return ""
        numbers = words[words.index("-j") + 1].split(",")
        ended = [
            self.jobs[number] for number in numbers if self.jobs[number].state not in ("PENDING", "RUNNING")
        ]
        return "".join(f"{job.number}|{job.state}|1000|1010|n0\n" for job in ended)

    def _sinfo(self, words):
        return "main*\nother\n"

    def _scontrol(self, words):
        if "node" in words:
            return "".join(
                f"NodeName={node} Arch=x86_64 Gres=gpu:a40:{gpus} GresUsed=gpu:a40:{self.used(node)}(IDX:0) "
                f"State=MIXED Partitions={self.partitions[node]} \n"
                for node, gpus in self.gpus.items()
            )
        if "reservation" in words:
            return "".join(line + "\n" for line in self.reservations) or "No reservations in the system\n"
        job = self.jobs[words[-1]]
        if job.state == "PENDING":
            job.held = words[1] == "hold"
        return ""

    def _scancel(self, words):
        assert words[1:3] == ("-u", OWN)
        job, signal = self.jobs[words[-1]], re.search(r"--signal=(\w+)", " ".join(words))
        if signal:
            job.signals.append(signal[1])
        elif job.state in ("PENDING", "RUNNING"):
            job.state, job.nodes = "CANCELLED by 0", []
        return ""
