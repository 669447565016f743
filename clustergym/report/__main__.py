"""`clustergym report DIR… [--out FILE]`: write a page of curves and tables over runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from clustergym.inputs.arguments import Parser
from clustergym.inputs.errors import exits_on_bad_input
from clustergym.report.write import PAGE, note_report, write_report
from clustergym.results.result_files import FILE_NAME


def _run_folder(places: Sequence[Path]) -> Path | None:
    """Return the folder of the run if a single run is given; None for several runs."""
    place = places[0].parent if places[0].name == FILE_NAME else places[0]
    return place if len(places) == 1 and (place / FILE_NAME).is_file() else None


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Write the page and print its path."""
    parser = Parser(
        prog="clustergym report",
        description="Draw the results in and below folders in one page. Of one run's folder it is the page "
        "that the run writes itself: make it so where report=false left it out, or where it failed.",
    )
    parser.add_argument(
        "places", metavar="DIR", nargs="+", type=Path, help="folder of one or more runs, or a result.json"
    )
    words = "the page (DIR/report.html if DIR is the folder of a run, else report.html)"
    parser.add_argument("--out", metavar="FILE", type=Path, help=words)
    options = parser.parse_args(argv)
    folder = _run_folder(options.places)
    path = options.out or (folder or Path()) / PAGE
    results = write_report(options.places if folder is None else [folder], path)
    if folder is not None and options.out is None:
        note_report(folder, None)
    print(f"wrote {path}: {results} result{'s' * (results != 1)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
