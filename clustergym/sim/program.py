"""Run a policy or agent from a file in a process of its own, which is sent nothing but what it may see."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clustergym.common.errors import InputError, require
from clustergym.common.parameter_types import Period, PositiveInt
from clustergym.common.parameters import Parameters
from clustergym.common.reading import read_regular
from clustergym.scenario.policy import Decision, InformationClass, Policy, Setting, View
from clustergym.sim.program_wire import encode_message, packed_setting, packed_view

LARGEST_BYTES = 1_000_000
LONGEST_ANSWER_BYTES = 1_000_000
MIB = 2**20
WALL_FACTOR = 10
"""Wall seconds that a program has, over the CPU seconds."""
POLL_S = 0.05


@dataclass(frozen=True)
class Limits(Parameters):
    """Limits on the CPU time and memory of a policy program, over all its runs together.

    Attributes
    ----------
    cpu_s : int
        Seconds of CPU time.
    memory_mb : int
        MiB of address space; Python and NumPy take 300 of them.
    decision_cpu_s : float, optional
        CPU seconds from one answer to the next; this needs Linux. The first decision's have those of `reset`.
    """

    config_key = "limits"
    cpu_s: PositiveInt = 30
    memory_mb: PositiveInt = 2048
    decision_cpu_s: Period | None = None


class ProgramError(InputError):
    """Raised if a policy program does not load, exceeds its limits or returns no valid decision."""


def read_program(path: Path) -> str:
    """Read the text of a policy program from a file."""
    content = read_regular(path, LARGEST_BYTES, "give a file with one policy")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=path, remedy="save it as UTF-8") from None


class ProgramProcess:
    """A program from outside, in a process with resource limits that ends with this context manager.

    Parameters
    ----------
    text : str
        The program.
    limits : Limits
    rights : mapping, optional
        Those of a system user, of `find_rights`: the program can then do what that user may do, no more.
    weights : Path, optional
        A checkpoint: the policy `learned` of this package decides by it, in place of a program.

    Raises
    ------
    ProgramError
        If the program does not load.
    """

    form, remedy = "policy", "return Decision.of(...)"
    information_class: InformationClass

    def __init__(
        self, text: str, limits: Limits, rights: Mapping[str, Any] | None = None, weights: Path | None = None
    ) -> None:
        self.limits, self._spent_s = limits, 0.0
        self._channel, other = Pipe()
        # The process removes its folder as it starts: nothing is left if this one is killed.
        self._folder = Path(tempfile.mkdtemp(prefix="clustergym-program-"))
        if rights:
            os.chown(self._folder, rights["user"], rights["group"])
        self._process = _start(other.fileno(), self._folder, rights or {})
        other.close()
        self._late = threading.Timer(WALL_FACTOR * limits.cpu_s, self._process.kill)
        self._late.daemon = True
        self._late.start()
        try:
            use = {"cpu_s": limits.cpu_s, "memory_bytes": limits.memory_mb * MIB}
            given = {"form": self.form, "text": text, "weights": weights and str(weights.resolve())}
            self.send(encode_message(given | use))
            self.information_class, self.round_s = _declared(self.receive())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return this program."""
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self.close()

    def close(self) -> None:
        """End the program's process."""
        self._late.cancel()
        self._process.kill()
        self._process.wait()
        self._channel.close()
        with contextlib.suppress(FileNotFoundError):
            self._folder.rmdir()

    def send(self, message: bytes) -> None:
        """Send the program a message."""
        try:
            self._channel.send_bytes(message)
        except OSError:
            raise self._ended() from None

    def _cpu_s(self) -> float:
        """Return the CPU seconds of the process with its threads; 0 without a limit for decisions."""
        if self.limits.decision_cpu_s is None or self._process.poll() is not None:
            return 0.0
        # The clock of another process, as clock_getcpuclockid(3) of the C library makes it.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def receive(self, most_s: float | None = None) -> dict[str, Any]:
        """Return the next answer as a mapping; it may take `most_s` of CPU time, as seen from outside."""
        while most_s is not None:
            arrived = self._channel.poll(POLL_S)
            if self._cpu_s() - self._spent_s > most_s:
                raise _error(f"used more than {most_s:g} s of CPU time for a decision", "decide in less")
            if arrived:
                break
        try:
            content = self._channel.recv_bytes(LONGEST_ANSWER_BYTES)
            self._spent_s = self._cpu_s()
        except (EOFError, OSError):
            raise self._ended() from None
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise _error("answers with what is no decision", self.remedy)
        if "error" in answer:
            raise ProgramError(str(answer["error"])[:1000], remedy="correct the program")
        return answer

    def _ended(self) -> ProgramError:
        """Return the error for a process that has ended or sends too much."""
        if not self._late.is_alive():
            what = f"took longer than {WALL_FACTOR * self.limits.cpu_s} s"
            return _error(what, "decide in less time")
        try:
            status = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return _error(f"answers with more than {LONGEST_ANSWER_BYTES:,} bytes", self.remedy)
        return _error(
            f"ended its process with status {status}",
            f"stay below {self.limits.cpu_s} s of CPU time and {self.limits.memory_mb} MiB",
        )


