"""Read text and CSV files from outside; whatever is wrong with one is reported in one line."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import stat
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustergym.common.errors import InputError, nearest
from clustergym.common.left_out import not_read
from clustergym.common.reading import read_regular, say_unreadable

LARGEST_BYTES, MOST_ROWS, MOST_COLUMNS = 2**29, 10_000_000, 1000
"""Limits on one file."""
SNIFFED_BYTES = 4096
SNIFFED_LINES = 20


@dataclass(frozen=True)
class TextTable:
    """A CSV file as columns of cells without surrounding spaces.

    Attributes
    ----------
    path : Path
    columns : dict of str to list of str
        Cells by column name, in the order of the file.
    line : list of int
        1-based line of the file each row ends on.
    sha256 : str
        Digest of the file's bytes.
    """

    path: Path
    columns: dict[str, list[str]]
    line: list[int]
    sha256: str

    def __len__(self) -> int:
        return len(self.line)

    def select(self, rows: Sequence[int]) -> TextTable:
        """Return a table of the rows with the given numbers."""
        columns = {name: [cells[row] for row in rows] for name, cells in self.columns.items()}
        return TextTable(self.path, columns, [self.line[row] for row in rows], self.sha256)


def check_path(path: Path) -> None:
    """Raise an `InputError` unless a path is a regular file or a folder."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(path) from None
    except (OSError, ValueError) as error:
        raise say_unreadable(path, error) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError("is not a regular file", file=path, remedy="save it to a file first")


