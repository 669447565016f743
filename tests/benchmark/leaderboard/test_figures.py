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
from types import SimpleNamespace

import numpy as np
import pytest
from boards import write_board

from clustergym.benchmark.leaderboard import fingerprint
from clustergym.benchmark.leaderboard.cells import FigureTable, Place, Row, read_rows, write_rows
from clustergym.benchmark.leaderboard.check_figures import check_board, draw_rows, run_again
from clustergym.benchmark.leaderboard.fill import drop_stale, fill, list_missing, run_place, take_fingerprints
from clustergym.benchmark.leaderboard.pairs import (
    BEST,
    aggregate_ratios,
    compare_with_reference,
    correlate_halves,
    mean_hours,
)
from clustergym.benchmark.leaderboard.sealing import draw_sealed_seeds, list_sealed_places
from clustergym.benchmark.leaderboard.table_text import format_ratio, list_sealed
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError
from clustergym.common.random_streams import RandomStream
from clustergym.sim.engine import StalledError


def values_of(table: FigureTable) -> dict[Place, tuple[object, ...]]:
    """Return what does not hang on how fast a machine is."""
    return {place: (row.digest, row.sha256, *row.metrics.values()) for place, row in table.rows.items()}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> FigureTable:
    table = write_board(tmp_path_factory.mktemp("filled"))
    fill(table, take_fingerprints(table), 1.0, say=lambda line: None)
    return table.reread()


def test_pairs_come_first_then_conditions_then_seeds_of_the_widest(filled: FigureTable) -> None:
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


def check(table: FigureTable, count: int | None) -> list[str]:
    """Return what a check of a table finds, with so many rows run again."""
    prints = take_fingerprints(table)
    found = check_board(table, prints)
    return found.wrong + run_again({"small": (found.table, prints)}, count).wrong


def test_every_row_is_at_least_its_bound_and_runs_again_are_equal(filled: FigureTable) -> None:
    prints = take_fingerprints(filled)
    found = run_again({"small": (filled, prints)}, 3)
    assert (len(found.rows), found.wrong) == (3, [])
    assert len({place.policy for _, place in found.rows}) == 3
    assert found.forged_row == pytest.approx(3 / 32)
    assert found.forged_policy == 1.0
    assert check_board(filled, prints).stale == 0
    assert len(run_again({"small": (filled, prints)}, None).rows) == 32


def test_one_of_the_slow_policies_is_drawn_and_on_no_large_board(filled: FigureTable) -> None:
    row = filled.rows[Place("fcfs", "philly", 3, "")]
    rows = [
        (board, row._replace(place=row.place._replace(policy=name)))
        for board in ("scale", "ares")
        for name in ("sia", "pollux", "fcfs")
    ]
    for _ in range(20):
        drawn = [(board, one.place.policy) for board, one in draw_rows(rows, 40)]
        assert len(drawn) == 2
        assert len({("ares", "sia"), ("ares", "pollux")} & {*drawn}) == 1


