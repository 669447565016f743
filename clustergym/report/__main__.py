"""`python -m clustergym.report DIR… [--out FILE]`: one page of curves and tables over many runs."""

from __future__ import annotations

import sys
from pathlib import Path

from clustergym.arguments import Parser
from clustergym.errors import exits_on_bad_input
from clustergym.report.write import write_report


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Write the page and print its path."""
    parser = Parser(prog="python -m clustergym.report", description="Draw the results in folders.")
    parser.add_argument(
        "places", metavar="DIR", nargs="+", type=Path, help="folder of runs, or a result.json"
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, default=Path("report.html"), help="the page (report.html)"
    )
    options = parser.parse_args(argv)
    write_report(options.places, options.out)
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
