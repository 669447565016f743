"""Which changes of the source no test notices: the mutation score of every package.

    nice python benchmarks/mutation_score.py WORK --sample 300 --seed 1

Draws mutants by mutmut's operators, all but that of strings, as many from each package. Applies one at a
time to a copy of the checkout in WORK, and runs tests that reach the changed statement, the fastest first,
in a fork of a process that has collected them: there the changed functions get their new code. What runs at
import is tried in a new process. Numba compiles nothing: machine code does not change with its source.
First every test of the core runs once, with a note in front of each statement; a test that takes longer than
`--test-s`, or fails in these processes, is left out. The notes serve every sample, and only tests of files
that changed run again; `--unreached` prints the statements that no test reached. A mutant that survives is
written to disk, and meets in a new process whole files of tests, marked ones too: those that reach it, and
those that import its module. These see what slow tests, other processes and machine code do. Each mutant is
one line of WORK/results.jsonl. A second call goes on where the first stopped. Needs Linux and mutmut.
What writes files may, mutated, replace a device: as root it runs where /dev/null is mounted, and so stays.
"""

from __future__ import annotations

import argparse
import ast
import base64
import builtins
import contextlib
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TextIO

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("clustergym", "policies")
"""Whose files are changed."""
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
KEY = ("file", "text", "before", "after")
"""What names a mutant; lines move."""
MEMORY_BYTES = 4 << 30
WALL_LIMIT_S = 600.0
SETUP_S = 10.0
"""Most processor time of what a test needs set up."""
SLOW = ("agreement", "boards", "compiled", "processes", "reproduction", "slow", "training")
"""Marks of tests that come last."""
LEFT_OUT = ("browser", "docs", "processes", "slurm", "wheel")
QUIET = tuple(
    f"-Wignore:{one} encountered in scalar" for one in ("divide by zero", "invalid value", "overflow")
)
"""Of what machine code computes in silence, Python warns."""
OPTIONS = (*QUIET, "-n", "0", "-s", "-m", " and ".join(f"not {mark}" for mark in LEFT_OUT))
"""Tests of the first trial: the core, and those marked ones that reach statements in this process soon."""
AGAIN = (
    *QUIET,
    "-n",
    "0",
    "-x",
    "--tb=no",
    "-rfE",
    "--hypothesis-seed=0",
    "-m",
    "not browser and not docs and not slurm and not wheel",
)
"""How tests run with a mutant on disk."""
GUARDED = "MUTANTS_CANNOT_REPLACE_DEVICES"
"""Variable of a process for which /dev/null is mounted."""
LISTINGS = "tests/test_listings.py"
"""Tests of what modules have once they are imported; they call no function."""


def guard_devices() -> None:
    """As root run this again with mounts of its own, in which nothing can replace or remove /dev/null."""
    if os.geteuid() == 0 and not os.environ.get(GUARDED):
        mount = f'mount --bind {os.devnull} {os.devnull} && exec "$@"'
        words = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, *sys.argv]
        os.execvpe(words[0], words, {**os.environ, GUARDED: "1"})


def source_files() -> list[str]:
    """Return the files of the copy whose mutants are tried: all of `SOURCES`."""
    return sorted(str(path) for name in SOURCES for path in Path(name).rglob("*.py"))


def package_of(file: str) -> str:
    """Return the package of a file."""
    first, second = file.split("/")[:2]
    return first if first == "policies" else "commands" if second.endswith(".py") else second


