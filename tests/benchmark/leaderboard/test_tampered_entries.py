"""Entries that were tampered with: each is rejected, with a flag of its own kind, and nothing of it runs."""

import gzip
import json
import re
import resource
from pathlib import Path

import pytest
import yaml
from boards import claims, kinds
from checked_entries import check
from entry_logs import change_headers, change_log, packed_logs, read_log, replace_packed, write_packed
from python_process import run_python

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_logs import FILE
from clustergym.benchmark.leaderboard.cell_replay import FlagReason
from clustergym.benchmark.leaderboard.check import check_entries, describe_unverified
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError

ROOT = Path(__file__).parents[3]
CELL = "philly-5"


def results(folder: Path, change) -> None:
    path = folder / "results.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(change(lines)) + "\n")


def column(folder: Path, name: str, value: str) -> None:
    def change(lines):
        at, row = lines[0].split(",").index(name), lines[1].split(",")
        row[at] = value
        return [lines[0], ",".join(row), *lines[2:]]

    results(folder, change)


def text(folder: Path, content: str | bytes, name: str = "entry.yaml") -> None:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def log(folder: Path, change) -> None:
    change_log(folder, CELL, change)


def cells(folder: Path, change) -> None:
    """Change which cells the log has."""
    write_packed(folder, change(packed_logs(folder)))


def header(folder: Path, **changes) -> None:
    log(folder, lambda lines: [lines[0] | changes, *lines[1:]])


def decision(folder: Path, at: int, **changes) -> None:
    log(folder, lambda lines: [*lines[:at], lines[at] | changes, *lines[at + 1 :]])


def launch(folder: Path, job=None, kind=None, gpus=None) -> None:
    """Change the first launch."""

    def change(lines):
        first = lines[1]["launch"][0]
        changed = [old if new is None else new for old, new in zip(first, (job, kind, gpus), strict=True)]
        return [lines[0], lines[1] | {"launch": [changed, *lines[1]["launch"][1:]]}, *lines[2:]]

    log(folder, change)


def forget(folder: Path) -> None:
    """Leave the last launch out: the job never runs."""
    log(folder, lambda lines: lines[:-1])


