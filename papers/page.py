"""Renders a paper's page of claims and sections, and the page of all papers' claims."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from clustergym.common.errors import InputError
from clustergym.common.tables import table

from .claims import TOLERANCE, VERDICTS, PaperClaim, claims_table
from .reproduction import Figures, Found, RunSpec, change, compute_padded_jct, number
from .titles import PAPERS


@dataclass(frozen=True)
class Report:
    """The page that compares a paper's results with ours: Markdown text, figures and claims."""

    text: str
    figures: list[dict[str, Any]]
    claims: Sequence[PaperClaim] = ()


Labelled = Mapping[Any, RunSpec]
"""Runs by the labels that open their rows, each a tuple of str."""


class Section(NamedTuple):
    """A section of a paper's page: the runs that it needs, and a function from their results to its text."""

    specs: Sequence[RunSpec]
    text: Callable[[Found], str]
    runs: Labelled = MappingProxyType({})


@cache
def _passages(paper: str) -> Mapping[str, str]:
    written = (Path(__file__).parent / "texts" / f"{paper}.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"<!-- (.+) -->\n", written)
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def passage(paper: str, name: str, /, **values: Any) -> str:
    """Return the prose under `<!-- name -->` in `texts/PAPER.md`, with values filled in."""
    return _passages(paper)[name].format(**values)


def words(text: str) -> Section:
    """Return a section that consists of text alone."""
    return Section((), lambda found: text)


def list_specs(sections: Iterable[Section]) -> list[RunSpec]:
    """Return the descriptions of all runs that the sections of a page need."""
    return [spec for section in sections for spec in section.specs]


def make_report(
    introduction: str,
    claims: Sequence[PaperClaim],
    sections: Iterable[Section],
    found: Found,
) -> Report:
    """Compose a paper's page of an introduction, a table of claims (if there are any) and sections."""
    opening = [introduction, *([f"## Claims\n\n{claims_table(claims)}"] if claims else [])]
    parts = [*opening, *(section.text(found) for section in sections)]
    runs = [spec.plain(figures) for spec, figures in found.items()]
    return Report("\n\n".join(filter(None, parts)) + "\n", runs, claims)


class RunColumn(NamedTuple):
    """A column of a table of runs: a metric, and a unit (hours, milliseconds or percent) if it has one."""

    header: str
    metric: str
    decimals: int = 0
    unit: str = ""

    def format_figure(self, figures: Figures) -> str:
        """Return the column's metric of a run as text; `-` if the run has none."""
        value = figures.get(self.metric)
        if value is None:
            return "-"
        if self.unit == "%":
            return f"{100 * value:.{self.decimals}f} %"
        return number({"h": value / 3600, "ms": 1000 * value}.get(self.unit, value), self.decimals)


RESTARTS = RunColumn("restarts a job", "restarts_mean", 1)
Added = Mapping[str, Sequence[str]]
"""Further columns by header; a blank at the end tells two equal headers apart and is not shown."""


def figures_table(
    labels: Sequence[str],
    rows: Mapping[Any, Figures],
    columns: Sequence[RunColumn],
    added: Added | None = None,
) -> str:
    """Return a Markdown table with a row for each run: labels, metrics and additional values."""
    more = added or {}
    headers = [*labels, *(column.header for column in columns), *(header.rstrip() for header in more)]
    lines = [
        [
            *opening,
            *(column.format_figure(row) for column in columns),
            *(cells[at] for cells in more.values()),
        ]
        for at, (opening, row) in enumerate(rows.items())
    ]
    return table(headers, lines)


def runs_table(
    text: str,
    labels: Sequence[str],
    runs: Labelled,
    columns: Sequence[RunColumn],
    added: Callable[[Found, Labelled], Added] = lambda found, runs: {},
) -> Section:
    """Return a section that consists of a text and a table of runs."""

    def render(found: Found) -> str:
        rows = {opening: found[spec] for opening, spec in runs.items()}
        return f"{text}\n\n{figures_table(labels, rows, columns, added(found, runs))}"

    return Section(list(runs.values()), render, runs)


def changes(found: Found, runs: Labelled, metric: str) -> list[str]:
    """Return, for each run, the change of a metric in percent from the first run in the same setting."""
    first: dict[tuple[str, ...], float] = {}
    for labels, spec in runs.items():
        first.setdefault(labels[1:], found[spec][metric])
    return [change(found[spec][metric], first[labels[1:]]) for labels, spec in runs.items()]


def compute_padded_by_label(found: Found, runs: Labelled, reference: str, *group: str) -> dict[str, float]:
    """Return padded mean JCTs (s), by first label, of runs whose other labels are `group`.

    `reference` is the first label of the run whose number of jobs counts (`compute_padded_jct`).
    """
    figures = {labels[0]: found[spec] for labels, spec in runs.items() if labels[1:] == group}
    return compute_padded_jct(figures, reference) if reference in figures else {}


OF_PREPRINT, IF_FAIR = "counted with its preprint", "otherwise if fair"


def claims_path(page: Path) -> Path:
    """Return the path of the file of a paper's claims, which lies beside the paper's page."""
    return page.with_suffix(".claims.json")


def claims_text(paper: str, quick: bool, claims: Sequence[PaperClaim]) -> str:
    """Return the JSON content of the file of a paper's claims."""
    plain = {"paper": paper, "quick": quick, "claims": [claim.plain() for claim in claims]}
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_claims(path: Path) -> list[PaperClaim]:
    """Read a paper's claims from the file that `clustergym reproduce` wrote."""
    try:
        return [PaperClaim.from_row(row) for row in json.loads(path.read_text(encoding="utf-8"))["claims"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"is no file of claims: {type(error).__name__} {error}"
        remedy = "write it again by `clustergym reproduce PAPER`"
        raise InputError(message, file=path, remedy=remedy) from None


def page_name(paper: str) -> str:
    """Return the file name of a paper's page."""
    return f"{paper}.md"


def find_claims(folder: Path) -> dict[str, list[PaperClaim]]:
    """Read the claims of all papers from the files in a folder; return them by paper."""
    paths = {paper: claims_path(folder / page_name(paper)) for paper in PAPERS}
    return {paper: read_claims(path) for paper, path in paths.items() if path.is_file()}


def joint_page(claims: dict[str, list[PaperClaim]], quick: bool) -> str:
    """Return the Markdown page of verdicts by paper; it names the papers that have no claims."""
    head = passage("all", "head", papers=len(PAPERS), command="all" + " --quick" * quick)
    reading = passage("all", "reading", tolerance=100 * TOLERANCE)
    return "\n\n".join([head, verdict_table(claims, quick), reading]) + "\n"


def verdict_counts(claims: Sequence[PaperClaim]) -> dict[str, int]:
    """Count claims by verdict; those taken over from a preprint (Arena's from Crius) are counted apart."""
    own = [claim for claim in claims if not claim.first_stated_by]
    counts = Counter(claim.main_verdict for claim in own)
    return {
        "claims": len(claims),
        **{name: counts[name] for name in VERDICTS},
        OF_PREPRINT: len(claims) - len(own),
        IF_FAIR: sum("(fair: " in claim.verdict for claim in own),
    }


def verdict_table(claims: dict[str, list[PaperClaim]], quick: bool) -> str:
    """Return a Markdown table that counts each paper's claims by verdict; it names papers without claims."""
    headers, rows = ["paper", "command", *verdict_counts([])], []
    for paper, title in PAPERS.items():
        name, told = title, ["no claims kept", *[""] * (len(headers) - 3)]
        if paper in claims:
            name, told = _link(paper), list(map(str, verdict_counts(claims[paper]).values()))
        rows.append([name, _command(paper, quick), *told])
    every = [claim for found in claims.values() for claim in found]
    rows.append(["all", _command("all", quick), *map(str, verdict_counts(every).values())])
    return table(headers, rows, words=(0, 1))


def _command(paper: str, quick: bool) -> str:
    return f"`clustergym reproduce {paper}{' --quick' * quick}`"


def _link(paper: str) -> str:
    return f"[{PAPERS[paper]}]({page_name(paper)})"
