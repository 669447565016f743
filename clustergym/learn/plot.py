"""`python -m clustergym.learn.plot FILE… --output curves.svg`: validation curves of trained networks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clustergym.inputs.arguments import Parser
from clustergym.inputs.errors import InputError, exits_on_bad_input
from clustergym.inputs.yaml_file import read_mapping
from clustergym.learn.checkpoints import find, is_network
from clustergym.report.colours import COLOURS
from clustergym.terminal.figures import draw_figure


def points(curves: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return steps and mean JCT on dev traces, hours, of a training; the imitator is at step 0."""
    rows = [(row["steps"], row["dev_jct_h"]) for row in curves["segments"] if "dev_jct_h" in row]
    imitation = curves.get("imitation", [])
    if imitation:
        rows.insert(0, (0, min(imitation, key=lambda row: -float(row["dev_return"]))["dev_jct_h"]))
    return [float(x) for x, _ in rows], [float(y) for _, y in rows]


def draw(curves: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw curves by name into a file, see `draw_figure`."""

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        for at, (name, curve) in enumerate(curves.items()):
            colour = COLOURS[at % len(COLOURS)]
            axes.plot(*points(curve), marker="o", markersize=3, color=colour, label=name)
            if "expert" in curve:
                hours = curve["expert"]["dev_jct_h"]
                axes.axhline(hours, color=colour, linestyle="--", linewidth=0.8, label=f"{name}: its expert")
        axes.set_xlabel("steps of the environment")
        axes.set_ylabel("mean JCT on dev traces, h")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)

    draw_figure(path, (6.0, 3.2), fill, "--output", {"font.size": 9})


def read_curves(names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the curves of network checkpoints, by the names of their files.

    Raises
    ------
    InputError
        If a file is not such a checkpoint, or has no curve.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for name in names:
        path = find(name)
        if not is_network(name):
            raise InputError("is not a checkpoint of a network", file=path, remedy="give one of ppo or dqn")
        try:
            curves = read_mapping(path.with_suffix(".yaml")).content["curves"]
            points(curves)
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                "has no curves", file=path.with_suffix(".yaml"), remedy="the file is damaged"
            ) from error
        found[path.stem] = curves
    return found


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = Parser(prog="python -m clustergym.learn.plot", description=__doc__)
    parser.add_argument("checkpoint", nargs="+")
    parser.add_argument("--output", type=Path, default=Path("curves.svg"))
    given = parser.parse_args(sys.argv[1:] if argv is None else argv)
    draw(read_curves(given.checkpoint), given.output)
    print(f"wrote {given.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