def link(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")


def first_job(folder: Path) -> str:
    return read_log(folder, CELL)[1]["launch"][0][0]


def drop(folder: Path) -> None:
    job = first_job(folder)
    log(
        folder,
        lambda lines: [
            lines[0],
            {**lines[1], "launch": [one for one in lines[1]["launch"] if one[0] != job], "drop": [job]},
            *lines[2:],
        ],
    )


def curve(folder: Path, change) -> None:
    """Change the curves of the scenario."""
    path = folder / "curves.json"
    content = json.loads(path.read_text())
    change(content["scenarios"]["philly"])
    path.write_text(json.dumps(content))


def bomb(size: int) -> bytes:
    return gzip.compress(b'{"schema": "' + b"x" * size, 1)


TAMPERED = {
    "a metric": (lambda f: column(f, "ftf_mean", "0.5"), FlagReason.METRIC),
    "a metric left out": (lambda f: column(f, "jct_p99", ""), FlagReason.METRIC),
    "a metric better than can be": (lambda f: column(f, "jct_mean", "1.0"), FlagReason.BOUND),
    "a makespan better than can be": (lambda f: column(f, "makespan", "1.0"), FlagReason.BOUND),
    "the digest": (lambda f: column(f, "digest", "0" * 64), FlagReason.DIGEST),
    "a digest that is none": (lambda f: column(f, "digest", "../../etc/passwd"), FlagReason.SCHEMA),
    "a row left out": (lambda f: results(f, lambda lines: lines[:-1]), FlagReason.MISSING_CELL),
    "a row twice": (lambda f: results(f, lambda lines: [*lines, lines[1]]), FlagReason.DUPLICATE_CELL),
    "another seed": (lambda f: column(f, "seed", "7"), FlagReason.FOREIGN_CELL),
    "another scenario": (lambda f: column(f, "scenario", "helios"), FlagReason.FOREIGN_CELL),
    "a scenario that is a path": (lambda f: column(f, "scenario", "../philly"), FlagReason.SCHEMA),
    "a seed of 5,000 digits": (lambda f: column(f, "seed", "9" * 5000), FlagReason.SCHEMA),
    "not a number": (lambda f: column(f, "jct_mean", "nan"), FlagReason.SCHEMA),
    "infinity": (lambda f: column(f, "makespan", "1e999"), FlagReason.SCHEMA),
    "a formula": (lambda f: column(f, "makespan", "=1+1"), FlagReason.SCHEMA),
    "another header": (lambda f: results(f, lambda lines: ["a,b", *lines[1:]]), FlagReason.SCHEMA),
    "results of 100 MB": (lambda f: text(f, b"a" * 10**8, "results.csv"), FlagReason.SCHEMA),
    "results that are no text": (lambda f: text(f, b"\xff\x00\xfe", "results.csv"), FlagReason.SCHEMA),
    "no results": (lambda f: (f / "results.csv").unlink(), FlagReason.SCHEMA),
    "no entry.yaml": (lambda f: (f / "entry.yaml").unlink(), FlagReason.SCHEMA),
    "a YAML tag": (
        lambda f: text(f, "!!python/object/apply:os.system ['touch /tmp/clustergym-was-here']"),
        FlagReason.SCHEMA,
    ),
    "YAML aliases that multiply": (
        lambda f: text(
            f,
            "a: &a [x, x]\n"
            + "".join(
                f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
            ),
        ),
        FlagReason.SCHEMA,
    ),
    "a YAML file of 100 MB": (lambda f: text(f, "a: " + "b" * 10**8), FlagReason.SCHEMA),
    "an unknown key": (lambda f: claims(f, score=1.0), FlagReason.SCHEMA),
    "a key of another type": (lambda f: claims(f, deterministic="yes"), FlagReason.SCHEMA),
    "a policy that is a module": (lambda f: claims(f, policy={"name": "os:system"}), FlagReason.SCHEMA),
    "another version of the board": (lambda f: claims(f, board_version=2), FlagReason.BOARD),
    "another board": (lambda f: claims(f, board="fair"), FlagReason.BOARD),
    "a title of another": (lambda f: claims(f, title="short"), FlagReason.TITLE),
    "no determinism": (lambda f: claims(f, deterministic=False), FlagReason.PUBLISHED),
    "another information class": (lambda f: claims(f, information_class="profiled"), FlagReason.HEADER),
    "another policy": (lambda f: claims(f, policy={"name": "arena"}), FlagReason.HEADER),
    "the log's seed": (lambda f: header(f, seed=6), FlagReason.HEADER),
    "the log's placer": (lambda f: header(f, placer={"name": "minipod"}), FlagReason.HEADER),
    "rounds of a microsecond": (lambda f: header(f, round_s=1e-6), FlagReason.HEADER),
    "a foreign trace": (lambda f: header(f, scenario_sha256="0" * 64), FlagReason.TRACE_HASH),
    "a log of another schema": (lambda f: header(f, schema="other/1"), FlagReason.DECISION_LOG),
    "no log": (lambda f: (f / FILE).unlink(), FlagReason.DECISION_LOG),
    "a log that is not packed": (lambda f: text(f, b"{}", FILE), FlagReason.DECISION_LOG),
    "a log cut short": (lambda f: text(f, (f / FILE).read_bytes()[:-20], FILE), FlagReason.DECISION_LOG),
    "a log that goes on": (
        lambda f: text(f, (f / FILE).read_bytes() + b"more", FILE),
        FlagReason.DECISION_LOG,
    ),
    "contents of 200 MB": (lambda f: text(f, bomb(2 * 10**8), FILE), FlagReason.DECISION_LOG),
    "contents that are nested": (
        lambda f: text(f, gzip.compress(b"[" * 10**5), FILE),
        FlagReason.DECISION_LOG,
    ),
    "contents of another schema": (lambda f: text(f, gzip.compress(b"{}"), FILE), FlagReason.DECISION_LOG),
    "no log of a cell": (lambda f: cells(f, lambda parts: parts[1:]), FlagReason.MISSING_CELL),
    "the log of a cell twice": (
        lambda f: cells(f, lambda parts: [*parts, parts[0]]),
        FlagReason.DUPLICATE_CELL,
    ),
    "the log of a foreign cell": (
        lambda f: cells(f, lambda parts: [*parts, ("philly-7", parts[0][1])]),
        FlagReason.FOREIGN_CELL,
    ),
    "a cell that is a path": (
        lambda f: cells(f, lambda parts: [("../philly-5", parts[0][1]), parts[1]]),
        FlagReason.DECISION_LOG,
    ),
    "cells out of order": (lambda f: cells(f, lambda parts: parts[::-1]), FlagReason.DECISION_LOG),
    "the log of another cell": (
        lambda f: cells(f, lambda parts: [(parts[0][0], parts[1][1]), parts[1]]),
        FlagReason.TRACE_HASH,
    ),
    "a cell that is not packed": (lambda f: replace_packed(f, CELL, b"{}"), FlagReason.DECISION_LOG),
    "a cell cut short": (
        lambda f: cells(f, lambda parts: [(parts[0][0], parts[0][1][:-20]), parts[1]]),
        FlagReason.DECISION_LOG,
    ),
    "a gzip bomb": (lambda f: replace_packed(f, CELL, bomb(2 * 10**8)), FlagReason.DECISION_LOG),
    "a line of 10 MB": (lambda f: replace_packed(f, CELL, bomb(10**7)), FlagReason.DECISION_LOG),
    "JSON that is nested": (
        lambda f: replace_packed(f, CELL, gzip.compress(b"[" * 10**6)),
        FlagReason.DECISION_LOG,
    ),
    "an unknown job": (lambda f: launch(f, job="nobody"), FlagReason.DECISION_LOG),
    "an unknown GPU type": (lambda f: launch(f, kind="H900"), FlagReason.DECISION_LOG),
    "half a GPU": (lambda f: launch(f, gpus=1.5), FlagReason.DECISION_LOG),
    "a time that is not a number": (lambda f: decision(f, 1, time_s=float("nan")), FlagReason.DECISION_LOG),
    "decisions out of order": (
        lambda f: log(f, lambda lines: [lines[0], *reversed(lines[1:])]),
        FlagReason.DECISION_LOG,
    ),
    "a decision that does more": (lambda f: decision(f, 1, run="rm -rf /"), FlagReason.DECISION_LOG),
    "more GPUs than there are": (lambda f: launch(f, gpus=4096), FlagReason.ILLEGAL_DECISION),
    "fewer GPUs than none": (lambda f: launch(f, gpus=-4), FlagReason.ILLEGAL_DECISION),
    "a decision sooner": (lambda f: decision(f, 1, time_s=0.125), FlagReason.DIVERGED),
    "a decision after the end": (
        lambda f: log(f, lambda lines: [*lines, {"time_s": 1e9, "preempt": []}]),
        FlagReason.DIVERGED,
    ),
    "a job that never runs": (forget, FlagReason.DIVERGED),
    "a job that is dropped": (drop, FlagReason.UNFINISHED),
    "decisions in no time": (lambda f: column(f, "decision_s_p50", "0.0"), FlagReason.DECISION_TIMES),
    "decisions longer than the run": (lambda f: column(f, "wall_s", "0.00001"), FlagReason.DECISION_TIMES),
    "a median above the 99th percentile": (
        lambda f: column(f, "decision_s_p50", "1.0"),
        FlagReason.DECISION_TIMES,
    ),
    "fewer decisions than changes": (lambda f: column(f, "decisions", "1"), FlagReason.DECISION_TIMES),
    "a queue shorter than it was": (
        lambda f: curve(f, lambda c: c["queued_jobs"].reverse()),
        FlagReason.CURVES,
    ),
    "a JCT less": (lambda f: curve(f, lambda c: c["jct_s"].__setitem__(30, 0.0)), FlagReason.CURVES),
    "an end sooner": (lambda f: curve(f, lambda c: c.update(end_s=60.0)), FlagReason.CURVES),
    "a curve of 119 points": (lambda f: curve(f, lambda c: c["held_gpus"].pop()), FlagReason.CURVES),
    "a curve that is not a number": (
        lambda f: curve(f, lambda c: c.update(held_gpus=[float("nan")] * 120)),
        FlagReason.CURVES,
    ),
    "a curve of another name": (lambda f: curve(f, lambda c: c.update(score=[1])), FlagReason.CURVES),
    "curves that are no JSON": (lambda f: text(f, b"\xff{", "curves.json"), FlagReason.CURVES),
    "curves that are nested": (lambda f: text(f, b"[" * 10**5, "curves.json"), FlagReason.CURVES),
    "curves of 100 MB": (lambda f: text(f, b"1" * 10**8, "curves.json"), FlagReason.CURVES),
    "no curves": (lambda f: (f / "curves.json").unlink(), FlagReason.CURVES),
    "curves that are a link": (lambda f: link(f, "curves.json"), FlagReason.SCHEMA),
    "a further file": (lambda f: text(f, "import os", "evil.py"), FlagReason.SCHEMA),
    "a folder of logs": (lambda f: (f / "decisions").mkdir(), FlagReason.SCHEMA),
    "a log that is a folder": (lambda f: ((f / FILE).unlink(), (f / FILE).mkdir()), FlagReason.SCHEMA),
    "a log that is a link": (lambda f: link(f, FILE), FlagReason.SCHEMA),
    "a README of 2 MB": (lambda f: text(f, "x" * 2_000_000, "README.md"), FlagReason.SCHEMA),
}


def test_what_was_not_tampered_with_has_no_flag(root):
    assert kinds(root, "first") == kinds(root, "short") == set()
    assert kinds(root, "first", strict=2) == set()


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered(name, root):
    change, expected = TAMPERED[name]
    change(root / "small" / "first")
    assert expected in kinds(root, "first"), [str(flag) for flag in check(load_board("small", root), "first")]
    assert not Path("/tmp/clustergym-was-here").exists()
    # Its neighbour is none the worse.
    if name == "a metric":
        assert kinds(root, "short") == set()


def test_there_are_enough():
    assert len(TAMPERED) >= 30
    # Those of other tests: entries run again, and constants of boards.
    others = {FlagReason.RERUN, FlagReason.CONSTANTS}
    assert {kind for _, kind in TAMPERED.values()} == set(FlagReason) - others


def test_decisions_of_another_policy_are_found_by_running_it_again(root):
    # The log of fcfs, presented as that of las: it replays, and its metrics are true.
    folder = root / "small" / "first"
    claims(folder, policy={"name": "las", "parameters": {}})
    change_headers(folder, policy="las")
    assert kinds(root, "first") == {FlagReason.RERUN}
    assert kinds(root, "first", strict=2) == {FlagReason.RERUN}


def test_a_variant_of_a_published_policy_says_so_in_its_title_and_is_not_run_again(root):
    # The same, declared a variant: whose decisions they are is its own word.
    folder = root / "small" / "short"
    claims(folder, policy={"name": "sjf", "parameters": {}}, variant=True)
    change_headers(folder, policy="sjf")
    assert kinds(root, "short") == {FlagReason.TITLE}
    claims(folder, title="SJF, a variant that preempts")
    assert kinds(root, "short", strict=2) == set()
    (word,) = describe_unverified(load_board("small", root), "short")
    assert word.startswith("a variant: class, parameters and decisions are the entry's word")


@pytest.mark.parametrize("key", ["baseline", "reference", "jct_bound"])
def test_the_check_believes_no_constant_of_a_board(key, root, capsys):
    path = root / "small" / "board.yaml"
    content = yaml.safe_load(path.read_text())
    constants = content["scenarios"][0]["constants"][5]
    constants[key] *= 1.01
    path.write_text(yaml.safe_dump(content))
    assert main(["--root", str(root), "check", "small", "first"]) == 2
    said = [line for line in capsys.readouterr().out.splitlines() if "FLAGS" in line or "differ" in line]
    assert said[0] == "small: 1 FLAGS"
    assert said[1].startswith(f"  constants differ: philly-5: {key} is {constants[key] / 1.01:.4f}"[:45])
    assert len(said) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reference", {"name": "${oc.env:HOME}"}),
        ("placer", {"name": "buddy", "defragment_s": ["${oc.env:HOME}"]}),
        ("reference_overrides", ["trace.jobs=${seed}"]),
    ],
)
def test_a_board_with_an_interpolation_is_refused(key, value, root):
    path = root / "small" / "board.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {key: value}))
    with pytest.raises(InputError, match=rf"board\.yaml:\d+: {key}: .* is an interpolation"):
        load_board("small", root)


