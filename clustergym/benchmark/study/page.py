"""The page of a study: what was run and by which versions, its tables (Markdown and LaTeX) and its plots."""

from __future__ import annotations

import csv
import hashlib
import io
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.benchmark.study.study_file import Cell, Study, StudyResults, slug
from clustergym.common import tables
from clustergym.common.figures import draw_figure
from clustergym.common.writing import write_files
from clustergym.common.yaml_file import read_mapping
from clustergym.results.metrics.catalogue import Metric
from clustergym.results.metrics.statistics import Aggregate, Estimate
from clustergym.results.report.collection import as_json
from clustergym.results.report.colours import COLOURS, choose_styles
from clustergym.results.report.groups import Column, ResultGroup
from clustergym.results.report.metric_tables import Unit, human_unit, human_value, ratio, warn_of_unequal_jobs
from clustergym.results.result_files import ResultFile
from clustergym.scenario.policy import KNOWS, InformationClass

INTERVALS = (
    "In brackets: of a mean of two seeds both, of three or more its 95 % interval (Student's t on the "
    "logarithm, of a share on its log-odds); of a ratio that of a paired bootstrap over the seeds."
)


def make_tables(study: Study, results: StudyResults) -> list[TextTable]:
    """Return a study's tables: a summary, one for each scenario, and one for each policy across scenarios."""
    units = choose_units(study, results)
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
    """Write a study's page, its tables in LaTeX and Markdown, and the list of runs; return the paths."""
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
    """Return a study's page as Markdown text, with its tables and plots."""
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
        words = shlex.join((*overrides, *study.settings))
        lines.append(f"- scenario {label}: `{words}`, {shown}; {_describe_models(results, label)}")
    lines += [f"- policy {label}: `{shlex.join(its)}`" for label, its in study.policies.items()]
    lines.append(f"- seeds: {', '.join(map(str, study.seeds))}")
    return "\n".join(lines)


def _describe_models(results: StudyResults, label: str) -> str:
    """Return whether the jobs' models were drawn: logs of clusters seldom say what ran."""
    run = next(run for cell, run in results.runs if cell.scenario == label)
    trace = read_mapping(run.path.parent / "config.yaml").content["trace"]
    by = f" by the rule `{trace['rule']}`" if "rule" in trace else ""
    return (
        f"models that the trace does not name were drawn{by}" if trace["path"] else f"models were drawn{by}"
    )


def versions(results: StudyResults) -> dict[str, str]:
    """Return the versions of clustergym and its libraries in a study's runs, by name."""
    found: dict[str, set[str]] = {}
    for _, result in results.runs:
        for name, version in result.versions.items():
            found.setdefault(name, set()).add(version)
    return {name: " and ".join(sorted(known)) for name, known in found.items()}


def digest(results: StudyResults) -> str:
    """Return one SHA-256 of all runs' labels and event-log digests."""
    lines = (f"{cell.scenario}\t{cell.policy}\t{cell.seed}\t{run.digest}\n" for cell, run in results.runs)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def study_json(study: Study, results: StudyResults, command: str) -> Mapping[str, Any]:
    """Return all figures of a study as JSON values, unrounded."""
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


FORMATS = (".svg", ".pdf")


class Plot(NamedTuple):
    """What a study's plot shows: a title, a row for each policy or scenario, and a panel for each metric."""

    name: str
    title: str
    group: ResultGroup
    columns: Sequence[Column]
    metrics: Sequence[str]


def make_plots(study: Study, results: StudyResults) -> list[Plot]:
    """List a study's plots: policies compared in each scenario, and scenarios compared for each policy."""
    found = []
    for label, metrics in study.summary.items():
        group = results.by_scenario[label]
        found.append(
            Plot(
                f"scenario-{slug(label)}",
                label,
                group,
                order_columns(group, study.about[metrics[0]]),
                metrics,
            )
        )
    first = next(iter(study.metrics))
    for label, group in results.by_policy.items():
        found.append(Plot(f"policy-{slug(label)}", label, group, group.columns, [first]))
    return found


