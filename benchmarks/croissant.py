"""Metadata of the data in Croissant (JSON-LD): `python benchmarks/croissant.py` writes croissant.json.

Traces, the boards' tables of figures and measured rows, each file with its hash and columns.
docs/data-cards.md says what they are and are not. `mlcroissant validate --jsonld croissant.json` checks
the form, and tests/test_croissant.py hashes, columns and records.
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
OWN = """citeAs column conformsTo extract field fileObject fileSet format includes isLiveDataset jsonPath key
md5 equivalentProperty fileProperty parentField path recordSet references regex repeated replace samplingRate
separator source subField transform"""
CARD = "docs/data-cards.md"
RAI = {
    "rai:dataLimitations": "Jobs are drawn by published statistics of clusters and their models by a rule; "
    "speeds are estimates, except for the measured rows, which are of one H100.",
    "rai:dataBiases": "Statistics are those of a few large clusters (Philly, Helios, PAI, newTrace); small "
    "clusters and inference are missing. Loads are chosen so that jobs queue.",
    "rai:personalSensitiveInformation": "None: users and virtual clusters are drawn numbers.",
    "rai:dataUseCases": "Comparing schedulers in simulation; not sizing a cluster, nor claims on users.",
    "rai:dataSocialImpact": "Schedulers decide who waits: a low mean may hide long waits of a few.",
    "rai:hasSyntheticData": True,
    "prov:wasDerivedFrom": [
        {"@id": f"conf/generator/{name}.yaml", "name": f"published statistics of {name}"}
        for name in ("helios", "newtrace", "pai", "philly")
    ],
    "prov:wasGeneratedBy": [
        {
            "@type": "prov:Activity",
            "label": label,
            "description": text,
        }
        for label, text in (
            ("synthesis", "traces: clustergym.trace.generators, by the arguments in traces/manifest.json"),
            ("simulation", "boards: clustergym leaderboard fill, by cells.yaml of each"),
            ("collection", "measured rows: benchmarks/measure_training.py on one H100"),
        )
    ],
}


def describe_data() -> dict[str, Any]:
    """Return the metadata of all files."""
    paths = sorted(path for pattern in FILES for path in ROOT.glob(pattern))
    return {
        "@context": _context(),
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": "clustergym",
        "description": "Jobs of GPU training clusters, schedulers' figures on them, measured training steps.",
        "url": CARD,
        "license": "https://spdx.org/licenses/Apache-2.0.html",
        "version": "0.1.0",
        "datePublished": "2026-11-28",
        "creator": {"@type": "Organization", "name": "The clustergym authors"},
        "citeAs": "@software{clustergym, title={clustergym}, author={{The clustergym authors}}}",
        "keywords": ["scheduling", "gpu", "cluster", "benchmark"],
        **RAI,
        "distribution": [_describe_file(path) for path in paths],
        "recordSet": [_describe_records(path) for path in paths],
    }


def read_rows(path: Path) -> list[list[str]]:
    """Return the rows of a table, with its header."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    return list(csv.reader(io.StringIO(text)))


def _context() -> dict[str, Any]:
    own = {name: f"cr:{name}" for name in OWN.split()} | {"conformsTo": "dct:conformsTo"}
    return {
        "@language": "en",
        "@vocab": "https://schema.org/",
        "sc": "https://schema.org/",
        "cr": "http://mlcommons.org/croissant/",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "dct": "http://purl.org/dc/terms/",
        "prov": "http://www.w3.org/ns/prov#",
        "data": {"@id": "cr:data", "@type": "@json"},
        "examples": {"@id": "cr:examples", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        **own,
    }


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