def test_an_override_of_a_scenario_with_an_interpolation_is_refused(root):
    path = root / "small" / "board.yaml"
    path.write_text(path.read_text().replace("trace.jobs=24", "trace.jobs=${oc.env:JOBS}"))
    with pytest.raises(InputError, match=r"scenarios: 'trace.jobs=\$\{oc.env:JOBS\}' is an interpolation"):
        load_board("small", root)


def test_only_published_policies_are_run_again(root):
    claims(root / "small" / "first", policy={"name": "os.system", "parameters": {}})
    change_headers(root / "small" / "first", policy="os.system")
    assert kinds(root, "first") == set()
    assert kinds(root, "first", strict=1) == {FlagReason.RERUN}


def rerun_messages(root: Path, entry: str = "first", strict: int = 2) -> list[tuple[str, str]]:
    flags = check(load_board("small", root), entry, strict)
    assert {flag.reason for flag in flags} <= {FlagReason.RERUN}
    return [(flag.where, flag.message) for flag in flags]


def test_as_many_cells_are_run_again_as_are_asked_for(root):
    folder = root / "small" / "first"
    claims(folder, policy={"name": "las", "parameters": {}})
    change_headers(folder, policy="las")
    one, both, more = (rerun_messages(root, "first", strict) for strict in (1, 2, 3))
    assert [where for where, _ in both] == ["philly-5", "philly-6"]
    assert more == both
    assert len(one) == 1
    assert one[0] in both
    entered = [row.split(",")[2][:16] for row in (folder / "results.csv").read_text().splitlines()[1:]]
    assert [message.partition("entered ")[2] for _, message in both] == [f"{start}…" for start in entered]
    # Which, the seed says.
    board = load_board("small", root)
    drawn = {check(board, "first", 1, seed)[0].where for seed in range(8)}
    assert drawn == {"philly-5", "philly-6"}