class Mutants(cst.CSTVisitor):
    """Collects the mutants of a module; leaves out what is idle at run time and `zip`'s `strict=True`."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, name: str) -> None:
        self.name, self.wrapper = name, MetadataWrapper(cst.parse_module(Path(name).read_text()))
        self.lines = self.wrapper.module.code.splitlines()
        self.found: list[tuple[dict[str, Any], Callable[[], str]]] = []
        self.wrapper.visit(self)

    @classmethod
    @lru_cache(maxsize=1)
    def of(cls, name: str) -> Mutants:
        """Return the mutants of a file; of the last one, the same."""
        return cls(name)

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
        if before.count("strict=True") > after.count("strict=True"):
            return
        known = {"file": self.name, "line": place.line, "column": place.column}
        known |= {"text": self.lines[place.line - 1].strip(), "before": before, "after": after}
        self.found.append((known, lambda: module.deep_replace(node, changed).code))


def counted(path: Path, names: list[str]) -> dict[str, int]:
    """Return how many mutants each file has; a file that has not changed is not parsed again."""
    known = json.loads(path.read_text()) if path.is_file() else {}
    digests = {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names}
    for name, digest in digests.items():
        if known.get(name, [""])[0] != digest:
            known[name] = [digest, len(Mutants(name).found)]
    path.write_text(json.dumps(known))
    return {name: known[name][1] for name in names}


def text_of(name: str, at: int) -> str:
    """Return the text of a file with one of its mutants; of one that cannot be written, no Python."""
    with contextlib.suppress(cst.CSTValidationError):
        return Mutants.of(name).found[at][1]()
    return "("


def name_of(mutant: dict[str, Any]) -> str:
    """Return a text that tells a mutant from all others."""
    return json.dumps([mutant[name] for name in (*KEY, "line", "column")])


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


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


@cache
def digest_of(file: str) -> str:
    """Return what changes with the text of a file."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def packed(reached: bytearray) -> str:
    """Return marks of 0 and 1 as a short text."""
    return base64.b85encode(zlib.compress(bytes(reached))).decode()


def unpacked(text: str) -> bytes:
    """Return the marks of a text of `packed`."""
    return zlib.decompress(base64.b85decode(text))


class TooLong(pytest.skip.Exception):
    """Ends a test that takes longer than a mutant has."""


