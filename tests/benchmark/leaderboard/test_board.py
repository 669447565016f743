"""Boards, scores and pages."""

import gzip
import io
import json
import shlex
import shutil
from types import SimpleNamespace

import pytest
import yaml
from boards import WITH_ENTRIES, kinds
from error_lines import error_line

from clustergym.benchmark.leaderboard.board import BoardScenario, Cell, board_names, boards_dir, load_board
from clustergym.benchmark.leaderboard.cell_logs import read_logs
from clustergym.benchmark.leaderboard.entry import entry_folder, entry_names, read_entry, read_results
from clustergym.benchmark.leaderboard.render import pages, stale
from clustergym.benchmark.leaderboard.score import compute_scores, standings
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError
from clustergym.scenario.by_name import compose


def test_fcfs_scores_0_and_the_reference_1(root):
    board = load_board("small", root)
    assert board.cells == (Cell("philly", 5), Cell("philly", 6))
    # srtf is the reference of this board.
    for name, expected in (("first", 0.0), ("short", 1.0)):
        (scores,) = compute_scores(board, read_results(root / "small" / name))
        assert scores.tolist() == pytest.approx([expected, expected])
    constants = board.constants(board.cells[0])
    assert board.score(board.cells[0], 2 * constants.reference - constants.baseline) == pytest.approx(2.0)


@pytest.mark.parametrize("words", [["check", "fair"], ["check"], ["render"], ["score", "fair"]])
def test_without_any_board_it_says_where_they_are_expected(words, tmp_path, monkeypatch, capsys):
    # An installed package has no boards beside it.
    monkeypatch.setattr("clustergym.benchmark.leaderboard.board.PACKAGE", tmp_path / "clustergym")
    assert main(words) == 2
    remedy = "boards are in a checkout: `clustergym leaderboard --root CHECKOUT/leaderboards …`"
    assert capsys.readouterr().err == f"error: {tmp_path / 'leaderboards'}: holds no board ({remedy})\n"


def test_entries_are_ranked_inside_their_division(root):
    board = load_board("small", root)
    found = {one.name: one for one in standings(board)}
    assert found["first"].division == "none, closed"
    assert found["short"].division == "clairvoyant, closed"
    assert found["first"].rank == found["short"].rank == 1
    assert (found["first"].rank_all, found["short"].rank_all) == (2, 1)
    assert found["short"].score == pytest.approx((1.0, 1.0, 1.0))
    # One that was trained on the board's own traces is in a division of its own.
    copy = root / "small" / "peeked"
    shutil.copytree(root / "small" / "short", copy)
    entry = yaml.safe_load((copy / "entry.yaml").read_text())
    (copy / "entry.yaml").write_text(yaml.safe_dump(entry | {"trained_on": ["train", "test"]}))
    assert {one.division for one in standings(board)} == {
        "clairvoyant, closed",
        "clairvoyant, open",
        "none, closed",
    }


def test_equal_entries_share_a_rank(root):
    for name in ("again", "worse"):
        shutil.copytree(root / "small" / "short", root / "small" / name)
    path = root / "small" / "worse" / "results.csv"
    header, *rows = (line.split(",") for line in path.read_text().splitlines())
    at = header.index("jct_mean")
    rows = [[*row[:at], str(2 * float(row[at])), *row[at + 1 :]] for row in rows]
    path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    ranks = {one.name: (one.rank, one.over_next) for one in standings(load_board("small", root))}
    assert (ranks["again"][0], ranks["short"][0], ranks["worse"][0]) == (1, 1, 3)
    assert ranks["again"][1].value == 0.5
    assert ranks["short"][1].value == 1.0
    assert ranks["worse"][1] is None


def test_an_entry_that_was_begun_goes_on(root, capsys):
    folder = root / "small" / "begun"
    words = ["--root", str(root), "add", "small", "begun", "policy=las"]
    assert main(words) == 0
    whole = (folder / "results.csv").read_text().splitlines()
    (folder / "results.csv").write_text("\n".join(whole[:2]) + "\n")
    capsys.readouterr()
    assert main(words) == 0
    assert "las on small: 1 of 1 cells" in capsys.readouterr().err
    again = (folder / "results.csv").read_text().splitlines()
    assert [line.split(",")[:4] for line in again] == [line.split(",")[:4] for line in whole]
    assert main([*words[:-1], "policy=sjf"]) == 2
    assert "is of another policy" in capsys.readouterr().err


