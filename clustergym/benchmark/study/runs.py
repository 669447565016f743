"""Run the cells of a study as a sweep, and read their results into groups."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.benchmark.study.study_file import Cell, Study
from clustergym.common.errors import InputError, nearest
from clustergym.results.report.groups import Column, ResultGroup, make_labelled_group
from clustergym.results.result_files import FILE_NAME, ResultFile, read_result
from clustergym.results.run_job import run_job
from clustergym.scenario.configuration.hydra_edge import run_hydra


class StudyResults(NamedTuple):
    """The results of a study's runs, also grouped by scenario and by policy.

    Attributes
    ----------
    runs : tuple of (Cell, ResultFile)
    by_scenario : mapping of str to ResultGroup
        A column for each policy.
    by_policy : mapping of str to ResultGroup
        A column for each scenario; empty unless the study has a scenario to compare with.
    """

    runs: tuple[tuple[Cell, ResultFile], ...]
    by_scenario: Mapping[str, ResultGroup]
    by_policy: Mapping[str, ResultGroup]


def quiet_job(config: Mapping[str, Any], folder: Path) -> float | None:
    """Run one configuration with stdout switched off; return the value of its objective, if it has one."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        return run_job(config, folder)


def run_cells(cells: Sequence[Cell], folder: Path, hydra_words: Sequence[str]) -> tuple[int, int]:
    """Run a study's unfinished runs; return the exit status and how many had been finished before."""
    before = _read_write_times(cells, folder)
    words = ["-m", f"cell=range(0,{len(cells)})", f"hydra.sweep.dir={_quote_folder(folder)}", *hydra_words]
    overrides = {cell.folder: cell.overrides for cell in cells}
    status = run_hydra(quiet_job, words, "clustergym.study", overrides)
    after = _read_write_times(cells, folder)
    return status, sum(after.get(name) == at for name, at in before.items())


def _read_write_times(cells: Sequence[Cell], folder: Path) -> dict[str, int]:
    """Return when each result was written, by folder."""
    paths = {cell.folder: folder / cell.folder / FILE_NAME for cell in cells}
    return {name: path.stat().st_mtime_ns for name, path in paths.items() if path.is_file()}


def _quote_folder(folder: Path) -> str:
    text = str(folder.absolute()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def read_cells(study: Study, folder: Path) -> StudyResults:
    """Read the results of all runs of a study from their folders.

    Raises
    ------
    InputError
        If one cannot be read.
    """
    runs = tuple(
        (cell, _with_queues(study, read_result(folder / cell.folder / FILE_NAME))) for cell in study.cells()
    )
    by_scenario = {label: _group(study, runs, scenario=label) for label in study.scenarios}
    by_policy: dict[str, ResultGroup] = {}
    if study.reference_scenario is not None:
        by_policy = {label: _group(study, runs, policy=label) for label in study.policies}
    return StudyResults(runs, by_scenario, by_policy)


def _with_queues(study: Study, result: ResultFile) -> ResultFile:
    """Return a result with the metrics of single queues that a study asks for."""
    queues = {} if result.tenants is None else result.tenants.queues
    found: dict[str, float | int | None] = {}
    for name in study.metrics:
        key, of, queue = name.partition(" of ")
        if not of:
            continue
        if queue not in queues:
            remedy = nearest(queue, list(queues)) if queues else "give scenario.queues"
            raise InputError(f"has no queue {queue!r}", file=result.path, field=name, remedy=remedy)
        value = (queues[queue].model_extra or {}).get(key)
        found[name] = value if isinstance(value, int | float) else None
    return result.model_copy(update={"metrics": {**result.metrics, **found}}) if found else result


def _group(
    study: Study, runs: Sequence[tuple[Cell, ResultFile]], scenario: str = "", policy: str = ""
) -> ResultGroup:
    """Return a scenario's group, with a column for each policy; or a policy's, with one for each scenario."""
    columns: dict[str, Column] = {}
    for cell, result in runs:
        if scenario in ("", cell.scenario) and policy in ("", cell.policy):
            label = cell.policy if scenario else cell.scenario
            columns.setdefault(label, Column(label)).by_seed[cell.seed] = result
    reference = study.reference_policy if scenario else study.reference_scenario
    return make_labelled_group(list(columns.values()), reference)
