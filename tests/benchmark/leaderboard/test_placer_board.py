"""A board whose entries are placers: the board's policy decides what runs, the log says on which nodes."""

import gzip
import io
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from boards import claims, claims_throughout, flags, kinds
from checked_entries import check
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.placers.minipod import MinipodPlacer
from entry_logs import Lines, change_log, read_log, replace_packed
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_logs import pack
from clustergym.benchmark.leaderboard.cell_replay import FlagReason
from clustergym.benchmark.leaderboard.render import pages
from clustergym.benchmark.leaderboard.score import standings
from clustergym.cluster.allocation import Allocations
from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.cluster.spec import ClusterSpec, Fabric, NodeGroup
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError
from clustergym.results.placement_log import (
    Answer,
    ReplayingPlacer,
    expand_runs,
    group_nodes,
    placement_lines,
    read_placements,
    replay_placements,
    simulate_recorded,
)
from clustergym.scenario.policy import Infeasible

CELL = "ii-6"


def test_the_baseline_scores_0_and_all_are_of_one_division(placers):
    board = load_board("placers", placers)
    found = {one.name: one for one in standings(board)}
    assert found["random-fit"].score == pytest.approx((0.0, 0.0, 0.0))
    assert {one.division for one in found.values()} == {"none, closed"}
    # The reference is buddy where the core is not oversubscribed: entries run where it is, 8:1.
    assert found["moving"].score.value < 1.0
    entry = yaml.safe_load((placers / "placers" / "moving" / "entry.yaml").read_text())
    assert entry["placer"] == {"name": "buddy", "parameters": {"defragment_s": 600.0}}
    assert "policy" not in entry


def test_what_was_not_tampered_with_has_no_flag(placers):
    assert flags(placers, "moving", 1) == flags(placers, "random-fit", strict=1) == []
    lines = read_log(placers / "placers" / "moving", CELL)[1:]
    assert {frozenset(line) for line in lines} == {
        frozenset({"time_s", "gpu_type", "gpus", "nodes"}),
        frozenset({"time_s", "move"}),
    }


def test_the_placer_of_a_variant_is_not_needed_to_check(placers, monkeypatch):
    def never(*args: Any) -> None:
        raise AssertionError("the entry's placer was asked")

    monkeypatch.setattr(Buddy, "place", never)
    monkeypatch.setattr(Buddy, "defragment", never)
    monkeypatch.setattr(MinipodPlacer, "place", never)
    for name in ("moving", "random-fit"):
        claims(placers / "placers" / name, variant=True, title=f"{name}, a variant")
        assert flags(placers, name) == []


def test_a_placer_that_is_not_published_is_replayed_and_never_run(placers):
    placer = {"name": "my.own-placer", "parameters": {"depth": 3}}
    claims_throughout(placers / "placers" / "moving", placer=placer)
    assert flags(placers, "moving") == []
    (line,) = flags(placers, "moving", 1)
    expected = "re-run differs: entry.yaml: 'my.own-placer' is not published here and cannot be run again"
    assert line == expected


def test_the_answers_of_another_placer_are_found_by_running_it_again(placers):
    folder = placers / "placers" / "random-fit"
    parameters = {"defragment_s": None, "algorithm": "best_fit"}
    claims_throughout(folder, placer={"name": "minipod", "parameters": parameters})
    assert kinds(placers, "random-fit") == kinds(placers, "random-fit", strict=1) == {FlagReason.RERUN}


# What entry.yaml says: the line of each, and no other

BUDDY = {"name": "buddy", "parameters": {"defragment_s": 600.0}}
CLAIMED: dict[str, tuple[dict[str, Any], str]] = {
    "another placer": (
        {"placer": {"name": "nobody"}},
        "header: ii-6: placer is not that of the entry or the board",
    ),
    "a policy instead": (
        {"policy": {"name": "sjf"}, "placer": None},
        "entry.yaml:{policy}: policy: is the board's: entries of placers choose a placer (leave it out)",
    ),
    "a policy besides": (
        {"policy": {"name": "sjf"}},
        "entry.yaml:{policy}: policy: is the board's: entries of placers choose a placer (leave it out)",
    ),
    "neither": ({"placer": None}, "placer: is missing: entries of placers choose a placer"),
    "a parameter that is not taken": (
        {"placer": {"name": "buddy", "parameters": {"defragment_s": 600.0, "depth": 3}}},
        "not as published: entry.yaml: placer.depth: unknown key 'depth'",
    ),
    "a parameter of another type": (
        {"placer": {"name": "buddy", "parameters": {"defragment_s": "often"}}},
        "not as published: entry.yaml: placer.defragment_s: 'often' is not a float (give seconds",
    ),
    "another parameter": (
        {"placer": {"name": "buddy", "parameters": {"defragment_s": 900.0}}},
        "header: ii-6: placer is not that of the entry or the board",
    ),
    "a class and its module": (
        {"placer": {"name": "clustergym.policies.placers.buddy:Buddy"}},
        "placer.name: ",
    ),
    "a module": (
        {"placer": {"name": "clustergym.policies.placers.buddy"}},
        "header: ii-6: placer is not that of the entry or the board",
    ),
    "a path": ({"placer": {"name": "../buddy"}}, "placer.name: "),
    "a placer that is a list": ({"placer": ["buddy"]}, "placer: "),
    "a key that a placer has not": ({"placer": {**BUDDY, "nodes": 1}}, "placer.nodes: unknown key"),
    "an information class": (
        {"information_class": "clairvoyant"},
        "information_class: 'clairvoyant' is not that of a placer",
    ),
}


