"""`python -m clustergym.training.plot FILE… --output curves.svg`: validation curves of trained agents."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.agents.checkpoints import find
from clustergym.common.arguments import Parser
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.figures import draw_figure
from clustergym.common.yaml_file import read_mapping
from clustergym.results.report.colours import COLOURS


class Axes(NamedTuple):
    """What a curve is over, and what it shows."""

    x: str
    y: str


STEPS = Axes("steps of the environment", "mean JCT on dev traces, h")
GENERATIONS = Axes("generation", "objective on dev windows")


def axes_of(curves: Mapping[str, Any]) -> Axes:
    """Return what a training's curve is over: a network's or an evolution's."""
    return GENERATIONS if "validation" in curves else STEPS


def points(curves: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return the validations of a training: where each was, and what it gave; the first is at step 0."""
    if axes_of(curves) is GENERATIONS:
        rows = list(curves["validation"])
    else:
        rows = [(row["steps"], row["dev_jct_h"]) for row in curves["segments"] if "dev_jct_h" in row]
        if "start" in curves:
            rows.insert(0, (0, curves["start"]["dev_jct_h"]))
        imitation = curves.get("imitation", [])
        if imitation:
            rows.insert(0, (0, min(imitation, key=lambda row: -float(row["dev_return"]))["dev_jct_h"]))
    return [float(x) for x, _ in rows], [float(y) for _, y in rows]


def draw(curves: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw curves by name into a file, see `draw_figure`; all are over the same."""

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        for at, (name, curve) in enumerate(curves.items()):
            colour = COLOURS[at % len(COLOURS)]
            axes.plot(*points(curve), marker="o", markersize=3, color=colour, label=name)
            axes.set(xlabel=axes_of(curve).x, ylabel=axes_of(curve).y)
            if "expert" in curve:
                hours = curve["expert"]["dev_jct_h"]
                axes.axhline(hours, color=colour, linestyle="--", linewidth=0.8, label=f"{name}: its expert")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)

    draw_figure(path, (6.0, 3.2), fill, "--output", {"font.size": 9})


def read_curves(names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the curves of checkpoints, by the names of their files.

    Raises
    ------
    InputError
        If a file is not a checkpoint, or has no curve, or one that is over other things than the first.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for name in names:
        path = find(name).with_suffix(".yaml")
        try:
            curves = read_mapping(path).content["curves"]
            points(curves)
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise InputError("has no curves", file=path, remedy="the file is damaged") from error
        found[path.stem] = curves
        first = next(iter(found))
        if axes_of(found[first]) is not axes_of(curves):
            remedy = "draw networks and agents of evolution apart"
            raise InputError(f"has a curve over other steps than {first}", file=path, remedy=remedy)
    return found


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = Parser(prog="python -m clustergym.training.plot", description=__doc__)
    parser.add_argument("checkpoint", nargs="+")
    parser.add_argument("--output", type=Path, default=Path("curves.svg"))
    given = parser.parse_args(sys.argv[1:] if argv is None else argv)
    draw(read_curves(given.checkpoint), given.output)
    print(f"wrote {given.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