def _missing(path: Path) -> InputError:
    try:
        there = [entry for entry in path.parent.iterdir() if not entry.name.startswith(".")]
        names = [entry.name for entry in there if not path.suffix or entry.is_file()]
    except OSError:
        return InputError("no such file", file=path, remedy=f"nor is there a folder {path.parent} to read")
    return InputError("no such file", file=path, remedy=nearest(path.name, names))


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, unpacked if its name ends in `.gz`."""
    check_path(path)
    if path.is_dir():
        raise InputError("is a folder, not a file", file=path, remedy="name a file in it")
    content = read_regular(path, LARGEST_BYTES, "give a part of it")
    if path.suffix == ".gz":
        content = _unpack_content(content, path)
    if not content.strip():
        raise InputError("the file is empty", file=path, remedy="check how it was written or copied")
    return content


def _unpack_content(content: bytes, path: Path) -> bytes:
    try:
        # Of as many members as it has, one behind another.
        found = gzip.GzipFile(fileobj=io.BytesIO(content)).read(LARGEST_BYTES + 1)
    except EOFError:
        raise InputError("ends in the middle of its gzip stream", file=path, remedy="copy it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        what = "is not a gzip file, or only in part" if content[:2] == b"\x1f\x8b" else "is not a gzip file"
        raise InputError(f"{what}: {error}", file=path, remedy="pack it again") from None
    if len(found) > LARGEST_BYTES:
        remedy = "give a part of it"
        raise InputError(f"holds more than {LARGEST_BYTES:,} bytes", file=path, remedy=remedy)
    return found


def decode(content: bytes, path: Path) -> str:
    """Decode UTF-8 text, and drop a byte-order mark."""
    nul = content.find(b"\0")
    encoded = "save it as UTF-8 text"
    if nul >= 0 and not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(
            "NUL byte: not a text file", file=path, line=_find_line(content, nul), remedy=encoded
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = _find_line(content, error.start)
        message = f"byte 0x{content[error.start]:02x} is not UTF-8"
        raise InputError(message, file=path, line=where, remedy=encoded) from error
    if not text.strip():
        raise InputError("the file is empty", file=path, remedy="check how it was written or copied")
    return text


def _find_line(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1


def read_text(path: Path) -> tuple[str, str]:
    """Return a file's text, unpacked if its name ends in `.gz`, and the SHA-256 of the unpacked bytes.

    Raises the errors of `read_bytes` and `decode`.
    """
    content = read_bytes(path)
    return decode(content, path), hashlib.sha256(content).hexdigest()


def first_lines(path: Path) -> list[str]:
    """Return the first lines of a file as text, whatever its encoding; nothing for a folder."""
    if not path.is_file():
        return []
    try:
        with path.open("rb") as stream:
            start = stream.read(SNIFFED_BYTES)
    except OSError as error:
        raise say_unreadable(path, error) from error
    if path.suffix == ".gz":
        try:
            start = zlib.decompressobj(wbits=31).decompress(start, SNIFFED_BYTES)
        except zlib.error:
            return []
    return start.decode("utf-8-sig", errors="replace").splitlines()[:SNIFFED_LINES]


def header(lines: Sequence[str]) -> set[str]:
    """Return the column names in the first line of a CSV file."""
    return {cell.strip() for cell in lines[0].split(",")} if lines else set()


def read_csv(
    path: Path,
    required: Iterable[str],
    *,
    names: Sequence[str] | None = None,
    known: Iterable[str] | None = None,
    optional: Iterable[str] | None = (),
) -> TextTable:
    """Read a comma-separated file as columns of text; note columns that no reader of the format uses.

    Parameters
    ----------
    path : Path
    required : iterable of str
        Columns that must be there.
    names : sequence of str, optional
        Columns of a file without a header; a first row that repeats them is skipped.
    known : iterable of str, optional
        All columns there may be; others are an error.
    optional : iterable of str
        Columns that the format has besides, read or not; others are noted as not read. None: any, and there
        may be no rows.
    """
    text, sha256 = read_text(path)
    rows, lines = _rows(text, path)
    if names is None:
        found = [cell.strip() for cell in rows[0]]
        required = list(required)
        _check_header(found, required, path, None if known is None else list(known))
        usual = found if optional is None else (*required, *(known or ()), *optional)
        not_read([f"column {name}" for name in found], [f"column {name}" for name in usual])
        rows, lines = rows[1:], lines[1:]
    else:
        found = list(names)
        skip = [cell.strip() for cell in rows[0]] == found
        rows, lines = rows[skip:], lines[skip:]
    if not rows and optional is not None:
        raise InputError("there is a header but no rows", file=path, remedy="give at least one job")
    _check_lengths(rows, lines, len(found), path)
    columns = {name: [row[at].strip() for row in rows] for at, name in enumerate(found)}
    return TextTable(path, columns, lines, sha256)


def _rows(text: str, path: Path) -> tuple[list[list[str]], list[int]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows, lines = [], []
    try:
        for row in reader:
            if row:
                rows.append(row)
                lines.append(reader.line_num)
            if len(row) > MOST_COLUMNS or len(rows) > MOST_ROWS:
                message = f"more than {MOST_COLUMNS:,} columns or {MOST_ROWS:,} rows"
                raise InputError(message, file=path, line=reader.line_num, remedy="give a part of it")
    except csv.Error as error:
        raise InputError(
            str(error), file=path, line=reader.line_num, remedy="check its quotes and commas"
        ) from error
    return rows, lines


def _check_header(found: list[str], required: list[str], path: Path, known: list[str] | None) -> None:
    missing = [column for column in required if column not in found]
    if missing:
        spare = [name for name in found if name not in required]
        several = f"the header needs {', '.join(required)}"
        raise InputError(
            "column missing" if len(missing) == 1 else "columns missing",
            file=path,
            line=1,
            field=", ".join(missing),
            remedy=_rename(missing[0], spare) if len(missing) == 1 else several,
        )
    for column in found:
        if found.count(column) > 1:
            raise InputError(
                "column appears twice", file=path, line=1, field=column, remedy="keep one of them"
            )
        if known is not None and column not in known:
            raise InputError(
                "unknown column", file=path, line=1, field=column or "''", remedy=nearest(column, known)
            )


def _rename(column: str, spare: list[str]) -> str:
    close = nearest(column, spare)
    return close if close.startswith("did") else "add it to the header and to every row"


def _check_lengths(rows: list[list[str]], lines: list[int], width: int, path: Path) -> None:
    for row, line in zip(rows, lines, strict=True):
        if len(row) != width:
            message = f"the row has {len(row)} cells, not {width}"
            raise InputError(message, file=path, line=line, remedy="check its commas and quotes")