def test_bad_input_is_one_line(root, capsys):
    for words in (
        ["add", "small", "x", "seed=3"],
        ["add", "small", "../x", "policy=fcfs"],
        ["add", "small", "x", "policy=fcsf"],
        ["add", "small", "x", "policy=elasticflow"],
        ["add", "smal", "x", "policy=fcfs"],
        ["score", "smal"],
        ["freeze", "small"],
        ["render", "../small"],
        ["check", "small", "--strict", "x"],
        ["frobnicate"],
    ):
        assert main(["--root", str(root), *words]) == 2, words
        error = capsys.readouterr().err
        lines = [line for line in error.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, error
    assert not (root / "small" / "x").exists()


BAD_BOARDS = {
    "an unknown metric": ({"metric": "jct_meen"}, "did you mean jct_mean"),
    "a seed twice": ({"seeds": [1, 1]}, "names one twice"),
    "no version": ({"version": None}, "version"),
    "another name": ({"name": "other"}, "is not its folder's"),
    "an unknown key": ({"colour": "red"}, "unknown key"),
    "neither policy nor placer of its own": ({"placer": None}, "placer: is missing"),
    "both of its own": ({"policy": {"name": "sjf"}}, "policy: is what entries choose"),
    "entries of what there is not": ({"chooses": "oracle"}, "chooses"),
    "a policy as a choice of placers": ({"chooses": "placer"}, "policy: is missing"),
    "a seed in two splits": ({"tuning_seeds": {"train": [6]}}, "tuning_seeds: names one twice"),
    "its own split to tune on": ({"tuning_seeds": {"test": [9]}}, "has the board's own split"),
}


@pytest.mark.parametrize("name", BAD_BOARDS)
def test_a_bad_board_is_one_line(name, root, capsys):
    changes, expected = BAD_BOARDS[name]
    path = root / "small" / "board.yaml"
    content = yaml.safe_load(path.read_text()) | changes
    path.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not None}))
    assert main(["--root", str(root), "score", "small"]) == 2
    error = error_line(capsys)
    assert "board.yaml" in error
    assert expected in error


def test_score_prints_what_it_writes(root, capsys, tmp_path):
    assert main(["--root", str(root), "score", "small", "--json", str(tmp_path / "s.json")]) == 0
    printed = capsys.readouterr().out
    found = {one["entry"]: one for one in json.loads((tmp_path / "s.json").read_text())}
    assert found["short"]["score"]["value"] == pytest.approx(1.0)
    assert "1.00 [1.00, 1.00]" in printed


def test_pages_and_json_say_the_same(root, tmp_path):
    board = load_board("small", root)
    path = root / "small" / "first" / "results.csv"
    header, first, *rest = path.read_text().splitlines()
    row, at = first.split(","), header.split(",").index("jct_mean")
    row[at] = str(float(row[at]) * 0.98765)
    path.write_text("\n".join([header, ",".join(row), *rest]) + "\n")
    assert main(["--root", str(root), "score", "small", "--json", str(tmp_path / "s.json")]) == 0
    plain = {one["entry"]: one for one in json.loads((tmp_path / "s.json").read_text())}
    readme, page = pages(board).values()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    titles = [column["title"] for column in data["columns"]]
    assert "| " + " | ".join(titles) + " |" in readme.splitlines()
    for entry in data["entries"]:
        one, texts = plain[entry["name"]], entry["shown"]
        assert (entry["rank"], entry["rank_all"]) == (one["rank"], one["rank_all"])
        assert entry["score"] == [one["score"][key] for key in ("value", "low", "high")]
        assert texts["score"] == "{value:.2f} [{low:.2f}, {high:.2f}]".format(**one["score"])
        title = f"[{entry['title']}]({entry['name']}/)"
        cells = [title if column["key"] == "title" else texts[column["key"]] for column in data["columns"]]
        assert "| " + " | ".join(cells) + " |" in readme.splitlines()