def test_a_check_of_drawn_cells_replays_these_alone(root):
    # A false metric in the row of philly-5 is found by the seeds that draw this cell, and by no other.
    board = load_board("small", root)
    column(root / "small" / "first", "ftf_mean", "0.5")
    found = [check_entries(board, ["first"], seed=seed, replayed=1)["first"] for seed in range(8)]
    assert {flag.where for flags in found for flag in flags} == {"philly-5"}
    assert [] in found
    assert check_entries(board, ["first"], replayed=2)["first"]


def test_a_check_of_drawn_cells_runs_a_policy_again_if_this_is_asked_for(root):
    claims(root / "small" / "first", policy={"name": "las", "parameters": {}})
    change_headers(root / "small" / "first", policy="las")
    board = load_board("small", root)
    assert check_entries(board, ["first"], replayed=1)["first"] == []
    (flag,) = check_entries(board, ["first"], strict=1, replayed=1)["first"]
    assert flag.reason is FlagReason.RERUN


def test_a_row_twice_is_flagged_and_rows_of_other_cells(root):
    def change(lines):
        return [*lines, lines[1], lines[2].replace(",6,", ",9,"), lines[2].replace(",6,", ",9,")]

    results(root / "small" / "first", change)
    found = {str(flag) for flag in check(load_board("small", root), "first")}
    assert "duplicate cell: philly-5: has 2 rows in results.csv" in found
    assert "foreign cell: philly-9: is not a cell of the board, but has a row in results.csv" in found
    assert len(found) == 2