class Reached:
    """A pytest plugin that writes for each test the statements it reaches, and its seconds."""

    def __init__(self, stream: TextIO, test_s: float, places: int) -> None:
        self.stream, self.test_s, self.reached = stream, test_s, bytearray(places)
        builtins.__reached__ = self.reached  # type: ignore[attr-defined]
        self.setup_s, self.seconds = 0.0, 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Write what a test has reached; one that fails or takes too long has no seconds."""
        self.reached[:] = bytes(len(self.reached))
        self.setup_s, self.seconds = 0.0, -1.0
        result = yield
        test = {"test": item.nodeid, "of": digest_of(file_of(item.nodeid))}
        test |= {"s": self.seconds, "setup_s": self.setup_s, "places": packed(self.reached)}
        self.stream.write(json.dumps(test) + "\n")
        self.stream.flush()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Measure what a test needs set up."""
        begun = time.process_time()
        with limited(SETUP_S):
            result = yield
        self.setup_s = time.process_time() - begun
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Measure a test."""
        begun = time.process_time()
        with limited(self.test_s):
            result = yield
        self.seconds = time.process_time() - begun
        return result


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Skip a test that takes more processor time, or ten times as long by the clock."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong("takes too long")

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)


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


class Statements:
    """The statements of a file: which one a line belongs to, and code that says when it comes to one."""

    def __init__(self, file: str) -> None:
        self.file, self.tree = file, ast.parse(Path(file).read_text())
        self.of_line = dict[int, ast.stmt]()
        for node in ast.walk(self.tree):  # From the outside in.
            if isinstance(node, ast.stmt):
                self.of_line |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node)
        self.names = dict[ast.stmt, str]()
        """Of the statements in functions: changes elsewhere in the file leave them as they are."""
        self.firsts = list[str]()
        self._name(self.tree, "")

    def _name(self, outer: ast.AST, within: str) -> None:
        for node in ast.iter_child_nodes(outer):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = [one for one in ast.walk(node) if isinstance(one, ast.stmt) and one is not node]
                start = sum(
                    name.startswith(f"{self.file}:{within}{node.name}:") for name in self.names.values()
                )
                self.names |= {
                    one: f"{self.file}:{within}{node.name}:{at}" for at, one in enumerate(inside, start)
                }
                self.firsts.append(self.names[node.body[min(1, len(node.body) - 1)]])
            elif isinstance(node, ast.AST):
                self._name(node, f"{within}{node.name}." if isinstance(node, ast.ClassDef) else within)

    def places(self, line: int) -> list[str]:
        """Return the statement of a line; where it runs at import, the first one of each function."""
        found = self.of_line[line]
        return [self.names[found]] if found in self.names else self.firsts

    def noted(self, number: dict[str, int]) -> CodeType:
        """Return the code of the file, with a note in front of each statement of a function."""
        for node in [*ast.walk(self.tree)]:
            for name in ("body", "orelse", "finalbody"):
                if isinstance(statements := getattr(node, name, None), list):
                    setattr(node, name, [new for one in statements for new in self._with_note(one, number)])
        return compile(
            ast.fix_missing_locations(self.tree), str(Path(self.file).resolve()), "exec", dont_inherit=True
        )

    def _with_note(self, statement: ast.stmt, number: dict[str, int]) -> list[ast.stmt]:
        if statement not in self.names:
            return [statement]
        return [*ast.parse(f"__reached__[{number[self.names[statement]]}] = 1").body, statement]


class Record:
    """What each test reaches, kept for every sample: WORK/reached.jsonl, its places in WORK/places.json."""

    def __init__(self, work: Path) -> None:
        self.notes, path = work / "reached.jsonl", work / "places.json"
        self.places = list[str](json.loads(path.read_text()) if path.is_file() else [])
        now = [name for file in source_files() for name in Statements(file).names.values()]
        self.places += sorted({*now} - {*self.places})
        path.write_text(json.dumps(self.places))
        self.number = {name: at for at, name in enumerate(self.places)}
        self.now = sorted(self.number[name] for name in now)

    def tests(self) -> dict[str, dict[str, Any]]:
        """Return the tests whose files are as they were."""
        found = {one["test"]: one for one in lines_of(self.notes)}
        return {test: one for test, one in found.items() if is_now(file_of(test), one["of"])}

    def reaching(self, wanted: set[str]) -> dict[str, list[str]]:
        """Return the tests that reach each place."""
        reached: dict[str, list[str]] = {place: [] for place in wanted}
        for test, one in self.tests().items():
            marks = unpacked(one["places"])
            for place in wanted:
                if self.number[place] < len(marks) and marks[self.number[place]]:
                    reached[place].append(test)
        return reached

    def unreached(self) -> Iterator[str]:
        """Yield the lines of each function whose statements no test reaches."""
        reached = set[int]()
        for one in self.tests().values():
            reached.update(at for at, mark in enumerate(unpacked(one["places"])) if mark)
        for file in source_files():
            names = Statements(file).names
            lines = sorted(
                one.lineno
                for one, name in names.items()
                if self.number[name] not in reached
                and not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            )
            if lines:
                yield f"{len(lines):4} of {len(names):4} {file}: {' '.join(map(str, lines))}"


def is_now(file: str, digest: str) -> bool:
    """Return whether a file is there and has not changed."""
    return Path(file).is_file() and digest_of(file) == digest


class Trial:
    """A pytest plugin that, in place of the collected tests, tries mutants with some of them each."""

    def __init__(self, given: argparse.Namespace, work: Path) -> None:
        self.given, self.work, self.record = given, work, Record(work)
        self.places = {
            name_of(mutant): Statements(mutant["file"]).places(mutant["line"]) for mutant, _ in given.mutants
        }

    def pytest_configure(self) -> None:
        """Let hypothesis draw the same examples in each run, and shrink none."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", phases=phases, database=None, derandomize=True)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try what is not known yet."""
        import_all(source_files())
        self.items = {item.nodeid: item for item in session.items}
        self.live = dict[tuple[str, str], list[FunctionType]]()
        gc.unfreeze()  # What tests/conftest.py has frozen is not among the objects.
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename.startswith(str(Path.cwd())):
                self.live.setdefault((one.__code__.co_filename, one.__code__.co_qualname), []).append(one)
        gc.freeze()
        forked(partial(self.note, session), self.given.record_s)
        self.tests = {test: one for test, one in self.record.tests().items() if one["s"] >= 0}
        self.reaching = self.record.reaching({place for places in self.places.values() for place in places})
        self.setup_s = dict[str, float]()
        for test, one in self.tests.items():
            self.setup_s[file_of(test)] = max(self.setup_s.get(file_of(test), 0.0), one["setup_s"])
        print(f"{len(self.tests)} tests are fast enough", flush=True)
        results = self.work / "results.jsonl"
        known = {name_of(one) for one in lines_of(results)}
        with results.open("a") as stream:
            for mutant, text in self.given.mutants:
                if name_of(mutant) not in known:
                    stream.write(json.dumps(mutant | self.outcome(session, mutant, text)) + "\n")
                    stream.flush()
        return True

    def note(self, session: pytest.Session) -> int:
        """Run the tests that have not run yet, and write what each of them reaches."""
        for file in source_files():
            for body in functions(Statements(file).noted(self.record.number)):
                for one in self.live.get((body.co_filename, body.co_qualname), []):
                    if one.__code__.co_freevars == body.co_freevars:
                        one.__code__ = body
        known = self.record.tests()
        rest = [item for item in session.items if item.nodeid not in known]
        rest.sort(key=lambda item: any(map(item.get_closest_marker, SLOW)))
        with self.record.notes.open("a") as stream:
            plugin = Reached(stream, self.given.test_s, len(self.record.places))
            session.config.pluginmanager.register(plugin)
            for item, following in zip(rest, [*rest[1:], None], strict=True):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return 0

    def chosen(self, mutant: dict[str, Any]) -> list[str]:
        """Return tests that reach the statement: first one of each test function of the package."""
        reaching = {test for place in self.places[name_of(mutant)] for test in self.reaching[place]}
        own, left_s = f"tests/{package_of(mutant['file'])}/", self.given.test_s
        fastest = sorted(
            reaching & {*self.tests} & {*self.items}, key=lambda test: (self.needed_s(test), test)
        )
        drawn, earlier = Counter[str](), dict[str, int]()
        for test in fastest:
            earlier[test] = drawn[test.partition("[")[0]]
            drawn[test.partition("[")[0]] += 1
        fastest.sort(key=lambda test: (not test.startswith(own), earlier[test]))
        tests, files = list[str](), set[str]()
        for test in fastest:
            needed_s = self.tests[test]["s"] if file_of(test) in files else self.needed_s(test)
            if needed_s <= left_s or not tests:
                left_s -= needed_s
                tests.append(test)
                files.add(file_of(test))
        return tests

    def needed_s(self, test: str) -> float:
        """Return the seconds of a test, and of what its file has set up once."""
        return self.tests[test]["s"] + self.setup_s[file_of(test)]

    def outcome(self, session: pytest.Session, mutant: dict[str, Any], changed: str) -> dict[str, Any]:
        """Apply a mutant and run the tests."""
        path, begun = Path.cwd() / mutant["file"], time.perf_counter()
        source, stat = path.read_text(), path.stat()
        try:
            old, new = (compile(text, str(path), "exec", dont_inherit=True) for text in (source, changed))
        except SyntaxError:
            return {"status": "invalid"}
        bodies = {body.co_qualname: body for body in functions(new)}
        live = [(one, bodies[name]) for name in bodies for one in self.live.get((str(path), name), [])]
        closed = any(one.__code__.co_freevars != body.co_freevars for one, body in live)
        imported = closed or at_import(old) != at_import(new)
        tests = [*self.chosen(mutant), *[LISTINGS] * imported]

        def run() -> int:
            if imported:
                resource.setrlimit(
                    resource.RLIMIT_CPU, (int(60 + 5 * self.given.test_s), resource.RLIM_INFINITY)
                )
                command = [sys.executable, "-m", "pytest", *QUIET, "-n0", "-x", "--hypothesis-seed=0", *tests]
                return subprocess.run(command).returncode
            for one, body in live:
                one.__code__ = body
            for test, following in zip(tests, [*tests[1:], None], strict=True):
                # Of processor time, which a busy machine does not lengthen.
                limit_s = int(time.process_time() + 5 + 5 * self.needed_s(test))
                resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
                then = self.items.get(following)
                session.config.hook.pytest_runtest_protocol(item=self.items[test], nextitem=then)
                if session.testsfailed:
                    return 1
            return 0

        path.write_text(changed)
        status = forked(run, WALL_LIMIT_S) if tests else 0
        path.write_text(source)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        found = {0: "survived", None: "timeout", -signal.SIGXCPU: "timeout"}.get(status, "killed")
        return {"status": found, "tests": len(tests), "s": round(time.perf_counter() - begun, 2)}


class SecondTrial:
    """Tries mutants on disk, with whole files of tests in a new process each."""

    def __init__(self, given: argparse.Namespace, work: Path) -> None:
        self.again_s, self.failing_file = given.again_s, work / "failing.json"
        self.failing = json.loads(self.failing_file.read_text()) if self.failing_file.is_file() else []
        self.options = (*AGAIN, f"--basetemp={work / 'again'}")
        self.places = {
            name_of(mutant): Statements(mutant["file"]).places(mutant["line"]) for mutant, _ in given.mutants
        }
        self.reaching = Record(work).reaching({place for places in self.places.values() for place in places})

    def choose(self, mutant: dict[str, Any]) -> list[str]:
        """Return files of tests: those named after the module first, those that reach the statement last."""
        files = {file_of(test) for place in self.places[name_of(mutant)] for test in self.reaching[place]}
        own, module = f"tests/{package_of(mutant['file'])}/", Path(mutant["file"])
        package, name = ".".join(module.parent.parts), module.stem
        imported = re.compile(rf"{re.escape(package)}( import [^\n]*\b|\.){name}\b")
        texts = {str(path): path.read_text() for path in Path("tests").rglob("test_*.py")}
        naming = {file for file, text in texts.items() if name in Path(file).stem or imported.search(text)}
        found = files | naming or {file for file in texts if file.startswith(own)}
        ordered = sorted(found, key=lambda file: (file not in naming, not file.startswith(own), file))
        return [*ordered, LISTINGS]

    def outcome(self, mutant: dict[str, Any], changed: str) -> dict[str, Any]:
        """Write a mutant and run the tests; a test that fails without it, too, kills nothing."""
        path, begun, files = Path.cwd() / mutant["file"], time.perf_counter(), self.choose(mutant)
        source, stat = path.read_text(), path.stat()
        # What Numba compiles runs as Python.
        compiled = "njit" not in source and "in_place" not in source
        while True:
            path.write_text(changed)
            failed = self.run(files, compiled=compiled)
            path.write_text(source)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            if not failed or failed == ["?"] or not self.run(failed, compiled=compiled):
                break
            self.failing += failed
            self.failing_file.write_text(json.dumps(self.failing))
        taken = {"tests": len(files), "s": round(time.perf_counter() - begun, 2), "by": failed}
        return {"status": "killed" if failed else "survived", "again": True} | taken

    def run(self, tests: list[str], *, compiled: bool) -> list[str]:
        """Return the first test that fails, none if all pass or time ends, "?" if none could run."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["NUMBA_DISABLE_JIT"] = "0" if compiled else "1"
        left_out = [f"--deselect={test}" for test in self.failing]
        limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (int(self.again_s), resource.RLIM_INFINITY))
        command = [sys.executable, "-m", "pytest", *self.options, *left_out, *tests]
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, preexec_fn=limit)
        if ended.returncode not in (1, 2, 3, 4):
            return []
        # Names of tests may have spaces; what went wrong stands behind a dash.
        told = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ended.stdout, re.MULTILINE)
        return told[:1] or ["?"]


