"""Slurm as a back end, by its command line: empty allocations hold the GPUs of jobs.

Every user of a Slurm cluster chooses the names and comments of his jobs, with any bytes in them: line feeds,
separators, lines that look like those of another job. So a run knows its allocations by the numbers that
`salloc` gave and by its user, asks for names and comments of its own user's jobs only, and reads of what is
printed the lines that are whole and its own.
"""

import contextlib
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from subprocess import CompletedProcess

from clustergym.cluster.slurm_text import host_names, parse_gres
from clustergym.common.errors import InputError

from .backend import BackendStatus, FinishedAllocation, NoAnswerError, Part
from .slurm import PREFIX, Slurm, SlurmWords, last_line, parse_time

CLAIM = "clustergym-live"
"""Name of the held job that claims the cluster for a run; its comment has the run's name and folder."""
IN_USE = ("idle", "allocated", "mixed", "completing", "planned", "reserved")
"""States of nodes, as `sinfo` calls them, in which a run uses them."""
GRANTED = re.compile(r"^salloc: Granted job allocation (\d+)\s*$", re.MULTILINE)
HELD = re.compile(r"(\d+)\|(\d+)\|(\w+)\|(\d{1,9})\|([^|]*)\|([^|]*)")
OTHER = re.compile(r"(\d+)\|([^|]*)\|(\w+)\|([^|]*)")
STATE = re.compile(r"([^|\s]+)\|([a-z_]+)([^a-z_|\s]*)")
ENDED = re.compile(
    r"JobId=(?P<job>\d+) UserId=[^\s()]*\((?P<user>\d+)\) GroupId=\S* Name=(?P<name>\S+) "
    r"JobState=(?P<state>\w+) .*? ?StartTime=(?P<start>\S+) EndTime=(?P<end>\S+) NodeList=(?P<nodes>\S*)( |$)"
)
ACCOUNTED = re.compile(
    r"(?P<job>\d+)\|(?P<state>[A-Z_]+)[^|]*\|(?P<start>[^|]*)\|(?P<end>[^|]*)\|(?P<nodes>[^|]*)\|(?P<name>[^|]*)"
)
"""Lines of squeue for the run's user and for others, of sinfo, of Slurm's log of ended jobs, and of sacct."""
ACCOUNTED_DAYS = 30
"""How long ago what a run reads of Slurm's accounting can have begun."""
ACCOUNT = re.compile(r"(--account|--qos|--reservation|-A|-q)=?")
GONE = ("Invalid job id specified", "already completing or completed")
"""What `scancel` says of jobs that have ended already."""


