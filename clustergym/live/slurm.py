"""Slurm as a back end, by its command line: allocations without jobs in them, which hold the GPUs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

from clustergym.inputs.errors import InputError
from clustergym.live.backend import Backend, Finished, Part, Seen

PREFIX = "cg-"
CLAIM = "clustergym-live-"
"""Begin the names of a run's allocations, and of the held job that claims the cluster for a run."""
CALL_S = 60.0
"""Wall seconds after which a command of Slurm counts as hanging."""
COMMANDS = ("salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
IN_USE = ("idle", "allocated", "mixed", "completing", "planned", "reserved")
"""States of nodes, as `sinfo` calls them, in which a run uses them."""
RECORD = re.compile(r"(\w+)=(\S*)")


class Slurm:
    """The commands of a Slurm cluster.

    Parameters
    ----------
    environment : mapping, optional
        Environment of the commands; this process's by default.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(os.environ if environment is None else environment)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command and return what it printed and its status.

        Raises
        ------
        InputError
            If it is not installed, or does not come back.
        """
        try:
            return subprocess.run(
                words,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=CALL_S,
                stdin=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            message, remedy = (
                f"Slurm is not installed: no {words[0]} on PATH",
                "live.engine=slurm-local or fake",
            )
            raise InputError(message, field="live.engine", remedy=remedy) from None
        except subprocess.TimeoutExpired:
            message = f"{words[0]} did not come back within {CALL_S:g} s"
            raise InputError(message, field="live.engine", remedy="look at slurmctld's log") from None

    def read(self, *words: str) -> list[str]:
        """Return the lines that a command prints.

        Raises
        ------
        InputError
            If it fails; also as `run`.
        """
        done = self.run(*words)
        if done.returncode:
            told = last_line(done.stderr) or f"exit status {done.returncode}"
            raise InputError(f"{words[0]}: {told}", field="live.engine", remedy="is slurmctld running?")
        return done.stdout.splitlines()

    @cache  # noqa: B019 -- one for a run
    def hosts(self, listed: str) -> tuple[str, ...]:
        """Return the names in a list of hosts such as `a40n[0-3]`."""
        if "[" not in listed:
            return tuple(name for name in listed.split(",") if name)
        return tuple(self.read("scontrol", "show", "hostnames", listed))


def last_line(text: str) -> str:
    """Return the last line of a text that is not blank."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


class SlurmWords:
    """The words of Slurm's commands for the allocations of a run.

    Parameters
    ----------
    nodes : sequence of str
        Slurm's names of the scenario's nodes.
    partition : str
        Empty: Slurm's default.
    gres : bool
        Whether GPUs are asked for as `--gres=gpu`, or as a CPU each.
    further : sequence of str
        Further arguments of salloc.
    """

    def __init__(self, nodes: Sequence[str], partition: str, gres: bool, further: Sequence[str]) -> None:
        self.nodes, self.partition, self.gres, self.further = tuple(nodes), partition, gres, tuple(further)

    def submit(self, name: str, part: Part) -> list[str]:
        """Return the words that hold GPUs."""
        each = [f"--gres=gpu:{part.gpus}", "--ntasks-per-node=1"]
        words = ["salloc", "--no-shell", "--immediate=1", "-J", name, "-N", str(len(part.nodes))]
        words += ["-w", ",".join(self.nodes[node] for node in part.nodes)]
        words += each if self.gres else [f"--ntasks-per-node={part.gpus}", "-c", "1"]
        return [*words, *(["-p", self.partition] if self.partition else []), *self.further]

    def down(self, node: int) -> list[str]:
        """Return the words that take a node out of use."""
        return ["scontrol", "update", f"nodename={self.nodes[node]}", "state=down", "reason=clustergym"]

    def up(self, node: int) -> list[str]:
        """Return the words that put a node back into use."""
        return ["scontrol", "update", f"nodename={self.nodes[node]}", "state=resume"]

    def printed(self, call: str, *given: object) -> str:
        """Return a call as it could be typed; cancelled are allocations by their names."""
        if call == "cancel":
            return "\n".join(f"scancel --name={name}" for name in given[0])  # type: ignore[attr-defined]
        return " ".join(getattr(self, call)(*given))


class SlurmBackend(Backend):
    """A run's allocations on a Slurm cluster.

    Parameters
    ----------
    slurm : Slurm
    words : SlurmWords
    run : str
        The run's name; its allocations' names begin with it.
    """

    def __init__(self, slurm: Slurm, words: SlurmWords, run: str) -> None:
        self.slurm, self.words, self.run = slurm, words, run
        self._index = {name: node for node, name in enumerate(words.nodes)}
        self._ids: dict[str, str] = {}
        self._claim = ""
        self.told = " ".join(slurm.read("sinfo", "--version"))

    def claims(self) -> dict[str, str]:
        """Return the runs of which held jobs claim the cluster, Slurm's first job first."""
        found = {}
        for line in self.slurm.read("squeue", "-h", "-a", "-S", "i", "-o", "%A|%u|%k|%j"):
            number, user, rest = line.split("|", 2)
            where, _, name = rest.rpartition("|")
            if name.startswith(CLAIM):
                found[name.removeprefix(CLAIM)] = f"{user}, {where}"
                if name == CLAIM + self.run:
                    self._claim = number
        return found

    def claim(self, where: str) -> None:
        """Submit a held job."""
        words = ["sbatch", "-H", "-n", "1", "-J", CLAIM + self.run, f"--comment={where}", "-o", "/dev/null"]
        partition = ["-p", self.words.partition] if self.words.partition else []
        self.slurm.read(*words, *partition, *_accounting(self.words.further), "--wrap=true")

    def submit(self, name: str, part: Part) -> str:
        """Allocate whole nodes' or parts of nodes' GPUs, at once or not at all."""
        if name in self._ids:
            return ""
        done = self.slurm.run(*self.words.submit(name, part))
        granted = re.search(r"Granted job allocation (\d+)", done.stderr)
        if done.returncode or granted is None:
            return last_line(done.stderr) or f"salloc: exit status {done.returncode}"
        self._ids[name] = granted[1]
        return ""

    def cancel(self, names: Collection[str]) -> None:
        """End allocations."""
        numbers = [self._ids[name] for name in names if name in self._ids]
        if numbers:
            self.slurm.run("scancel", *numbers)

    def poll(self) -> Seen:
        """Return this run's allocations, others' jobs on its nodes, and the nodes that are out of use."""
        parts, others = {}, []
        self._ids = {}
        for line in self.slurm.read("squeue", "-h", "-a", "-o", "%i|%T|%u|%C|%b|%N|%j"):
            number, state, user, cpus, gres, listed, name = line.split("|", 6)
            nodes = self._nodes(listed)
            if name.startswith(f"{PREFIX}{self.run}-") and nodes:
                self._ids[name] = number
                each = _gpus_each(gres) if self.words.gres else int(cpus) // max(len(nodes), 1)
                parts[name] = Part(nodes, each)
            elif nodes:
                others.append(f"job {number} ({name}) of {user} is {state.lower()} on {listed}")
        return Seen(parts, tuple(others), self._down())

    def _nodes(self, listed: str) -> tuple[int, ...]:
        return tuple(sorted(self._index[host] for host in self.slurm.hosts(listed) if host in self._index))

    def _down(self) -> frozenset[int]:
        rows = (line.split("|") for line in self.slurm.read("sinfo", "-h", "-N", "-o", "%N|%T"))
        down = (host for host, state in rows if not state.startswith(IN_USE) or state.endswith("*"))
        return frozenset(self._index[host] for host in down if host in self._index)

    def node_down(self, node: int) -> None:
        """Set a node down, which ends its jobs."""
        self.slurm.read(*self.words.down(node))

    def node_up(self, node: int) -> None:
        """Let a node be used again."""
        if node in self._down():
            self.slurm.read(*self.words.up(node))

    def log(self) -> Sequence[Finished] | None:
        """Return this run's records of Slurm's completion log, if it is a file that can be read."""
        pairs = (line.partition("=") for line in self.slurm.read("scontrol", "show", "config"))
        settings = {key.strip(): value.strip() for key, _, value in pairs}
        path = Path(settings.get("JobCompLoc", ""))
        if settings.get("JobCompType") != "jobcomp/filetxt" or not os.access(path, os.R_OK):
            return None
        found = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            record = dict(RECORD.findall(line))
            if record.get("Name", "").startswith(f"{PREFIX}{self.run}-"):
                times = (_unix(record[key]) for key in ("StartTime", "EndTime"))
                nodes = self._nodes(record["NodeList"])
                found.append(Finished(record["Name"], record["JobState"], nodes, *times))
        return found

    def close(self) -> None:
        """End this run's allocations and give up its claim."""
        self.poll()
        self.cancel(list(self._ids))
        self._release()

    def _release(self) -> None:
        if self._claim:
            self.slurm.run("scancel", self._claim)
            self._claim = ""


def _gpus_each(gres: str) -> int:
    """Return the GPUs a node of squeue's `%b`, such as `gres:gpu:2` or `gres/gpu:a40:2`."""
    found = re.search(r"gpu(?::[^:,()]+)*?:(\d+)", gres)
    return int(found[1]) if found else 0


def _accounting(further: Sequence[str]) -> list[str]:
    """Return the arguments that say who pays, which a held job needs as well."""
    return [word for word in further if re.match(r"(--account|--qos|--reservation|-A|-q)=?", word)]


def _unix(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return float("nan")