def test_the_command_of_an_entry_names_what_was_run(root):
    words = ["add", "small", "gavel", "policy=gavel", "policy.objective=max_total_throughput"]
    assert main(["--root", str(root), *words]) == 0
    board = load_board("small", root)
    for name in entry_names(board):
        entry = read_entry(board.folder / name, board)
        command = shlex.split(entry.command)
        assert command[:6] == ["python", "-m", "clustergym.leaderboard", "add", "small", name]
        assert compose(command[6:])["policy"] == entry.keys


# Versions


def test_the_next_version_is_frozen_and_its_entries_are_run_anew(root, capsys):
    path, command = root / "small" / "board.yaml", ["--root", str(root)]
    before = yaml.safe_load(path.read_text())
    assert main([*command, "freeze", "small", "--next-version", "--workers", "1"]) == 0
    # Nothing but the version is another: no scenario has changed.
    assert yaml.safe_load(path.read_text()) == before | {"version": 4}
    capsys.readouterr()
    assert main([*command, "score", "small"]) == 2
    expected = "is of version 3 of the board, which is at 4 (run it anew with `leaderboard add`)"
    assert expected in capsys.readouterr().err
    assert kinds(root, "first") == {"board"}
    for name, policy in (("first", "fcfs"), ("short", "srtf")):
        assert main([*command, "add", "small", name, f"policy={policy}"]) == 0
        assert f"{policy} on small: 2 of 2 cells" in capsys.readouterr().err
        # Run once, it is kept.
        assert main([*command, "add", "small", name, f"policy={policy}"]) == 0
        assert "cells" not in capsys.readouterr().err
        assert kinds(root, name) == set()


# Splits


def test_freeze_writes_what_is_lacking_and_no_more(placers):
    path = placers / "placers" / "board.yaml"
    frozen = path.read_text()
    content = yaml.safe_load(frozen)
    traces = content["scenarios"][0].pop("traces")
    assert {split: list(one) for split, one in traces.items()} == {"train": [0, 1], "dev": [2], "test": [6]}
    path.write_text(yaml.safe_dump(content, sort_keys=False, width=110))
    assert main(["--root", str(placers), "freeze", "placers"]) == 0
    assert path.read_text() == frozen


BAD_SPLITS = {
    "a trace in two splits": (
        lambda one: one["traces"]["dev"].update({2: one["traces"]["train"][1]}),
        "ii-2 of dev is a trace of train too",
    ),
    "a trace of the test split in another": (
        lambda one: one["traces"]["train"].update({0: one["traces"]["test"][6]}),
        "ii-6 of test is a trace of train too",
    ),
    "a seed that no split has": (
        lambda one: one["traces"]["dev"].update({9: "0" * 64}),
        "ii has traces of other seeds",
    ),
    "a split left out": (lambda one: one["traces"].pop("train"), "ii has traces of other seeds"),
    "no hash": (lambda one: one["traces"]["dev"].update({2: "x"}), "scenarios[0].traces.dev[2]"),
}


@pytest.mark.parametrize("name", BAD_SPLITS)
def test_bad_splits_are_one_line(name, placers, capsys):
    change, expected = BAD_SPLITS[name]
    path = placers / "placers" / "board.yaml"
    content = yaml.safe_load(path.read_text())
    change(content["scenarios"][0])
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    assert main(["--root", str(placers), "score", "placers"]) == 2
    assert expected in error_line(capsys)


@pytest.mark.parametrize("name", WITH_ENTRIES)
def test_committed_splits_share_no_trace(name):
    board = load_board(name)
    for scenario in board.scenarios:
        assert list(scenario.traces) == ["train", "dev", "test"] == list(board.splits)
        digests = [digest for one in scenario.traces.values() for digest in one.values()]
        assert len(set(digests)) == len(digests) >= 4


@pytest.mark.parametrize("name", WITH_ENTRIES)
def test_committed_traces_drawn_by_the_version_are_as_hashed(name):
    board = load_board(name)
    for place, (split, seeds) in enumerate(board.splits.items()):
        scenario = board.scenarios[(board.version + place) % len(board.scenarios)]
        seed = seeds[board.version % len(seeds)]
        assert board.trace(Cell(scenario.name, seed)).sha256 == scenario.traces[split][seed]


