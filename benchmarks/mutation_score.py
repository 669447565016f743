"""Which changes of the source no test notices: the mutation score of every room.

    nice python benchmarks/mutation_score.py WORK --sample 300 --seed 1
    nice python benchmarks/mutation_score.py WORK --all

Applies mutmut's operators, all but that of strings, one at a time to a copy of the checkout in WORK, and
runs the tests that reach the changed line, in a fork of a process that has collected them: there the changed
functions get their new code. What runs at import is tried in a new process. Files with functions that Numba
compiles are tried without Numba, as plain Python, since machine code does not change with its source. First
the lines that each test reaches are recorded, for each folder of tests; a test that takes longer than
`--test-s`, or fails in these processes, is left out. Each mutant is one line of WORK/results.jsonl. A second
call goes on where the first stopped. Needs Linux, `pip install mutmut coverage`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
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
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

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
SETUP_S = 60.0
"""Most processor time of what a test needs set up."""
COMPILED = re.compile(r"^@(compiled|compiled_part|compiled_in_place|entry_in_place|inlined)\b", re.MULTILINE)
"""Decorators of functions that Numba compiles."""
OPTIONS = ("-n", "0", "-s")
BY_ITSELF = "by itself"
"""Name of the tests that stand in no folder of their own."""


def source_files() -> list[str]:
    """Return the files of the copy whose mutants are tried: all of `SOURCES`."""
    return sorted(str(path) for name in SOURCES for path in Path(name).rglob("*.py"))


def room_of(file: str) -> str:
    """Return the folder that a file counts for: a room of the package, or one of `policies`."""
    return "/".join(file.split("/")[:-1][:2])


def is_compiled(file: str) -> bool:
    """Return whether a file has functions that Numba compiles."""
    return bool(COMPILED.search(Path(file).read_text()))


def folders_of_tests() -> dict[str, list[str]]:
    """Return the tests of each folder, by its name; those in none are `BY_ITSELF`."""
    there = sorted(path for path in Path("tests").iterdir() if any(path.rglob("test_*.py")))
    alone = sorted(f"tests/{path.name}" for path in Path("tests").glob("test_*.py"))
    return {path.name: [f"tests/{path.name}"] for path in there} | {BY_ITSELF: alone}


def own_tests(file: str) -> list[str]:
    """Return the folders of tests of a file: those named as one of its folders, else those `BY_ITSELF`."""
    folders = folders_of_tests()
    found = [part for part in file.split("/")[:-1] if part in folders and part not in SOURCES[:1]]
    return found or [BY_ITSELF]


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
        if "strict=True" in before and "strict=True" not in after:
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


def code_of(name: str, at: int) -> str:
    """Return the code of a file with one of its mutants."""
    return Mutants.of(name).found[at][1]()


def name_of(mutant: dict[str, Any]) -> str:
    """Return a text that tells a mutant from all others."""
    return json.dumps([mutant[name] for name in (*KEY, "line", "column")])


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


class TooLong(pytest.skip.Exception):
    """Ends a test that takes longer than a mutant has."""


class Reached:
    """A pytest plugin that records the lines each test reaches and the seconds it takes."""

    def __init__(self, test_s: float) -> None:
        from coverage import Coverage

        self.test_s = test_s
        self.coverage = Coverage(data_file=None, source=[str(Path.cwd() / name) for name in SOURCES])
        self.coverage.start()
        self.seconds = dict[str, float]()
        self.setup_s = dict[str, float]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Name the test in what coverage records."""
        self.coverage.switch_context(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Measure what the tests of a file need set up, which later tests of it find."""
        begun = time.process_time()
        with limited(SETUP_S):
            result = yield
        path = item.nodeid.partition("::")[0]
        self.setup_s[path] = max(self.setup_s.get(path, 0.0), time.process_time() - begun)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Measure a test; one that fails or takes too long is not among those with a time."""
        begun = time.process_time()
        with limited(self.test_s):
            result = yield
        self.seconds[item.nodeid] = time.process_time() - begun
        return result

    def write(self, path: Path) -> None:
        """Write the tests by file and line, cheapest first and no more than a mutant has time for."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = dict[str, dict[int, list[str]]]()
        for name in data.measured_files():
            by_line = lines[str(Path(name).relative_to(Path.cwd()))] = {}
            for line, tests in data.contexts_by_lineno(name).items():
                known = sorted((self.seconds[test], test) for test in tests if test in self.seconds)
                chosen, left_s = list[str](), self.test_s
                for test_s, test in known:
                    left_s -= test_s
                    if left_s >= 0:
                        chosen.append(test)
                by_line[line] = chosen
        path.write_text(json.dumps({"lines": lines, "seconds": self.seconds, "setup_s": self.setup_s}))


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Skip a test that takes more processor time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong("takes too long")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


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
        known = {name_of(one): one for one in self.done}
        self.done = []
        for mutant, code in self.given.mutants:
            name = name_of(mutant)
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
        own = tuple(
            f"tests/{name}/" if name != BY_ITSELF else "tests/test_" for name in own_tests(mutant["file"])
        )
        known = found & seconds.keys() & self.items.keys()
        ordered = sorted((not test.startswith(own), seconds[test], test) for test in known)
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
        source, stat = path.read_text(), path.stat()
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
                hidden = "sys.modules['numba'] = None; " if is_compiled(mutant["file"]) else ""
                start = f"import sys; {hidden}import pytest; sys.exit(pytest.main(sys.argv[1:]))"
                command = [sys.executable, "-c", start, "-n0", "-x", "--hypothesis-seed=0", *tests]
                return subprocess.run(command).returncode
            for one, body in live:
                one.__code__ = body
            for test, following in zip(tests, [*tests[1:], None], strict=True):
                # Of processor time, which a busy machine does not lengthen.
                needed_s = self.reached["seconds"][test] + self.reached["setup_s"][test.partition("::")[0]]
                limit_s = int(time.process_time() + 5 + 5 * needed_s)
                resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
                then = self.items.get(following)
                session.config.hook.pytest_runtest_protocol(item=self.items[test], nextitem=then)
                if session.testsfailed:
                    return 1
            return 0

        path.write_text(code())
        status = forked(run, WALL_LIMIT_S) if tests else 0
        path.write_text(source)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        found = {0: "survived", None: "timeout", -signal.SIGXCPU: "timeout"}.get(status, "killed")
        return {"status": found, "tests": len(tests), "s": round(time.perf_counter() - begun, 2)}


def interval(killed: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    z, share = 1.96, killed / total
    middle = share + z * z / (2 * total)
    half = z * (share * (1 - share) / total + (z / (2 * total)) ** 2) ** 0.5
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def report(done: list[dict[str, Any]]) -> None:
    """Print the score by room, with equivalent mutants left out."""
    equivalent = {tuple(one[name] for name in KEY) for one in json.loads(EQUIVALENT.read_text())}
    valid = [one for one in done if one["status"] != "invalid"]
    survives = lambda one: one["status"] == "survived"  # noqa: E731
    rest = [one for one in valid if not survives(one) or tuple(one[name] for name in KEY) not in equivalent]
    for room in (*sorted({room_of(one["file"]) for one in rest}), ""):
        found = [one for one in rest if room in ("", room_of(one["file"]))]
        killed = sum(not survives(one) for one in found)
        low, high = interval(killed, len(found))
        share = f"{killed / len(found):.1%} ({low:.1%} to {high:.1%})"
        print(f"{room or 'all':26} {killed:5} of {len(found):5} killed, {share}")
    print(f"left out: {len(valid) - len(rest)} equivalent, {len(done) - len(valid)} that do not compile")


def record(folder: Path, name: str, tests: list[str], test_s: float) -> None:
    """Record what the tests of a folder reach, unless that is done."""
    path = folder / f"{name.replace(' ', '-')}.json"

    def do() -> int:
        plugin = Reached(test_s)
        pytest.main([*OPTIONS, f"--basetemp={folder / 'tmp'}", *tests], plugins=[plugin])
        plugin.write(path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
        return 0

    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        forked(do, 7200.0)
        if not path.is_file():
            sys.exit(f"the tests of {name} end without a record: run them")
        made = json.loads(path.read_text())
        print(f"recorded {name}: {len(made['seconds'])} tests", flush=True)


def recorded(folder: Path, names: list[str]) -> dict[str, Any]:
    """Return what was recorded of folders of tests as if of one."""
    found: dict[str, Any] = {"lines": {}, "seconds": {}, "setup_s": {}}
    for name in names:
        one = json.loads((folder / f"{name.replace(' ', '-')}.json").read_text())
        found["seconds"] |= one["seconds"]
        found["setup_s"] |= one["setup_s"]
        for file, by_line in one["lines"].items():
            lines = found["lines"].setdefault(file, {})
            for line, tests in by_line.items():
                lines.setdefault(line, []).extend(tests)
    return found


def try_mutants(given: argparse.Namespace, work: Path, plain: bool) -> None:
    """Try those of the mutants that need Numba left out, or the others."""
    given.mutants = [one for one in given.mutants if is_compiled(one[0]["file"]) == plain]
    if not given.mutants:
        return
    folders = folders_of_tests()
    names = [*folders]
    if plain:
        sys.modules["numba"] = None  # type: ignore[assignment]
        names = sorted({name for file in source_files() if is_compiled(file) for name in own_tests(file)})
    names = [name for name in names if not given.tests or name in given.tests]
    folder = work / ("reached-plain" if plain else "reached")
    for name in names:
        record(folder, name, folders[name], given.test_s)
    tests = [test for name in names for test in folders[name]]
    with (work / "results.jsonl").open("a+") as stream:
        stream.seek(0)
        trial = Trial(given, recorded(folder, names), stream)
        trial.done = [json.loads(line) for line in stream]
        pytest.main([*OPTIONS, f"--basetemp={work / 'tmp'}", *tests], plugins=[trial])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="every mutant, in place of a sample")
    parser.add_argument("--rooms", nargs="+", help="of the sample, only mutants of these, as clustergym/sim")
    parser.add_argument("--tests", nargs="+", help="only these folders of tests, as sim; else all")
    parser.add_argument("--test-s", type=float, default=4.0, help="most seconds of tests per mutant")
    given = parser.parse_args()
    work, copy = given.work.resolve(), given.work.resolve() / "checkout"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    if (ROOT.parent / "shared").is_dir() and not (work / "shared").exists():
        (work / "shared").symlink_to(ROOT.parent / "shared")
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])}
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1"}
    sys.path[0] = str(copy)
    sys.dont_write_bytecode = True
    names = source_files()
    # Only where they are: the trees of all files would take more memory than the tests have.
    counts = counted(work / "mutants.json", names)
    mutants = [(name, at) for name in names for at in range(counts[name])]
    print(f"{len(mutants)} mutants in {len(names)} files of {len({*map(room_of, names)})} rooms", flush=True)
    random.Random(given.seed).shuffle(mutants)
    chosen = mutants if given.all else mutants[: given.sample]
    chosen = [one for one in chosen if not given.rooms or room_of(one[0]) in given.rooms]
    told = {(name, at): Mutants.of(name).found[at][0] for name, at in sorted(chosen)}
    # In random order, so that a part of the sample is a sample.
    given.mutants = [(told[one], partial(code_of, *one)) for one in chosen]
    wanted = {name_of(mutant) for mutant, _ in given.mutants}
    for plain in (False, True):
        child = os.fork()  # With and without Numba imported.
        if child == 0:
            try_mutants(given, work, plain)
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
    results = work / "results.jsonl"
    done = [json.loads(line) for line in results.read_text().splitlines()]
    report([one for one in done if name_of(one) in wanted])


if __name__ == "__main__":
    main()
