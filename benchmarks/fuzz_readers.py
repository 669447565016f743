"""Coverage-guided fuzzing of every reader of files that users bring.

    pip install -e '.[fuzz]'
    python benchmarks/fuzz_readers.py [READER ...] [--seconds 60] [--findings FOLDER]

Readers, and the valid files that mutation starts from, are those of tests/support/readers.py. A finding is
any exception but `InputError`, more than 5 s of CPU, or more than 1 GB of memory; each is kept once for each
place in the code, as a file in the folder of findings. One reader runs after the other, each in a process of
its own; the exit status is 1 if there was a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

MOST_CPU_S = 5.0
MOST_BYTES = 10**9
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
STUCK_S = 60
"""Wall seconds after which libFuzzer ends a reader that does not return; a busy machine needs more than 5."""
DICTIONARY = (
    *("nan", "inf", "-1", "0", "1e999", "1e308", "1e-320", "99999999999999999999", "null", "true", "~", "{}"),
    *(
        "[]",
        '""',
        ",",
        ":",
        "\\xef\\xbb\\xbf",
        "\\x00",
        "\\xff",
        "\\\\ud800",
        "0x10",
        "1_0",
        "\\xd9\\xa3",
        "&a",
    ),
    *("*a", "<<", "- ", "\\x0d", "\\x0a", "\\x09", "!!python", "2020-13-45 25:61:61", "1:2:3", ".5", "1e5"),
)


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63, 10**30),
    *(0.5, -0.0, 1e-320, 1e308, float("inf"), float("nan")),
    *("", "a", "X", "m", "\ud800", "0", "1e999", "a" * 300),
    *([], [[]], {}, {"a": 1}, [1, 2, 3], [["a", "X", 1]]),
)
"""What takes the place of a value of JSON or YAML, or of a cell."""


def mutated(content: bytes, most: int, seed: int) -> bytes:
    """Return an input with a few bytes changed by libFuzzer, or with a value, key or cell changed."""
    import atheris

    rng = random.Random(seed)
    if rng.random() < 0.3:
        return bytes(atheris.Mutate(content, most))
    text = content.decode("utf-8", "surrogateescape")
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice((_json, _json_line, _yaml, _cell))(text, rng)
    return text.encode("utf-8", "surrogatepass")[:most]


def _json(text: str, rng: random.Random) -> str:
    try:
        return json.dumps(_changed(json.loads(text), rng))
    except (ValueError, RecursionError):
        return _json_line(text, rng)


def _json_line(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    try:
        lines[at] = json.dumps(_changed(json.loads(lines[at]), rng))
    except (ValueError, RecursionError):
        return _cell(text, rng)
    if rng.random() < 0.2:
        lines.insert(at, lines[rng.randrange(len(lines))])
    return "\n".join(lines)


def _yaml(text: str, rng: random.Random) -> str:
    try:
        return str(yaml.safe_dump(_changed(yaml.safe_load(text), rng), sort_keys=False))
    except (ValueError, RecursionError, TypeError, yaml.YAMLError):
        return _cell(text, rng)


def _changed(value: Any, rng: random.Random) -> Any:
    """Return a value with one part of it replaced, left out or renamed."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(VALUES)
    key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    way = rng.random()
    if way < 0.08:
        value.pop(key)
    elif way < 0.14 and isinstance(value, dict):
        value[rng.choice([*value, "", "a", 1])] = value.pop(key)
    else:
        value[key] = _changed(value[key], rng)
    return value


