"""Dense tables on disk: equal to a build, whatever happened to the files and whoever wrote them."""

import io
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from python_process import run_python

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.common.errors import InputError
from clustergym.oracle import table_cache as build
from clustergym.oracle import table_cache as cache
from clustergym.oracle.base import Oracle, OracleTables
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
from clustergym.oracle.table_cache import (
    Store,
    cache_folder,
    cache_keys,
    load_or_build_tables,
    pack,
    stack_tables,
    unpack,
)

ORACLE = RooflineOracle()
CLUSTER = load_cluster("arena-sim")
COUNTS = [1, 2, 4, 8]
CLASSES = [
    ModelClass("gpt3", "760M", 128),
    ModelClass("wide_resnet", "13B", 256),
    ModelClass("gshard_moe", "690M", 256),
]
SHAPE = (3, 4, len(COUNTS), 4)


class Counting(Oracle):
    """The roofline oracle, with a record of what it was asked to build."""

    name = "counting"

    def __init__(self, version: int = 1) -> None:
        self.catalog, self.version = load_catalog(), version
        self.built: list[ModelClass] = []

    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        self.built += classes
        return ORACLE.tables(classes, cluster, counts)

    def fingerprint(self) -> dict[str, object]:
        return {"name": self.name, "version": self.version}


def test_what_comes_from_the_cache_is_what_a_build_gives(tmp_path: Path) -> None:
    oracle, direct = Counting(), ORACLE.tables(CLASSES, CLUSTER, COUNTS)
    for _ in range(2):
        found = load_or_build_tables(oracle, CLASSES, CLUSTER, COUNTS, folder=tmp_path)
        assert found.sha256 == direct.sha256
        assert found.classes == tuple(CLASSES)
        assert found.counts.dtype == np.int64
    assert oracle.built == CLASSES


def test_only_missing_classes_are_built_and_order_and_repeats_are_kept(tmp_path: Path) -> None:
    oracle = Counting()
    load_or_build_tables(oracle, CLASSES[:1], CLUSTER, COUNTS, folder=tmp_path)
    wanted = [CLASSES[2], CLASSES[0], CLASSES[2]]
    found = load_or_build_tables(oracle, wanted, CLUSTER, COUNTS, folder=tmp_path)
    assert oracle.built == [CLASSES[0], CLASSES[2]]
    assert found.sha256 == ORACLE.tables(wanted, CLUSTER, COUNTS).sha256


def test_no_classes_are_an_empty_table(tmp_path: Path) -> None:
    found = load_or_build_tables(ORACLE, [], CLUSTER, COUNTS, folder=tmp_path)
    assert found.sha256 == ORACLE.tables([], CLUSTER, COUNTS).sha256


def test_all_that_a_table_depends_on_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> set[str]:
        arguments = [
            (Counting(), CLASSES, CLUSTER, COUNTS),
            (Counting(version=2), CLASSES, CLUSTER, COUNTS),
            (ORACLE, CLASSES, CLUSTER, COUNTS),
            (Counting(), CLASSES, load_cluster("arena-a"), COUNTS),
            (Counting(), CLASSES, CLUSTER, [1, 2, 4]),
            (Counting(), [CLASSES[0]._replace(global_batch=256)], CLUSTER, COUNTS),
        ]
        return {key for given in arguments for key in cache_keys(*given)}

    first = keys()
    # Five sets of three classes and one of a single class, all different.
    assert len(first) == 5 * 3 + 1
    monkeypatch.setattr(cache, "__version__", "another")
    second = keys()
    monkeypatch.setattr(cache, "SCHEMA", cache.SCHEMA + 1)
    assert len(first | second | keys()) == 3 * len(first)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The file of the first class, written by a first call."""
    load_or_build_tables(ORACLE, CLASSES[:1], CLUSTER, COUNTS, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    return path


def rebuilt(path: Path) -> bool:
    """Ask for the class again; whether it had to be built, with the right tables and file at the end."""
    oracle, sound = Counting(), pack(path.stem, stack_tables(ORACLE.tables(CLASSES[:1], CLUSTER, COUNTS))[0])
    oracle.fingerprint = ORACLE.fingerprint  # type: ignore[method-assign]
    found = load_or_build_tables(oracle, CLASSES[:1], CLUSTER, COUNTS, folder=path.parent)
    assert found.sha256 == ORACLE.tables(CLASSES[:1], CLUSTER, COUNTS).sha256
    assert path.read_bytes() == sound
    return oracle.built == CLASSES[:1]


def test_a_sound_file_is_not_rebuilt(kept: Path) -> None:
    assert not rebuilt(kept)


def test_truncation_at_any_length_is_a_rebuild(kept: Path) -> None:
    whole = kept.read_bytes()
    for length in range(len(whole)):
        assert unpack(kept.stem, whole[:length], SHAPE) is None
    for length in (0, 1, 30, 100, len(whole) // 2, len(whole) - 1):
        kept.write_bytes(whole[:length])
        assert rebuilt(kept)


def test_no_flipped_bit_changes_a_table() -> None:
    key = "a" * 64
    stack = stack_tables(ORACLE.tables(CLASSES[:1], CLUSTER, COUNTS))[0]
    whole = pack(key, stack)
    rng = np.random.default_rng([1])
    refused = 0
    for position in rng.integers(0, 8 * len(whole), 1500).tolist():
        damaged = bytearray(whole)
        damaged[position // 8] ^= 1 << (position % 8)
        found = unpack(key, bytes(damaged), SHAPE)
        refused += found is None
        assert found is None or found.tobytes() == stack.tobytes()
    # All but the few bits of the zip format that mean nothing, such as times and attributes.
    assert refused > 1200


class Bomb:
    """What tells on whoever unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("unpickled",)


