"""Metadata of the data in Croissant (JSON-LD): `python benchmarks/croissant.py` writes croissant.json.

Traces, the boards' tables of figures and measured rows, each file with its hash and columns.
docs/data-cards.md says what they are and are not. `mlcroissant validate --jsonld croissant.json` checks
the form, and tests/test_croissant.py hashes, columns and records. benchmarks/croissant.json has what is the
same for all data.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FILES = ("traces/*.csv", "leaderboards/*/cells.csv.gz", "benchmarks/measured/*.csv")
CARD = "docs/data-cards.md"


def describe_data() -> dict[str, Any]:
    """Return the metadata of all files."""
    paths = sorted(path for pattern in FILES for path in ROOT.glob(pattern))
    fixed: dict[str, Any] = json.loads((ROOT / "benchmarks/croissant.json").read_text(encoding="utf-8"))
    files, records = map(_describe_file, paths), map(_describe_records, paths)
    return {**fixed, "distribution": [*files], "recordSet": [*records]}


def read_rows(path: Path) -> list[list[str]]:
    """Return the rows of a table, with its header."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    return list(csv.reader(io.StringIO(text)))


def _describe_file(path: Path) -> dict[str, Any]:
    name = path.relative_to(ROOT).as_posix()
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": "text/csv",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def _describe_records(path: Path) -> dict[str, Any]:
    name = path.relative_to(ROOT).as_posix()
    header, *rows = read_rows(path)
    records = name.removesuffix(".gz").removesuffix(".csv")
    kind = {"traces": "A job", "leaderboards": "A run of a policy", "benchmarks": "A measured step or kernel"}
    return {
        "@type": "cr:RecordSet",
        "@id": records,
        "name": records,
        "description": f"{kind[name.split('/')[0]]} in each row ({CARD}).",
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{records}/{column}",
                "name": column,
                "dataType": _find_type([row[at] for row in rows]),
                "source": {"fileObject": {"@id": name}, "extract": {"column": column}},
            }
            for at, column in enumerate(header)
        ],
    }


def _find_type(values: list[str]) -> str:
    """Return `sc:Float` for a column of numbers without a gap, else `sc:Text`: a gap is no number."""
    try:
        for value in values:
            float(value)
    except ValueError:
        return "sc:Text"
    return "sc:Float"


def main() -> None:
    """Write the file."""
    text = json.dumps(describe_data(), indent=1, ensure_ascii=False) + "\n"
    (ROOT / "croissant.json").write_text(text, encoding="utf-8")
    print("wrote croissant.json")


if __name__ == "__main__":
    main()