@pytest.mark.parametrize("name", CLAIMED)
def test_tampered_entry(name: str, placers: Path) -> None:
    changes, expected = CLAIMED[name]
    folder = placers / "placers" / "moving"
    claims(folder, **changes)
    lines = (folder / "entry.yaml").read_text().splitlines()
    at = next((row for row, line in enumerate(lines, 1) if line.startswith("policy:")), 0)
    first = flags(placers, "moving")[0]
    assert expected.format(policy=at) in first, first
    assert "\n" not in first


def test_a_placer_on_a_board_of_policies(root, capsys):
    claims(root / "small" / "first", policy=None, placer={"name": "buddy"})
    (flag,) = check(load_board("small", root), "first")
    assert flag.reason == FlagReason.SCHEMA
    assert "placer: is the board's: entries of small choose a policy (leave it out)" in flag.message
    assert main(["--root", str(root), "add", "small", "x", "placer=buddy"]) == 2
    assert "'placer=buddy' is not of the policy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["policy=fcfs"], "'policy=fcfs' is not of the placer"),
        (["placer=buddy", "policy=fcfs"], "'policy=fcfs' is not of the placer"),
        (["placer=budy"], "buddy"),
        (["placer=buddy", "placer.depth=3"], "depth"),
        (["placer=buddy", "+placer.depth=3"], "unknown key 'depth'"),
        (["placer=minipod", "placer.algorithm=best"], "unknown placement algorithm 'best'"),
        (["placer=buddy", "placer.defragment_s=0"], "placer.defragment_s"),
    ],
)
def test_what_cannot_be_entered_is_one_line(words, expected, placers, capsys):
    assert main(["--root", str(placers), "add", "placers", "x", *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert expected in lines[0]
    assert not (placers / "placers" / "x").exists()


# What the log says


def _at(place: int, **changes: Any) -> Callable[[Lines], Lines]:
    return lambda lines: [*lines[:place], {**lines[place], **changes}, *lines[place + 1 :]]


def _nodes(change: Callable[[list[Any]], Any]) -> Callable[[Lines], Lines]:
    """Change the nodes of the first placement."""
    return lambda lines: _at(1, nodes=change(lines[1]["nodes"]))(lines)


def _move(change: Callable[[str, list[Any]], Any]) -> Callable[[Lines], Lines]:
    """Change the first move."""

    def changed(lines: Lines) -> Lines:
        place = next(row for row, line in enumerate(lines) if "move" in line)
        return _at(place, move=change(*lines[place]["move"][0]))(lines)

    return changed


def _onto_the_first(lines: Lines) -> Lines:
    """Place a job where another was placed at the same instant."""
    row = _twins(lines)
    return _at(row, nodes=lines[row - 1]["nodes"])(lines)


def _twins(lines: Lines) -> int:
    """Return where a placement last follows one of the same instant and size."""
    same = [[(line["time_s"], line.get("gpus"), "nodes" in line) for line in lines[at:]] for at in (1, 2)]
    return max(row for row, (a, b) in enumerate(zip(*same, strict=False), start=2) if a == b and a[2])


def _waits(lines: Lines) -> Lines:
    """Let the first job wait, which the log then does not go on from."""
    line = {key: value for key, value in lines[1].items() if key != "nodes"}
    return [lines[0], {**line, "infeasible": ["not now", 0, 0]}, *lines[2:]]


LOGGED: dict[str, tuple[Callable[[Lines], Lines], FlagReason]] = {
    "a node that is not there": (_nodes(lambda nodes: [[438, *nodes[0][1:]]]), FlagReason.DECISION_LOG),
    "a node below them": (_nodes(lambda nodes: [[-1, *nodes[0][1:]]]), FlagReason.DECISION_LOG),
    "nodes up to 2^31": (_nodes(lambda nodes: [[0, 2**31, 8]]), FlagReason.DECISION_LOG),
    "half a node": (_nodes(lambda nodes: [[0.5, *nodes[0][1:]]]), FlagReason.DECISION_LOG),
    "nodes that are no runs": (_nodes(lambda nodes: [0, 1, 2]), FlagReason.DECISION_LOG),
    "no nodes": (_nodes(lambda nodes: []), FlagReason.DECISION_LOG),
    "a node twice": (_nodes(lambda nodes: [[0, nodes[0][1] - 1, 8], [0, 1, 8]]), FlagReason.DECISION_LOG),
    "fewer GPUs than asked for": (_nodes(lambda nodes: [[0, nodes[0][1] - 1, 8]]), FlagReason.DECISION_LOG),
    "more GPUs than a node has": (
        _nodes(lambda nodes: [[0, nodes[0][1] // 2, 16]]),
        FlagReason.ILLEGAL_DECISION,
    ),
    "nodes of another job": (_onto_the_first, FlagReason.ILLEGAL_DECISION),
    "another number of GPUs": (lambda lines: _at(1, gpus=64, nodes=[[0, 8, 8]])(lines), FlagReason.DIVERGED),
    "an answer left out": (lambda lines: [lines[0], *lines[2:]], FlagReason.DIVERGED),
    "an answer twice": (lambda lines: [*lines[:2], *lines[1:]], FlagReason.DIVERGED),
    "an answer after the end": (lambda lines: [*lines, {**lines[-1], "time_s": 1e9}], FlagReason.DIVERGED),
    "an answer sooner": (
        lambda lines: _at(len(lines) - 1, time_s=lines[-2]["time_s"])(lines),
        FlagReason.DIVERGED,
    ),
    "answers out of order": (lambda lines: [lines[0], *reversed(lines[1:])], FlagReason.DECISION_LOG),
    "a job that waits": (_waits, FlagReason.DIVERGED),
    "a reason of 2 lines": (
        lambda lines: [*_waits(lines)[:1], {**_waits(lines)[1], "infeasible": ["a\nb", 0, 0]}, *lines[2:]],
        FlagReason.DECISION_LOG,
    ),
    "an unknown GPU type": (_at(1, gpu_type="H900"), FlagReason.DECISION_LOG),
    "a further key": (_at(1, run="rm -rf /"), FlagReason.DECISION_LOG),
    "a time that is none": (_at(1, time_s=float("nan")), FlagReason.DECISION_LOG),
    "a move of nobody": (_move(lambda job, runs: [["nobody", runs]]), FlagReason.DECISION_LOG),
    "a move to more GPUs": (_move(lambda job, runs: [[job, [[0, 128, 8]]]]), FlagReason.ILLEGAL_DECISION),
    "a move of a job that waits": (
        _move(lambda job, runs: [["philly-79", runs]]),
        FlagReason.ILLEGAL_DECISION,
    ),
    "no move": (_move(lambda job, runs: []), FlagReason.DECISION_LOG),
    "a log of decisions": (_at(0, schema="clustergym.decisions/1"), FlagReason.DECISION_LOG),
    "the policy's parameters": (_at(0, policy={"name": "sjf"}), FlagReason.HEADER),
    "another policy": (_at(0, policy={"name": "fcfs"}), FlagReason.HEADER),
    "another seed": (_at(0, seed=8), FlagReason.HEADER),
    "moves in no time": (_at(0, defragment_s=1e-9), FlagReason.HEADER),
    "another scenario": (_at(0, scenario_sha256="0" * 64), FlagReason.TRACE_HASH),
}


@pytest.mark.parametrize("name", LOGGED)
def test_tampered_log(name: str, placers: Path) -> None:
    change, expected = LOGGED[name]
    change_log(placers / "placers" / "moving", CELL, change)
    found = check(load_board("placers", placers), "moving")
    assert found[0].reason == expected, [str(flag) for flag in found]
    assert {flag.where for flag in found} == {"ii-6"}


class _Watching(MinipodPlacer):
    """Keeps what was free when it was last asked."""

    def place(self, allocations: Any, gpu_type: int, gpus: int) -> Any:
        self.free = allocations.free_on_node.copy()
        return super().place(allocations, gpu_type, gpus)


def test_other_nodes_are_another_run(placers):
    """A node of the last job becomes another free one: that is legal, and not what was entered."""
    board = load_board("placers", placers)
    (cell,) = board.cells
    policy, watching = board.contestants({"name": "buddy"})[0], _Watching(algorithm="random_fit")
    simulate_recorded(board.scenario(cell), policy, watching, cell.seed)
    folder = placers / "placers" / "random-fit"
    lines = read_log(folder, CELL)
    *others, last = expand_runs(lines[-1]["nodes"])
    free = set(np.flatnonzero(watching.free == 8).tolist()) - {node for node, _ in (*others, last)}
    nodes = tuple(sorted([*others, (max(free), 8)]))
    change_log(folder, CELL, _at(len(lines) - 1, nodes=group_nodes(nodes)))
    assert FlagReason.DIGEST in kinds(placers, "random-fit") <= {FlagReason.DIGEST, FlagReason.METRIC}


def test_a_crowd_of_nodes_is_refused(placers):
    folder, log = placers / "placers" / "moving", io.BytesIO()
    header, first, *_ = read_log(folder, CELL)
    scattered = {**first, "time_s": 0.0, "gpus": 219, "nodes": [[2 * place, 1, 1] for place in range(219)]}
    crowd = json.dumps(scattered).encode() + b"\n"
    with gzip.open(log, "wb", compresslevel=1) as packed:
        packed.write(json.dumps(header).encode() + b"\n")
        for _ in range(2_000_000 // 219 + 1):
            packed.write(crowd)
    replace_packed(folder, CELL, log.getvalue())
    (line,) = flags(placers, "moving")
    assert line.startswith("decision log: ii-6: ")
    assert "2,000,000 jobs and nodes" in line


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        (((8, 2, 4),), "job 0 is to move to GPUs of another type"),
        (((1, 1, 4),), "job 0 is to move to another number of GPUs than it holds"),
        (((2, 2, 4),), "4 GPUs on node 2, of which 3 are free"),
    ],
)
def test_a_move_that_is_not_allowed_says_why(runs, told):
    # Job 0 holds nodes 0 and 1 of eight with 4 V100, job 1 a GPU on node 2; the rest are A40.
    types = load_gpu_types()
    groups = (NodeGroup(types["V100"], 8, 4), NodeGroup(types["A40"], 4, 4))
    allocations = Allocations(ClusterSpec("two-types", groups, Fabric(nodes_per_leaf=4)))
    allocations.allocate(0, ((0, 4), (1, 4)))
    allocations.allocate(1, ((2, 1),))
    placer = ReplayingPlacer([Answer(0.0, moves=((0, runs),))])
    with pytest.raises(InputError, match=rf"^placements: at 0.0 s: {told} \(it was edited\)"):
        placer.defragment(allocations)


def test_a_wrong_count_of_answers_is_flagged(placers):
    path = placers / "placers" / "moving" / "results.csv"
    header, first, *rest = path.read_text().splitlines()
    row = first.split(",")
    row[3] = str(int(row[3]) - 1)
    path.write_text("\n".join([header, ",".join(row), *rest]) + "\n")
    assert kinds(placers, "moving") == {FlagReason.DECISION_TIMES}


# The parts


class _Choosy(Buddy):
    """Places nothing at first."""

    asked = 0

    def place(self, allocations: Any, gpu_type: int, gpus: int) -> Any:
        self.asked += 1
        if self.asked <= 3:
            return Infeasible("not yet", nodes_short=2)
        return super().place(allocations, gpu_type, gpus)


def test_jobs_that_wait_are_logged_and_replayed(placers, tmp_path):
    board = load_board("placers", placers)
    cell = board.cells[0]
    scenario, policy = board.scenario(cell), board.contestants({"name": "buddy"})[0]
    run, recorded = simulate_recorded(scenario, policy, _Choosy(), cell.seed)
    assert [answer.infeasible for answer in recorded.answers[:4]] == [
        *[Infeasible("not yet", nodes_short=2)] * 3,
        None,
    ]
    (tmp_path / "log.gz").write_bytes(pack(placement_lines(scenario, recorded.answers, {})))
    _, answers = read_placements(tmp_path / "log.gz", scenario)
    assert answers == recorded.answers
    again, asked = replay_placements(scenario, policy, answers, 3600.0, cell.seed)
    assert again.log.digest == run.simulation.log.digest
    assert asked == recorded.times.count


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 60), st.integers(1, 8), min_size=1))
def test_runs_hold_nodes(shares: dict[int, int]) -> None:
    nodes = tuple(sorted(shares.items()))
    runs = group_nodes(nodes)
    assert expand_runs(runs) == nodes
    # No two of them could be one.
    assert all((a[0] + a[1], a[2]) != (b[0], b[2]) for a, b in pairwise(runs))


def test_neighbours_with_as_many_gpus_are_one_run():
    assert group_nodes(((3, 8), (4, 8), (5, 4), (7, 4), (8, 4))) == ((3, 2, 8), (5, 1, 4), (7, 2, 4))


def test_the_pages_name_baseline_reference_and_policy(placers):
    board = load_board("placers", placers)
    readme, page = pages(board).values()
    assert "policy (sjf)" in readme
    assert "the baseline (minipod algorithm=random_fit)" in readme
    assert "reference (buddy cluster.fabric.core_oversubscription=1.0)" in readme
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    facts = {entry["name"]: entry["facts"]["placer"] for entry in data["entries"]}
    assert facts["moving"] == "buddy defragment_s=600.0"
