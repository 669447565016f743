"""Read a study (scenarios, policies, seeds, metrics), run its cells as a sweep, read their results."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from clustergym.cluster.schema import StrictSchema, Text, validate_content
from clustergym.common.errors import InputError, nearest
from clustergym.common.yaml_file import YamlMapping, field_name, read_mapping
from clustergym.results.metrics.catalogue import METRICS, OF_ONE_QUEUE, Metric, metric_named
from clustergym.results.report.groups import Column, ResultGroup, make_labelled_group
from clustergym.results.result_files import FILE_NAME, ResultFile, read_result
from clustergym.results.run_job import run_job
from clustergym.scenario.configuration.hydra_edge import compose_config, run_hydra
from clustergym.scenario.configuration.overrides import check_composed, check_words
from clustergym.scenario.registry import make_placer, make_policy

MOST_SEEDS, MOST_RUNS, LONGEST_LABEL = 1_000, 100_000, 80
OF_EVERY_RUN = ("compare=null", "report=false", "table=false", "progress=false")
"""What every run of a study is given before its own words."""

Seed = Annotated[int, Field(ge=0, lt=2**32)]
Several = Annotated[list[Text], Field(min_length=1)]


class StudyKeys(StrictSchema):
    """The keys that a study's YAML file may have, and their types."""

    title: Text | None = None
    text: Text | None = None
    scenarios: Any
    policies: Any
    seeds: Annotated[list[Seed], Field(min_length=1, max_length=MOST_SEEDS)] = Field(default=[0])
    settings: list[Text] = Field(default_factory=list)
    metrics: Any
    summary: dict[Text, Several] | None = None
    reference_policy: Text | None = None
    reference_scenario: Text | None = None


@dataclass(frozen=True)
class Cell:
    """One run of a study: a scenario, a policy and a seed.

    Attributes
    ----------
    scenario, policy : str
        Labels.
    seed : int
    folder : str
        Name of its folder.
    overrides : tuple of str
    """

    scenario: str
    policy: str
    seed: int
    folder: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A study read from its file and checked: its scenarios, policies, seeds and metrics.

    Attributes
    ----------
    path : Path
        Its file.
    sha256 : str
        Of the file's content.
    title, text : str
    scenarios, policies : mapping of str to tuple of str
        Label to overrides.
    seeds : tuple of int
    settings : tuple of str
        Overrides of every run.
    metrics : mapping of str to str
        Name to title.
    summary : mapping of str to tuple of str
        The columns of the summary: scenario to metrics.
    reference_policy, reference_scenario : str or None
        Labels of what ratios are to.
    """

    path: Path
    sha256: str
    title: str
    text: str
    scenarios: Mapping[str, tuple[str, ...]]
    policies: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    settings: tuple[str, ...]
    metrics: Mapping[str, str]
    summary: Mapping[str, tuple[str, ...]]
    reference_policy: str | None
    reference_scenario: str | None

    @property
    def about(self) -> dict[str, Metric]:
        """The descriptions of the study's metrics, by the metric's name."""
        return {name: metric for name in self.metrics if (metric := metric_named(name)) is not None}

    def cells(self) -> Iterator[Cell]:
        """Yield the study's runs: every scenario with every policy and every seed."""
        for scenario, of_scenario in self.scenarios.items():
            for policy, of_policy in self.policies.items():
                for seed in self.seeds:
                    folder = f"{slug(scenario)},{slug(policy)},seed={seed}"
                    words = (*OF_EVERY_RUN, *of_scenario, *of_policy, *self.settings, f"seed={seed}")
                    yield Cell(scenario, policy, seed, folder, words)


