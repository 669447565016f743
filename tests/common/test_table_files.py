"""Tables of text: what their cells become, and the exact line for each thing that is wrong with one."""

import gzip
import hashlib
import math
import time
from pathlib import Path

import numpy as np
import pytest
from error_lines import line_of, refuses
from refusals import Said, refused

from clustergym.common import text_files
from clustergym.common.columns import (
    check_bounds,
    dates,
    durations,
    from_first,
    integers,
    iso,
    number,
    numbers,
    parse_seconds,
    quote_cell,
    relative_origin,
    round_up_counts,
    texts,
)
from clustergym.common.text_files import (
    TextTable,
    decode,
    first_lines,
    header,
    read_bytes,
    read_csv,
    read_text,
)

NAN = float("nan")


def table(**columns: list[str]) -> TextTable:
    """Return a table whose rows stand on lines 2, 4, 6 and so on of t.csv."""
    length = len(next(iter(columns.values())))
    return TextTable(Path("t.csv"), columns, list(range(2, 2 * length + 2, 2)), "")


def test_numbers() -> None:
    cells = ("1", "-1.5", "+.5", "2.", "1e3", "1.5E-2")
    assert [number(cell) for cell in cells] == [1, -1.5, 0.5, 2, 1000, 0.015]
    for cell, message in (
        ("", "is empty"), ("nan", "'nan' is not a finite number"), ("1_0", "'1_0' is not a finite number"),
        ("٣", "'٣' is not a finite number"), ("1e999", "'1e999' is too large (limit 2^53)"),
        ("9007199254740992", "'9007199254740992' is too large (limit 2^53)"),
        (".", "'.' is not a finite number"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"\S") as error:
            number(cell)
        assert str(error.value) == message
    assert number("-9007199254740991") == 1 - 2.0**53
    assert quote_cell("a" * 40) == f"'{'a' * 40}'"
    assert quote_cell("a" * 41) == f"'{'a' * 37}…'"


def test_times() -> None:
    assert parse_seconds("1970-01-02 00:00:01.5") == 86401.5
    assert parse_seconds("1970-01-02T02:00:00+01:00") == parse_seconds("1970-01-02T01:00:00Z") == 90000.0
    assert iso(90061.0) == "1970-01-02T01:01:01"
    for cell, message in (
        ("", "is empty"), ("1970-01-02", "'1970-01-02' is not a time"),
        ("1970-13-02 00:00:00", "'1970-13-02 00:00:00' is not a time: month must be in 1..12"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"\S") as error:
            parse_seconds(cell)
        assert str(error.value) == message


def test_columns_of_numbers() -> None:
    made = table(a=["1", "2.5", ""], b=["3", "4", "5"])
    assert numbers(made, "a", default=7.0).tolist() == [1.0, 2.5, 7.0]
    assert numbers(made, "c", default=7.0).tolist() == [7.0, 7.0, 7.0]
    assert numbers(made, "b", low=3, high=5).dtype == np.float64
    found = integers(made, "b", low=3, high=5)
    assert (found.tolist(), found.dtype) == ([3, 4, 5], np.int64)
    assert integers(made, "c", default=2).tolist() == [2, 2, 2]
    assert texts(made, "a") == ["1", "2.5", ""]
    assert texts(made, "c") == ["", "", ""]
    for do, line in (
        (lambda: numbers(made, "a"), "t.csv:6: a: is empty (give a number)"),
        (
            lambda: integers(made, "a", default=1),
            "t.csv:4: a: '2.5' is not a whole number (give a whole number)",
        ),
        (lambda: numbers(made, "b", low=4), "t.csv:2: b: 3 is below 4 (give at least 4)"),
        (lambda: integers(made, "b", high=3.5), "t.csv:4: b: 4 is above 3.5 (give at most 3.5)"),
    ):
        refuses(do, line)


def test_bounds() -> None:
    values, lines = np.array([NAN, 1.0, 2.0]), [0, 0, 9]
    check_bounds(values, "f", lines, "x", low=1.0, high=2.0)
    check_bounds(values, "f", lines, "x")
    refuses(
        lambda: check_bounds(values, "f", lines, "x", high=1.5), "f:9: x: 2 is above 1.5 (give at most 1.5)"
    )
    refuses(
        lambda: check_bounds(values, "f", lines, "x", low=1.5), "f: x: 1 is below 1.5 (give at least 1.5)"
    )


def test_columns_of_times() -> None:
    made = table(start=["1970-01-01 00:00:10", "None"], end=["1970-01-01 00:00:30", "1970-01-01 00:00:05"])
    start, end = dates(made, "start", missing=("none",)), dates(made, "end")
    assert start[0] == 10.0
    assert math.isnan(start[1])
    spent = durations(made, start, end, "start", "end")
    assert spent[0] == 20.0
    assert math.isnan(spent[1])
    refuses(lambda: dates(made, "start"), "t.csv:4: start: 'None' is not a time (give YYYY-MM-DD HH:MM:SS)")
    late = np.array([10.0, 5.0])
    assert durations(made, late, late, "start", "end").tolist() == [0.0, 0.0]
    refuses(
        lambda: durations(made, late + np.array([0, 1]), late, "start", "end"),
        "t.csv:4: end: '1970-01-01 00:00:05' lies before start 'None'"
        " (mend end or start, or leave the row out)",
    )


def test_counts_and_clocks() -> None:
    assert round_up_counts(np.array([1, 2, 3, 4, 5, 8, 9, 1000])).tolist() == [1, 2, 4, 4, 8, 8, 16, 1024]
    times, origin = from_first(np.array([5.0, 3.0000001, 3.0]))
    assert (times.tolist(), origin) == ([2.0, 0.0, 0.0], 3.0)
    assert relative_origin(np.array([86_400.0, 9e9])) == 0.0
    assert relative_origin(np.array([9e9, 86_400.5])) == 86_400.5


def test_a_table_of_commas(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    content = '\ufeffa, b \r\n1,"x\ny"\r\n\r\n 2 ,"q ""z"""\r\n'.encode()
    path.write_bytes(content)
    made = read_csv(path, ["a"])
    assert made.columns == {"a": ["1", "2"], "b": ["x\ny", 'q "z"']}
    assert (made.line, len(made), made.path) == ([3, 5], 2, path)
    assert made.sha256 == hashlib.sha256(content).hexdigest()
    last = made.select([1])
    assert (last.columns, last.line, last.sha256) == ({"a": ["2"], "b": ['q "z"']}, [5], made.sha256)
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(content))
    assert read_csv(packed, ["b"]).columns == made.columns
    path.write_text("1,2\n3,4\n")
    assert read_csv(path, [], names=["x", "y"]).columns == {"x": ["1", "3"], "y": ["2", "4"]}
    path.write_text("x, y\n3,4\n")
    assert read_csv(path, [], names=["x", "y"]).line == [2]


@refused("tables")
def test_tables_that_are_wrong(given: str, said: Said, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(given)
    with said.of_error(tmp_path):
        read_csv(tmp_path / "t.csv", ["a", "b"], known=["a", "b", "cost"])


def test_limits_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("t.csv")
    monkeypatch.setattr(text_files, "MOST_COLUMNS", 2)
    monkeypatch.setattr(text_files, "MOST_ROWS", 3)
    path.write_text("a,b\n1,2\n3,4\n")
    assert len(read_csv(path, [])) == 2
    path.write_text("a,b\n1,2\n3,4\n5,6\n")
    refuses(lambda: read_csv(path, []), "t.csv:4: more than 2 columns or 3 rows (give a part of it)")
    path.write_text("a,b,c\n")
    refuses(lambda: read_csv(path, []), "t.csv:1: more than 2 columns or 3 rows (give a part of it)")
    monkeypatch.setattr(text_files, "LARGEST_BYTES", 8)
    path.write_text("a,b\n1,2\n")
    assert len(read_bytes(path)) == 8
    path.write_text("a,b\n1,2\n\n")
    refuses(lambda: read_bytes(path), "t.csv: is larger than 8 bytes (give a part of it)")
    packed = Path("t.gz")
    monkeypatch.setattr(text_files, "LARGEST_BYTES", 50)
    packed.write_bytes(gzip.compress(b"x" * 50))
    assert read_bytes(packed) == b"x" * 50
    packed.write_bytes(gzip.compress(b"x" * 51))
    refuses(lambda: read_bytes(packed), "t.gz: holds more than 50 bytes (give a part of it)")
    packed.write_bytes(gzip.compress(b"x" * 20)[:-4])
    refuses(lambda: read_bytes(packed), "t.gz: ends in the middle of its gzip stream (copy it again)")
    packed.write_bytes(b"plain")
    assert line_of(lambda: read_bytes(packed)).startswith("t.gz: is not a gzip file: Not a gzipped")
    member = gzip.compress(b"x" * 20)
    packed.write_bytes(member + member)
    assert read_bytes(packed) == b"x" * 40
    packed.write_bytes(member + b"rubbish")
    assert line_of(lambda: read_bytes(packed)).startswith("t.gz: is not a gzip file, or only in part: Not a")
    monkeypatch.setattr(text_files, "LARGEST_BYTES", 200)
    packed.write_bytes(gzip.compress(b"x" * 101) * 2)
    refuses(lambda: read_bytes(packed), "t.gz: holds more than 200 bytes (give a part of it)")


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("\n \n")
    Path("folder.csv").mkdir()
    refuses(lambda: read_bytes(Path("jbs.csv")), "jbs.csv: no such file (did you mean jobs.csv?)")
    # A name without a suffix may be meant to be a folder's.
    assert line_of(lambda: read_bytes(Path("foldercsv"))).endswith("no such file (did you mean folder.csv?)")
    refuses(lambda: read_bytes(Path("no/x")), "no/x: no such file (nor is there a folder no to read)")
    refuses(
        lambda: read_bytes(Path("jobs.csv/x")),
        "jobs.csv/x: no such file (nor is there a folder jobs.csv to read)",
    )
    refuses(lambda: read_bytes(Path("folder.csv")), "folder.csv: is a folder, not a file (name a file in it)")
    refuses(
        lambda: read_bytes(Path("jobs.csv")),
        "jobs.csv: the file is empty (check how it was written or copied)",
    )
    refuses(
        lambda: read_bytes(Path("/dev/null")), "/dev/null: is not a regular file (save it to a file first)"
    )
    assert line_of(lambda: read_bytes(Path("a\0b"))).endswith(
        ": embedded null byte (give a file that can be read)"
    )


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = Path("t.csv")
    assert decode("\ufeffé\n".encode(), path) == "é\n"
    save = "(save it as UTF-8 text)"
    refuses(lambda: decode(b"a\nb\0", path), f"t.csv:2: NUL byte: not a text file {save}")
    refuses(lambda: decode(b"a\n\n\xe9", path), f"t.csv:3: byte 0xe9 is not UTF-8 {save}")
    refuses(lambda: decode("é".encode("utf-16"), path), f"t.csv:1: byte 0xff is not UTF-8 {save}")
    refuses(
        lambda: decode(b"\xef\xbb\xbf \n", path),
        "t.csv: the file is empty (check how it was written or copied)",
    )
    file = tmp_path / "t"
    file.write_bytes(b"\xef\xbb\xbfa\n")
    assert read_text(file) == ("a\n", hashlib.sha256(b"\xef\xbb\xbfa\n").hexdigest())


def test_first_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, packed = tmp_path / "t.csv", tmp_path / "t.csv.gz"
    content = "".join(f"{at}\n" for at in range(30)).encode()
    file.write_bytes(b"\xef\xbb\xbf" + content)
    packed.write_bytes(gzip.compress(content))
    assert first_lines(file) == first_lines(packed) == [str(at) for at in range(20)]
    monkeypatch.setattr(text_files, "SNIFFED_BYTES", 5)
    file.write_bytes(b"a\xff\ncde")
    assert first_lines(file) == ["a\ufffd", "cd"]
    packed.write_bytes(b"no gzip")
    assert first_lines(packed) == first_lines(tmp_path) == []
    assert header([" a ,b", "c"]) == {"a", "b"}
    assert header([]) == set()


def test_times_since_1970_are_utc_in_any_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert iso(86_400.0) == "1970-01-02T00:00:00"
    time.tzset()
