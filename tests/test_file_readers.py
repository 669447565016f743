"""Every function that opens a file of a user is found in the source, and has a fuzz target."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from file_readers import ROOT, file_readers
from readers import READERS, SEEDS

from clustergym.common.errors import InputError

OF_THE_PACKAGE = {
    ("clustergym/cluster/cluster_files.py", "_catalogue"),
    ("clustergym/benchmark/leaderboard/board.py", "BoardScenario.find_chosen_file"),
}
"""Readers of files that only the package has."""
LARGEST_SEED_BYTES = 20_000
YAML = sorted(name for name in READERS if any(path.suffix == ".yaml" for path in SEEDS.get(name, ())))


def valid_files(name: str) -> list[bytes]:
    """Return small valid contents of a reader's file."""
    paths = [*sorted((ROOT / "tests" / "regressions" / name).glob("valid*")), *SEEDS.get(name, ())]
    return [path.read_bytes() for path in paths if path.stat().st_size < LARGEST_SEED_BYTES]


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
