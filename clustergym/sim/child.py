"""Run policies and placers from outside the project in processes of their own."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar

from clustergym.scenario.policy import Placer, Policy
from clustergym.sim.guard import (
    NO_ROLE,
    PLACE,
    PLACER,
    POLICY,
    OvertimeError,
    StepWatchdog,
    check_limit,
    describe_stop,
)

R = TypeVar("R")

GRACE_S = 5.0
"""Wall seconds beyond the limit after which a process that cannot be interrupted is killed."""
POLL_S = 0.1
PR_SET_PDEATHSIG = 1


def run_supervised(
    task: Callable[[StepWatchdog], R], policy: Policy, placer: Placer, limit_s: float | None = None
) -> R:
    """Run a task that uses a policy: in a separate process if policy or placer are third-party code.

    Parameters
    ----------
    task : callable
        Called with the watch to pass to `drive`; its result or error is pickled.
    policy, placer
        The policy and placer that the task runs.
    limit_s : float, optional
        As in `StepWatchdog`. A process that cannot be interrupted is killed.

    Raises
    ------
    StoppedError
        If the policy or placer exits, crashes its process, or takes longer than the limit.
    """
    names = {POLICY: f"policy {policy.name}", PLACER: f"placer {placer.name}"}
    foreign = [names[role] for role, part in ((POLICY, policy), (PLACER, placer)) if not _ours(part)]
    if not foreign or not hasattr(os, "fork"):
        return task(StepWatchdog(limit_s))
    names[NO_ROLE] = " or ".join(foreign)
    check_limit(limit_s)
    # Shared memory says where the run is even after a crash; a pipe would lose what was not flushed.
    place, (reader, writer) = mmap.mmap(-1, PLACE.size), Pipe(duplex=False)
    child = _fork_work(lambda: _send(task, limit_s, place, writer))
    writer.close()
    answer, what = None, ""
    try:
        answer = _receive_answer(reader, child, place, limit_s)
    except OvertimeError as error:
        what = str(error)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        reader.close()
    role, *at, _ = PLACE.unpack_from(place)
    if answer is None:
        raise describe_stop(names[role], what or _ending(status), role, *at)
    done, value = pickle.loads(answer)
    if done:
        return value  # type: ignore[no-any-return]
    if isinstance(value, Exception):
        raise value
    raise describe_stop(names[role], f"raised {type(value).__name__}", role, *at)


def _ours(part: Policy | Placer) -> bool:
    return type(part).__module__.partition(".")[0] == "clustergym"


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended its process with exit status {status}"
    return f"had its process ended by {signal.Signals(-status).name}" + " (out of memory?)" * (status == -9)


def _fork_work(work: Callable[[], None]) -> int:
    """Fork this process to do some work; return the child's id. The child ends with its parent."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    parent = os.getpid()
    with warnings.catch_warnings():
        # It warns of threads, which the copy does not have and the work does not need.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            work()
    finally:
        # No cleanup of the parent's handlers or buffers in the child, whatever happened.
        os._exit(1)


def _send(
    task: Callable[[StepWatchdog], R], limit_s: float | None, place: mmap.mmap, writer: Connection
) -> None:
    """Run the task and send its result, or the exception it raises."""
    try:
        answer = pickle.dumps((True, task(StepWatchdog(limit_s, place))))
    except BaseException as error:
        answer = _pack_error(error)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    writer.send_bytes(answer)


def _pack_error(error: BaseException) -> bytes:
    """Pickle an exception with its traceback; one that cannot be unpickled is sent as its text."""
    told = "".join(traceback.format_exception(error))
    error.add_note(told)
    try:
        packed = pickle.dumps((False, error))
        pickle.loads(packed)
    except Exception:
        return pickle.dumps((False, RuntimeError(told)))
    return packed


def _receive_answer(reader: Connection, child: int, place: mmap.mmap, limit_s: float | None) -> bytes | None:
    """Return the bytes a process sends, or None if it ends first; raises `OvertimeError`."""
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while True:
        try:
            if reader.poll(POLL_S):
                return reader.recv_bytes()
        except (EOFError, OSError):
            return None
        # Processes that the policy started may hold the pipe open.
        if os.waitid(os.P_PID, child, ended) is not None and not reader.poll(0):
            return None
        # Packing clears all numbers, then writes one after the other: a time of 0 is being written now.
        role, *_, since = PLACE.unpack_from(place)
        working = role != NO_ROLE and since > 0.0
        if limit_s is not None and working and time.monotonic() - since > limit_s + GRACE_S:
            raise OvertimeError(f"took longer than {limit_s:g} s, could not be interrupted and was killed")