class Program(ProgramProcess, Policy):
    """A policy whose decisions a program makes."""

    name = "program"
    information_class = InformationClass.CLAIRVOYANT

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Begin a run, and send the program the run's constants."""
        if setting.batch_models:
            message, remedy = "is sent no choices of batch", "choose a scenario without"
            raise InputError(message, field="policy program", remedy=remedy)
        self.send(packed_setting(setting, 0))

    def schedule(self, view: View) -> Decision:
        """Send the program what the policy sees, and return its decision.

        Raises
        ------
        ProgramError
            If the process ends, or answers with what is no decision or drops jobs.
        """
        self.send(packed_view(view, self.information_class))
        answer = self.receive(self.limits.decision_cpu_s)
        # A mean over the jobs that complete would be the better for it.
        if answer.get("drop"):
            raise _error("drops jobs", "let every job complete")
        try:
            columns: dict[str, Any] = {name: np.array(answer[name]) for name in ("job", "gpu_type", "gpus")}
        except (KeyError, ValueError) as error:
            raise _error(f"answers with what is no decision: {error}", self.remedy) from None
        return Decision(**columns, batch=None, partner=None)


class AgentProgram(ProgramProcess):
    """An agent of an environment whose actions a program chooses: the class `Agent` of its file."""

    form, remedy = "agent", "return a whole number"

    def act(self, observation: Mapping[str, NDArray[Any]], mask: NDArray[Any], begins: bool) -> int:
        """Send the program an observation, the first of an episode or not, and return its action.

        Raises
        ------
        ProgramError
            If the process ends, exceeds a limit or answers with what is no action.
        """
        self.send(encode_message({"begins": begins}, {**observation, "mask": mask}))
        action = self.receive(self.limits.decision_cpu_s).get("action")
        if not isinstance(action, int):
            raise _error("answers with what is no action", self.remedy)
        return action


def find_rights(user: str) -> dict[str, Any]:
    """Return the rights of a system user, as `Popen` takes them; only root may give them to a process."""
    require(os.geteuid() == 0, "--user", user, "leave it out, or be root")
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise InputError(f"no user {user!r} on this system", field="--user", remedy="give another") from None
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _start(channel: int, folder: Path, rights: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """Start the process of a program, which is sent all that it may know through an open connection."""
    paths = os.pathsep.join(os.path.abspath(one) for one in sys.path if one)
    # Machine code would be compiled within the first decision, and written to a file.
    only = {name: "1" for name in ("NUMBA_DISABLE_JIT", "OPENBLAS_NUM_THREADS", "PYTHONSAFEPATH")}
    return subprocess.Popen(
        [sys.executable, "-m", "clustergym.sim.program_child", str(channel), str(os.getpid())],
        cwd=folder,
        env={"PYTHONPATH": paths, "PYTHONHASHSEED": "0", **only},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[channel],
        start_new_session=True,
        **rights,
    )


def _error(message: str, remedy: str) -> ProgramError:
    return ProgramError(message, field="program", remedy=remedy)


def _declared(made: Mapping[str, Any]) -> tuple[InformationClass, float | None]:
    """Return the information class and the seconds between decisions that a program declares."""
    try:
        period = None if made["round_s"] is None else float(made["round_s"])
        if period is not None and not 1.0 <= period < 1e9:
            raise ValueError(f"round_s is {period}")
        return InformationClass(made["information_class"]), period
    except (KeyError, TypeError, ValueError) as error:
        raise _error(f"declares what there is not: {error}", "see docs/programs-as-policies.md") from None
