"""Files that once ended in a traceback, a hang or out of memory, and valid ones that fuzzing starts from."""

import contextlib
import time
from pathlib import Path

import pytest
from readers import READERS

from clustergym.common.errors import InputError

FOLDER = Path(__file__).parent / "regressions"
FILES = sorted(FOLDER.glob("*/*"))
MOST_CPU_S = 5.0


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_is_read_or_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    refused = None
    try:
        READERS[file.parent.name](file.read_bytes(), tmp_path)
    except InputError as error:
        refused = str(error)
    assert refused is None or (len(refused.splitlines()) == 1 and not file.name.startswith("valid")), refused


@pytest.mark.timed
def test_none_takes_long(tmp_path: Path) -> None:
    for file in FILES:
        began = time.process_time()
        with contextlib.suppress(InputError):
            READERS[file.parent.name](file.read_bytes(), tmp_path)
        assert time.process_time() - began < MOST_CPU_S, file


def test_every_folder_is_of_a_reader() -> None:
    assert {file.parent.name for file in FILES} <= READERS.keys()