def test_a_trace_is_that_of_its_scenario(placers):
    board = load_board("placers", placers)
    (cell,) = board.cells
    assert board.scenario(cell).trace.sha256 == board.trace(cell).sha256


# The committed boards


@pytest.mark.parametrize("name", board_names())
def test_committed_pages_are_what_render_writes(name):
    assert stale(load_board(name)) == []


def test_an_entrys_folder_has_no_other_files_and_no_links(tmp_path):
    board, folder = SimpleNamespace(folder=tmp_path), tmp_path / "one"
    folder.mkdir()
    (folder / "README.md").touch()
    assert entry_folder(board, "one") == folder
    for name, said in (("entry.yaml", "is a link"), ("z.txt", "does not belong in an entry")):
        (folder / name).symlink_to("README.md") if said == "is a link" else (folder / name).touch()
        with pytest.raises(InputError) as caught:
            entry_folder(board, "one")
        assert (caught.value.file, caught.value.message) == (folder / name, said)
        (folder / name).unlink()


@pytest.mark.parametrize("name", WITH_ENTRIES)
def test_committed_entries_are_whole(name):
    board = load_board(name)
    assert len(board.cells) >= {"llm-2026": 6}.get(name, 12)  # A cell of that has 1,600 GPUs and racks.
    assert len(entry_names(board)) >= 3
    for entry in entry_names(board):
        found = read_entry(board.folder / entry, board)
        assert "None" not in found.command  # Hydra's word for nothing is null.
        assert {row.cell for row in read_results(board.folder / entry)} == set(board.cells)


@pytest.mark.parametrize("name", WITH_ENTRIES)
def test_committed_logs_are_of_the_frozen_scenarios(name):
    """What can be told without a replay; `clustergym leaderboard check` tells the rest."""
    board = load_board(name)
    for entry in entry_names(board):
        folder = entry_folder(board, entry)
        logs, version = read_logs(folder), read_entry(folder, board).board_version
        assert (version, list(logs.labels)) == (board.version, [str(cell) for cell in board.cells])
        for cell in board.cells:
            with gzip.open(io.BytesIO(logs.read_packed(cell))) as lines:
                header = json.loads(lines.readline())
            expected = (board.constants(cell).sha256, cell.seed)
            assert (header["scenario_sha256"], header["seed"]) == expected, (entry, cell)


def test_the_boards_are_small():
    size = sum(path.stat().st_size for path in boards_dir().rglob("*") if path.is_file())
    assert size < 22e6
    for name in board_names():
        entries = [
            path for path in (boards_dir() / name).glob("*/entry.yaml") if path.parent.name != "best-known"
        ]
        assert all(len(list(path.parent.iterdir())) == 5 for path in entries)


def test_the_family_of_a_scenario_is_its_trace():
    """A scenario of conf may choose the trace, and cells of one generator are one family at any load."""
    found = {name: load_board(name).families for name in board_names()}
    assert found["testbed"] == ("philly-like", "helios-like", "pai-like")
    assert found["llm-2026"] == ("llm-2026",) * 2  # By conf/scenario/llm-2026.yaml.
    assert found["tenants"] == ("philly-like", "philly-like", "helios-like", "helios-like")
    assert found["ares"] == found["testbed"]
    assert found["scale"] == ("philly-like",)  # By conf/scenario/scale-v3.yaml.
    other = BoardScenario(name="mine", overrides=["trace=file", "trace.path=a.csv"])
    assert (other.family, BoardScenario(name="mine", overrides=[]).family) == ("file a.csv", "mine")


def test_boards_say_how_often_their_placer_moves_jobs():
    """An entry's log holds only with the moves of its board, which no default of a placer may change."""
    from clustergym.common.paths import PACKAGE
    from clustergym.common.yaml_file import read_mapping

    boards = [read_mapping(path).content for path in (PACKAGE.parent / "leaderboards").glob("*/board.yaml")]
    placers = [board["placer"] for board in boards if board.get("placer")]
    assert len(placers) >= 6
    assert all(placer["defragment_s"] == 3600.0 for placer in placers)