def draw(study: Study, results: StudyResults, plot: Plot, folder: Path) -> list[Path]:
    """Plot figures of a study, and write an image file in each of `FORMATS`; return the paths."""
    names = [column.any.policy.name for column in plot.columns]
    several = len(set(names)) > 1
    colours = [style.colour for style in choose_styles(names)] if several else [COLOURS[0]] * len(names)
    units = choose_units(study, results)
    figures = [plot.group.figures(column) for column in plot.columns]

    def fill(figure: Any) -> None:
        for at, metric in enumerate(plot.metrics, start=1):
            axes, unit = figure.add_subplot(1, len(plot.metrics), at), units[metric]
            for row, (of_row, colour) in enumerate(zip(figures, colours, strict=True)):
                known = of_row.get(metric)
                if known is None:
                    continue
                mean, low, high = (value * unit.factor for value in known[:3])
                axes.plot([low, high], [row, row], color=colour, linewidth=1.5)
                axes.plot([mean], [row], "o", color=colour, markersize=5)
            labels = [column.label for column in plot.columns] if at == 1 else []
            axes.set_yticks(range(len(plot.columns)), labels or [""] * len(plot.columns))
            axes.set_ylim(len(plot.columns) - 0.5, -0.5)
            axes.set_xlim(left=0)
            axes.set_xlabel(heading(study, metric, unit))
            axes.grid(axis="x", alpha=0.3)
        figure.suptitle(plot.title, fontsize="medium")

    size = 1.6 + 2.8 * len(plot.metrics), 1.0 + 0.26 * len(plot.columns)
    paths = [folder / f"{plot.name}{suffix}" for suffix in FORMATS]
    for path in paths:
        draw_figure(path, size, fill)
    return paths


ARROWS = {"lower": " ↓", "higher": " ↑", "": ""}
LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "↓": "$\\downarrow$",
    "↑": "$\\uparrow$",
    "[": "{[}",
}


class TextTable(NamedTuple):
    """A table of text cells that can be written as Markdown and LaTeX.

    Attributes
    ----------
    name : str
        Of its file.
    title : str
    headers : sequence of str
    rows : sequence of sequence of str
    words : int
        Number of leading columns that hold words.
    notes : sequence of str
    """

    name: str
    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int
    notes: Sequence[str] = ()

    @property
    def markdown(self) -> str:
        """The table in Markdown, without its title."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self.rows]
        return tables.table([cell.replace("|", "\\|") for cell in self.headers], rows, range(self.words))

    @property
    def latex(self) -> str:
        """The table in LaTeX; it needs the package booktabs."""
        lines = [" & ".join(map(escape_latex, line)) + " \\\\" for line in (self.headers, *self.rows)]
        columns = "l" * self.words + "r" * (len(self.headers) - self.words)
        body = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", lines[0], "\\midrule", *lines[1:]]
        notes = [f"% {' '.join(note.split())}" for note in (self.title, *self.notes)]
        return "\n".join([*notes, *body, "\\bottomrule", "\\end{tabular}", ""])


def escape_latex(text: str) -> str:
    """Return a text with LaTeX's special characters escaped."""
    return "".join(LATEX.get(character, character) for character in text)


def order_columns(group: ResultGroup, metric: Metric) -> list[Column]:
    """Sort columns: policies that know less of iteration times first, then by the metric, the best first."""
    known = {name.value: place for place, name in enumerate(reversed(InformationClass))}
    sign = -1.0 if metric.better == "higher" else 1.0

    def place(column: Column) -> tuple[int, float]:
        figure = group.figures(column).get(metric.name)
        value = float("inf") if figure is None else sign * figure.mean
        return known.get(column.any.information_class, len(known)), value

    return sorted(group.columns, key=place)


