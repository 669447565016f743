"""Parse Slurm's texts: GRES and TRES, names of GPU types, lists of hosts and of array tasks, time spans.

Each function takes time in proportion to its text, and raises a `ValueError` that says what is wrong with it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.common.columns import quote_cell

UNKNOWN_TEXTS = frozenset({"", "n/a", "none", "unknown", "(null)", "none assigned", "null"})
"""What Slurm prints, in lower case, where it has nothing to say."""
MOST_HOSTS = 200_000
"""Most hosts of a list."""
_REMARK = re.compile(r"\([^()]*\)")
_COUNT, _TYPE = re.compile(r"\d{1,9}", re.ASCII), re.compile(r"[\w.+-]*", re.ASCII)
_DEVICE = re.compile(r"(?:^|[^0-9a-z])(?:\d+c\.)?\d+g\.\d+gb|(?:^|[^0-9a-z])mig(?:$|[^a-z])", re.IGNORECASE)
"""Names of MIG devices, such as `a100_1g.5gb`, `1c.3g.20gb` or `mig-1g.10gb`."""
_SOCKET = re.compile(r"(sxm\d?|pcie)?", re.ASCII)
_NO_GPUS = re.compile(
    r"cpu|mem|node|billing|energy|pages|vmem|(fs|bb|ic|license)/.*|gpumem|gpuutil|craynetwork"
)
"""Trackable resources of Slurm that have nothing to do with numbers of GPUs."""


@dataclass(frozen=True)
class Gres:
    """What one of Slurm's lists of resources says of GPUs.

    Attributes
    ----------
    by_type : mapping of str to int
        Whole GPUs by type, as `known_type` names it; empty: the list names none.
    parts : mapping of str to int
        What is no whole GPU, by name: MIG devices, shards and shares (MPS).
    others : tuple of str
        Resources that Slurm itself does not have.
    """

    by_type: Mapping[str, int]
    parts: Mapping[str, int]
    others: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """Whole GPUs."""
        return sum(self.by_type.values())

    @property
    def gpu_type(self) -> str:
        """The most frequent type; empty where none is named."""
        return max((name for name in self.by_type if name), key=self.by_type.__getitem__, default="")


@lru_cache(maxsize=1024)
def parse_gres(text: str) -> Gres:
    """Parse a GRES list such as `gpu:a100:4(S:0-1)`, or a TRES list such as `cpu=8,gres/gpu:a100=4`.

    A count of TRES without a type is the sum of those with one. A GRES entry without a count is one GPU; one
    with digits alone behind its name is a count, and with digits and a count a type.
    """
    by_type, parts, others, total = Counter[str](), Counter[str](), [], 0
    typed = 0
    for entry in _REMARK.sub("", text).split(","):
        what, equals, amount = entry.strip().partition("=")
        if what.lower() in UNKNOWN_TEXTS:
            continue
        name, *words = re.sub(r"^gres[:/]", "", what).split(":")
        if name not in ("gpu", "shard", "mps"):
            others += [] if _NO_GPUS.fullmatch(name) else [name]
            continue
        words = [word for word in words if word and word != "no_consume"]
        if not equals:
            amount = words.pop() if words and words[-1].isascii() and words[-1].isdigit() else "1"
        if not _COUNT.fullmatch(amount) or len(words) > 1 or not _TYPE.fullmatch("".join(words)):
            raise ValueError(f"{quote_cell(entry.strip())} is no number of GPUs as Slurm prints it")
        count, device = int(amount), "".join(words)
        if name != "gpu" or _DEVICE.search(device):
            parts[device or name] += count
        elif equals and not device:
            total += count
            continue
        else:
            by_type[known_type(device)] += count
        typed += count if equals and name == "gpu" else 0
    by_type[""] += max(total - typed, 0)
    return Gres(+by_type, +parts, tuple(others))


@lru_cache(maxsize=4096)
def known_type(name: str) -> str:
    """Return the catalogue's GPU type that a name contains, or the name itself if it contains none.

    So `NVIDIA-A100-PCIE-40GB` is A100, and `nvidia_a100-sxm4-80gb` is A100-80, as the catalogue has both.
    """
    known = {re.sub(r"\W", "", gpu_type).lower(): gpu_type for gpu_type in load_gpu_types()}
    given = (word for word in re.split(r"[^a-z0-9]+", name[:200].lower()) if not _SOCKET.fullmatch(word))
    words = [re.sub(r"^(\d+)gb?$", r"\1", word) for word in given]
    joined = ("".join(words[at : at + many]) for many in (3, 2, 1) for at in range(len(words) - many + 1))
    return next((known[word] for word in joined if word in known), name)


def host_names(text: str) -> list[str]:
    """Return the names in a Slurm host list such as `gpu[01-03,07],r[1-2]n[1-4]`; `(null)` has none."""
    found: list[str] = []
    if text.strip().lower() in UNKNOWN_TEXTS:
        return found
    for name in re.findall(r"(?:[^\[\],]|\[[^\[\]]*\])+|[\[\]]", text):
        pieces = [_numbers(piece, text) for piece in re.findall(r"\[[^\[\]]*\]|[^\[\]]+|[\[\]]", name)]
        if len(found) + math.prod(map(len, pieces)) > MOST_HOSTS:
            raise ValueError(f"{quote_cell(text)} has more than {MOST_HOSTS:,} hosts")
        found += map("".join, product(*pieces))
    return found


def _numbers(piece: str, text: str) -> list[str]:
    """Return the texts that a piece of a host's name stands for: its numbers, if it is in brackets."""
    if piece[0] not in "[]":
        return [piece]
    found: list[str] = []
    for part in piece[1:-1].split(","):
        first, dash, last = part.partition("-")
        if not (re.fullmatch(r"\d{1,9}", first, re.ASCII) and (not dash or _COUNT.fullmatch(last))):
            raise ValueError(f"{quote_cell(text)} is no list of hosts")
        span = range(int(first), int(last or first) + 1)
        if len(found) + len(span) > MOST_HOSTS:
            raise ValueError(f"{quote_cell(text)} has more than {MOST_HOSTS:,} hosts")
        found += [f"{number:0{len(first)}}" for number in span]
    return found


