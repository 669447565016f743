"""Which changes of the source no test notices: the mutation score of the parts that results rest on.

    nice python benchmarks/mutation_score.py WORK --sample 600 --seed 1
    nice python benchmarks/mutation_score.py WORK --all

Applies mutmut's operators, all but that of strings, one at a time to a copy of the checkout in WORK, and
runs the tests that reach the changed line, in a fork of a process that has collected them: there the changed
functions get their new code. What runs at import is tried in a new process. Each mutant is one line of
WORK/results.jsonl; a second call goes on where the first stopped. Needs Linux, `pip install mutmut coverage`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

ROOT = Path(__file__).resolve().parents[1]
TESTS = {
    "clustergym/sim/*.py": "tests/sim",
    "clustergym/scenarios/[bc]*.py": "tests/sim",
    "clustergym/scenarios/disturbances/*.py": "tests/sim",
    "clustergym/metrics/*.py": "tests/metrics",
    "policies/shared/*.py": "tests/policies",
    "clustergym/leaderboard/check.py": "tests/leaderboard",
}
"""Whose mutants are tried, and their own tests."""
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
KEY = ("file", "text", "before", "after")
"""What names a mutant; lines move."""
MEMORY_BYTES = 4 << 30
WALL_LIMIT_S = 600.0


class Mutants(cst.CSTVisitor):
    """Collects the mutants of a module; leaves out what is idle at run time and `zip`'s `strict=True`."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, name: str) -> None:
        self.name, self.wrapper = name, MetadataWrapper(cst.parse_module((ROOT / name).read_text()))
        self.lines = self.wrapper.module.code.splitlines()
        self.found: list[tuple[dict[str, Any], Callable[[], str]]] = []
        self.wrapper.visit(self)

    def on_visit(self, node: cst.CSTNode) -> bool:  # noqa: D102
        strict = isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "strict"
        if strict or isinstance(node, cst.Annotation | cst.Decorator):
            return False
        for kind, operator in mutation_operators:
            if isinstance(node, kind) and operator is not operator_string:
                for changed in operator(node):
                    self._add(node, changed)
        return True

    def _add(self, node: cst.CSTNode, changed: cst.CSTNode) -> None:
        module, place = self.wrapper.module, self.get_metadata(PositionProvider, node).start
        before, after = module.code_for_node(node), module.code_for_node(changed)
        if "strict=True" in before and "strict=True" not in after:
            return
        known = {"file": self.name, "line": place.line, "column": place.column}
        known |= {"text": self.lines[place.line - 1].strip(), "before": before, "after": after}
        self.found.append((known, lambda: module.deep_replace(node, changed).code))


