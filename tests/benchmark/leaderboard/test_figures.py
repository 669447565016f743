"""Tables of figures: what is run, when a row is stale, ratios, intervals, and what a check finds."""

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from boards import small_board
from error_lines import error_line

from clustergym.benchmark.leaderboard import fingerprint
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cells import FigureTable, Place, Row, load_table, read_rows, write_rows
from clustergym.benchmark.leaderboard.check_figures import check_figures
from clustergym.benchmark.leaderboard.fill import drop_stale, fill, list_missing, take_fingerprints
from clustergym.benchmark.leaderboard.pairs import (
    BEST,
    aggregate_ratios,
    compare_with_reference,
    correlate_halves,
    mean_hours,
)
from clustergym.benchmark.leaderboard.sealing import draw_sealed_seeds, seal
from clustergym.benchmark.leaderboard.table_text import list_sealed
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError
from clustergym.common.random_streams import RandomStream

POLICIES = {
    "drawn": {"title": "drawn", "rules": "learned", "policy": {"name": "random"}},
    "srtf": {"title": "SRTF", "rules": "simple", "policy": {"name": "srtf"}},
    "fcfs": {"title": "FCFS", "rules": "simple", "policy": {"name": "fcfs"}},
}
KEYS = {
    "reference": "srtf",
    "first_seed": 1,
    "least": 8,
    "most": 10,
    "width": 0.01,
    "scenarios": {"philly": []},
    "policies": ["srtf", "fcfs", "lower-bound"],
    "conditions": {"late": {"overrides": ["trace.load=3.0"], "seeds": 2, "policies": ["srtf", "fcfs"]}},
}


def make_table(root: Path, **changes: object) -> FigureTable:
    folder = root / "small"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "policies.yaml").write_text(yaml.safe_dump({"policies": POLICIES}))
    (folder / "board.yaml").write_text(yaml.safe_dump(small_board((5, 6))))
    (folder / "cells.yaml").write_text(yaml.safe_dump(KEYS | changes))
    return load_table(load_board("small", root))


def values_of(table: FigureTable) -> dict[Place, tuple[object, ...]]:
    """Return what does not hang on how fast a machine is."""
    return {place: (row.digest, row.sha256, *row.metrics.values()) for place, row in table.rows.items()}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> FigureTable:
    table = make_table(tmp_path_factory.mktemp("filled"))
    fill(table, take_fingerprints(table), 1.0, say=lambda line: None)
    return table.reread()


def test_pairs_come_first_then_conditions_then_seeds_of_the_widest(
    filled: FigureTable,
) -> None:
    empty = filled._replace(rows={})
    order = list(list_missing(empty))
    assert order[:4] == [
        Place("srtf", "philly", 1, ""),
        Place("fcfs", "philly", 1, ""),
        Place("lower-bound", "philly", 1, ""),
        Place("srtf", "philly", 2, ""),
    ]
    assert [place.seed for place in order if place.condition] == [1, 1, 2, 2]
    # Eight seeds of three rows, two of two under the condition; then two more pairs: no interval is 1 %.
    assert len(order) == 24 + 4
    assert len(filled.rows) == 24 + 4 + 4
    assert list(list_missing(filled)) == []
    more = filled._replace(keys=filled.keys.model_copy(update={"most": 11}))
    assert list(list_missing(more)) == [Place("srtf", "philly", 11, ""), Place("fcfs", "philly", 11, "")]


def test_every_row_is_at_least_its_bound_and_runs_again_are_equal(filled: FigureTable) -> None:
    found = check_figures(filled, take_fingerprints(filled), 3)
    assert (len(found.again), found.wrong, found.stale) == (3, [], 0)
    assert found.forged_cell == pytest.approx(3 / 32)
    assert found.forged_policy == 1.0


def test_commands_on_a_board_with_a_table(
    filled: FigureTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, file = ["--root", str(filled.board.folder.parent)], tmp_path / "found.json"
    assert main([*root, "check", "small", "--cells", "2", "--workers", "1", "--json", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "small: 2 of 32 rows run again, equal, and none below its bound",
        "  a forged row is found with probability 0.062, a policy of forged rows 0.67; 0 rows are stale and "
        "not shown",
    ]
    assert json.loads(file.read_text()) == {"small": []}
    for words in (["check", "small", "fcfs"], ["score", "small"], ["add", "small", "mine", "policy=las"]):
        assert main([*root, *words]) == 2
        assert "has a table of figures, and no entries" in error_line(capsys)
    assert main([*root, "render", "--check", "small"]) == 2
    assert main([*root, "render", "small"]) == 0
    assert main([*root, "render", "--check", "small"]) == 0
    assert "| SRTF | simple | 1.00 [1.00, 1.00] | 1.00 [1.00, 1.00] |" in (
        filled.board.folder / "README.md"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"digest": "0" * 64}, "digest is"),
        ({"metrics": {"jct_mean": 1.0}}, "no schedule is below"),
        ({"metrics": {"jct_mean": -5.0}}, "no schedule is below"),
        ({"metrics": {"jct_mean": None}}, "neither a mean JCT nor a reason"),
        ({"stopped": "it took too long"}, "or both"),
        ({"keys": "{}"}, "keys is"),
    ],
)
def test_a_forged_row_is_found(filled: FigureTable, change: dict[str, object], line: str) -> None:
    place = Place("fcfs", "philly", 3, "")
    row = filled.rows[place]
    metrics = {**row.metrics, **change.pop("metrics", {})}  # type: ignore[dict-item]
    alone = filled._replace(
        rows={
            place: row._replace(**change, metrics=metrics),
            Place("lower-bound", "philly", 3, ""): filled.rows[Place("lower-bound", "philly", 3, "")],
        }
    )
    found = check_figures(alone, take_fingerprints(filled), 2)
    assert any(line in one and "fcfs philly 3" in one for one in found.wrong)


