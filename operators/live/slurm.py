"""The commands of Slurm, and their words for the allocations of a run."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clustergym.common.errors import InputError

from .backend import NoAnswerError, Part, list_parts

PREFIX = "cg-"
"""Begins the names of a run's allocations."""
CALL_S = 60.0
"""Wall seconds after which a command of Slurm counts as hanging."""
COMMANDS = ("salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue")


class Slurm:
    """Runs the commands of a Slurm cluster.

    Parameters
    ----------
    environment : mapping, optional
        Environment of the commands; this process's by default.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(os.environ if environment is None else environment)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command, and return its output and exit status.

        Bytes that are no UTF-8, which names of jobs may have, are replaced.
        """
        try:
            return subprocess.run(
                words,
                env=self.environment,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=CALL_S,
                stdin=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            message = f"Slurm is not installed: no {words[0]} on PATH"
            remedy = "live.engine=slurm-local or fake"
        except (OSError, ValueError) as error:
            message, remedy = f"{words[0]} cannot be run: {error}", "look at PATH and live.arguments"
        except subprocess.TimeoutExpired:
            message, remedy = f"{words[0]} did not come back within {CALL_S:g} s", "look at slurmctld's log"
        raise InputError(message, field="live.engine", remedy=remedy)

    def read(self, *words: str) -> list[str]:
        """Run a command, and return the lines that it prints; raise if it fails.

        Raises
        ------
        NoAnswerError
            If it fails.
        InputError
            As `run`.
        """
        done = self.run(*words)
        if done.returncode:
            told = last_line(done.stderr) or f"exit status {done.returncode}"
            raise NoAnswerError(f"{words[0]}: {told}", field="live.engine", remedy="is slurmctld running?")
        return done.stdout.removesuffix("\n").split("\n") if done.stdout else []


def parse_time(text: str) -> float:
    """Parse a time that Slurm prints here; return seconds since 1970, or NaN if it is none."""
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return float("nan")


def last_line(text: str) -> str:
    """Return the last line of a text that is not blank."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


@dataclass(frozen=True)
class SlurmWords:
    """Builds the arguments of the Slurm commands that manage a live run's allocations.

    Attributes
    ----------
    nodes : sequence of str
        Slurm's names of the scenario's nodes.
    partition : str
        Empty: Slurm's default.
    gres : bool
        Whether GPUs are asked for as `--gres=gpu`, or as a CPU each.
    further : sequence of str
        Further arguments of salloc.
    of_job : sequence of sequence of str
        Arguments of salloc for each of the scenario's jobs, by row; empty: none has any.
    """

    nodes: Sequence[str]
    partition: str = ""
    gres: bool = False
    further: Sequence[str] = ()
    of_job: Sequence[Sequence[str]] = ()

    def submit(self, name: str, part: Part) -> list[str]:
        """Return the words of a `salloc` that allocates a part (GPUs on each of some nodes), with a name."""
        each = [f"--gres=gpu:{part.gpus}", "--ntasks-per-node=1"]
        words = ["salloc", "--no-shell", "--immediate=1", "-J", name, "-N", str(len(part.nodes))]
        words += ["-w", ",".join(self.nodes[node] for node in part.nodes)]
        words += each if self.gres else [f"--ntasks-per-node={part.gpus}", "-c", "1"]
        # A later -p or -A counts, and of an allocation for a profile it is not known whose it is.
        row = name.rpartition("-")[0].rpartition("-")[2]
        own = self.of_job[int(row)] if row.isdigit() and self.of_job else ()
        return [*words, *(["-p", self.partition] if self.partition else []), *self.further, *own]

    def down(self, node: int) -> list[str]:
        """Return the words of the `scontrol` command that takes a node out of use."""
        return ["scontrol", "update", f"nodename={self.nodes[node]}", "state=down", "reason=clustergym"]

    def up(self, node: int) -> list[str]:
        """Return the words of the `scontrol` command that puts a node back into use."""
        return ["scontrol", "update", f"nodename={self.nodes[node]}", "state=resume"]

    def list_commands(self, call: str, given: Mapping[str, Any]) -> list[str]:
        """Return the command lines that a user could type for a call: start, stop, fail or repair."""
        if call == "start":
            parts = list_parts(given["name"], given["nodes"])
            return [" ".join(self.submit(name, part)) for name, part in parts.items()]
        if call == "stop":
            return [f"scancel --user=$USER --name={name}" for name in given["names"]]
        words = {"fail": self.down, "repair": self.up}.get(call)
        return [" ".join(words(given["node"]))] if words else []
