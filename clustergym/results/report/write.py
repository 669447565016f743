"""The page of a report, a single file that opens without a server or a network."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from clustergym.common.errors import InputError, visible_all
from clustergym.common.writing import write_files
from clustergym.results.columns import IN_COLUMNS
from clustergym.results.report.payload import STEPS, payload
from clustergym.results.result_files import FILE_NAME, ResultFile, read_results

TEMPLATE = Path(__file__).with_name("page.html")
PAGE = "report.html"
PLAYER_TEMPLATE = Path(__file__).with_name("player.html")
PLAYER = "player.html"
PLAYER_STEPS = 5000
"""Most steps of a line in the player, which shows the figure of a moment, not a mean around it."""
MANY_JOBS = 5000
"""Jobs of a run beyond which `report=auto` makes no page, as it would take longer than the simulation."""
MARK = "/*DATA*/"
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(results: Sequence[ResultFile], template: Path = TEMPLATE) -> str:
    """Return the HTML page that a template (report or player) makes of results."""
    steps = PLAYER_STEPS if template == PLAYER_TEMPLATE else STEPS
    data = payload(results, steps)
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    # Most pages have no character that must be written out: JSON writes those with a backslash, but for DEL.
    if "\\" in text or not text.isprintable():
        text = json.dumps(visible_all(data), separators=(",", ":"), allow_nan=False)
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return template.read_text(encoding="utf-8").replace(MARK, text)


def write_report(places: Iterable[Path], path: Path, template: Path = TEMPLATE) -> int:
    """Write a page on all results in the given files and folders, atomically; return their number.

    Returns
    -------
    int
        The number of results on the page.
    """
    results = read_results(places)
    text = page(results, template)
    write_files({path: text.encode("utf-8", errors="backslashreplace")})
    return len(results)


def write_run_report(folders: Sequence[Path], later: bool = False) -> None:
    """Write a report on a run, compared with the other folders' runs, into the first folder, or say how to.

    If the page fails, the result stays valid; its result.json and a line on stderr say what failed.
    """
    path, makes = folders[0] / PAGE, f"`clustergym report {shlex.quote(str(folders[0]))}` makes the page"
    if any((folder / IN_COLUMNS["events.jsonl.gz"]).exists() for folder in folders):
        path.unlink(missing_ok=True)
        print("no page is drawn of tables in columns; run.logs=lines writes lines, of which one is")
        return
    if later:
        path.unlink(missing_ok=True)
        print(f"no page is drawn of more than {MANY_JOBS:,} jobs unless report=true is given; {makes}")
        return
    try:
        write_report([folder / FILE_NAME for folder in folders], path)
    except InputError as error:
        # A page of an earlier run would be taken for this run's page.
        path.unlink(missing_ok=True)
        print(f"warning: {error}; the result is whole, and {makes} later", file=sys.stderr)
