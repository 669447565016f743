"""What a command ends in: its status, and one line on stderr."""

import io
import sys
from pathlib import Path

import pytest

from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.kubernetes import KubernetesObject
from clustergym.common.reading import read_json_lines
from clustergym.scenario.configuration.hydra_edge import _one_line

ENDS = {
    "bad input": (
        InputError("is wrong", file="a.csv", line=3, field="gpus", remedy="give 1"),
        2,
        "error: a.csv:3: gpus: is wrong (give 1)\n",
    ),
    "no memory": (
        MemoryError("8 GiB asked for"),
        2,
        "error: out of memory: 8 GiB asked for (give fewer jobs or processes, or more memory)\n",
    ),
    "Ctrl-C": (KeyboardInterrupt(), 130, "interrupted\n"),
    "nobody reads": (BrokenPipeError(), 0, ""),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_command_ends_in_a_status_and_a_line(name, monkeypatch):
    error, status, line = ENDS[name]
    printed = []

    class Stderr(io.StringIO):
        def close(self):
            if not self.closed:
                printed.append(self.getvalue())
            super().close()

    monkeypatch.setattr(sys, "stderr", Stderr())

    @exits_on_bad_input
    def command():
        raise error

    assert command() == status
    sys.stderr.close()
    assert printed[0] == line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError("8 GiB asked for"), "out of memory: 8 GiB asked for (give fewer jobs or processes, or"),
        (SystemExit(3), "the run: called sys.exit(3) (a policy, or a module it imports, must not exit)"),
        (
            OSError(28, "No space left on device", "out"),
            "out: cannot be written: No space left on device (ch",
        ),
    ],
)
def test_what_ends_a_run_is_told_in_a_line(error, line):
    assert str(_one_line(error, [])).startswith(line)


@pytest.mark.parametrize("name", ["missing.gz", "folder"])
def test_the_remedy_of_a_file_that_cannot_be_read_is_told(name, tmp_path):
    (tmp_path / "folder").mkdir()
    lines = read_json_lines(
        tmp_path / name, largest_bytes=9, longest_line_bytes=9, remedy="take another copy"
    )
    with pytest.raises(InputError, match=rf"{name}: cannot be read: .* \(take another copy\)$"):
        next(lines)


def test_a_value_of_another_kind_is_quoted():
    node = KubernetesObject(Path("nodes.json"), {"kind": "Node", "metadata": {"name": "n1"}, "spec": [7, 8]})
    told = r"nodes.json: Node n1: spec: is of another type than expected: '\[7, 8\]'"
    with pytest.raises(InputError, match=told):
        node.get("spec", dict, {})
