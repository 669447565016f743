"""Every function that opens a file of a user is found in the source, and has a fuzz target."""

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from file_readers import ROOT, file_readers
from readers import READERS, SEEDS, valid_contents
from strangers import BINARY, EXPECTED, OWN, TEXTS, TOKENS, WITHOUT, WORD, strangers

from clustergym.common.errors import InputError
from clustergym.common.left_out import recording

OF_THE_PACKAGE = {
    ("clustergym/cluster/cluster_files.py", "_catalogue"),
    ("clustergym/oracle/models/hugging_face.py", "known_keys"),
    ("clustergym/scenario/registry.py", "presets"),
    ("clustergym/benchmark/leaderboard/board.py", "BoardScenario.find_chosen_file"),
    ("clustergym/benchmark/study/page.py", "_describe_models"),
}
"""Readers of files that only the package has, or has just written."""
YAML = sorted(name for name in READERS if any(path.suffix == ".yaml" for path in SEEDS.get(name, ())))


def valid_files(name: str) -> list[bytes]:
    return [*valid_contents(name), *(text.encode() for text in TEXTS.get(name, ()))]


def functions_called(action: Callable[[], object]) -> set[tuple[str, str]]:
    """Return (file, qualified name) of each function of the package that an action calls."""
    found = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            found.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with contextlib.suppress(InputError):
            action()
    finally:
        sys.setprofile(before)
    return {(str(Path(file).relative_to(ROOT)), name) for file, name in found if file.startswith(str(ROOT))}


def test_every_reader_has_a_fuzz_target(tmp_path: Path) -> None:
    wanted = file_readers().keys() - OF_THE_PACKAGE
    assert ("clustergym/scenario/tenants/queue_tree.py", "load_queues") in wanted
    called = dict[str, set[tuple[str, str]]]()
    for name, read in READERS.items():
        (tmp_path / name).mkdir()
        called[name] = functions_called(partial(read, b"{", tmp_path / name))
        wanted -= called[name]
    # What a valid file alone leads to is looked for in the readers that came near it.
    files = {file for file, _ in wanted}
    for name in [name for name in READERS if files & {file for file, _ in called[name]}]:
        for at, content in enumerate(valid_files(name)):
            (tmp_path / f"{name}-{at}").mkdir()
            wanted -= functions_called(partial(READERS[name], content, tmp_path / f"{name}-{at}"))
    assert not wanted, "add a target to tests/support/readers.py for each of these"


@pytest.mark.parametrize("name", YAML)
@pytest.mark.parametrize("key", ["7", "-7", "1" + "0" * 90])
def test_a_key_that_is_a_whole_number_is_read_or_refused(name: str, key: str, tmp_path: Path) -> None:
    content = next(path for path in SEEDS[name] if path.suffix == ".yaml").read_bytes()
    line = next(line for line in content.splitlines() if line[:1].isalpha())
    changed = content.replace(line.split(b":")[0], key.encode(), 1)
    for number, text in enumerate((changed, f"{key}: {{{key}: 1}}\n".encode())):
        (tmp_path / str(number)).mkdir()
        with contextlib.suppress(InputError):
            READERS[name](text, tmp_path / str(number))


OF_OTHERS = sorted(READERS.keys() - OWN - BINARY)


def lines_of(name: str, content: bytes, folder: Path) -> tuple[list[str], str]:
    """Return the lines on what a reader of some content does not use, and its error if there is one."""
    folder.mkdir()
    error = ""
    with recording() as notes:
        try:
            READERS[name](content, folder)
        except InputError as wrong:
            error = str(wrong)
    return notes.lines(), error


@pytest.mark.parametrize("name", OF_OTHERS)
def test_what_a_reader_does_not_use_is_named(name: str, tmp_path: Path) -> None:
    """A made-up key, row or word is an error or counted by name; valid files have none but those expected."""
    contents = valid_files(name)
    assert contents, f"{name} has no valid file: give one in tests/regressions or in strangers.TEXTS"
    assert lines_of(name, contents[0], tmp_path / "valid") == (list(EXPECTED.get(name, ())), "")
    tried = dict(strangers(name, contents[0]))
    assert tried.keys() | {kind for reader, kind in WITHOUT if reader == name} >= {"key"}
    for kind, changed in tried.items():
        lines, error = lines_of(name, changed, tmp_path / kind)
        named = WORD in error.lower() or any(WORD in line for line in lines)
        left_out = kind == "row" and len(lines) > len(EXPECTED.get(name, ()))
        assert named or left_out, f"{name}: a made-up {kind} is not named ({lines}, {error!r})"


def test_each_stranger_belongs_to_a_reader() -> None:
    known = {name for name, _ in WITHOUT} | TOKENS.keys() | EXPECTED.keys() | TEXTS.keys() | OWN | BINARY
    assert known <= READERS.keys()
