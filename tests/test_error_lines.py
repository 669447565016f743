"""What readers say of damaged files, whole lines: place, field, message and remedy.

Valid files are damaged in the same ways each time; of alike errors the first is kept.
`GOLDEN=write python -m pytest -n 0 tests/test_error_lines.py` writes `golden/errors/` anew.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_texts import check_lines
from readers import READERS, valid_contents
from refusals import FOLDER

from clustergym.common.errors import InputError

PLACES = 6
"""Of numbers and of words, those that are replaced."""
SLOW = re.compile("accelerators|agent|checkpoint|entry|generator|models|oracle-|sharing|stack|transformers")
FEWER = 1
"""Places in the files of slow readers."""
LEFT_OUT = "board", "checkpoint-schema", "config", "network", "network-weights", "study"
LEFT_OUT += "result-cluster", "result-key"
"""Readers that take seconds, or that refuse nothing of this."""
OF_LIBRARIES = re.compile(
    r"(is not valid YAML|[Nn]o[nt] JSON[^:]*|broken JSON|cannot be read|npz file of arrays): [^()]* \("
)
"""Messages whose end depends on the version of a library."""
VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\S*\d\S*|\binf\b|[\[\],]")
"""What alike messages differ in."""
NUMBER = re.compile(rb"(?<![\w.])-?\d+(\.\d+)?(?![\w.])")
WORD = re.compile(rb"[A-Za-z_][\w-]{2,}")


def damaged(content: bytes, places: int) -> Iterator[bytes]:
    """Yield contents that differ from a valid one."""
    yield b""
    yield b"["
    yield content[: len(content) // 2]
    yield content + b"\n" + content
    for pattern, others in ((NUMBER, (b"-1", b"x", b"1e999", b"0", b"9" * 11)), (WORD, (b"zq", b"", b"7"))):
        found = [match.span() for match in pattern.finditer(content)]
        for start, stop in found[:: max(1, len(found) // places)]:
            yield from (content[:start] + other + content[stop:] for other in others)
    lines = content.split(b"\n")
    for at in range(0, len(lines), max(1, len(lines) // 6)):
        yield b"\n".join(lines[:at] + lines[at + 1 :])


@pytest.mark.parametrize("name", [name for name in READERS if name not in LEFT_OUT and valid_contents(name)])
def test_what_a_reader_says_of_damaged_files(name: str, tmp_path: Path) -> None:
    if "weights" in name or "state" in name:
        pytest.importorskip("safetensors")
    said = dict[str, str]()
    tried = 0
    for valid in valid_contents(name)[:2]:
        for content in damaged(valid, FEWER if SLOW.search(name) else PLACES):
            folder = tmp_path / f"{(tried := tried + 1)}"
            folder.mkdir()
            try:
                READERS[name](content, folder)
            except InputError as error:
                line = OF_LIBRARIES.sub(
                    r"\1 … (", str(error).replace(f"{folder}", "").replace(str(tmp_path), "")
                )
                said.setdefault(VALUES.sub("", OF_LIBRARIES.sub(r"\1 … (", f"{error.message} (")), line)
    check_lines(f"errors/{name}.txt", said.values())


def test_each_file_of_refusals_is_of_a_test() -> None:
    texts = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    named = re.findall(r'refused(?:_of)?\("([^"]+)"', texts)
    assert sorted(named) == sorted(path.stem for path in FOLDER.glob("*.txt"))
