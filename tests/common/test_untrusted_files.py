"""Every reader of a file that others may have made: pipes, devices, bombs and edits end in one line."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_process import run_python
from refusals import Said, refused

from clustergym.commands import collect, replay, run, trace
from clustergym.commands.report import main as report
from clustergym.common.errors import InputError, alike, visible, visible_all
from clustergym.oracle.table_cache import Store, pack

Command = Callable[[Path], int]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of six jobs."""
    out: Path = tmp_path_factory.mktemp("runs") / "out"
    words = ["cluster=arena-16", "trace=philly-like", "trace.jobs=6", "policy=fcfs", "compare=null"]
    assert run.main([*words, "progress=false", "table=false", "report=false", f"hydra.run.dir={out}"]) == 0
    return out


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def replayed(folder: Path) -> int:
    return replay.main([str(folder)])


def collected(folder: Path) -> int:
    return collect.main([str(folder)])


def reported(folder: Path) -> int:
    return report([str(folder), "--out", str(folder.parent / "page.html")])


READ_BY: dict[str, list[Command]] = {
    "result.json": [collected, reported, replayed],
    "config.yaml": [replayed],
    "decisions.jsonl.gz": [replayed],
    "events.jsonl.gz": [reported],
    "jobs.csv": [reported],
    "timeline.csv": [reported],
}