def slug(label: str) -> str:
    """Return a label with other characters than letters, digits and underscores replaced by hyphens."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", label).strip("-")


def read_study(path: Path, words: Sequence[str] = ()) -> Study:
    """Read a study from a YAML file and check it before any run, with further configuration overrides.

    Parameters
    ----------
    path : Path
    words : sequence of str
        Further overrides of every run, after those of the file.
    """
    return _Reader(read_mapping(path)).study(tuple(words))


class _Reader:
    """Turns the content of a study file into a study, and knows the line of each key for errors."""

    def __init__(self, source: YamlMapping) -> None:
        self.source = source
        self.keys = validate_content(StudyKeys, source.content, file=source.path, source=source)

    def error(self, message: str, *keys: str | int, remedy: str | None = None) -> InputError:
        line, name = self.source.line(keys), field_name(keys)
        return InputError(message, file=self.source.path, line=line, field=name, remedy=remedy)

    def study(self, words: tuple[str, ...]) -> Study:
        keys = self.keys
        scenarios, policies = self.choices("scenarios"), self.choices("policies")
        metrics = self.metrics()
        if len(set(keys.seeds)) < len(keys.seeds):
            raise self.error("a seed stands twice", "seeds", remedy="give each seed once")
        runs = len(scenarios) * len(policies) * len(keys.seeds)
        if runs > MOST_RUNS:
            raise self.error(f"{runs:,} runs are more than {MOST_RUNS:,}", "seeds", remedy="divide the study")
        self.check_label("reference_policy", policies)
        self.check_label("reference_scenario", scenarios)
        study = Study(
            path=self.source.path,
            sha256=hashlib.sha256(self.source.path.read_bytes()).hexdigest(),
            title=keys.title or self.source.path.stem,
            text=keys.text or "",
            scenarios=scenarios,
            policies=policies,
            seeds=tuple(keys.seeds),
            settings=(*keys.settings, *words),
            metrics=metrics,
            summary=self.summary(scenarios, metrics),
            reference_policy=keys.reference_policy,
            reference_scenario=keys.reference_scenario,
        )
        self.check_overrides(study, words)
        return study

    def choices(self, key: str) -> dict[str, tuple[str, ...]]:
        """Return each label's overrides, from a list of `NAME KEY=VALUE …` or a mapping of labels."""
        group, given = {"scenarios": "scenario", "policies": "policy"}[key], getattr(self.keys, key)
        listed = isinstance(given, list) and given and all(isinstance(entry, str) for entry in given)
        mapped = isinstance(given, dict) and given and all(isinstance(entry, str) for entry in given.values())
        if not listed and not mapped:
            remedy = f"give a list of {group} names, each with its KEY=VALUE, or a mapping of labels to such"
            raise self.error("is neither a list nor a mapping of texts", key, remedy=remedy)
        entries = [(entry, entry, at) for at, entry in enumerate(given)] if listed else []
        entries = entries or [(str(label), text, label) for label, text in given.items()]
        found: dict[str, tuple[str, ...]] = {}
        slugs: dict[str, str] = {}
        for label, text, at in entries:
            # In lower case: on some file systems names that differ by case are one.
            other = slugs.setdefault(slug(label).lower(), label)
            if label in found or other != label:
                message = f"its files would be called as those of {other!r}"
                raise self.error(message, key, at, remedy="give another label, as LABEL: NAME KEY=VALUE …")
            if not 0 < len(slug(label)) <= LONGEST_LABEL:
                remedy = f"give a label of 1 to {LONGEST_LABEL} letters and digits"
                raise self.error(f"{label!r} is no label", key, at, remedy=remedy)
            try:
                first, *rest = shlex.split(text)
            except ValueError:
                raise self.error(f"{text!r} is no NAME KEY=VALUE …", key, at, remedy="give a name") from None
            found[label] = (first if "=" in first else f"{group}={first}", *rest)
        return found

    def metrics(self) -> dict[str, str]:
        """Return each metric's title, from a list of metrics or a mapping of metrics to titles."""
        given = self.keys.metrics
        known = given if isinstance(given, dict) else {}
        if isinstance(given, list):
            known = {name: str(name).replace("_", " ") for name in given if isinstance(name, str)}
        titled = all(isinstance(text, str) and text for pair in known.items() for text in pair)
        if not known or not titled or len(known) != len(given):
            remedy = "give a list of metrics, or a mapping of metrics to their titles"
            raise self.error("is neither a list nor a mapping of texts", "metrics", remedy=remedy)
        for at, name in enumerate(known):
            if metric_named(name) is None:
                where = at if isinstance(given, list) else name
                remedy = nearest(name, [*METRICS, *(f"{key} of QUEUE" for key in OF_ONE_QUEUE)])
                raise self.error(f"unknown metric {name!r}", "metrics", where, remedy=remedy)
        return known

    def summary(
        self, scenarios: Mapping[str, object], metrics: Mapping[str, str]
    ) -> dict[str, tuple[str, ...]]:
        if self.keys.summary is None:
            return {label: (next(iter(metrics)),) for label in scenarios}
        for label, names in self.keys.summary.items():
            if label not in scenarios:
                raise self.error(
                    f"unknown scenario {label!r}", "summary", label, remedy=nearest(label, scenarios)
                )
            for at, name in enumerate(names):
                if name not in metrics:
                    remedy = nearest(name, metrics)
                    raise self.error(
                        f"{name!r} is not among the metrics", "summary", label, at, remedy=remedy
                    )
        return {label: tuple(names) for label, names in self.keys.summary.items()}

    def check_label(self, key: str, labels: Mapping[str, object]) -> None:
        label = getattr(self.keys, key)
        if label is not None and label not in labels:
            what = "policies" if key == "reference_policy" else "scenarios"
            raise self.error(f"{label!r} is not among the {what}", key, remedy=nearest(label, labels))

    def check_overrides(self, study: Study, words: tuple[str, ...]) -> None:
        """Check each scenario's and policy's overrides; raise an `InputError` that names a wrong one."""
        first = (*next(iter(study.scenarios.values())), *next(iter(study.policies.values())))
        scenarios = [(self.place("scenarios", at), its) for at, its in enumerate(study.scenarios.values())]
        policies = [(self.place("policies", at), its) for at, its in enumerate(study.policies.values())]
        settings = tuple(self.keys.settings)
        of_settings = {parse_key(word) for word in settings}
        # A scenario and a policy each by itself, not in all pairs: that composes as often as their sum.
        for keys, overrides in (*scenarios, *policies):
            try:
                check_run((*overrides, *settings))
            except InputError as error:
                message = f"{error.field}: {error.message}" if error.field else error.message
                where: tuple[str | int, ...] = ("settings",) if error.field in of_settings else keys
                raise self.error(message, *where, remedy=error.remedy) from error
        # Once with the words of the command line, on the first run: they are the same for all, and their
        # errors are of no line of the file.
        if words:
            check_run((*first, *settings, *words))

    def place(self, key: str, at: int) -> tuple[str, str | int]:
        """Return where entry number `at` under a key of the file is: the key, and its position or name."""
        given = getattr(self.keys, key)
        return key, at if isinstance(given, list) else str(list(given)[at])


def parse_key(word: str) -> str:
    """Return the key of a configuration override such as `KEY=VALUE`."""
    return word.partition("=")[0].lstrip("+~")


def check_run(overrides: Sequence[str]) -> None:
    """Raise an `InputError` unless overrides make a valid run, without what the study sets (as `seed`)."""
    for word in overrides:
        if parse_key(word) in ("seed", "compare") or word.startswith("hydra"):
            raise InputError("is not for a run of a study", field=parse_key(word), remedy="leave it out")
    check_words(overrides)
    config = compose_config("config", (*OF_EVERY_RUN, *overrides))
    check_composed(config)
    make_policy(config["policy"])
    make_placer(config["placer"])


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
    # A run that is recognised as finished is not written again: equal times tell which those are.
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
    """Read the results of all runs of a study from their folders."""
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
            # By seed, so that a difference is of pairs of runs on the same jobs.
            columns.setdefault(label, Column(label)).by_seed[cell.seed] = result
    reference = study.reference_policy if scenario else study.reference_scenario
    return make_labelled_group(list(columns.values()), reference)
