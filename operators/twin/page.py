"""The page of a question: one page of tables, in Markdown and as HTML that prints."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clustergym.common.tables import markdown_text, table

from .figures import GOODPUT
from .fit import minutes, share
from .waits import BY

STYLE = """body { font: 14px/1.4 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; margin: 0.5em 0 1.5em; break-inside: avoid; }
th, td { padding: 0.2em 0.6em; border-bottom: 1px solid #ccc; text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
@media print { body { font-size: 10px; margin: 0; max-width: none; } }"""


class Section(NamedTuple):
    """A titled table of the page that answers a what-if question."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


def list_sections(figures: Mapping[str, Any]) -> list[Section]:
    """Return the tables that show the figures of a what-if question."""
    options = figures["options"]
    found = [_overview(options, figures["ratios"], figures["differences"])]
    for by, title in BY.items():
        names = list(dict.fromkeys(name for its in options.values() for name in its["waits"].get(by, {})))
        if by == "all" or names in ([], ["(none)"]):
            continue
        headers = [title, *(f"{label}: mean, 90 %" for label in options)]
        rows = [[name, *(_wait(its["waits"][by].get(name)) for its in options.values())] for name in names]
        found.append(Section(f"Wait in minutes, by {title}", headers, rows))
    for by in ("team", "size"):
        names = list(dict.fromkeys(name for its in options.values() for name in its["lost"].get(by, {})))
        rows = [[name, *(_plain(its["lost"][by].get(name)) for its in options.values())] for name in names]
        found.append(Section(f"GPU-hours lost, by {BY[by]}", [BY[by], *options], rows))
    rows = [
        [GOODPUT[name], *(_plain(its["goodput_gpu_hours"].get(name)) for its in options.values())]
        for name in GOODPUT
    ]
    found.append(Section("What became of the GPU-hours", ["GPU-hours", *options], rows))
    return found


def _overview(
    options: Mapping[str, Any], ratios: Mapping[str, Any], differences: Mapping[str, Any]
) -> Section:
    waits = [its["waits"]["all"][BY["all"]] for its in options.values()]
    rows = [["mean wait (min)", *(_interval(wait.get("mean_s"), 60.0) for wait in waits)]]
    rows.append(["to today's", *(_ratio(ratios[label].get("all", {}).get(BY["all"])) for label in options)])
    for name, title in (("p50_s", "half wait less than"), ("p90_s", "9 of 10"), ("p99_s", "99 of 100")):
        rows.append([f"{title} (min)", *(_interval(wait.get(name), 60.0) for wait in waits)])
    rows.append(["late jobs", *(_interval(its["late_jobs"], 1.0) for its in options.values())])
    cells = (its.get("utilisation") for its in options.values())
    rows.append(["GPUs in use, steady window", *(share(cell["mean"]) if cell else "-" for cell in cells)])
    titles = {"cost": "cost of all GPUs", "energy_kwh": "energy (kWh)", "carbon_kg": "carbon (kg CO2)"}
    for key, title in titles.items():
        if any(key in its for its in options.values()):
            given = (its[key]["all"] if key == "cost" else its[key] for its in options.values())
            rows.append([title, *(_plain(cell) for cell in given)])
    if rents := any(its["rented_gpu_hours"]["mean"] for its in options.values()):
        rows.append(["rent", *(_plain(its["rent"]) for its in options.values())])
        rows.append(["rented GPU-hours", *(_plain(its["rented_gpu_hours"]) for its in options.values())])
    for key, (title, unit) in COMPARED.items():
        if key != "cost" or rents or any("cost" in its for its in options.values()):
            cells = (differences.get(label, {}).get(key) for label in options)
            rows.append([title, *(_difference(cell, unit) for cell in cells)])
    return Section("In short", ["", *options], rows)


COMPARED = {
    "wait_s": ("mean wait less today's (min)", 60.0),
    "late_jobs": ("late jobs less today's", 1.0),
    "cost": ("cost less today's", 1.0),
}


def _difference(cell: Mapping[str, float] | None, unit: float) -> str:
    if cell is None:
        return "-"
    ends = f" [{cell['low'] / unit:+,.1f}, {cell['high'] / unit:+,.1f}]" if "low" in cell else ""
    return f"{cell['mean'] / unit:+,.1f}{ends} (n = {cell['periods']})"


def _interval(cell: Mapping[str, float] | None, unit: float) -> str:
    if cell is None:
        return "-"
    return f"{cell['mean'] / unit:,.1f} [{cell['low'] / unit:,.1f}, {cell['high'] / unit:,.1f}]"


def _ratio(cell: Mapping[str, float] | None) -> str:
    return "-" if cell is None else f"{cell['ratio']:.2f}x [{cell['low']:.2f}, {cell['high']:.2f}]"


def _wait(group: Mapping[str, Any] | None) -> str:
    if group is None or "mean_s" not in group:
        return "-"
    return f"{_interval(group['mean_s'], 60.0)}, {minutes(group['p90_s']['mean'])}"


def _plain(cell: Mapping[str, float] | None) -> str:
    return "-" if cell is None else f"{cell['mean']:,.0f}"


def markdown_page(title: str, notes: Sequence[str], sections: Sequence[Section]) -> str:
    """Return a page of titled tables and notes as Markdown."""
    parts = [f"# {title}", *map(markdown_text, notes)]
    for section in sections:
        rows = [list(map(markdown_text, row)) for row in section.rows]
        parts += [f"## {section.title}", table(list(map(markdown_text, section.headers)), rows)]
    return "\n\n".join(parts) + "\n"


def html_page(title: str, notes: Sequence[str], sections: Sequence[Section]) -> str:
    """Return a page of titled tables and notes as one self-contained, printable HTML file."""
    parts = [f"<h1>{html.escape(title)}</h1>", *(f"<p>{html.escape(note)}</p>" for note in notes)]
    for section in sections:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in section.headers)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in section.rows
        )
        parts.append(f"<h2>{html.escape(section.title)}</h2><table><tr>{head}</tr>{rows}</table>")
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"
