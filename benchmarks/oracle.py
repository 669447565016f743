"""Speed of an oracle: building tables, and reading them from the cache.

    python benchmarks/oracle.py [--oracle stack] [--processes 1 2] [--json FILE]

The model classes are all of Arena's evaluation (18 models, 3 global batches each) on the four GPU types
of its simulated cluster, with counts from 1 to 64. Cache files go to a temporary folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.oracle.base import Oracle
from clustergym.oracle.calibration.planning import arena_classes
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.oracle_config import oracle_from_config
from clustergym.oracle.table_cache import load_or_build_tables

COUNTS = [1, 2, 4, 8, 16, 32, 64]
REPEATS = 5


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def column_seconds(oracle: Oracle, classes: list[ModelClass], cluster: ClusterSpec) -> list[float]:
    """Time one (model class, GPU type) column at a time."""
    of_type = [dataclasses.replace(cluster, groups=(group,)) for group in cluster.groups]
    return [
        seconds(lambda model=model, one=one: oracle.tables([model], one, COUNTS))  # type: ignore[misc]
        for model in classes
        for one in of_type
    ]


def cache_seconds(
    oracle: Oracle, classes: list[ModelClass], cluster: ClusterSpec, processes: int
) -> tuple[float, float]:
    """Return seconds to build and write all tables, and to read them again."""
    with tempfile.TemporaryDirectory() as folder:
        build = seconds(
            lambda: load_or_build_tables(oracle, classes, cluster, COUNTS, folder=folder, processes=processes)
        )
        read = [
            seconds(lambda: load_or_build_tables(oracle, classes, cluster, COUNTS, folder=folder))
            for _ in range(REPEATS)
        ]
    return build, statistics.median(read)


def main(argv: list[str] | None = None) -> int:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", default="stack", help="name of a group conf/oracle")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    oracle, cluster = oracle_from_config({"name": options.oracle}), load_cluster("arena-sim")
    classes = arena_classes(oracle.catalog)
    print(f"{options.oracle}: {len(classes)} model classes, {len(cluster.groups)} GPU types, counts {COUNTS}")
    figures: dict[str, float] = {}
    for processes in options.processes:
        build, read = cache_seconds(oracle, classes, cluster, processes)
        figures[f"build_{processes}_processes_s"] = build
        figures["read_s"] = min(read, figures.get("read_s", read))
        print(f"build, {processes} processes     {build:10.3f} s")
    columns = column_seconds(oracle, classes, cluster)
    figures["column_median_s"], figures["column_worst_s"] = statistics.median(columns), max(columns)
    print(f"read from the cache       {figures['read_s']:10.3f} s")
    print(f"one column, median        {figures['column_median_s'] * 1e3:10.3f} ms")
    print(f"one column, worst         {figures['column_worst_s'] * 1e3:10.3f} ms")
    if options.json is not None:
        options.json.write_text(json.dumps({"oracle": options.oracle, **figures}, indent=2) + "\n")
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
