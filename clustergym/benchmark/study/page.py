"""The page of a study: what was run, by which command and versions, and its tables and plots."""

from __future__ import annotations

import csv
import hashlib
import io
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clustergym.benchmark.study.plots import Plot
from clustergym.benchmark.study.runs import StudyResults
from clustergym.benchmark.study.study_file import Cell, Study
from clustergym.benchmark.study.tables import TextTable, comparison, summary_table, units_of
from clustergym.common.writing import write_files
from clustergym.results.report.collection import as_json
from clustergym.results.result_files import ResultFile

INTERVALS = (
    "In brackets: of a mean of two seeds both, of three or more its 95 % interval (Student's t on the "
    "logarithm, of a share on its log-odds); of a ratio that of a paired bootstrap over the seeds."
)


def tables_of(study: Study, results: StudyResults) -> list[TextTable]:
    """Return the tables of a study: the summary, one of each scenario, and one of each policy compared."""
    units = units_of(study, results)
    return [
        summary_table(study, results.by_scenario, units),
        *(comparison(study, "scenario", label, group, units) for label, group in results.by_scenario.items()),
        *(comparison(study, "policy", label, group, units) for label, group in results.by_policy.items()),
    ]


def write_page(
    study: Study,
    results: StudyResults,
    tables: Sequence[TextTable],
    plots: Sequence[Plot],
    out: Path,
    command: str,
) -> list[Path]:
    """Write the page, its tables in LaTeX and Markdown, and the list of runs; return their paths."""
    files = {out / "runs.csv": _runs_csv(study, results.runs)}
    for table in tables:
        files[out / "tables" / f"{table.name}.tex"] = table.latex
        files[out / "tables" / f"{table.name}.md"] = table.markdown + "\n"
    files[out / "study.md"] = page(study, results, tables, plots, command)
    write_files({path: text.encode("utf-8") for path, text in files.items()}, "--out")
    return list(files)


def page(
    study: Study, results: StudyResults, tables: Sequence[TextTable], plots: Sequence[Plot], command: str
) -> str:
    """Return the page in Markdown."""
    parts = [f"# {study.title}", *filter(None, [study.text])]
    parts.append(_counts(study, len(results.runs)))
    drawn = {plot.name: plot for plot in plots}
    for table in tables:
        parts += [f"## {table.title.removeprefix(f'{study.title}: ')}", table.markdown]
        parts += [f"Note: {note}." for note in table.notes]
        if table.name in drawn:
            parts.append(f"![{drawn[table.name].title}](plots/{table.name}.svg)")
    parts += ["## How it was made", f"```sh\n{command}\n```", _facts(study, results)]
    return "\n\n".join(parts) + "\n"


def _counts(study: Study, runs: int) -> str:
    axes = {"scenario": study.scenarios, "policy": study.policies, "seed": study.seeds}
    plural = {"scenario": "scenarios", "policy": "policies", "seed": "seeds"}
    told = " x ".join(f"{len(of)} {name if len(of) == 1 else plural[name]}" for name, of in axes.items())
    return f"{told}: {runs} run{'s' * (runs != 1)}. {INTERVALS if len(study.seeds) > 1 else ''}".strip()


def _facts(study: Study, results: StudyResults) -> str:
    lines = [f"- study: `{study.path.name}`, SHA-256 `{study.sha256}`"]
    lines.append(f"- digest of all runs: `{digest(results)}`; of each: `runs.csv`")
    lines += [f"- versions: {', '.join(f'{name} {version}' for name, version in versions(results).items())}"]
    for label, overrides in study.scenarios.items():
        hashes = sorted(
            {sha[:12] for of_seed in results.by_scenario[label].hashes.values() for sha in of_seed}
        )
        shown = hashes[0] if len(hashes) == 1 else f"{len(hashes)} job sets, {hashes[0]} to {hashes[-1]}"
        lines.append(f"- scenario {label}: `{shlex.join((*overrides, *study.settings))}`, {shown}")
    lines += [f"- policy {label}: `{shlex.join(its)}`" for label, its in study.policies.items()]
    lines.append(f"- seeds: {', '.join(map(str, study.seeds))}")
    return "\n".join(lines)


def versions(results: StudyResults) -> dict[str, str]:
    """Return the versions that the runs were made with; of a library several, if they differ."""
    found: dict[str, set[str]] = {}
    for _, result in results.runs:
        for name, version in result.versions.items():
            found.setdefault(name, set()).add(version)
    return {name: " and ".join(sorted(known)) for name, known in found.items()}


def digest(results: StudyResults) -> str:
    """Return the SHA-256 of all runs' labels and digests."""
    lines = (f"{cell.scenario}\t{cell.policy}\t{cell.seed}\t{run.digest}\n" for cell, run in results.runs)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def study_json(study: Study, results: StudyResults, command: str) -> Mapping[str, Any]:
    """Return all figures of a study, unrounded."""
    metrics = list(study.metrics)
    return {
        "schema": "clustergym.study/1",
        "title": study.title,
        "command": command,
        "sha256": study.sha256,
        "digest": digest(results),
        "versions": versions(results),
        "seeds": study.seeds,
        "scenarios": {
            label: as_json([group], metrics)["tables"][0] for label, group in results.by_scenario.items()
        },
        "policies": {
            label: as_json([group], metrics)["tables"][0] for label, group in results.by_policy.items()
        },
        "runs": [
            {
                "scenario": cell.scenario,
                "policy": cell.policy,
                "seed": cell.seed,
                "sha256": run.scenario.sha256,
                "run_key": run.run_key,
                "digest": run.digest,
                "metrics": {name: run.metrics.get(name) for name in metrics},
            }
            for cell, run in results.runs
        ],
    }


def _runs_csv(study: Study, runs: Sequence[tuple[Cell, ResultFile]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("scenario", "policy", "seed", "sha256", "run_key", "digest", "folder", *study.metrics))
    for cell, run in runs:
        values = (run.metrics.get(name) for name in study.metrics)
        hashes = (run.scenario.sha256, run.run_key, run.digest)
        writer.writerow((cell.scenario, cell.policy, cell.seed, *hashes, cell.folder, *values))
    return text.getvalue()
