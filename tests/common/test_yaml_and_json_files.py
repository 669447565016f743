"""YAML, JSON and JSON lines of others: what is read, and the exact line for each thing that is not."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_lines import line_of, refuses
from refusals import Said, refused

from clustergym.common import kubernetes, processes, reading, writing, yaml_file
from clustergym.common.errors import InputError
from clustergym.common.kubernetes import KubernetesObject, read_objects
from clustergym.common.left_out import recording
from clustergym.common.yaml_file import field_name, parse_mapping, read_mapping


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, so that names of files are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_lines_of_a_mapping() -> None:
    text = "a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\n7: seven\n"
    Path("m.yaml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    made = read_mapping(Path("m.yaml"))
    assert made.content == {"a": 1, "b": ["x", {"c": 2, "d": 3}], 7: "seven"}
    assert made.path == Path("m.yaml")
    for keys, line in (
        ((), 1), (("a",), 1), (("b",), 2), (("b", 0), 3), (("b", 1), 4), (("b", 1, "d"), 5),
        (("b", 1, "e"), 4),
        (("b", 2), 2), ((7,), 6), (("7",), 6), (("a", "x"), 1), (("z",), 1), (("b", "x"), 2),
    ):  # fmt: skip
        assert made.line(keys) == line, keys
    assert field_name(("nodes", 0, "count")) == "nodes[0].count"
    assert field_name((1, "a")) == "[1].a"


DEEP = "a: " + "[" * 39 + "1" + "]" * 39


@refused("yaml")
def test_yaml_that_is_refused(given: str, said: Said) -> None:
    with said.of_error():
        parse_mapping(given.encode(), Path("m.yaml"))


def test_yaml_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("m.yaml")
    assert parse_mapping(DEEP.encode(), path).content
    assert parse_mapping(b"a: " + b"1" * 100, path).content["a"] == int("1" * 100)
    # Of a: the mapping, its key, the list, three values: 6. Of b: its key, and the list again.
    text = b"a: &x [1, 2, 3]\nb: *x\n"
    monkeypatch.setattr(yaml_file, "LARGEST_NODES", 11)
    assert parse_mapping(text, path).content == {"a": [1, 2, 3], "b": [1, 2, 3]}
    monkeypatch.setattr(yaml_file, "LARGEST_NODES", 10)
    refuses(
        lambda: parse_mapping(text, path),
        "m.yaml:1: stands for more than 10 values once its aliases are written out (use fewer aliases)",
    )
    monkeypatch.setattr(yaml_file, "LARGEST_BYTES", 5)
    path.write_text("a: 12")
    assert read_mapping(path).content == {"a": 12}
    path.write_text("a: 123")
    refuses(lambda: read_mapping(path), "m.yaml: is larger than 5 bytes (give a YAML file)")


def test_yaml_files_that_are_none() -> None:
    Path("mine.yaml").write_bytes(b"a: 1\nb: \xff\n")
    Path("mien.txt").touch()
    refuses(lambda: read_mapping(Path("mine.yaml")), "mine.yaml:2: is not UTF-8 text (save it as UTF-8)")
    refuses(lambda: read_mapping(Path("mien.yaml")), "mien.yaml: no such file (did you mean mine.yaml?)")
    refuses(
        lambda: read_mapping(Path("no/m.yaml")),
        "no/m.yaml: no such file (there is no folder no that can be read)",
    )
    refuses(lambda: read_mapping(Path(".")), ".: is a folder (give a YAML file)")
    refuses(
        lambda: read_mapping(Path("/dev/null")), "/dev/null: is not a regular file (save it to a file first)"
    )


READ = "j: not JSON that can be read: ValueError: "


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"{\n1}", "j:2: not JSON, or cut short: Expecting property name enclosed in double quotes (mend)"),
        (b"\xff", "j: not UTF-8 text (mend)"),
        (b"NaN", READ + "NaN is not a JSON number (mend)"),
        (b"-Infinity", READ + "-Infinity is not a JSON number (mend)"),
        (b"1e999", READ + "1e999 is beyond the largest number (mend)"),
        (b"1" * 301, f"{READ}{'1' * 20}… is a number of more than 300 digits (mend)"),
    ],
)
def test_json_that_is_refused(content: bytes, line: str) -> None:
    refuses(lambda: reading.parse_json(content, Path("j"), "mend"), line)


def test_json() -> None:
    assert reading.parse_json("\ufeff[1, 2.5]".encode(), Path("j"), "mend") == [1, 2.5]
    assert reading.parse_json(b"1" * 300, Path("j"), "mend") == int("1" * 300)
    assert "RecursionError" in line_of(lambda: reading.parse_json(b"[" * 100_000, Path("j"), "mend"))
    path = Path("j")
    path.write_text("[1]")
    assert reading.read_json(path, 3, "mend") == [1]
    refuses(lambda: reading.read_json(path, 2, "mend"), "j: is larger than 2 bytes (mend)")
    refuses(
        lambda: reading.read_json(Path("x"), 2, "mend"), "x: cannot be read: No such file or directory (mend)"
    )
    refuses(lambda: reading.read_regular(Path("."), 2, "mend"), ".: cannot be read: Is a directory (mend)")
    assert "null byte" in line_of(lambda: reading.read_regular(Path("a\0b"), 2, "mend"))
    os.mkfifo("pipe")
    refuses(lambda: reading.read_regular(Path("pipe"), 2, "mend"), "pipe: is not a regular file (mend)")


def test_json_lines() -> None:
    path = Path("l.gz")
    lines = b'{"a": 1}\n{"b": [2]}\n'

    def read(content: bytes = lines, largest: int = 100, longest: int = 50, cut: int | None = None) -> Any:
        path.write_bytes(gzip.compress(content)[:cut])
        made = reading.read_json_lines(path, largest_bytes=largest, longest_line_bytes=longest, remedy="mend")
        return list(made)

    assert read() == read(largest=20, longest=11) == [(1, {"a": 1}), (2, {"b": [2]})]
    packed = reading.read_json_lines(
        Path("none"), largest_bytes=99, longest_line_bytes=9, remedy="", packed=gzip.compress(b"{}")
    )
    assert list(packed) == [(1, {})]
    refuses(lambda: read(longest=10), "l.gz:2: is longer than 10 bytes (mend)")
    refuses(lambda: read(largest=19), "l.gz:2: the log unpacks to more than 19 bytes (mend)")
    refuses(lambda: read(b"{}\n[]\n"), "l.gz:2: is not a JSON object (mend)")
    refuses(lambda: read(b"{}\n{\n"), "l.gz:2: is not JSON (mend)")
    assert line_of(lambda: read(cut=-9)).startswith("l.gz: cannot be read: Compressed file ended before")
    path.write_bytes(b"plain")
    made = reading.read_json_lines(path, largest_bytes=9, longest_line_bytes=9, remedy="mend")
    assert line_of(lambda: list(made)).startswith("l.gz: cannot be read: Not a gzipped file")


def test_plain_values() -> None:
    given = {
        1: np.float64(1.5),
        "a": (np.int64(2), float("nan")),
        "b": np.array([1.0, np.inf]),
        "c": [None, True],
    }
    assert writing.plain(given) == {"1": 1.5, "a": [2, None], "b": [1.0, None], "c": [None, True]}
    writing.write_json(Path("made/w.json"), given)
    assert Path("made/w.json").read_text() == json.dumps(writing.plain(given), indent=2) + "\n"
    writing.write_json(None, object())
    writing.write_text(Path("é"), "é")
    assert Path("é").read_bytes() == "é".encode()


def test_files_are_written_all_or_none() -> None:
    Path("old").write_text("old")
    Path("folder").mkdir()
    refuses(
        lambda: writing.write_files({Path("old"): b"new", Path("folder"): b""}, "--out"),
        "folder: --out: is a folder (name a file in it)",
    )
    refuses(
        lambda: writing.write_files({Path("old"): b"new", Path("old/x"): b""}, "--out"),
        "old/x: --out: cannot be written: Not a directory (make room, or name another file)",
    )
    refuses(lambda: writing.write_json(Path("folder"), 1), "folder: --json: is a folder (name a file in it)")
    assert Path("old").read_text() == "old"

    def write_half() -> None:
        with writing.atomic_path(Path("old")) as made:
            made.write_text("half")
            assert (made.parent, made.suffixes[-1]) == (Path.cwd(), ".tmp")
            assert f".{os.getpid()}." in made.name
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert Path("old").read_text() == "old"
    assert sorted(path.name for path in Path().iterdir()) == ["folder", "old"]
    writing.write_files({Path("old"): b"new", Path("other"): b"x"})
    assert (Path("old").read_text(), Path("other").read_text()) == ("new", "x")


CLUSTER_QUEUE: dict[str, Any] = {
    "kind": "ClusterQueue",
    "metadata": {"name": "team", "labels": {"a": 1}},
    "spec": {
        "nodeLabels": {"b": "x"},
        "weight": 3,
        "on": True,
        "groups": [{"size": 2}, {"kind": "Other"}],
        "bad": [1],
    },
}


def test_objects_of_kubernetes() -> None:
    one = KubernetesObject(Path("k"), CLUSTER_QUEUE)
    assert (one.kind, one.name) == ("ClusterQueue", "team")
    assert (one.text("spec.weight"), one.text("spec.none")) == ("3", "")
    assert one.get("spec.weight", int, 0) == 3
    assert one.get("spec.none.deeper", int, 7) == 7
    assert (one.flag("spec", "on"), one.flag("spec", "weight"), one.flag("no", "on")) == (True, False, False)
    assert one.labels() == {"a": "1", "b": "x"}
    first, second = one.items("spec.groups")
    assert (first.kind, first.name, first.get("size", int, 0)) == ("ClusterQueue", "team", 2)
    assert second.kind == "Other"
    assert one.items("spec.none") == []
    groups, other = CLUSTER_QUEUE["spec"]["groups"], "is of another type than expected:"
    nameless = KubernetesObject(Path("k"), {"metadata": {"name": []}})
    for do, line in (
        (lambda: one.get("spec.on", int, 0), f"spec.on: {other} 'True'"),
        (lambda: one.get("spec.groups", str, ""), f"spec.groups: {other} {str(groups)[:40]!r}"),
        (lambda: one.items("spec.bad"), "spec.bad: is not a list of objects"),
        (lambda: kubernetes.quantity(one, "x", "1.5"), "x: '1.5' is no number of GPUs"),
        (lambda: kubernetes.quantity(one, "x", True), "x: 'True' is no number of GPUs"),
        (lambda: kubernetes.quantity(one, "x", 1000001), "x: '1000001' is no number of GPUs"),
        (lambda: kubernetes.quantity(one, "x", "٣"), "x: '٣' is no number of GPUs"),
    ):
        refuses(do, f"k: ClusterQueue team: {line} (print it with kubectl get KIND -A -o json)")
    assert line_of(lambda: nameless.name).startswith(f"k: metadata.name: {other} '[]' (print it")
    assert line_of(lambda: KubernetesObject(Path("k"), {"kind": ["x"]}).kind).startswith(f"k: kind: {other}")
    assert [kubernetes.quantity(one, "x", value) for value in ("0", 8, "1000000")] == [0, 8, 10**6]


def test_lists_of_kubernetes() -> None:
    path = Path("k")

    def read(text: str) -> list[str]:
        path.write_text(text)
        return [one.kind for one in read_objects(path, ("A", "B"))]

    assert read('{"items": [{"kind": "A"}, {"kind": "B"}]}') == ["A", "B"]
    assert read(' [{"kind": "A"}, {"kind": "B"}]') == ["A", "B"]
    assert read('{"kind": "A"}') == read("kind: A\n") == read("items:\n- kind: A\n") == ["A"]
    assert read("# printed\n---\nkind: A\n---\n---\nkind: B\n") == ["A", "B"]
    assert read('{"items": []}') == []
    with recording() as notes:
        assert read('{"items": [{"kind": "C"}, {"kind": "A", "xq": 1, "spec": {"y": 2}}], "z": 3}') == ["A"]
    assert notes.lines() == ["left out 1 object: C is not read", "not read: List z, A xq"]
    printed = "(print it with kubectl get KIND -A -o json)"
    refuses(lambda: read("[1]"), f"k: is not a list of Kubernetes objects {printed}")
    refuses(lambda: read("{}"), f"k: kind: has an object without a kind {printed}")


def test_cores_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    quota = Path("cpu.max")
    monkeypatch.setattr(processes, "QUOTA", quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert processes.cores() == 4
    for text, cores in (("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 4)):
        quota.write_text(text)
        assert processes.cores() == cores
    assert [processes.check_processes(value) for value in (0, 3, "ray")] == [0, 3, "ray"]
    refuses(
        lambda: processes.check_processes(-1),
        "processes: -1 is no count (give 0 for one per core, more, or ray)",
    )
    assert line_of(lambda: processes.check_processes("two", "workers")).startswith(
        "workers: 'two' is no count"
    )


def test_work_in_this_process() -> None:
    prepared: list[int] = []
    with processes.workers(1, prepare=lambda: prepared.append(1)) as run:
        assert list(run(str, [1, 2])) == ["1", "2"]
    assert prepared == [1]
    assert list(processes.in_order(str, [3, 1, 2])) == ["3", "1", "2"]
    assert list(processes.in_order(str, [])) == []
    told = r"^processes: one was ended before its work was done \(give fewer if memory ran out\)$"
    with pytest.raises(InputError, match=told), processes.report_lost_processes():
        raise processes.BrokenProcessPool
