"""Sbatch scripts: what each asks for, by its `#SBATCH` lines."""

import hashlib
import math
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustergym.cluster.slurm_text import known_type, parse_gres, span_s
from clustergym.common.columns import quote_cell
from clustergym.common.errors import InputError, Parser
from clustergym.common.text_files import read_text

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
SIGNAL = re.compile(r"(?P<batch>[RB]*:)?(?P<name>[A-Z0-9]{1,12})(?:@(?P<grace>\d{1,6}))?", re.ASCII)
GRACE_S = 60.0
"""Seconds that Slurm gives after a signal where a script names none (sbatch's --signal)."""
SIZES = "#CLUSTERGYM sizes="
OPTIONS = (
    *(("-N", "--nodes"), ("--gres",), ("--gpus-per-node",), ("-G", "--gpus"), ("-t", "--time")),
    *(("-A", "--account"), ("-p", "--partition"), ("--signal",), ("-a", "--array"), ("-D", "--chdir")),
    *(("--reservation",), ("--segment",)),
)


@dataclass(frozen=True)
class Script:
    """A user's batch script, with the GPUs, time, account and signal that it asks for.

    Attributes
    ----------
    path : Path
    sha256 : str
    nodes, gpus : int
        Nodes, and GPUs in all.
    gpu_type : str
        As Slurm calls it; empty: any.
    limit_s : float
        NaN: none.
    account, partition, reservation, folder : str
        Empty: Slurm's default.
    signal : str
        Signal with which it saves its state and ends; empty: it cannot be stopped.
    batch : bool
        Whether the signal is for the script alone, not for its steps.
    grace_s : float
        What it needs from the signal to its end.
    sizes : tuple of int
        Numbers of GPUs at which it can run.
    any_nodes : bool
        Whether it names GPUs in all and no nodes.
    segment : int
        Nodes of each block that must lie in one NVLink domain; 0: they lie anywhere.
    """

    path: Path
    sha256: str
    nodes: int
    gpus: int
    gpu_type: str = ""
    limit_s: float = float("nan")
    account: str = ""
    partition: str = ""
    reservation: str = ""
    folder: str = ""
    signal: str = ""
    batch: bool = False
    grace_s: float = GRACE_S
    sizes: tuple[int, ...] = ()
    any_nodes: bool = False
    segment: int = 0

    @property
    def name(self) -> str:
        """The name of the script's file."""
        return self.path.name

    @property
    def known_type(self) -> str:
        """The project's name of the GPU type that it requests; empty if any is accepted."""
        return known_type(self.gpu_type) if self.gpu_type else ""

    def shape(self, gpus: int) -> tuple[int, int]:
        """Return (nodes, GPUs on each) for a number of GPUs up to the script's request."""
        each = self.gpus // self.nodes
        return (1, gpus) if gpus <= each else (gpus // each, each)


def read_scripts(folder: Path) -> list[Script]:
    """Read the scripts of a folder, which are its files that begin with `#!`, in order of name."""
    if not folder.is_dir():
        raise InputError("is no folder", file=folder, field="live.jobs", remedy="name a folder of scripts")
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_file():
            with path.open("rb") as file:
                is_script = file.read(2) == b"#!"
            if is_script:
                found.append(read_script(path))
    if not found:
        raise InputError("has no script", file=folder, field="live.jobs", remedy="begin each with #!")
    return found


def read_script(path: Path) -> Script:
    """Read a batch script, and parse its `#SBATCH` lines."""
    if NAME.fullmatch(path.name) is None:
        remedy = "use letters, digits, dots, hyphens and underscores"
        raise InputError("is no name of a script", file=path, field="live.jobs", remedy=remedy)
    text, _ = read_text(path)
    words, sizes = list[str](), ""
    try:
        for row in text.splitlines():
            if row.startswith("#SBATCH"):
                words += shlex.split(row.removeprefix("#SBATCH"), comments=True)
            elif row.startswith(SIZES):
                sizes = row.removeprefix(SIZES)
            elif row.strip() and not row.startswith("#"):
                break
        parser = Parser(prog="sbatch", add_help=False, allow_abbrev=False)
        for names in OPTIONS:
            parser.add_argument(*names, default="")
        given, _ = parser.parse_known_args(words)
        return _make(path, hashlib.sha256(text.encode()).hexdigest(), given, sizes)
    except InputError as problem:
        raise InputError(problem.message, file=path, remedy="see docs/live.md") from problem
    except ValueError as problem:
        raise InputError(str(problem), file=path, remedy="see docs/live.md") from problem


def _make(path: Path, sha256: str, given: Any, sizes: str) -> Script:
    if given.array:
        raise ValueError("is an array: give a script for each task")
    nodes = _count(given.nodes or "1", "--nodes")
    each = f"gpu:{given.gpus_per_node}" if given.gpus_per_node else given.gres
    gpus, gpu_type = _gpus(f"gpu:{given.gpus}" if given.gpus else each)
    gpus *= 1 if given.gpus else nodes
    if not gpus or gpus % nodes:
        raise ValueError(f"asks for {gpus} GPUs on {nodes} nodes")
    signal = SIGNAL.fullmatch(given.signal) if given.signal else None
    if given.signal and signal is None:
        raise ValueError(f"--signal={quote_cell(given.signal)} is not [B:]SIGNAL[@SECONDS]")
    script = Script(
        path=path,
        sha256=sha256,
        nodes=nodes,
        gpus=gpus,
        gpu_type=gpu_type,
        limit_s=span_s(given.time),
        account=given.account,
        partition=given.partition,
        reservation=given.reservation,
        folder=given.chdir,
        signal=signal["name"] if signal else "",
        batch=bool(signal and "B" in (signal["batch"] or "")),
        grace_s=float(signal["grace"]) if signal and signal["grace"] else GRACE_S,
        sizes=tuple(sorted({gpus, *(_count(size, SIZES) for size in sizes.split(",") if size.strip())})),
        any_nodes=bool(given.gpus and not given.nodes),
        segment=_count(given.segment, "--segment") if given.segment else 0,
    )
    for size in script.sizes:
        if math.prod(script.shape(size)) != size:
            raise ValueError(f"{size} GPUs are no whole number of nodes with {gpus // nodes} GPUs each")
    if len(script.sizes) > 1 and not script.signal:
        raise ValueError("has several sizes, and no --signal that asks it to save its state")
    return script


def _count(text: str, name: str) -> int:
    found = re.fullmatch(r"\s*([1-9]\d{0,4})\s*", text, re.ASCII)
    if found is None:
        raise ValueError(f"{name} {quote_cell(text)} is no count from 1")
    return int(found[1])


def _gpus(text: str) -> tuple[int, str]:
    """Return the GPUs in a GRES list, and their type as Slurm calls it."""
    found = parse_gres(text)
    if found.parts or len(found.by_type) > 1:
        raise ValueError(f"{quote_cell(text)} asks for several types, or for parts of GPUs")
    named = re.search(r"gpu:([^:,()=]*[^:,()=\d][^:,()=]*|[^:,()=]+(?=:\d))", text)
    return found.gpus, named[1] if named else ""