_SPAN = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,6}):)?(\d{1,6})(?::(\d\d))?(?:\.\d+)?", re.ASCII)
_ARRAY = re.compile(r"(\d{1,18})_\[([^\]]*)\]", re.ASCII)
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)


def span_s(cell: str) -> float:
    """Parse a time span `[days-]hours:minutes:seconds` to seconds; NaN if the cell has none.

    `UNLIMITED` and `Partition_Limit` are none. With days, hours come first, as in `1-12`; without, two
    numbers are minutes and seconds.
    """
    if cell.lower() in UNKNOWN_TEXTS | {"unlimited", "partition_limit", "not_set", "invalid"}:
        return float("nan")
    if not _SPAN.fullmatch(cell):
        raise ValueError(f"{quote_cell(cell)} is not a time span like 1-12:00:00")
    days, _, rest = cell.rpartition("-")
    parts = [float(part) for part in rest.split(".")[0].split(":")]
    if days:
        parts = [*parts, 0.0, 0.0][:3]
    else:
        parts = [0.0] * (3 - len(parts)) + parts if len(parts) > 1 else [0.0, parts[0], 0.0]
    hours, minutes, seconds = parts
    return float(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds


@dataclass(frozen=True)
class Tasks:
    """The tasks of a job array that wait: of which array, their numbers, and how many may run at once.

    Attributes
    ----------
    array : str
    spans : tuple of range
    at_once : int
        0: all.
    """

    array: str
    spans: tuple[range, ...]
    at_once: int

    def __len__(self) -> int:
        return sum(map(len, self.spans))

    def job_ids(self, most: int) -> list[str]:
        """Return the ids of the first tasks, at most so many."""
        found: list[str] = []
        for span in self.spans:
            found += [f"{self.array}_{number}" for number in span[: most - len(found)]]
        return found


def is_array(job_id: str) -> bool:
    """Return whether a job id is that of the waiting tasks of an array, such as `123_[5-9,12%4]`."""
    return "_[" in job_id


def waiting_tasks(job_id: str) -> Tasks:
    """Return the tasks that a job id such as `123_[5-9,12%4]` stands for."""
    found = _ARRAY.fullmatch(job_id)
    listed, percent, most = found[2].partition("%") if found else ("", "", "")
    if "..." in job_id or "]" not in job_id:
        raise ValueError(f"{quote_cell(job_id)} is cut short: print each task (squeue -r)")
    spans = []
    for part in listed.split(","):
        task = _TASKS.fullmatch(part)
        if found is None or task is None or (percent and not _COUNT.fullmatch(most)):
            raise ValueError(f"{quote_cell(job_id)} is no list of an array's tasks")
        first, last, step = task.groups()
        spans.append(range(int(first), int(last or first) + 1, max(int(step or 1), 1)))
    assert found is not None
    return Tasks(found[1], tuple(spans), int(most or 0))


def key_values(text: str) -> dict[str, str]:
    """Return the `Key=value` words of scontrol's output; the first of a key, as a comment may have one."""
    found: dict[str, str] = {}
    for key, value in re.findall(r"(?:^|(?<=\s))([A-Za-z][\w:]*)=(\S*)", text):
        found.setdefault(key, value)
    return found