def test_pickles_are_never_loaded(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(kept.parent)
    buffer = io.BytesIO()
    objects = np.empty(SHAPE, dtype=object)
    objects[:] = Bomb()
    np.savez(buffer, allow_pickle=True, **{kept.stem: objects})
    kept.write_bytes(buffer.getvalue())
    assert rebuilt(kept)
    assert not Path("unpickled").exists()


@pytest.mark.parametrize(
    "array",
    [
        np.ones((3, 4, 5, 4)),
        np.ones(SHAPE, dtype=np.float32),
        np.ones(SHAPE, dtype=">f8"),
        np.full(SHAPE, np.nan),
        np.zeros(SHAPE),
        np.array(1.0),
    ],
    ids=["shape", "precision", "byte order", "nan", "zero", "scalar"],
)
def test_a_sound_file_of_another_array_is_a_rebuild(kept: Path, array: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{kept.stem: array})
    kept.write_bytes(buffer.getvalue())
    assert rebuilt(kept)


def test_the_file_of_another_class_is_a_rebuild(kept: Path) -> None:
    other = stack_tables(ORACLE.tables(CLASSES[1:2], CLUSTER, COUNTS))[0]
    (key,) = cache_keys(ORACLE, CLASSES[1:2], CLUSTER, COUNTS)
    kept.write_bytes(pack(key, other))
    assert rebuilt(kept)


def test_a_folder_that_cannot_be_written_is_noted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for _ in range(2):
        found = load_or_build_tables(ORACLE, CLASSES, CLUSTER, COUNTS, folder=tmp_path / "file" / "cache")
        assert found.sha256 == ORACLE.tables(CLASSES, CLUSTER, COUNTS).sha256
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"note: the cache {tmp_path}/file/cache cannot be written (" in told


def test_writers_at_once_leave_whole_files_and_nothing_else(tmp_path: Path) -> None:
    stack = stack_tables(ORACLE.tables(CLASSES[:1], CLUSTER, COUNTS))[0]
    key, stop, bad = "b" * 64, threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            Store(tmp_path).write(key, stack)

    def read() -> None:
        while not stop.is_set():
            path = tmp_path / f"{key}.npz"
            if path.exists() and Store(tmp_path).read(key, stack.shape) is None:
                bad.append(path.stat().st_size)

    threads = [threading.Thread(target=work) for work in (write, write, write, read, read)]
    for thread in threads:
        thread.start()
    time.sleep(0.4)
    stop.set()
    for thread in threads:
        thread.join()
    assert bad == []
    assert [path.name for path in tmp_path.iterdir()] == [f"{key}.npz"]


@pytest.mark.slow
def test_an_unknown_class_is_one_error_and_what_was_built_before_is_kept(tmp_path: Path) -> None:
    sound = [ModelClass("gpt3", "760M", batch) for batch in range(1, build.CLASSES_AT_ONCE + 1)]
    classes = [*sound, ModelClass("gpt3", "2.7B", 128), ModelClass("gpt", "1B", 1)]
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        with pytest.raises(InputError, match=r"unknown size '2\.7B'.*did you mean 6\.7B or 2\.6B"):
            load_or_build_tables(ORACLE, classes, CLUSTER, COUNTS, folder=folder, processes=processes)
        # In two processes the eight classes are built four at a time.
        assert len(list(folder.iterdir())) == (6 if processes == 1 else 4)


def test_fewer_than_one_process_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 processes cannot build"):
        load_or_build_tables(ORACLE, CLASSES, CLUSTER, COUNTS, folder=tmp_path, processes=0)


@pytest.mark.processes
def test_several_processes_build_and_not_this_one(tmp_path: Path) -> None:
    oracle = Counting()
    found = load_or_build_tables(oracle, CLASSES, CLUSTER, COUNTS, folder=tmp_path, processes=2)
    assert found.sha256 == ORACLE.tables(CLASSES, CLUSTER, COUNTS).sha256
    assert oracle.built == []


def test_an_oracle_that_cannot_be_sent_is_used_here(tmp_path: Path) -> None:
    oracle = Counting()
    oracle.lock = threading.Lock()  # type: ignore[attr-defined]
    load_or_build_tables(oracle, CLASSES, CLUSTER, COUNTS, folder=tmp_path, processes=2)
    assert oracle.built == CLASSES


DYING = """
import os
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
class Dying(RooflineOracle):
    def __init__(self):
        super().__init__()
        self.home = os.getpid()
    def tables(self, *arguments):
        if os.getpid() != self.home:
            os._exit(9)
        return super().tables(*arguments)
"""

SCRIPT = """
import sys
print("the script runs")
from clustergym.cluster.cluster_files import load_cluster
from clustergym.oracle.table_cache import load_or_build_tables
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
from clustergym.oracle.models.model_spec import ModelClass
{imports}
classes = [ModelClass("gpt3", size, 128) for size in ("760M", "1.3B", "2.6B")]
cluster = load_cluster("arena-sim")
found = load_or_build_tables({oracle}(), classes, cluster, [1, 2], folder=sys.argv[1], processes=2,
                             progress=True)
assert found.sha256 == RooflineOracle().tables(classes, cluster, [1, 2]).sha256
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("imports", "oracle"), [("", "RooflineOracle"), ("from dying import Dying", "Dying")]
)
def test_a_script_without_a_main_guard_runs_once_even_where_its_processes_die(
    tmp_path: Path, imports: str, oracle: str
) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(imports=imports, oracle=oracle))
    done = run_python(script, tmp_path / "cache")
    # A loaded machine takes so long that the progress is printed.
    printed = [line for line in done.stderr.splitlines() if not line.startswith("oracle tables: ")]
    assert (done.returncode, done.stdout, printed) == (0, "the script runs\n", [])
    assert len(list((tmp_path / "cache").iterdir())) == 3


def test_a_bar_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", shown)
    load_or_build_tables(ORACLE, CLASSES, CLUSTER, COUNTS, folder=tmp_path, progress=True)
    assert "oracle tables" in shown.getvalue()
    assert "100%" in shown.getvalue()


def test_few_classes_are_built_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "cores", lambda: 4)
    assert [build._processes(classes, None) for classes in (0, 11, 24, 54)] == [0, 0, 2, 4]
    assert build._processes(3, 8) == 3


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("CLUSTERGYM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/somebody/.cache/clustergym/tables")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/somebody/.cache/clustergym/tables")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert cache_folder() == Path("/var/cache/me/clustergym/tables")
    monkeypatch.setenv("CLUSTERGYM_CACHE", "~/mine")
    assert cache_folder() == Path("/home/somebody/mine/tables")
    monkeypatch.setenv("CLUSTERGYM_CACHE", str(tmp_path))
    load_or_build_tables(ORACLE, CLASSES, CLUSTER, COUNTS)
    assert len(list((tmp_path / "tables").iterdir())) == 3


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CLUSTERGYM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert cache_folder() is None
    found = load_or_build_tables(ORACLE, CLASSES, CLUSTER, COUNTS)
    assert found.sha256 == ORACLE.tables(CLASSES, CLUSTER, COUNTS).sha256