def forked(do: Callable[[], int], limit_s: float) -> int | None:
    """Run a function in a process of its own; return its status, None if it was stopped."""
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        status = 1
        try:
            status = do()
        finally:
            os._exit(status)
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class Reached:
    """A pytest plugin that records the lines each test reaches and the seconds it takes."""

    def __init__(self) -> None:
        from coverage import Coverage

        self.coverage = Coverage(data_file=None, include=[str(Path.cwd() / name) for name in TESTS])
        self.coverage.start()
        self.seconds = dict[str, float]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Name the test in what coverage records."""
        self.coverage.switch_context(item.nodeid)
        begun = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - begun
        return result

    def write(self, path: Path) -> None:
        """Write the tests by file and line, and the seconds by test."""
        self.coverage.stop()
        data = self.coverage.get_data()
        by_file = {name: data.contexts_by_lineno(name) for name in data.measured_files()}
        lines = {
            str(Path(name).relative_to(Path.cwd())): {
                line: [test for test in tests if test] for line, tests in by_line.items()
            }
            for name, by_line in by_file.items()
        }
        path.write_text(json.dumps({"lines": lines, "seconds": self.seconds}))


def is_function(code: object) -> bool:
    return isinstance(code, CodeType) and bool(code.co_flags & 1) and not code.co_name.startswith("<")


def at_import(code: CodeType) -> tuple[Any, ...]:
    """Return what of a module or class runs when it is imported: all but the bodies of its functions."""
    inner = [
        at_import(one) if isinstance(one, CodeType) else one for one in code.co_consts if not is_function(one)
    ]
    return code.co_code, code.co_names, inner


def functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions and methods of a module or class."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from [one] if is_function(one) else functions(one)


class Trial:
    """A pytest plugin that, in place of the collected tests, tries mutants with some of them each."""

    def __init__(self, given: argparse.Namespace, reached: dict[str, Any], stream: Any) -> None:
        self.given, self.reached, self.stream = given, reached, stream
        self.done: list[dict[str, Any]] = []

    def pytest_configure(self) -> None:
        """Let hypothesis draw the same examples in each run, and shrink none."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", phases=phases, database=None, derandomize=True)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try what is not known yet."""
        self.items = {item.nodeid: item for item in session.items}
        self.live = dict[tuple[str, str], list[FunctionType]]()
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(str(Path.cwd())):
                self.live.setdefault((one.__code__.co_filename, one.__code__.co_qualname), []).append(one)
        gc.freeze()
        known = {json.dumps([one[name] for name in (*KEY, "line", "column")]): one for one in self.done}
        self.done = []
        for mutant, code in self.given.mutants:
            name = json.dumps([mutant[name] for name in (*KEY, "line", "column")])
            if name not in known:
                known[name] = mutant | self.outcome(session, mutant, code)
                self.stream.write(json.dumps(known[name]) + "\n")
                self.stream.flush()
            self.done.append(known[name])
        return True

    def tests(self, mutant: dict[str, Any], imported: bool) -> list[str]:
        """Return tests that reach the line, or the last one before it: own ones, then cheapest, first."""
        lines = self.reached["lines"].get(mutant["file"], {})
        before = [line for line in lines if lines[line] and int(line) <= mutant["line"]]
        found = set(test for tests in lines.values() for test in tests) or set(self.items)
        if not imported:
            found = set(lines[max(before, key=int)]) if before else set()
        chosen, left_s = [], self.given.test_s
        seconds = self.reached["seconds"]
        own = next(tests for pattern, tests in TESTS.items() if Path(mutant["file"]).match(pattern))
        ordered = sorted((not test.startswith(own), seconds[test], test) for test in found & seconds.keys())
        for _, test_s, test in ordered:
            left_s -= test_s
            if left_s < 0:
                break
            chosen.append(test)
        return chosen

    def outcome(
        self, session: pytest.Session, mutant: dict[str, Any], code: Callable[[], str]
    ) -> dict[str, Any]:
        """Apply a mutant and run the tests."""
        path, begun = Path.cwd() / mutant["file"], time.perf_counter()
        source = path.read_text()
        try:
            old, new = (compile(text, str(path), "exec", dont_inherit=True) for text in (source, code()))
        except (SyntaxError, cst.CSTValidationError):
            return {"status": "invalid"}
        bodies = {body.co_qualname: body for body in functions(new)}
        live = [(one, bodies[name]) for name in bodies for one in self.live.get((str(path), name), [])]
        closed = any(one.__code__.co_freevars != body.co_freevars for one, body in live)
        imported = closed or at_import(old) != at_import(new)
        tests = self.tests(mutant, imported)

        def run() -> int:
            if imported:
                resource.setrlimit(
                    resource.RLIMIT_CPU, (int(60 + 5 * self.given.test_s), resource.RLIM_INFINITY)
                )
                command = [sys.executable, "-m", "pytest", "-n0", "-x", "--hypothesis-seed=0", *tests]
                return subprocess.run(command).returncode
            for one, body in live:
                one.__code__ = body
            for test, following in zip(tests, [*tests[1:], None], strict=True):
                # Of processor time, which a busy machine does not lengthen.
                limit_s = int(time.process_time() + 5 + 5 * self.reached["seconds"][test])
                resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
                then = self.items.get(following)
                session.config.hook.pytest_runtest_protocol(item=self.items[test], nextitem=then)
                if session.testsfailed:
                    return 1
            return 0

        path.write_text(code())
        status = forked(run, WALL_LIMIT_S) if tests else 0
        path.write_text(source)
        shutil.copystat(ROOT / mutant["file"], path)
        found = {0: "survived", None: "timeout", -signal.SIGXCPU: "timeout"}.get(status, "killed")
        return {"status": found, "tests": len(tests), "s": round(time.perf_counter() - begun, 2)}


def interval(killed: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    z, share = 1.96, killed / total
    middle = share + z * z / (2 * total)
    half = z * (share * (1 - share) / total + (z / (2 * total)) ** 2) ** 0.5
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def report(done: list[dict[str, Any]]) -> None:
    """Print the score by folder, with equivalent mutants left out."""
    equivalent = {tuple(one[name] for name in KEY) for one in json.loads(EQUIVALENT.read_text())}
    valid = [one for one in done if one["status"] != "invalid"]
    survives = lambda one: one["status"] == "survived"  # noqa: E731
    rest = [one for one in valid if not survives(one) or tuple(one[name] for name in KEY) not in equivalent]
    for folder in (*sorted({os.path.dirname(one["file"]) for one in rest}), ""):
        found = [one for one in rest if one["file"].startswith(folder)]
        killed = sum(not survives(one) for one in found)
        low, high = interval(killed, len(found))
        share = f"{killed / len(found):.1%} ({low:.1%} to {high:.1%})"
        print(f"{folder or 'all':26} {killed:5} of {len(found):5} killed, {share}")
    print(f"left out: {len(valid) - len(rest)} equivalent, {len(done) - len(valid)} that do not compile")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("--sample", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="every mutant, in place of a sample")
    parser.add_argument("--test-s", type=float, default=10.0, help="most seconds of tests per mutant")
    given = parser.parse_args()
    work, copy = given.work.resolve(), given.work.resolve() / "checkout"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.path[0] = str(copy)
    sys.dont_write_bytecode = True
    options = ["-n", "0", "-s", "-x", f"--basetemp={work / 'tmp'}", *dict.fromkeys(TESTS.values())]
    kept, results = work / "reached.json", work / "results.jsonl"

    def record() -> int:
        plugin = Reached()
        status = int(pytest.main(options, plugins=[plugin]))
        plugin.write(kept)
        return status

    if not kept.is_file() and forked(record, 7200.0) != 0:
        kept.unlink(missing_ok=True)
        sys.exit("the tests fail without any change: run them")
    names = sorted(str(path.relative_to(ROOT)) for pattern in TESTS for path in ROOT.glob(pattern))
    mutants = [mutant for name in names for mutant in Mutants(name).found]
    print(f"{len(mutants)} mutants in {len(names)} files")
    random.Random(given.seed).shuffle(mutants)
    given.mutants = mutants if given.all else mutants[: given.sample]
    with results.open("a+") as stream:
        stream.seek(0)
        trial = Trial(given, json.loads(kept.read_text()), stream)
        trial.done = [json.loads(line) for line in stream]
        pytest.main(options, plugins=[trial])
    report(trial.done)


if __name__ == "__main__":
    main()
