"""Reads the file that an offline run of wandb leaves: LevelDB's log format, of protocol buffers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK_BYTES = 2**15
HEADER_BYTES = 7


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a `run-….wandb` file."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = path.read_bytes(), HEADER_BYTES, []
    while at + HEADER_BYTES <= len(data):
        if BLOCK_BYTES - at % BLOCK_BYTES < HEADER_BYTES:
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        at += HEADER_BYTES
        parts.append(data[at : at + length])
        at += length
        if kind in (1, 4):  # a whole one, or the last part of one
            yield Record.FromString(b"".join(parts))
            parts = []


def rows(path: Path) -> list[dict[str, Any]]:
    """Return what was logged, a mapping for each call; wandb's own values left out."""
    found = []
    for record in records(path):
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): item for item in record.history.item}
            found.append(
                {key: json.loads(item.value_json) for key, item in items.items() if not key.startswith("_")}
            )
    return found


def run_of(path: Path) -> Any:
    """Return the record of the run: id, group, configuration."""
    return next(record.run for record in records(path) if record.HasField("run"))


def artifacts(path: Path) -> dict[str, list[str]]:
    """Return the names of the files of each type of artifact."""
    found: dict[str, list[str]] = {}
    for record in records(path):
        if record.HasField("request") and record.request.HasField("log_artifact"):
            one = record.request.log_artifact.artifact
            found.setdefault(one.type, []).extend(entry.path for entry in one.manifest.contents)
        if record.HasField("artifact"):
            one = record.artifact
            found.setdefault(one.type, []).extend(entry.path for entry in one.manifest.contents)
    return found
