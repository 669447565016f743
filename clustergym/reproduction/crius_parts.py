"""Crius, sections 8.6 and 8.7: its ablations, and the search depth where submissions are dense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from clustergym.reproduction.arena_parts import HEADERS, ROUNDS, SETTINGS, columns
from clustergym.reproduction.arena_scenarios import PUBLISHED, cell, variant
from clustergym.reproduction.details import padded_jct
from clustergym.reproduction.study import Cell, Figures, change, number, table

Found = Mapping[Cell, Figures]
Parameters = tuple[tuple[str, Any], ...]
JCT_LOWER = {"fcfs": 81.3, "elasticflow-ls": 75.8, "gandiva": 80.1, "gavel": 66.4}
"""By how many percent the preprint's mean JCT is below each baseline's (section 8.4)."""


class Ablation(NamedTuple):
    """A part left out, and the preprint's JCT (times), jobs and throughput (percent) without it."""

    label: str
    parameters: Parameters
    jct: float | None = None
    finished: float | None = None
    throughput: float | None = None
    peak: float | None = None


ABLATIONS = (
    Ablation("crius", ()),
    Ablation("no elastic scaling", (("elastic", False),), 2.54, -8.69, -13.6, -14.1),
    Ablation("no heterogeneous scaling", (("hetero", False),), 3.53, -16.8, -17.3, -17.7),
    Ablation("no opportunistic execution", (("opportunistic", False),)),
    Ablation("any multiple of the request", (("span", None),)),
)
DEPTHS = (1, 3, 5)
DENSITIES = (1.0, 2.0, 4.0)
CROWDED = DENSITIES[-1]


def ablation(one: Ablation, rounds: int | None, setting: str) -> Cell:
    """Return the run of an ablation."""
    return cell("philly", rounds, setting, "crius", one.parameters)


def ablation_jct(found: Found, rounds: int | None, setting: str) -> dict[str, float]:
    """Return the padded JCT of each ablation, seconds."""
    return padded_jct({one.label: found[ablation(one, rounds, setting)] for one in ABLATIONS}, "crius")


def ablations_section(found: Found, rounds: int | None, name: str) -> str:
    """Return the table of ablations."""
    rows = []
    for setting in SETTINGS:
        padded = ablation_jct(found, rounds, setting)
        base = found[ablation(ABLATIONS[0], rounds, setting)]
        for one in ABLATIONS:
            figures = found[ablation(one, rounds, setting)]
            less = change(figures["throughput_mean"], base["throughput_mean"])
            rows.append(
                [
                    one.label,
                    setting,
                    *columns(figures),
                    number(padded[one.label] / padded["crius"], 2) if padded else "-",
                    number(one.jct, 2),
                    less,
                    "-" if one.throughput is None else f"{one.throughput:+.1f} %",
                ]
            )
    headers = [
        "variant",
        "setting",
        *HEADERS[1:],
        "JCT padded, times",
        "preprint",
        "samples/s, relative",
        "preprint",
    ]
    return f"### Ablations, {name}\n\n{table(headers, rows)}"


def depth_cell(depth: int, density: float) -> Cell:
    """Return a run of a search depth, submissions so many times as dense."""
    setting = variant(PUBLISHED, "density-x", density)
    return cell("philly", ROUNDS, setting, "crius", (("search_depth", depth),))


def depth_jct(found: Found, density: float) -> dict[str, float]:
    """Return the padded JCT of each depth, seconds, the greatest depth the reference."""
    runs = {str(depth): found[depth_cell(depth, density)] for depth in DEPTHS}
    return padded_jct(runs, str(DEPTHS[-1]))


def depths_section(found: Found) -> str:
    """Return the table of search depths."""
    rows = []
    for density in DENSITIES:
        padded = depth_jct(found, density)
        for depth in DEPTHS:
            figures = found[depth_cell(depth, density)]
            rows.append([str(depth), f"{density:g}", *columns(figures), number(padded.get(str(depth)))])
    headers = ["search depth", "submissions, times", *HEADERS[1:], "JCT padded, s"]
    return (
        f"## Search depth where submissions are dense (section 8.7, Fig. 21): {ROUNDS} rounds\n\nAs "
        "published. The preprint makes submissions denser and does not say by how much; its JCT falls by "
        "14.6 % and its throughput rises by 1.03 % from its least to its greatest depth.\n\n"
        f"{table(headers, rows)}"
    )
