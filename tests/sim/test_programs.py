"""Programs as policies: what they are sent, faults end in one line, cheats find nothing."""

import hashlib
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from clustergym.policies.srtf import ShortestRemainingTimeFirst

from clustergym.common.errors import InputError
from clustergym.scenario.policy import QUEUED, Decision, View
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.scenario_config import build_scenario
from clustergym.sim.drive import simulate
from clustergym.sim.program import Limits, Program, find_rights
from clustergym.training.program_task import evaluate_program, load_task

HEAD = "from clustergym.scenario.policy import *\n"
SUBCLASS = """
class Mine(Policy):
    name = "mine"
    information_class = InformationClass.NONE
    round_s = 600.0
    def schedule(self, view):
        {body}
"""


def failed(tmp_path: Path, text: str, limits: Limits | None = None) -> str:
    """Return the error of a program, which has no score."""
    file, task = tmp_path / "one.py", load_task("elastic")
    file.write_text(text, encoding="utf-8")
    outcome = evaluate_program(file, replace(task, limits=limits or task.limits), traces=1)
    assert (outcome["status"], outcome["combined_score"]) == ("error", 0.0)
    assert len(outcome["artifacts"]["error"].splitlines()) == 1
    return str(outcome["artifacts"]["error"])


def drawn() -> Scenario:
    task = load_task("elastic")
    return build_scenario({**task.configuration, "seed": task.train[0]})


def scheduling(body: str) -> str:
    """Return a program whose function has a body."""
    return HEAD + "def schedule(view):\n" + "".join(f"    {line}\n" for line in body.splitlines())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def schedule(view:\n", "line 1: SyntaxError"),
        ("import no_such_module\n", "line 1: ModuleNotFoundError"),
        ("x = 1\n", "has 0 subclasses of Policy"),
        (HEAD + (SUBCLASS + SUBCLASS.replace("Mine", "Other")).format(body="pass"), "has 2 subclasses"),
        (HEAD + SUBCLASS.format(body="view.iteration_time_s()"), "line 8: InformationError"),
        (scheduling("return {}[0]"), "line 3: KeyError: 0"),
        (scheduling("return 7"), "schedule returned a int"),
        (scheduling("return Decision.of([(0, 0, 3)])"), "decision, job"),
        (scheduling("return Decision([0.5], [0], [1])"), "its column job holds float64"),
        (scheduling("return Decision.of([], drop=view.job)"), "drops jobs"),
        (scheduling("return Decision.of([])"), "starts"),
        (scheduling("raise SystemExit(0)"), "SystemExit"),
        (scheduling("return bytearray(10**10)"), "MemoryError"),
    ],
)
def test_a_fault_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    assert said in failed(tmp_path, text)


def test_a_loop_ends(tmp_path: Path) -> None:
    assert "used more than 1 s of CPU time" in failed(tmp_path, "while True:\n    pass\n", Limits(cpu_s=1))


def test_a_sleep_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustergym.sim.program.WALL_FACTOR", 2)
    assert "took longer than 2 s" in failed(tmp_path, "import time\ntime.sleep(60)\n", Limits(cpu_s=1))


def test_only_root_runs_a_program_as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    own = pwd.getpwuid(os.getuid())
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(InputError, match="leave it out, or be root"):
        find_rights(own.pw_name)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(InputError, match="no user 'nobody-at-all' on this system"):
        find_rights("nobody-at-all")
    given: list[dict[str, Any]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, user: int, group: int, extra_groups: list[int], **rest: Any) -> None:
            given.append({"user": user, "group": group, "extra": extra_groups})
            super().__init__(*words, **rest)

    monkeypatch.setattr("subprocess.Popen", Noted)
    with Program(scheduling("pass"), Limits(), find_rights(own.pw_name)):
        assert given == [{"user": own.pw_uid, "group": own.pw_gid, "extra": []}]


def test_no_process_can_be_started_by_a_normal_user(tmp_path: Path) -> None:
    body = "import sys\nraise RuntimeError(sys.modules['__main__'].resource.getrlimit(6))"
    assert "RuntimeError: (0, 0)" in failed(tmp_path, scheduling(body))


