"""The process of a program from outside: it loads the program under limits and answers for it.

`python -m clustergym.sim.program_child FD PARENT` is started by `clustergym.sim.program` alone. What this
process cannot prevent stands in SECURITY.md.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import inspect
import json
import operator
import os
import re
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from clustergym.common import random_streams
from clustergym.scenario import view_text  # noqa: F401  (the program may not open its file any more)
from clustergym.scenario.policy import Decision, InformationClass, Policy, View
from clustergym.sim.program_wire import decode_message, decode_setting, decode_view, encode_answer

PACKAGE = Path(__file__).resolve().parent.parent
MODULE = "program"
CODE = (".py", ".pyc", ".so")
CLOSED = ("trace", "training", "envs", "results", "benchmark", "sim", "commands")
CLIENTS = ("papers", "operators", "benchmarks", "bench")
"""Rooms of this package, and of its clients, that a program may not import: they make traces, or simulate."""
REFUSED = ("ctypes.", "fcntl.", "mmap.", "pty.", "resource.", "shutil.", "signal.", "socket.", "subprocess.")
LISTING = ("os.listdir", "os.scandir")
FOREIGN = frozenset({"cffi", "_cffi_backend"})
"""Modules that call C libraries, and of whose calls Python tells no audit hook."""
WATCH_S = 0.5


class Limit(BaseException):
    """Raised when a program reaches a limit; programs that catch exceptions do not catch it."""


class Source(importlib.abc.InspectLoader):
    """A loader that makes a Python module from a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_source(self, fullname: str) -> str:
        """Return the module's text."""
        return self.text


def _load_module(text: str) -> ModuleType:
    spec = importlib.util.spec_from_loader(MODULE, Source(text))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look up the annotations of their fields.
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def load(text: str) -> Callable[[], Policy]:
    """Return what makes the policy of a program's text: its one subclass of Policy, or function `schedule`.

    Raises
    ------
    TypeError
        If it has neither, or several.
    """
    module = _load_module(text)
    own = [one for one in vars(module).values() if _is_policy(one, module)]
    function = getattr(module, "schedule", None)
    if len(own) == 1:
        made: Callable[[], Policy] = own[0]
        return made
    if not own and callable(function):
        return partial(_FunctionPolicy, function)
    found = f"has {len(own)} subclasses of Policy"
    raise TypeError(f"the file {found}; write exactly one, or a function schedule(view)")


def _is_policy(one: Any, module: ModuleType) -> bool:
    return inspect.isclass(one) and issubclass(one, Policy) and one.__module__ == module.__name__


class _FunctionPolicy(Policy):
    name = "program"
    information_class = InformationClass.CLAIRVOYANT

    def __init__(self, function: Any) -> None:
        self.function, self.round_s = function, 300.0

    def schedule(self, view: View) -> Decision:
        decision: Decision = self.function(view)
        return decision


def limit(cpu_s: int, memory_bytes: int) -> None:
    """Limit this process's resources."""

    def spent(number: int, frame: FrameType | None) -> None:
        raise Limit(f"used more than {cpu_s} s of CPU time")

    signal.signal(signal.SIGXCPU, spent)
    # The hard limit ends what catches the first signal, or is in a call into C.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))


def refuse_calls() -> None:
    """Block system calls that a policy does not need.

    The refusals reach what Python code asks of the interpreter; code that goes around it can go around them.
    """
    code = tuple(str(Path(one).resolve()) + os.sep for one in sys.path if one)
    closed = tuple(f"{PACKAGE / room}{os.sep}" for room in CLOSED + CLIENTS)
    # In a checkout the clients lie beside the package.
    closed += tuple(f"{PACKAGE.parent / room}{os.sep}" for room in CLIENTS)

    def refuse(event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            path = os.fsdecode(given[0]) if not isinstance(given[0], int) else ""
            # The folder is gone: what is relative to it cannot be resolved.
            path = os.path.realpath(path) if os.path.isabs(path) else ""
            writes = given[1] not in (None, "r", "rb") or given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes or not path.endswith(CODE) or not path.startswith(code) or path.startswith(closed):
                raise PermissionError(f"a program may not open {given[0]!r}")
        elif event == "import":
            # The name, and the file of an extension, which may be loaded by another name.
            parts = {part for one in given[:2] if one for part in re.split(r"[./]", str(one))}
            if parts & FOREIGN:
                raise PermissionError(f"a program may not import {given[0]}")
        elif event.startswith(REFUSED) or (event.startswith("os.") and event not in LISTING):
            raise PermissionError(f"a program may not call {event}")

    sys.addaudithook(refuse)


def describe_error(error: BaseException) -> str:
    """Return an error of a policy program as one line, with the number of the program's line at fault."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<string>"
    ]
    number = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    where = f"line {number}: " if number else ""
    name = "" if isinstance(error, Limit) else f"{type(error).__name__}: "
    return f"{where}{name}{' '.join(text.split())}"[:1000]


def serve(channel: Connection) -> None:
    """Load the program in the first message, then answer messages with its decisions until they end."""
    words, _ = decode_message(channel.recv_bytes())
    limit(words["cpu_s"], words["memory_bytes"])
    if words["weights"] is None:
        refuse_calls()
        if words["form"] == "agent":
            return _serve_agent(channel, _load_module(words["text"]).Agent)
        make = load(words["text"])
    else:  # Numbers: there is no code from outside.
        from clustergym.scenario.registry import make_policy

        os.chdir(os.sep)  # Numba wants a folder that is there.
        make = partial(make_policy, {"name": "learned", "checkpoint": words["weights"]})
    policy = make()
    information = InformationClass(policy.information_class)
    _send(channel, {"information_class": information, "round_s": policy.round_s})
    while True:
        words, arrays = decode_message(channel.recv_bytes())
        if "seed" in words:
            setting = decode_setting(words, arrays)
            # A new policy for each run, which keeps nothing of the last one.
            policy = make()
            policy.reset(setting, random_streams.POLICY.generator(words["seed"]))
        else:
            _send(channel, encode_answer(policy.schedule(decode_view(words, arrays, setting))))


def _serve_agent(channel: Connection, make: Callable[[], Any]) -> None:
    """Answer observations with the actions of agents, a new one for each episode."""
    _send(channel, {"information_class": InformationClass.NONE, "round_s": None})
    while True:
        words, arrays = decode_message(channel.recv_bytes())
        if words["begins"]:
            agent = make()
            getattr(agent, "reset", lambda: None)()
        mask = arrays.pop("mask")
        _send(channel, {"action": operator.index(agent.act(arrays, mask))})


def _send(channel: Connection, answer: dict[str, Any]) -> None:
    channel.send_bytes(json.dumps(answer).encode())


def _end_with(parent: int) -> None:
    """End this process once the one that started it has ended, however that did."""
    # Not by a signal that the system sends on a parent's death: it goes by the thread that started us.
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os._exit(0)


def main() -> None:
    """Answer messages on the open connection whose number is on the command line, as the parent's is."""
    # Here, and not by the parent, which may be killed meanwhile.
    os.rmdir(os.getcwd())
    number, parent = map(int, sys.argv[1:])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    channel = Connection(number)
    try:
        serve(channel)
    except EOFError:
        return
    except BaseException as error:
        _send(channel, {"error": describe_error(error)})


if __name__ == "__main__":
    main()
