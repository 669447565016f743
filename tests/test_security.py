"""SECURITY.md says what is so: limits are those of the readers, its tests exist, no reader runs code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from clustergym.agents import checkpoints
from clustergym.common import errors, yaml_file
from clustergym.common import text_files as files
from clustergym.results import decision_log
from clustergym.results import result_files as results
from clustergym.results.report import event_curves as logs
from clustergym.results.report import series as tables

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
SOURCES = sorted([*(ROOT / "clustergym").rglob("*.py"), *(ROOT / "policies").rglob("*.py")])
RUNS = {
    *("eval", "exec", "__import__", "pickle.load", "pickle.loads", "marshal.loads", "torch.load"),
    *("dill.load", "yaml.unsafe_load", "yaml.full_load", "shelve.open", "joblib.load", "os.system"),
    "hydra.utils.instantiate",
}


def _calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node


def test_nothing_reads_a_pickle_or_runs_a_text() -> None:
    found = [(path.name, ast.unparse(one.func)) for path in SOURCES for one in _calls(path)]
    assert len(found) > 10_000
    # child.py reads what a copy of its own process sends it through a pipe: no file.
    # numba_cache.py makes functions of `compile_fields`'s arguments, which stand in the source (below).
    runs = {("child.py", "pickle.loads"), ("numba_cache.py", "eval")}
    assert {one for one in found if one[1] in RUNS} == runs


def test_functions_are_made_of_texts_in_the_source_alone() -> None:
    users = [path for path in SOURCES if "compile_fields(" in path.read_text(encoding="utf-8")]
    made = [one for path in users for one in _calls(path) if ast.unparse(one.func) == "compile_fields"]
    assert made
    for one in made:
        texts = [*one.args[1:], *(word.value for word in one.keywords)]
        assert all(isinstance(text, ast.Constant) for text in texts), ast.unparse(one)


def test_numpy_never_reads_a_pickle() -> None:
    loads = [one for path in SOURCES for one in _calls(path) if ast.unparse(one.func) == "np.load"]
    assert loads
    for call in loads:
        assert "allow_pickle=False" in ast.unparse(call)


LIMITS = [
    ("over 4 MB, 40 levels, 100,000 values", yaml_file, {"LARGEST_BYTES": 4_000_000, "DEEPEST": 40}),
    ("100,000 values once aliases are written out", yaml_file, {"LARGEST_NODES": 100_000}),
    (
        "over 512 MiB, 1,000 columns or 10 million rows",
        files,
        {"LARGEST_BYTES": 2**29, "MOST_COLUMNS": 1000, "MOST_ROWS": 10**7},
    ),
    ("over 16 MiB or 40 levels", results, {"LARGEST_BYTES": 2**24}),
    ("a line over 4 MB", logs, {"LONGEST_LINE_BYTES": 4_000_000}),
    ("a line over 4 MB", decision_log, {"LONGEST_LINE_BYTES": 4_000_000}),
    (
        "unpacked over 256 MB or 500,000 decisions",
        decision_log,
        {"LARGEST_BYTES": 256_000_000, "MOST_CHANGES": 500_000},
    ),
    ("1 GiB or 3 million events", logs, {"LARGEST_FILE_BYTES": 2**30, "MOST_EVENTS": 3_000_000}),
    ("over 128 MiB; jobs", tables, {"LARGEST_BYTES": 2**27}),
    ("over 64 MiB; weights", checkpoints, {"LARGEST_BYTES": 2**26}),
]


@pytest.mark.parametrize(("words", "reader", "limits"), LIMITS)
def test_limits_are_those_of_the_readers(words: str, reader: ModuleType, limits: dict[str, int]) -> None:
    assert words in TEXT
    assert {name: getattr(reader, name) for name in limits} == limits


def test_a_line_is_short() -> None:
    assert "one line of at most 2,000 characters" in TEXT
    long = "x" * 10**6
    line = str(errors.InputError(long, file=long, line=10**9, field=long, remedy=long))
    assert 1500 < len(line) <= 2000


def test_what_it_names_exists() -> None:
    for name in re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`|`([a-z_/]+/)`", TEXT):
        assert any((folder / "".join(name)).exists() for folder in (ROOT, ROOT / "clustergym")), name
    tests = re.findall(r"tests/[\w/]+\.py", TEXT)
    assert len(tests) == 16
    assert all((ROOT / name).is_file() for name in tests)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_a_reader_finds_it(name: str) -> None:
    assert "(SECURITY.md)" in (ROOT / name).read_text(encoding="utf-8")