def test_commands_on_a_board(filled: FigureTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, file = ["--root", str(filled.board.folder.parent)], tmp_path / "found.json"
    assert main([*root, "fill", "small", "--logs", "--workers", "1"]) == 0
    assert capsys.readouterr().out == f"wrote {filled.board.folder / 'logs/srtf.jsonl.gz'}\n"
    assert main([*root, "check", "--rows", "2", "--workers", "1", "--json", str(file)]) == 0
    first, second, third, _ = capsys.readouterr().out.splitlines()
    assert first == (
        "small: 0 entries and 1 rows replayed from their logs; 32 figures, none better than its bound"
    )
    assert second.startswith("2 drawn rows run again, equal (")
    assert third == (
        "a forged row is found with probability 0.062, a policy of forged rows 0.67, a forged log of an "
        "entry 1"
    )
    assert json.loads(file.read_text()) == []
    assert main([*root, "render", "--check", "small"]) == 2
    assert main([*root, "render", "small"]) == 0
    assert main([*root, "render", "--check"]) == 0
    page = (filled.board.folder / "README.md").read_text(encoding="utf-8")
    assert "| SRTF | simple | 1.00 [1.00, 1.00] | 1.00 [1.00, 1.00] |" in page
    assert "`check` replays them without the" in page
    assert main([*root, "check", "small", "none"]) == 2


def test_a_row_that_is_not_that_of_its_log_is_found(
    filled: FigureTable, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--root", str(filled.board.folder.parent), "fill", "small", "--logs", "--workers", "1"])
    place = Place("srtf", "philly", 1, "")
    row = filled.rows[place]
    forged = filled._replace(rows={place: row._replace(metrics={**row.metrics, "restarts_mean": 0.0})})
    assert check_board(forged, take_fingerprints(filled)).wrong == [
        f"{place}: restarts_mean is {row.metrics['restarts_mean']} by its log, and 0.0 in the table"
    ]


def test_what_no_policy_did_is_no_row(
    filled: FigureTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A missing extra, or memory that ran out, is said and not recorded; a stall is recorded."""
    table = write_board(tmp_path, conditions={}, policies=["srtf"])
    prints, said = take_fingerprints(table), list[str]()
    for error in (InputError("needs SciPy", remedy="install it"), MemoryError()):

        def fails(*given: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr("clustergym.benchmark.leaderboard.cells.play", fails)
        assert fill(table, prints, 1.0, say=said.append) == 0
    assert said[0] == "srtf philly 1: not run: needs SciPy (install it)"
    assert said[-1] == "srtf philly 8: not run: out of memory"
    assert table.reread().rows == {}

    def stalls(*given: object) -> None:
        raise StalledError("jobs wait for ever")

    monkeypatch.setattr("clustergym.benchmark.leaderboard.cells.play", stalls)
    row = run_place(table, prints, Place("srtf", "philly", 1, ""))
    assert (row.stopped, row.digest, row.metrics["jct_mean"]) == ("jobs wait for ever", "", None)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"digest": "0" * 64}, "digest is"),
        ({"metrics": {"jct_mean": 1.0}}, "no schedule is better than"),
        ({"metrics": {"jct_mean": 0.0}}, "jct_mean is 0.0"),
        ({"metrics": {"jct_mean": -5.0}}, "jct_mean is -5.0"),
        ({"metrics": {"jct_mean": None}}, "neither a figure nor a reason"),
        ({"stopped": "it took too long"}, "or both"),
        ({"stopped": "it took too long", "digest": "", "metrics": {"jct_mean": None}}, "stopped is"),
        ({"keys": "{}"}, "keys is"),
        ({"sha256": "0" * 64}, "sha256 is"),
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
    assert any(line in one and "fcfs philly 3" in one for one in check(alone, 2))


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


def test_a_placers_algorithm_and_a_quotas_account_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    placers = [{"name": "minipod", "algorithm": name} for name in ("arnold", "best_fit")]
    asked = [
        ({"name": "fcfs"}, None),
        ({"name": "capacity"}, None),
        *(({"name": "fcfs"}, one) for one in placers),
    ]
    before = [fingerprint.fingerprint_policy(*one) for one in asked]
    read = fingerprint._read_source
    changed = {"arnold", "queue_book"}
    monkeypatch.setattr(
        fingerprint, "_read_source", lambda path: read(path) + ("\nx = 1\n" if path.stem in changed else "")
    )
    after = [fingerprint.fingerprint_policy(*one) for one in asked]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, False, True]


def test_a_killed_fill_goes_on_beside_another_and_the_figures_are_the_same(
    filled: FigureTable, tmp_path: Path
) -> None:
    table = write_board(tmp_path)
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
    while "jct_mean" not in first.stdout.readline():
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
        write_board(tmp_path, policies=["srtf", "fcfs", "frtf"])


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


def table_of(rows: dict[Place, Row], compare: str = "ratio") -> FigureTable:
    families = {place.scenario: list[str]() for place in rows}
    about = {"reference": "b", "scenarios": families, "policies": ["a", "b"], "first_seed": 0, "least": 8}
    keys = SimpleNamespace(**about, compare=compare, sealed=False)
    board = SimpleNamespace(metric="jct_mean", sign=1.0, better="lower")
    return FigureTable(board, keys, {}, rows)  # type: ignore[arg-type]


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


def test_a_difference_where_the_metric_may_be_0() -> None:
    # a: 0 and 7,200 s in turns, b: 3,600 s: differences of -3,600 and 3,600 s, mean 0. Their variance is
    # 8 x 3,600^2 / 7, the standard error 3,600 / sqrt(7); t of 7 degrees of freedom is 2.364624.
    table = table_of(made_rows({"philly": [0.0, 2.0] * 4}), "difference")
    found = compare_with_reference(table, "a").overall
    assert found is not None
    assert found.value == 0.0
    assert found.high == pytest.approx(2.364624 * 3600 / math.sqrt(7), rel=1e-6)
    assert found.low == pytest.approx(-found.high)
    assert format_ratio(found._replace(value=0.05, low=-0.01, high=0.11)) == "+0.05 [-0.01, +0.11]"


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
    table = write_board(tmp_path, policies=["srtf", "fcfs", "drawn"], conditions={})
    prints = take_fingerprints(table)
    seeds = draw_sealed_seeds(table, "drawn")
    assert len({*seeds}) == table.keys.least
    assert seeds == draw_sealed_seeds(table, "drawn")
    newer = table._replace(board=table.board.model_copy(update={"version": 2}))
    assert not {*seeds} & {*draw_sealed_seeds(newer, "drawn")}
    other = {
        **table.policies,
        "drawn": table.policies["drawn"].model_copy(update={"policy": {"name": "random", "redraw": 0.2}}),
    }
    assert not {*seeds} & {*draw_sealed_seeds(table._replace(policies=other), "drawn")}
    # No policy of a paper: the reference is the only rival. Two runs a seed.
    places = list_sealed_places(table, "drawn")
    assert fill(table, prints, 1.0, say=lambda line: None, places=places) == 2 * table.keys.least
    done = drop_stale(table.reread(), prints)
    ratio = compare_with_reference(done, "drawn", "sealed-drawn").overall
    assert ratio is not None
    assert ratio.seeds == table.keys.least
    assert compare_with_reference(done, "drawn").overall is None
    (line,) = list_sealed(done)
    assert line.startswith("drawn on sealed seeds: ")
    assert line.endswith(" of SRTF, n 8")
    with pytest.raises(InputError, match="'fcfs' is no learned or tuned policy of small"):
        list_sealed_places(table, "fcfs")


def test_learned_rows_of_a_sealed_board_have_seeds_of_their_own(tmp_path: Path) -> None:
    table = write_board(tmp_path, policies=["srtf", "drawn"], conditions={}, sealed=True, most=8)
    seeds = draw_sealed_seeds(table, "drawn")
    places = list(list_missing(table))
    assert {place.seed for place in places if place.policy == "drawn"} == {*seeds}
    assert [place.policy for place in places if place.seed in seeds] == ["srtf", "drawn"] * 8
    fill(table, take_fingerprints(table), 1.0, say=lambda line: None)
    done = table.reread()
    assert list(list_missing(done)) == []
    found = compare_with_reference(done, "drawn").overall
    assert found is not None
    assert (found.seeds, mean_hours(done, "drawn") is None) == (8, False)