def test_a_changed_line_makes_the_rows_of_that_policy_stale_alone(
    filled: FigureTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = fingerprint._read_source

    def changed(path: Path) -> str:
        return read(path).replace("start.append", "start.extend") + (
            "\nx = 1\n" if path.stem == "srtf" else ""
        )

    monkeypatch.setattr(fingerprint, "_read_source", changed)
    left = drop_stale(filled, take_fingerprints(filled)).rows
    assert {place.policy for place in left} == {"fcfs", "lower-bound"}


def test_comments_and_docstrings_do_not_decide() -> None:
    text = 'def f():\n    """Say."""\n    return 1  # one\n\n\n# end\n'
    assert fingerprint.strip_comments(text) == "def f():\n    return 1"
    assert fingerprint.strip_comments('x = "# no comment"') == 'x = "# no comment"'


def test_the_policy_and_its_parameters_make_the_fingerprint() -> None:
    prints = [
        fingerprint.fingerprint_policy(policy)[0]
        for policy in (
            {"name": "fcfs"},
            {"name": "fcfs", "queue": "gpu_type"},
            {"name": "fcfs", "queue": "cluster"},
            {"name": "fcfs", "backfill": "aggressive"},
        )
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    weights = [
        fingerprint.fingerprint_policy({"name": "learned", "checkpoint": name})[0]
        for name in ("none", "elastic")
    ]
    assert weights[0] != weights[1]


def test_a_killed_fill_goes_on_beside_another_and_the_figures_are_the_same(
    filled: FigureTable, tmp_path: Path
) -> None:
    table = make_table(tmp_path)
    words = [
        sys.executable,
        "-m",
        "clustergym.leaderboard",
        "--root",
        str(tmp_path),
        "fill",
        "small",
        "--workers",
        "1",
    ]
    first = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stdout is not None
    while "mean JCT" not in first.stdout.readline():
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    assert 0 < len(table.reread().rows) < 32
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate(timeout=300)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert values_of(table.reread()) == values_of(filled)
    # No place was run by both: each said its own.
    ran = [line.partition(":")[0] for text in said for line in text.splitlines() if " CPU-s)" in line]
    assert len(ran) == len(set(ran))


def test_a_row_is_small_and_a_table_comes_out_as_it_went_in(filled: FigureTable, tmp_path: Path) -> None:
    path = tmp_path / "cells.csv.gz"
    write_rows(path, filled.rows.values())
    assert {row.place: row for row in read_rows(path)} == filled.rows
    assert path.stat().st_size / len(filled.rows) <= 300
    first = path.read_bytes()
    write_rows(path, reversed(filled.rows.values()))
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (
            lambda text: text.replace("policy,", "name,", 1),
            ":1: its columns are not those of a table of figures",
        ),
        (lambda text: text.replace(",philly,1,", ",philly,1_0,", 1), "'1_0' is not valid"),
        (lambda text: text + text.splitlines()[-1] + "\n", "stands twice"),
        (lambda text: text.replace(",philly,1,", ",philly,1,,", 1), "is not valid"),
    ],
)
def test_a_damaged_table_is_refused_with_its_line(
    filled: FigureTable, tmp_path: Path, damage, line: str
) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "cells.csv.gz"
    text = gzip.decompress(filled.path.read_bytes()).decode()
    path.write_bytes(gzip.compress(damage(text).encode()))
    with pytest.raises(InputError, match=line):
        list(read_rows(path))


def test_a_name_that_no_list_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cells\.yaml:.* policies: unknown name 'frtf'"):
        make_table(tmp_path, policies=["srtf", "fcfs", "frtf"])


def made_rows(ratios: dict[str, list[float]]) -> dict[Place, Row]:
    """Return rows of a policy `a` with these ratios by family, and of `b`, whose mean JCT is 3,600 s."""
    rows = {}
    for family, values in ratios.items():
        for seed, ratio in enumerate(values):
            for name, jct in (("a", 3600.0 * ratio), ("b", 3600.0)):
                place = Place(name, family, seed, "")
                rows[place] = Row(
                    place, "{}", "0" * 12, "0" * 12, "0" * 64, "", 0.0, "", "", {"jct_mean": jct}
                )
    return rows