class SlurmBackend:
    """A live run's back end on a Slurm cluster: empty Slurm jobs hold the GPUs.

    Parameters
    ----------
    slurm : Slurm
    words : SlurmWords
    run : str
        The run's name; its allocations' names begin with it.
    """

    def __init__(self, slurm: Slurm, words: SlurmWords, run: str) -> None:
        self.slurm, self.words, self.run = slurm, words, run
        self.user = str(os.geteuid())
        self._index = {name: node for node, name in enumerate(words.nodes)}
        self._name = re.compile(rf"(\d+)\|{self.user}\|({PREFIX}{re.escape(run)}-p?\d+-\d+\.\d+)")
        self._numbers: dict[str, str] = {}
        self._granted: dict[str, str] = {}
        self._asked: dict[str, Part] = {}
        self._open: set[str] = set()
        self._ending: set[str] = set()
        self._claim = ""
        self.told = " ".join(slurm.read("sinfo", "--version"))

    # The claim to the cluster

    def first_claim(self) -> tuple[bool, str] | None:
        """Return whether this run controls the cluster, and which run does; None if none does.

        If it does, take up its jobs.
        """
        shown = self._rows(r"(\d+)\|(\d+)\|([^|]*)", "-n", CLAIM, "-o", "%A|%U|%u")
        rows = [(int(row[1]), row[2], row[3]) for row in shown]
        if not rows:
            return None
        number, user, name = min(rows)
        # The comment of one job: whatever is in it, it cannot be taken for another job's.
        comment = " ".join(self.slurm.read("squeue", "-h", "-a", "-j", str(number), "-o", "%k"))
        run, _, where = comment.partition(" ")
        own = user == self.user and run == self.run
        if own:
            self._claim = str(number)
            self._take_up()
        return own, f"run {run} of {name}, {where}"

    def claim(self, where: str) -> None:
        """Claim the cluster for this run, by a held job in Slurm's queue."""
        words = ["sbatch", "--parsable", "-H", "-n", "1", "-J", CLAIM, f"--comment={self.run} {where}"]
        partition = ["-p", self.words.partition] if self.words.partition else []
        # A held job needs account and quality of service as well.
        further = [word for word in self.words.further if ACCOUNT.match(word)]
        printed = self.slurm.read(*words, "-o", "/dev/null", *partition, *further, "--wrap=true")
        found = re.match(r"\d+", printed[-1]) if printed else None
        self._claim = found[0] if found else ""

    def others(self) -> list[str]:
        """Return a description of each job on the run's nodes that the run did not start."""
        self._take_up()
        own = set(self._numbers.values())
        found = []
        for row in self._rows(OTHER, "-o", "%A|%u|%T|%N"):
            number, user, state, listed = row.groups()
            if number not in own and self._nodes(listed):
                found.append(f"job {number} of {user} is {state.lower()} on {listed}")
        return found

    # Allocations

    def submit(self, name: str, part: Part) -> str:
        """Allocate GPUs under a name, at once or not at all; return why it failed, or an empty text."""
        if name in self._numbers:
            return ""
        self._open.add(name)
        done = self.slurm.run(*self.words.submit(name, part))
        granted = GRANTED.search(done.stderr)
        if granted and not done.returncode:
            self._know(name, granted[1])
        else:
            # It may have the GPUs nevertheless: what salloc printed cannot be read, or a call that a kill cut
            # off was granted since.
            self._take_up()
        self._asked[name] = part
        self._open.discard(name)
        if name in self._numbers:
            return ""
        return last_line(done.stderr) or f"salloc: exit status {done.returncode}"

    def cancel(self, names: Collection[str]) -> None:
        """End allocations, given their names."""
        known = [name for name in names if name in self._numbers]
        if known:
            self._ending.update(known)
            self._scancel(*(self._numbers[name] for name in known))

    def poll(self) -> BackendStatus:
        """Return this run's allocations, and the nodes that are out of use."""
        parts = {}
        names = {number: name for name, number in self._numbers.items()}
        words = ("squeue", "-h", "-a", "-u", self.user, "-o", "%A|%U|%T|%C|%b|%N")
        for line in self.slurm.read(*words):
            name = names.get(line.partition("|")[0])
            if name is None:
                continue
            row = HELD.fullmatch(line)
            if row is None:
                message = f"squeue shows job {self._numbers[name]} as {line!r}"
                raise NoAnswerError(message, field="live.engine", remedy="look at slurmctld's log")
            if row[2] == self.user and (nodes := self._nodes(row[6])):
                each = _gpus_each(row[5]) if self.words.gres else int(row[4]) // len(nodes)
                # One that ends gives up its nodes one by one.
                ends = row[3] == "COMPLETING" and name in self._asked
                parts[name] = self._asked[name] if ends else Part(nodes, each)
        for name in self._ending - parts.keys():
            del self._numbers[name]
        self._ending &= parts.keys()
        return BackendStatus(parts, *self._states())

    def _take_up(self) -> None:
        """Learn the numbers of the run's allocations by its user and their names.

        Of the same user nobody else has the name of the run.
        """
        for row in self._rows(self._name, "-u", self.user, "-o", "%A|%U|%j"):
            if row[2] not in self._numbers:
                self._know(row[2], row[1])

    def _know(self, name: str, number: str) -> None:
        self._numbers[name] = self._granted[name] = number

    def _rows(self, pattern: str | re.Pattern[str], *words: str) -> Iterator[re.Match[str]]:
        """Yield the lines of squeue that have a pattern as a whole."""
        for line in self.slurm.read("squeue", "-h", "-a", *words):
            row = re.fullmatch(pattern, line)
            if row:
                yield row

    def _scancel(self, *words: str) -> CompletedProcess[str]:
        """Cancel jobs, of the run's user only: a number may have been given to another job since."""
        return self.slurm.run("scancel", "-u", self.user, *words)

    # Nodes

    def _nodes(self, listed: str) -> tuple[int, ...]:
        try:
            hosts = host_names(listed)
        except ValueError as problem:
            raise NoAnswerError(str(problem), field="live.engine", remedy="look at slurmctld's log") from None
        return tuple(sorted(self._index[host] for host in hosts if host in self._index))

    def _states(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the nodes that are out of use, and those whose state Slurm does not know."""
        down, unsure = set(), set()
        for line in self.slurm.read("sinfo", "-h", "-N", "-o", "%N|%T"):
            row = STATE.fullmatch(line)
            if row is None or row[1] not in self._index:
                continue
            if row[2] == "unknown" or (row[2].startswith(IN_USE) and "*" in row[3]):
                unsure.add(self._index[row[1]])
            elif not row[2].startswith(IN_USE):
                down.add(self._index[row[1]])
        return frozenset(down), frozenset(unsure)

    def node_down(self, node: int) -> None:
        """Take a node out of use, which ends its jobs."""
        self.slurm.read(*self.words.down(node))

    def node_up(self, node: int) -> None:
        """Put a node back into use, if Slurm has it out of use."""
        if node in self._states()[0]:
            self.slurm.read(*self.words.up(node))

    # The end

    def log(self) -> Sequence[FinishedAllocation] | None:
        """Return this run's ended allocations from Slurm's completion log or accounting, or None."""
        pairs = (line.partition("=") for line in self.slurm.read("scontrol", "show", "config"))
        settings = {key.strip(): value.strip() for key, _, value in pairs}
        path = Path(settings.get("JobCompLoc", ""))
        in_file = settings.get("JobCompType") == "jobcomp/filetxt" and path.is_file()
        if not in_file or not os.access(path, os.R_OK):
            return self._read_accounting()
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            return self._list_ended(ENDED.match(line.rstrip("\n")) for line in file)

    def _read_accounting(self) -> Sequence[FinishedAllocation] | None:
        """Return this run's records of the last days in Slurm's accounting; None if it keeps none."""
        words = ("sacct", "-n", "-X", "-P", "-u", self.user, "-S", f"now-{ACCOUNTED_DAYS}days")
        try:
            done = self.slurm.run(*words, "-o", "JobIDRaw,State,Start,End,NodeList,JobName")
        except InputError:
            return None
        rows = map(ACCOUNTED.fullmatch, done.stdout.split("\n"))
        return None if done.returncode else self._list_ended(rows)

    def _list_ended(self, rows: Iterable[re.Match[str] | None]) -> list[FinishedAllocation]:
        """Return those ended allocations of this run that lines of a log name."""
        found = []
        for row in filter(None, rows):
            given = row.groupdict()
            number, name = given["job"], given["name"]
            times = (parse_time(given["start"]), parse_time(given["end"]))
            own = self._name.fullmatch(f"{number}|{given.get('user', self.user)}|{name}")
            if own and self._granted.get(name, number) == number and all(map(math.isfinite, times)):
                with contextlib.suppress(NoAnswerError):
                    found.append(
                        FinishedAllocation(name, given["state"], self._nodes(given["nodes"]), *times)
                    )
        return found

    def close(self) -> str:
        """End this run's allocations and its claim; return a description of what may be left."""
        numbers = [number for number in (*self._numbers.values(), self._claim) if number]
        words = [numbers] if numbers else []
        if self._open:
            # Asked for, and the answer was not read.
            words.append([f"--name={','.join(sorted(self._open))}"])
        left = []
        for ended in words:
            try:
                done = self._scancel(*ended)
            except InputError as error:
                left.append(f"{error.message}: scancel {' '.join(ended)}")
                continue
            told = [line for line in done.stderr.split("\n") if line and not any(end in line for end in GONE)]
            if done.returncode and told:
                left.append(f"{told[-1]}: scancel {' '.join(ended)}")
        self._claim = ""
        return "; ".join(left)


def _gpus_each(gres: str) -> int:
    """Return the GPUs a node of squeue's `%b`, such as `gres:gpu:2` or `gres/gpu:a40:2`."""
    try:
        return parse_gres(gres).gpus
    except ValueError as problem:
        raise NoAnswerError(str(problem), field="live.engine", remedy="look at slurmctld's log") from None