def interval(killed: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    z, share = 1.96, killed / total
    middle = share + z * z / (2 * total)
    half = z * (share * (1 - share) / total + (z / (2 * total)) ** 2) ** 0.5
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def report(done: list[dict[str, Any]]) -> None:
    """Print the score by package, with equivalent mutants left out."""
    equivalent = {tuple(one[name] for name in KEY) for one in json.loads(EQUIVALENT.read_text())}
    valid = [one for one in done if one["status"] != "invalid"]
    survives = lambda one: one["status"] == "survived"  # noqa: E731
    rest = [one for one in valid if not survives(one) or tuple(one[name] for name in KEY) not in equivalent]
    for package in (*sorted({package_of(one["file"]) for one in rest}), ""):
        found = [one for one in rest if package in ("", package_of(one["file"]))]
        killed = sum(not survives(one) for one in found)
        low, high = interval(killed, len(found))
        share = f"{killed / len(found):.1%} ({low:.1%} to {high:.1%})"
        print(f"{package or 'all':26} {killed:5} of {len(found):5} killed, {share}")
    print(f"left out: {len(valid) - len(rest)} equivalent, {len(done) - len(valid)} that do not compile")


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines, none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def drawn(counts: dict[str, int], given: argparse.Namespace) -> list[tuple[str, int]]:
    """Return mutants, as many from each package, in an order of which a beginning is such a sample, too."""
    mutants = [(name, at) for name in counts for at in range(counts[name])]
    random.Random(given.seed).shuffle(mutants)
    by_package: dict[str, list[tuple[str, int]]] = {
        package: [] for package in sorted({*map(package_of, counts)})
    }
    for name, at in mutants:
        by_package[package_of(name)].append((name, at))
    print(f"{len(mutants)} mutants in {len(counts)} files of {len(by_package)} packages", flush=True)
    return [one for turn in zip_longest(*by_package.values()) for one in turn if one][: given.sample]


def import_all(names: list[str]) -> None:
    """Import every module, so that functions of those imported late are known, too."""
    for name in names:
        parts = Path(name).with_suffix("").parts
        parts = parts if parts[0] == "clustergym" else ("clustergym", *parts)
        if parts[-1] != "__main__":
            with contextlib.suppress(ImportError):
                importlib.import_module(".".join(parts).removesuffix(".__init__"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", nargs="+", help="of the sample, only mutants of these, as sim")
    parser.add_argument("--tests", nargs="+", help="only these folders of tests, as sim; else the core")
    parser.add_argument("--record-s", type=float, default=7200.0, help="most time to run every test once")
    parser.add_argument(
        "--again-s", type=float, default=240.0, help="most seconds of a survivor's second trial"
    )
    parser.add_argument("--test-s", type=float, default=4.0, help="most seconds of tests per mutant")
    parser.add_argument(
        "--unreached", action="store_true", help="run every test once, and print what none reaches"
    )
    given = parser.parse_args()
    guard_devices()
    work, copy = given.work.resolve(), given.work.resolve() / "checkout"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(copy, ignore_errors=True)  # Files that are gone would be mutated, and listed by tests.
    for name in listed.splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    if (ROOT.parent / "shared").is_dir() and not (work / "shared").exists():
        (work / "shared").symlink_to(ROOT.parent / "shared")
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])}
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "NUMBA_DISABLE_JIT": "1"}
    sys.path[0] = str(copy)
    sys.dont_write_bytecode = True
    names = source_files()
    tests = [f"tests/{name}" for name in given.tests or ()]
    if given.unreached:
        given.mutants = []
        pytest.main([*OPTIONS, f"--basetemp={work / 'tmp'}", *tests], plugins=[Trial(given, work)])
        print(*Record(work).unreached(), sep="\n")
        return
    # No trees are kept: those of all files would take more memory than the tests have.
    chosen = drawn(counted(work / "mutants.json", names), given)
    path = work / f"mutants-{given.sample}-{given.seed}.json"
    if not path.is_file():
        told = {one: (Mutants.of(one[0]).found[one[1]][0], text_of(*one)) for one in sorted(chosen)}
        path.write_text(json.dumps([told[one] for one in chosen]))
    packages = given.packages or {*map(package_of, names)}
    given.mutants = [one for one in json.loads(path.read_text()) if package_of(one[0]["file"]) in packages]
    wanted = {name_of(mutant) for mutant, _ in given.mutants}
    if not wanted <= {name_of(one) for one in lines_of(work / "results.jsonl")}:
        pytest.main([*OPTIONS, f"--basetemp={work / 'tmp'}", *tests], plugins=[Trial(given, work)])
    results = {name_of(one): one for one in lines_of(work / "results.jsonl")}  # The last of each counts.
    second = SecondTrial(given, work)
    for mutant, changed in given.mutants:
        result = results[name_of(mutant)]
        if result["status"] == "survived" and "again" not in result:
            results[name_of(mutant)] = result = mutant | second.outcome(mutant, changed)
            with (work / "results.jsonl").open("a") as stream:
                stream.write(json.dumps(result) + "\n")
    report([one for name, one in results.items() if name in wanted])


if __name__ == "__main__":
    main()