def table_of(rows: dict[Place, Row]) -> FigureTable:
    families = {place.scenario: list[str]() for place in rows}
    keys = type(
        "Keys",
        (),
        {"reference": "b", "scenarios": families, "policies": ["a", "b"], "first_seed": 0, "least": 8},
    )()
    return FigureTable(None, keys, {}, rows)  # type: ignore[arg-type]


def test_a_ratio_is_the_geometric_mean_of_families_with_equal_weight() -> None:
    # Philly: sqrt(2 x 8) = 4; PAI: 1. Over families sqrt(4 x 1) = 2, though Philly has more seeds.
    table = table_of(made_rows({"philly": [2.0, 8.0], "pai": [1.0]}))
    found = compare_with_reference(table, "a")
    assert [one and round(one.value, 9) for one in found.families.values()] == [4.0, 1.0]
    assert found.overall is not None
    assert round(found.overall.value, 9) == 2.0
    assert (found.overall.low, found.overall.high, found.overall.seeds) == (None, None, 1)
    assert mean_hours(table, "a") is None
    eight = table_of(made_rows({"philly": [2.0, 8.0] * 4, "pai": [1.0] * 8}))
    assert mean_hours(eight, "a") == pytest.approx((5.0 + 1.0) / 2)
    best = compare_with_reference(table, BEST).overall
    assert best is not None
    assert best.value == pytest.approx(1.0)


def test_an_interval_is_students_on_logarithms() -> None:
    # Logarithms of nine ratios, mean 0: variance 8 x 0.01 / 8, standard error sqrt(0.01 / 9) = 0.033333;
    # t of 8 degrees of freedom is 2.306004: half 0.076867.
    logs = np.array([0.1, -0.1] * 4 + [0.0])
    error = math.sqrt(0.01 / 9)
    found = aggregate_ratios([logs])
    assert found.low is not None
    assert found.high is not None
    assert math.log(found.high) == pytest.approx(2.306004 * error, rel=1e-6)
    assert found.low * found.high == pytest.approx(1.0)
    # Two families of the same spread: half the variance, and 16 degrees of freedom (t = 2.119905).
    both = aggregate_ratios([logs, logs])
    assert both.high is not None
    assert math.log(both.high) == pytest.approx(2.119905 * error / math.sqrt(2), rel=1e-6)


def test_a_run_that_does_not_end_leaves_no_ratio_but_its_reason() -> None:
    rows = made_rows({"philly": [2.0] * 8})
    place = Place("a", "philly", 3, "")
    rows[place] = rows[place]._replace(stopped="jobs 7 and 9 never end", metrics={"jct_mean": None})
    found = compare_with_reference(table_of(rows), "a")
    assert found.overall is None
    assert found.stopped == "philly-3: jobs 7 and 9 never end"


def test_intervals_cover_known_ratios() -> None:
    """Worlds with known ratios: logarithms with sd 0.3, one seed in ten with four times that."""
    draw = RandomStream("coverage of intervals").generator(7)
    inside, worlds = 0, 2000
    for _ in range(worlds):
        truth = draw.normal(0.0, 1.0, 3)
        spread = np.where(draw.random((3, 12)) < 0.1, 1.2, 0.3)
        found = aggregate_ratios(list(truth[:, None] + spread * draw.normal(size=(3, 12))))
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= math.exp(truth.mean()) <= found.high
    assert 0.92 <= inside / worlds <= 0.98


def test_the_order_of_halves_agrees_where_rows_differ() -> None:
    table = table_of(made_rows({"philly": [2.0] * 8}))
    assert correlate_halves(table, ["a", "b"]) == 1.0
    assert correlate_halves(table, ["a"]) is None


def test_sealed_seeds_hang_on_parameters_weights_and_version_and_pairs_are_run(tmp_path: Path) -> None:
    table = make_table(tmp_path, policies=["srtf", "fcfs", "drawn"], conditions={})
    prints = take_fingerprints(table)
    seeds = draw_sealed_seeds(table, "drawn")
    assert len({*seeds}) == table.keys.least
    assert seeds == draw_sealed_seeds(table, "drawn")
    newer = table._replace(board=table.board.with_keys(version=2))
    assert not {*seeds} & {*draw_sealed_seeds(newer, "drawn")}
    other = {
        **table.policies,
        "drawn": table.policies["drawn"].model_copy(update={"policy": {"name": "random", "redraw": 0.2}}),
    }
    assert not {*seeds} & {*draw_sealed_seeds(table._replace(policies=other), "drawn")}
    # No policy of a paper: the reference is the only rival. Two runs a seed.
    assert seal(table, prints, "drawn", 1.0, say=lambda line: None) == 2 * table.keys.least
    done = drop_stale(table.reread(), prints)
    ratio = compare_with_reference(done, "drawn", "sealed-drawn").overall
    assert ratio is not None
    assert ratio.seeds == table.keys.least
    assert compare_with_reference(done, "drawn").overall is None
    (line,) = list_sealed(done)
    assert line.startswith("drawn on sealed seeds: ")
    assert line.endswith(" of SRTF, n 8")
    with pytest.raises(InputError, match="'fcfs' is no learned or tuned policy of small"):
        seal(table, prints, "fcfs", 1.0)