def test_progress_is_shown_where_it_is_asked_for(root, capsys, monkeypatch):
    monkeypatch.setattr("clustergym.common.progress.EVERY_LINE_S", 0.0)
    board = load_board("small", root)
    sound = {"first": [], "short": []}
    assert check_entries(board, ["first", "short"], strict=1) == sound
    assert capsys.readouterr().err == ""
    assert check_entries(board, ["first", "short"], strict=1, progress=True) == sound
    shown = capsys.readouterr().err
    assert "check small: 2 of 2" in shown
    assert "run small again: 2 of 2" in shown
    claims(root / "small" / "first", variant=True, title="a variant")
    check_entries(board, ["first"], progress=True)
    assert "run small again: 1 of 1" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../small/first", "First", "", "a" * 70, "/etc"])
def test_a_name_is_no_path(name, root):
    assert kinds(root, name) == {FlagReason.SCHEMA}


def test_a_board_whose_scenario_changed_says_so(root):
    path = root / "small" / "board.yaml"
    path.write_text(path.read_text().replace("trace.jobs=24", "trace.jobs=23"))
    assert kinds(root, "first") == {FlagReason.TRACE_HASH}


def test_the_command_names_the_flags(root, capsys, tmp_path):
    assert main(["--root", str(root), "check", "small", "first"]) == 0
    told = capsys.readouterr().out
    assert "small: baseline and reference run again in 2 cells, equal" in told
    assert "small/first: 2 cells replayed, every metric equal" in told
    column(root / "small" / "first", "digest", "0" * 64)
    found = tmp_path / "found.json"
    assert main(["--root", str(root), "check", "small", "--json", str(found)]) == 2
    assert "  digest mismatch: philly-5: replayed" in capsys.readouterr().out
    assert [flag["kind"] for flag in json.loads(found.read_text())["small/first"]] == ["digest mismatch"]


def test_bombs_take_little_memory(root):
    folder = root / "small" / "first"
    replace_packed(folder, CELL, bomb(2 * 10**8))
    text(folder, b"a" * 10**8, "README.md")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    words = ("-m", "clustergym.leaderboard", "--root", root, "check", "small", "first")
    done = run_python(*words, most_bytes=10**9)
    assert done.returncode == 2, done.stderr
    assert re.search("decision log: philly-5: .*longer than", done.stdout)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, 10**6)
