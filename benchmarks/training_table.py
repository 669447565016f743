"""Makes the tables of benchmarks/measured of the lines that `measure_training.py` writes.

    python benchmarks/training_table.py rows.jsonl --gpu-type H100-80 --name h100

writes `h100-steps.csv`, of whose columns the first are those of measured throughput (`clustergym oracle
validate`), and `h100-curves.csv`: matrix products, attention and a copy. Each row tells of its card and
software.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]

CHANGES = {"compiled": True, "gradients_kept": False, "loss": False, "segments": True}
"""Keys of a case by which it may differ from the others, and the value that does."""
PHASES = ("layers", "loss", "backward", "optimizer")


def step_rows(lines: list[Row], gpu_type: str) -> list[Row]:
    """Return a row of the table for each case, as it was measured last."""
    header: Row = {}
    last: dict[str, tuple[Row, Row]] = {}
    for line in lines:
        if "header" in line:
            header = line["header"]
        elif "case" in line:
            last[json.dumps(line["case"], sort_keys=True)] = (header, line)
    return [
        _step_row(at, header, line, gpu_type)
        for at, (header, line) in enumerate(last.values(), 1)
        if line["fits"] is not None
    ]


def _step_row(at: int, header: Row, line: Row, gpu_type: str) -> Row:
    case, phases = line["case"], line.get("phases", {})
    changed = [name for name, value in CHANGES.items() if case[name] == value]
    changed += [f"repeat {case['repeat']}"] if case["repeat"] else []
    tokens, seconds = case["micro_batch"] * case["sequence_length"], line.get("step_s")
    state = line.get("state")
    return {
        "id": f"h{at:03}",
        "source": "clustergym",
        "date_or_release": header["date"][:10],
        "kind": "pretrain",
        "model": case["model"],
        "gpu_type": gpu_type,
        "gpus": 1,
        "precision": "bf16",
        "sequence_length": case["sequence_length"],
        "global_batch_sequences": case["micro_batch"],
        "micro_batch": case["micro_batch"],
        "activation_checkpointing": "full" if case["recompute"] else "none",
        "tokens_per_s_per_gpu": round(tokens / seconds, 1) if seconds else "",
        "note": "" if case["compiled"] else "no torch.compile",
        "changed": " ".join(changed),
        "fits": int(line["fits"]),
        "step_s": _seconds(seconds),
        "least_s": _seconds(line.get("least_s")),
        "most_s": _seconds(line.get("most_s")),
        "peak_allocated_bytes": line["peak_allocated"],
        "peak_reserved_bytes": line["peak_reserved"],
        "state_bytes": state,
        "kept_bytes": phases["kept"] - state if "kept" in phases else "",
        **{f"{name}_peak_bytes": phases.get(name, "") for name in PHASES[1:]},
        **{f"{name}_s": _seconds(phases.get(f"{name}_s")) for name in PHASES},
        "free_bytes": header.get("free_bytes", ""),
        "gpu": header.get("gpu", ""),
        "driver": header.get("nvidia_smi", "").split(",")[0],
        "torch": header["torch"],
    }


def _seconds(value: float | None) -> float | str:
    return "" if value is None else round(value, 7)


def curve_rows(lines: list[Row], gpu_type: str) -> list[Row]:
    """Return a row of the table for each product, length of attention and copy."""
    columns = (
        "curve",
        "tokens",
        "inside",
        "outside",
        "sequence_length",
        "heads",
        "width",
        "bytes",
        "seconds",
    )
    found = []
    for line in lines:
        if "curve" in line:
            row = {name: line.get(name, "") for name in columns} | {"gpu_type": gpu_type}
            rates = {"tflops": line.get("tflops"), "gb_s": line.get("gb_s")}
            row["seconds"] = _seconds(line.get("seconds"))
            found.append(row | {name: "" if one is None else f"{one:.1f}" for name, one in rates.items()})
    return found


def write_table(path: Path, rows: list[Row]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make tables of measured training.")
    parser.add_argument("lines", type=Path)
    parser.add_argument("--gpu-type", required=True, help="as in conf/hardware/accelerators.yaml")
    parser.add_argument("--name", required=True)
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/measured"))
    options = parser.parse_args(argv)
    lines = [json.loads(line) for line in options.lines.read_text().splitlines()]
    options.folder.mkdir(parents=True, exist_ok=True)
    for kind, made in (("steps", step_rows), ("curves", curve_rows)):
        write_table(options.folder / f"{options.name}-{kind}.csv", made(lines, options.gpu_type))
    return 0


if __name__ == "__main__":
    sys.exit(main())