def told(command: Command, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of a command that has to end in exit status 2."""
    capsys.readouterr()
    assert command(folder) == 2
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert line.isprintable()
    assert len(line) < 2100
    return line


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, device, Path.mkdir])
@pytest.mark.parametrize("name", READ_BY)
def test_only_regular_files_are_read(
    name: str, make: Callable[[Path], None], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).unlink()
    make(folder / name)
    for command in READ_BY[name]:
        line = told(command, folder, capsys)
        assert name in line
        assert "not a regular file" in line or "irectory" in line or "is a folder" in line


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def _pack(path: Path, lines: list[Any]) -> None:
    path.write_bytes(gzip.compress("\n".join(json.dumps(line) for line in lines).encode()))


def event(kind: str, **changes: Any) -> Callable[[Path], None]:
    """Change the first event of a kind."""

    def change(folder: Path) -> None:
        lines = _lines(folder / "events.jsonl.gz")
        at = next(at for at, line in enumerate(lines) if line["kind"] == kind)
        lines[at] |= changes
        _pack(folder / "events.jsonl.gz", lines)

    return change


def header(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        first, *rest = _lines(folder / "decisions.jsonl.gz")
        _pack(folder / "decisions.jsonl.gz", [first | changes, *rest])

    return change


def result(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / "result.json").read_text())
        (folder / "result.json").write_text(json.dumps(content | changes))

    return change


def metric(value: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / "result.json").read_text())
        content["metrics"]["jct_mean"] = value
        (folder / "result.json").write_text(json.dumps(content))

    return change


def text(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = (folder / name).read_text()
        assert old in content
        (folder / name).write_text(content.replace(old, new, 1))

    return change


def field(name: str, column: str, value: str, row: int = 1) -> Callable[[Path], None]:
    """Change a field of a CSV file."""

    def change(folder: Path) -> None:
        rows = [line.split(",") for line in (folder / name).read_text().splitlines()]
        rows[row][rows[0].index(column)] = value
        (folder / name).write_text("\n".join(",".join(cells) for cells in rows) + "\n")

    return change


def doubled(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines()
        (folder / name).write_text("\n".join([*lines, lines[1]]) + "\n")

    return change


def unordered(folder: Path) -> None:
    _pack(folder / "events.jsonl.gz", _lines(folder / "events.jsonl.gz")[::-1])


def whole(name: str, content: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(content)

    return change


def shortened(folder: Path) -> None:
    """Leave the last decision out, so that a job never runs."""
    _pack(folder / "decisions.jsonl.gz", _lines(folder / "decisions.jsonl.gz")[:-1])


def widened(folder: Path) -> None:
    """Launch jobs on more GPUs than there are."""
    lines = _lines(folder / "decisions.jsonl.gz")
    changed = [
        line | ({"launch": [[*line["launch"][0][:2], 4096]]} if "launch" in line else {}) for line in lines
    ]
    _pack(folder / "decisions.jsonl.gz", changed)


READERS: dict[str, Command] = {"collect": collected, "report": reported, "replay": replayed}
EDITS: dict[str, Callable[..., Callable[[Path], None]]] = {
    "doubled": doubled,
    "event": event,
    "field": field,
    "header": header,
    "metric": metric,
    "result": result,
    "shortened": lambda _: shortened,
    "text": text,
    "unordered": lambda _: unordered,
    "whole": whole,
    "widened": lambda _: widened,
}


@refused("results")
def test_an_edited_result_is_one_line(
    given: dict[str, dict[str, Any]], said: Said, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((command, edit),) = given.items()
    ((kind, how),) = edit.items()
    assert READERS[command](folder) == 0
    make = EDITS[kind]
    change = make(**how) if isinstance(how, dict) else make(*how) if isinstance(how, list) else make(how)
    change(folder)
    said.check(told(READERS[command], folder, capsys), folder)
    # A report that was there is left as it was; nothing is written by halves.
    assert {path.name for path in folder.parent.iterdir()} <= {"out", "page.html"}


def test_names_of_a_result_are_shown_written_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(policy={"name": "\x1b[2Jfcfs\u202e", "parameters": {"a\u200b": "\x07"}})(folder)
    field("jobs.csv", "job_id", "\u202ejob")(folder)
    assert collected(folder) == 0
    assert reported(folder) == 0
    shown = capsys.readouterr().out
    assert "\\x1b[2Jfcfs\\u202e" in shown
    page = (folder.parent / "page.html").read_text()
    assert "\\\\u202ejob" in page  # Doubled, as JSON has it: a browser shows six characters.
    assert not any(one in shown + page for one in "\x1b\u202e\u200b\x07")


def _bomb(size: int, line: bytes) -> bytes:
    return gzip.compress(line * (size // len(line)), 1)


@pytest.mark.processes
@pytest.mark.parametrize("line", [b"[", b"1", b'{"a":'])
def test_a_gzip_bomb_takes_little_memory(line: bytes, folder: Path) -> None:
    for name in ("events.jsonl.gz", "decisions.jsonl.gz"):
        (folder / name).write_bytes(_bomb(3 * 10**8, line))
    for module, words in (("report", ["--out", str(folder / "p.html")]), ("replay", [])):
        command = ("-m", f"clustergym.{module}", folder, *words)
        done = run_python(*command, most_bytes=2 * 10**9, OPENBLAS_NUM_THREADS="1")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert "is longer than" in done.stderr


def test_too_many_events_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clustergym.results.report.event_curves.MOST_EVENTS", 3)
    assert "events.jsonl.gz:4" in told(reported, folder, capsys)


BOMBS = {
    "aliases": "a: &a [x, x]\n"
    + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)),
    "a merge key": "a: &a {x: 1}\nb: {<<: *a}\n",
    "nesting": "a: " + "[" * 100_000,
    "a long number": "a: " + "9" * 1_000_000,
    "base 60": "a: " + ":".join(["10"] * 100_000),
    "5 MB": "a: " + "b" * 5_000_000,
    "a tag": "a: !!python/object/apply:os.system ['touch was-here']\n",
}


@pytest.mark.parametrize("option", ["-cd", "--config-dir"])
@pytest.mark.parametrize("name", BOMBS)
def test_a_folder_of_configuration_is_checked_before_hydra_reads_it(
    name: str,
    option: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "e.yaml").write_text(BOMBS[name])
    assert run.main([f"{option}={tmp_path / 'mine'}", "experiment=e", "--cfg", "job"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "experiment/e.yaml" in line
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_file_of_configuration_that_is_a_pipe_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "e.yaml")
    assert run.main(["-cd", str(tmp_path), "--cfg", "job"]) == 2
    assert "e.yaml: is not a regular file" in capsys.readouterr().err


FILES = (
    "trace=file trace.path",
    "cluster=file cluster.path",
    "scenario.failures.path",
    "scenario.reservations.path",
)


@pytest.mark.slow
@pytest.mark.parametrize("make", [pipe, device, Path.mkdir])
@pytest.mark.parametrize("words", FILES)
def test_files_that_a_run_names_are_regular(
    words: str, make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "x.csv")
    *groups, key = words.split()
    assert run.main([*groups, f"{key}={tmp_path / 'x.csv'}", f"hydra.run.dir={tmp_path / 'o'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "x.csv: is" in line


def test_a_trace_of_too_many_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("submit_time,duration,gpus," + "a," * 300_000 + "\n1,1,1\n")
    assert trace.main(["validate", str(path)]) == 2
    assert "t.csv:1: more than 1,000 columns" in capsys.readouterr().err
    path.write_text("submit_time,duration,gpus\n" + "1,1,1\n" * 20)
    monkeypatch.setattr("clustergym.common.text_files.MOST_ROWS", 10)
    assert trace.main(["validate", str(path)]) == 2
    assert "10 rows" in capsys.readouterr().err
    monkeypatch.setattr("clustergym.common.text_files.LARGEST_BYTES", 10)
    assert trace.main(["validate", str(path)]) == 2
    assert "is larger than 10 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("make", [pipe, device, Path.mkdir])
def test_a_checkpoint_is_two_regular_files(make: Callable[[Path], None], tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    from clustergym.agents import auction_checkpoints, checkpoints

    (tmp_path / "c.safetensors").write_bytes(b"x")
    make(tmp_path / "c.yaml")
    assert not checkpoints.is_network(str(tmp_path / "c.safetensors"))
    with pytest.raises(InputError, match=r"c\.yaml: (is not a regular file|cannot be read: Is a directory)"):
        auction_checkpoints.load(str(tmp_path / "c.safetensors"))


def test_a_checkpoint_that_is_too_large(tmp_path: Path) -> None:
    from clustergym.agents import auction_checkpoints

    with (tmp_path / "c.safetensors").open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(InputError, match="is larger than 67,108,864 bytes"):
        auction_checkpoints.load(str(tmp_path / "c.safetensors"))


def test_a_cached_table_is_not_unpacked(tmp_path: Path) -> None:
    store, stack = Store(tmp_path), np.ones((1, 3, 2, 2, 4))
    store.write("k", stack)
    found = store.read("k", stack.shape)
    assert found is not None
    assert (found == stack).all()
    whole = pack("k", stack)
    np.savez_compressed(tmp_path / "k.npz", k=np.ones(10**6))
    small = (tmp_path / "k.npz").read_bytes()
    (tmp_path / "k.npz").write_bytes(small.ljust(len(whole), b"\0")[: len(whole)])
    assert store.read("k", stack.shape) is None
    (tmp_path / "k.npz").unlink()
    os.mkfifo(tmp_path / "k.npz")
    assert store.read("k", stack.shape) is None


def test_what_is_visible() -> None:
    assert visible("Arena, 0.5 µ GPU é 資") == "Arena, 0.5 µ GPU é 資"
    assert visible("\x1b[0m\u202e\u00a0\u3164\n") == "\\x1b[0m\\u202e\\xa0\\u3164\\n"
    assert visible(visible("\u202e")) == "\\u202e"
    assert visible_all({"\x07": ["\x9b", 1, None]}) == {"\\x07": ["\\x9b", 1, None]}
    assert alike("\uff21rena \u00a0 X\u200b") == alike(visible("\uff21rena \u00a0 X\u200b")) == "arena x"
    assert alike("Arena") != alike("Arena 2")