def _cell(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    mark = "\t" if "\t" in lines[at] else ","
    cells = lines[at].split(mark)
    cells[rng.randrange(len(cells))] = str(rng.choice((*VALUES, *DICTIONARY, *cells)))
    return "\n".join([*lines[:at], mark.join(cells), *lines[at + 1 :]])


def where(error: BaseException) -> str:
    """Return the innermost line of ours that an exception passed through."""
    ours = [one for one in traceback.extract_tb(error.__traceback__) if "/clustergym/" in one.filename]
    if not ours:
        return "outside"
    return f"{ours[-1].filename.rpartition('/clustergym/')[2].replace('/', '.')}:{ours[-1].lineno}"


def seeds_of(name: str) -> list[Path]:
    """Return the files that mutation starts from."""
    from readers import SEEDS

    return [*sorted((ROOT / "tests" / "regressions" / name).glob("*")), *SEEDS.get(name, ())]


class Target:
    """What libFuzzer calls with each input of one reader."""

    def __init__(self, name: str, findings: Path) -> None:
        from readers import READERS

        self._read, self._name, self._findings = READERS[name], name, findings
        self._places: set[str] = set()

    def __call__(self, content: bytes) -> None:
        """Read one input."""
        from clustergym.common.errors import InputError

        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=IN_MEMORY) as folder:
            began = time.process_time()
            try:
                self._read(content, Path(folder))
            except InputError as error:
                if len(str(error).splitlines()) != 1:
                    self._keep(content, "no-single-line", str(error))
            except Exception as error:
                self._keep(content, f"{type(error).__name__} {where(error)}", str(error))
            if time.process_time() - began > MOST_CPU_S:
                self._keep(content, "slow", f"{time.process_time() - began:.1f} s")

    def _keep(self, content: bytes, place: str, message: str) -> None:
        if place in self._places:
            return
        self._places.add(place)
        file = self._findings / f"{self._name}-{re.sub('[^A-Za-z0-9_.-]+', '-', place)}"
        file.write_bytes(content)
        print(f"finding: {self._name}: {place}: {message[:200]!r} ({len(content)} bytes)", flush=True)


def fuzz(name: str, seconds: int, findings: Path) -> None:
    """Fuzz one reader in this process; does not return."""
    import atheris

    target, corpus = Target(name, findings), Path(tempfile.mkdtemp(prefix="corpus-"))
    seeds = seeds_of(name)
    for at, seed in enumerate(seeds):
        shutil.copy(seed, corpus / str(at))
        target(seed.read_bytes())
    (corpus / "words").write_text("".join(f'"{word}"\n' for word in escaped()), encoding="utf-8")
    words = shutil.move(corpus / "words", Path(tempfile.mkdtemp(prefix="words-")) / "words")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))
    longest = max([4096, *(2 * seed.stat().st_size for seed in seeds)])
    options = {
        "max_total_time": seconds,
        "timeout": STUCK_S,
        "rss_limit_mb": 0,
        "max_len": longest,
        "dict": words,
        "artifact_prefix": f"{findings}/{name}-",
        "verbosity": 0,
        "print_final_stats": 1,
        "seed": 1,
    }
    arguments = [sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), str(corpus)]
    atheris.Setup(arguments, target, custom_mutator=mutated)
    atheris.Fuzz()


def escaped() -> list[str]:
    """Return the dictionary as libFuzzer reads it."""
    return [word.replace('"', '\\"') for word in DICTIONARY]


def run(name: str, seconds: int, findings: Path) -> int:
    """Fuzz one reader in a process of its own; return how many findings there were."""
    before = {path.name for path in findings.iterdir()}
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), sys.stdout.fileno())
            os.dup2(output.fileno(), sys.stderr.fileno())
            fuzz(name, seconds, findings)
        os.waitpid(child, 0)
        output.seek(0)
        lines = output.read().splitlines()
    found = [line for line in lines if line.startswith("finding: ")]
    executed = next((line.split()[-1] for line in lines if "number_of_executed_units" in line), None)
    new = {path.name for path in findings.iterdir()} - before
    ended = "" if executed else f"; ended early: {lines[-1:]}"
    print(f"{name}: {executed or 'unknown'} inputs, {len(found)} findings{ended}", flush=True)
    for line in found:
        print(f"  {line}", flush=True)
    return max(len(found), len(new), 0 if executed else 1)


def main() -> int:
    """Fuzz the named readers, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("reader", nargs="*", help="all, if none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--findings", type=Path, default=Path("outputs/fuzz"))
    given = parser.parse_args()
    import atheris

    # What was imported before is not instrumented any more.
    with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["clustergym"]):
        from readers import READERS
    unknown = sorted(set(given.reader) - READERS.keys())
    if unknown:
        parser.error(f"unknown reader {unknown[0]!r}: name some of {', '.join(READERS)}")
    given.findings.mkdir(parents=True, exist_ok=True)
    total = [run(name, given.seconds, given.findings.resolve()) for name in given.reader or READERS]
    return 1 if any(total) else 0


if __name__ == "__main__":
    sys.exit(main())