CHEATS = {
    "closures": """
found = []
for call in (view.times, view.costs, view.batches, view.pairs):
    found += [cell.cell_contents for cell in call.__closure__ or ()]
long = [one for one in found if hasattr(one, "__len__") and len(one) > len(view)]
others = [one for one in found if type(one).__module__.startswith("clustergym")]
raise RuntimeError(f"found {len(long)} longer, {len(others)} objects")
""",
    "memory": """
import gc, sys
import numpy as np
frame, frames = sys._getframe(), []
while frame is not None:
    frames.append(frame)
    frame = frame.f_back
seen = [*gc.get_objects(), *(value for one in frames for value in one.f_locals.values())]
kinds = {type(one).__name__ for one in seen} & {"Trace", "Scenario", "Simulation", "CompiledSimulation"}
long = [one for one in seen if isinstance(one, np.ndarray) and one.shape == (100,)]
raise RuntimeError(f"found {len(long)} longer, {len(kinds)} objects")
""",
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_program_has_nothing_of_the_future(name: str, tmp_path: Path) -> None:
    assert "RuntimeError: found 0 longer, 0 objects" in failed(tmp_path, scheduling(CHEATS[name].strip()))


@pytest.mark.parametrize(
    "line",
    [
        "open('/proc/self/maps').read()",
        "open('/etc/passwd').read()",
        "import clustergym.envs.episodes",
        "import importlib; importlib.import_module('clustergym.trace.trace')",
        "import os; os.open(f'/proc/{os.getppid()}/mem', os.O_RDONLY)",
        "import subprocess; subprocess.run(['cat', '/etc/passwd'])",
        "import os; os.fork()",
        "import socket; socket.socket()",
        "open('left', 'w')",
        "import cffi",
        pytest.param(
            "import importlib; importlib.import_module('_cffi_backend')",
            marks=pytest.mark.skipif(find_spec("_cffi_backend") is None, reason="cffi is not installed"),
        ),
    ],
)
def test_files_and_processes_are_refused(line: str, tmp_path: Path) -> None:
    assert "PermissionError: a program may not" in failed(tmp_path, scheduling(line))


def test_its_folder_is_empty_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "made"))
    (tmp_path / "made").mkdir()
    text = "import os\nraise RuntimeError(f'{os.listdir()} {len(os.environ) < 12}')\n"
    assert failed(tmp_path, text) == "line 2: RuntimeError: [] True (correct the program)"
    assert not list((tmp_path / "made").iterdir())


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_ends_with_the_process_that_started_it(number: int, tmp_path: Path) -> None:
    endless = "import time\nwhile True:\n    time.sleep(0.1)\n"
    text = f"from clustergym.sim.program import *\nProgram({endless!r}, Limits())\n"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", text], env=environment) as parent:
        child = _wait_for(lambda: _children(parent.pid))[0]
        parent.send_signal(number)
    _wait_for(lambda: not Path(f"/proc/{child}").exists())
    # Killed at once, the child had not even begun: it removes its folder first of all.
    assert not list(tmp_path.iterdir())


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_for(found: Callable[[], Any], most_s: float = 30.0) -> Any:
    until = time.monotonic() + most_s
    while not (value := found()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return value


def test_a_view_is_the_same_in_both_processes() -> None:
    scenario = drawn()
    texts: list[str] = []

    class Compared(Program):
        def schedule(self, view: View) -> Decision:
            texts.append(view.describe())
            return super().schedule(view)

    digest = "hashlib.sha256(view.describe().encode()).hexdigest()"
    text = "import hashlib\n" + scheduling(f"raise RuntimeError({digest})")
    with Compared(text, Limits()) as program, pytest.raises(InputError) as error:
        simulate(scenario, program, make_placer({"name": "buddy"}))
    assert hashlib.sha256(texts[-1].encode()).hexdigest() in str(error.value)


def test_the_text_has_units_and_every_job() -> None:
    scenario = drawn()
    seen: list[tuple[int, str]] = []

    class Noted(ShortestRemainingTimeFirst):
        def schedule(self, view: View) -> Decision:
            text = view.describe()
            assert text.count("  job ") == min(len(view), 40)
            assert text.count("waits since") == int((view.state[:40] == QUEUED).sum())
            seen.append((len(view), text))
            return super().schedule(view)

    srtf = Noted()
    simulate(scenario, srtf, make_placer({"name": "buddy"}))
    longest = max(seen)[1]
    assert "seconds per iteration by GPUs" in longest
    assert "runs on" in longest
