"""The committed traces: `python -m clustergym.trace.committed [--write]` checks or rewrites them.

`traces/manifest.json` holds the arguments each was generated with; all else in it follows from them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common.arguments import Parser
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.paths import traces_dir
from clustergym.common.reading import read_json
from clustergym.common.writing import write_text
from clustergym.trace.generators import DeadlineOptions, generate
from clustergym.trace.generators.synthesis import VERSION, oracle_fingerprint
from clustergym.trace.trace import Trace
from clustergym.trace.trace_statistics import trace_statistics

SCHEMA = "clustergym.traces/1"
LARGEST_BYTES = 2**24


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a folder of traces; return its entries by file name.

    Raises
    ------
    InputError
        If the manifest does not exist or has another schema.
    """
    path = folder / "manifest.json"
    manifest = read_json(path, LARGEST_BYTES, "restore it from the repository")
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise InputError("is not a manifest of traces", file=path, field="schema", remedy=f"want {SCHEMA}")
    entries: dict[str, Any] | None = manifest.get("traces")
    if not isinstance(entries, dict):
        raise InputError(
            "is not a mapping", file=path, field="traces", remedy="restore it from the repository"
        )
    return entries


def regenerate(arguments: dict[str, Any]) -> Trace:
    """Generate a trace again from the arguments in its manifest entry."""
    given = dict(arguments)
    given["gpu_types"] = tuple(given.get("gpu_types", ()))
    if given.get("deadlines") is not None:
        given["deadlines"] = DeadlineOptions(**given["deadlines"])
    return generate(given.pop("source"), **given)


def fingerprint_now(arguments: dict[str, Any]) -> str:
    """Return the current fingerprint of the oracle that a manifest entry's arguments use."""
    return oracle_fingerprint(load_cluster(arguments["cluster"]), arguments["rule"])


def entry_of(trace: Trace, arguments: dict[str, Any], use: str) -> dict[str, Any]:
    """Build the manifest entry of a trace."""
    cluster = load_cluster(arguments["cluster"])
    return {
        "use": use,
        "sha256": trace.sha256,
        "bytes": len(trace.csv_text().encode()),
        "generator": {"function": "clustergym.trace.generators.generate", "version": VERSION},
        "arguments": arguments,
        "seed": arguments["seed"],
        "oracle": fingerprint_now(arguments),
        "statistics": trace_statistics(trace, cluster),
    }


def differences(folder: Path) -> list[str]:
    """Return one line for each trace that differs from its manifest entry or its generated content."""
    found = []
    for name, entry in read_manifest(folder).items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name}: is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
            found.append(f"{name}: sha256 is not the manifest's")
        elif fingerprint_now(entry["arguments"]) != entry["oracle"]:
            found.append(f"{name}: was made with another oracle or cluster, so it cannot be made again")
        elif regenerate(entry["arguments"]).sha256 != entry["sha256"]:
            found.append(f"{name}: its arguments now give another trace")
    return found


def write_all(folder: Path) -> None:
    """Generate and write every trace of a manifest again, and update the manifest."""
    entries = read_manifest(folder)
    for name, entry in entries.items():
        trace = regenerate(entry["arguments"])
        write_text(folder / name, trace.csv_text())
        entries[name] = entry_of(trace, entry["arguments"], entry["use"])
    write_text(folder / "manifest.json", json.dumps({"schema": SCHEMA, "traces": entries}, indent=1) + "\n")


@exits_on_bad_input
def main(argv: Sequence[str] | None = None) -> int:
    """Check the committed traces, or write them again; return the exit status."""
    parser = Parser(prog="python -m clustergym.trace.committed", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write them anew from the manifest's arguments")
    args = parser.parse_args(argv)
    if args.write:
        write_all(traces_dir())
    found = differences(traces_dir())
    for line in found:
        print(line)
    if not found:
        print(f"{len(read_manifest(traces_dir()))} traces are what their arguments give")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
