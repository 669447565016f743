"""`clustergym study FILE`: run scenarios x policies x seeds, and write their tables and plots."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

from clustergym.common.errors import InputError, Parser, exits_on_bad_input
from clustergym.common.paths import install_line
from clustergym.common.writing import write_json

LAUNCHER = ("hydra/launcher=", "hydra.launcher.")


def _parser() -> Parser:
    words = "Run every scenario of a study with every policy and seed, as a sweep in which a finished run is "
    words += "not run again, and write a page of tables (Markdown, LaTeX) and plots (SVG, PDF)."
    parser = Parser(prog="clustergym study", description=words)
    parser.add_argument("file", metavar="FILE", type=Path, help="the study, in YAML")
    words = "of every run, after the file's own; hydra/launcher=NAME and hydra.launcher.KEY=VALUE say where "
    words += "the runs take place"
    parser.add_argument("words", metavar="KEY=VALUE", nargs="*", help=words)
    words = "folder of the page and of the runs (default: outputs/studies/NAME of the file)"
    parser.add_argument("--out", metavar="DIR", type=Path, help=words)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures, unrounded")
    return parser


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym study`: run every policy, scenario and seed of a study, and write its page."""
    given = sys.argv[1:] if argv is None else argv
    options = _parser().parse_intermixed_args(given)
    # Late, as they load Hydra and pydantic, which `--help` does not need.
    from clustergym.benchmark.study.page import draw, make_plots, make_tables, study_json, write_page
    from clustergym.benchmark.study.study_file import read_cells, read_study, run_cells

    hydra_words = [word for word in options.words if word.startswith("hydra")]
    for word in hydra_words:
        if not word.startswith(LAUNCHER):
            raise InputError(
                f"{word!r} is not for a study", remedy="of Hydra's give hydra/launcher=NAME only"
            )
    study = read_study(options.file, [word for word in options.words if word not in hydra_words])
    out = options.out or Path("outputs", "studies", options.file.stem)
    drawable = importlib.util.find_spec("matplotlib") is not None
    if not drawable:
        print(f"note: no plots without Matplotlib: {install_line('report')}", file=sys.stderr)
    cells = list(study.cells())
    status, finished = run_cells(cells, out / "runs", hydra_words)
    if status != 0:
        raise InputError(
            "some runs failed, so no page is written", file=options.file, remedy="mend them, and run it again"
        )
    results, command = read_cells(study, out / "runs"), f"clustergym study {shlex.join(given)}"
    tables, plots = make_tables(study, results), make_plots(study, results) if drawable else []
    for plot in plots:
        draw(study, results, plot, out / "plots")
    write_page(study, results, tables, plots, out, command)
    write_json(options.json, study_json(study, results, command))
    print(tables[0].markdown)
    print(f"{len(cells)} run{'s' * (len(cells) != 1)}, {finished} finished before")
    print(f"wrote {out / 'study.md'}, {len(tables)} tables (Markdown, LaTeX), {len(plots)} plots (SVG, PDF)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