def summary_table(study: Study, groups: Mapping[str, ResultGroup], units: Mapping[str, Unit]) -> TextTable:
    """Return the table of the summary's metrics, with a row for each policy, columns by scenario."""
    first, (metric, *_) = next(iter(study.summary.items()))
    order = order_columns(groups[first], study.about[metric])
    headers = ["knows", "policy"]
    rows = [[told, column.label] for told, column in zip(_classes(order), order, strict=True)]
    for scenario, names in study.summary.items():
        group = groups[scenario]
        columns = {column.label: column for column in group.columns}
        figures = [group.figures(columns[column.label]) for column in order]
        for name in names:
            unit = units[name]
            headers.append(f"{scenario}: {heading(study, name, unit)}")
            for row, of_policy in zip(rows, figures, strict=True):
                row.append(format_figure(of_policy.get(name), unit))
    return TextTable("summary", "summary", headers, rows, 2)


def _classes(order: Sequence[Column]) -> list[str]:
    """Return each row's information class, or an empty text where it equals that of the row above."""
    told = [KNOWS.get(column.any.information_class, column.any.information_class) for column in order]
    return ["" if at and told[at - 1] == words else words for at, words in enumerate(told)]


def comparison(study: Study, of: str, label: str, group: ResultGroup, units: Mapping[str, Unit]) -> TextTable:
    """Return a table of all metrics: policies in the scenario `label`, or scenarios of the policy `label`.

    `of` says which of the two `label` names: `scenario` or `policy`.

    Beside each metric stands its ratio to the reference, if there is one, with its paired interval.
    """
    by_policy = of == "scenario"
    what = "policy" if by_policy else "scenario"
    columns = order_columns(group, study.about[next(iter(study.metrics))]) if by_policy else group.columns
    figures = [group.figures(column) for column in columns]
    headers = ["knows", what] if by_policy else [what]
    rows = [
        [*([told] if by_policy else []), column.label]
        for told, column in zip(_classes(columns), columns, strict=True)
    ]
    base = None if group.reference is None else group.columns[group.reference]
    for metric in study.metrics:
        unit = units[metric]
        headers.append(heading(study, metric, unit))
        for row, of_column in zip(rows, figures, strict=True):
            row.append(format_figure(of_column.get(metric), unit))
        if base is not None and study.about[metric].better:
            headers.append(f"to {base.label}")
            of_base = group.figures(base).get(metric)
            for row, column, of_column in zip(rows, columns, figures, strict=True):
                pair = group.ratios(column).get(metric)
                plain = None if column is base else ratio(of_column.get(metric), of_base)
                row.append(format_ratio(plain, pair))
    caution = warn_of_unequal_jobs([{"metrics": table} for table in figures])
    notes = [*group.notes, *filter(None, [caution])]
    return TextTable(f"{of}-{slug(label)}", f"{of} {label}", headers, rows, 2 if by_policy else 1, notes)


def heading(study: Study, metric: str, unit: Unit) -> str:
    """Return the heading of a metric's column: its title and its unit."""
    named = f" ({unit.name})" if unit.name else ""
    return f"{study.metrics[metric]}{named}{ARROWS[study.about[metric].better]}"


def choose_units(study: Study, results: StudyResults) -> dict[str, Unit]:
    """Choose each metric's unit (such as hours for seconds) for all tables and plots of a study."""
    figures = [group.figures(column) for group in results.by_scenario.values() for column in group.columns]
    found = {}
    for metric in study.metrics:
        means = [figure.mean for table in figures if (figure := table.get(metric)) is not None]
        found[metric] = human_unit(study.about[metric], max(map(abs, means), default=0.0))
    return found


def format_figure(figure: Estimate | None, unit: Unit) -> str:
    """Return a metric's mean with its interval as text, in a unit but without the unit's name."""
    return "-" if figure is None else human_value(figure, Unit(unit.factor, ""))


def format_ratio(plain: float | None, pair: Aggregate | None) -> str:
    """Format the ratio `plain` as text such as `1.23x` or `1.23x [1.10, 1.40]`; an empty text for None.

    The interval in brackets is `pair`, left out where its ends are equal.
    """
    if plain is None:
        return ""
    interval = "" if pair is None or pair.low == pair.high else f" [{pair.low:.2f}, {pair.high:.2f}]"
    return f"{plain:.2f}x{interval}"
