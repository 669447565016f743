"""What readers do not use is counted once, printed by the command, and stored with `--json`."""

import contextlib
import json
from pathlib import Path

from clustergym.commands.cluster import main as cluster_main
from clustergym.common.errors import exits_on_bad_input
from clustergym.common.left_out import MOST_NAMES, leave_out, not_modelled, not_read, recording, with_notes
from clustergym.common.writing import write_json


def note_some() -> None:
    leave_out("job", "ran 0 s")
    leave_out("job", "ran 0 s", 2)
    leave_out("job", "none of these", 0)
    not_modelled(["PreemptType"])
    not_read(["a", "b\u202e", "known"], ["known"])


def test_lines_and_figures():
    note_some()  # Nobody records: nothing happens.
    with recording() as notes:
        note_some()
    assert notes.lines() == ["left out 3 jobs: ran 0 s", "not modelled: PreemptType", r"not read: a, b\u202e"]
    assert notes.figures() == {
        "left_out": {"job: ran 0 s": 3},
        "not_modelled": {"PreemptType": 1},
        "not_read": {"a": 1, r"b\u202e": 1},
    }


def test_what_is_noted_inside_counts_outside():
    with recording() as outer, contextlib.suppress(ValueError), recording() as inner:
        not_read(["a"])
        int("a")
    assert inner.lines() == outer.lines() == ["not read: a"]


def test_a_file_that_is_read_again_counts_once():
    with recording() as outer:
        for _ in range(2):
            with recording("jobs.csv"):
                leave_out("job", "ran 0 s")
        with recording("other.csv"):
            leave_out("job", "ran 0 s")
    assert outer.lines() == ["left out 2 jobs: ran 0 s"]


def test_names_are_few_and_short():
    with recording() as notes:
        not_read([f"{number}" + "x" * 200 for number in range(2 * MOST_NAMES)])
    assert len(notes.not_read) == MOST_NAMES
    (line,) = notes.lines()
    assert line.endswith("… and 988 more")
    assert len(line) < 1200


def test_a_command_prints_and_stores_notes(tmp_path: Path, capsys):
    path = tmp_path / "out.json"

    @exits_on_bad_input
    def inner() -> int:
        note_some()
        return 0

    @exits_on_bad_input
    def command() -> int:
        inner()
        write_json(path, {"jobs": 1})
        write_json(tmp_path / "other.json", {"jobs": 1}, "--output")
        return 3

    assert command() == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[0] == "left out 3 jobs: ran 0 s"
    assert len(printed.err.splitlines()) == 3
    assert json.loads(path.read_text())["not_used"]["left_out"] == {"job: ran 0 s": 3}
    assert json.loads((tmp_path / "other.json").read_text()) == {"jobs": 1}
    assert with_notes([1]) == [1]


def test_an_import_names_what_it_leaves_out(tmp_path: Path, capsys):
    nodes = tmp_path / "nodes.yaml"
    lines = [
        "kind: Node", "metadata: {name: n1, labels: {nvidia.com/gpu.product: NVIDIA-A40}}",
        'status: {capacity: {nvidia.com/gpu: "4", nvidia.com/mig-1g.5gb: "7", example.com/fpga: "1"}}',
    ]  # fmt: skip
    nodes.write_text("\n".join(lines))
    words = ["import", str(nodes), "-o", str(tmp_path / "c.yaml"), "--json", str(tmp_path / "r.json")]
    assert cluster_main(words) == 0
    assert capsys.readouterr().err.splitlines() == [
        "left out 1 node: its nvidia.com/mig-1g.5gb are parts of GPUs, which are not counted",
        "not read: resource example.com/fpga",
    ]
    stored = json.loads((tmp_path / "r.json").read_text())
    assert stored["gpus"] == {"A40": 4}
    assert stored["not_used"]["not_read"] == {"resource example.com/fpga": 1}
