"""Files that are no regular files, links, long names, and standard output that nobody reads."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from clustergym.common.errors import InputError
from clustergym.common.writing import write_json, write_text


def test_devices_stay_and_links_keep_their_targets(tmp_path: Path) -> None:
    write_json(Path("/dev/null"), {"a": 1})
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(InputError, match="/dev/full: --json: cannot be written: No space left"):
        write_json(Path("/dev/full"), {"a": 1})
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: --out: cannot be written"):
        write_text(tmp_path / "pipe", "x", "--out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "target"]


NAMES = [("", "is a folder"), (".", "is a folder"), ("n" * 300, "too long")]
FULL = "error: standard output: cannot be written: No space left on device"


@pytest.mark.parametrize(("name", "what"), NAMES)
def test_names_of_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=what):
        write_text(Path(name), "x")
    write_text(Path("n" * 255), "x")
    assert [path.name for path in tmp_path.iterdir()] == ["n" * 255]


@pytest.mark.parametrize(
    ("shell", "status", "error"),
    [
        ("{} --json out.json | head -1", 0, ""),
        ("{} --json out.json > /dev/full", 2, FULL),
        ("{} --json out.json >&-", 0, ""),
        ("{} --json /dev/stdout > out.json.all; tail -n +1 out.json.all | head -20 > out.json", 0, ""),
    ],
)
def test_a_command_goes_on_when_it_cannot_print(tmp_path: Path, shell: str, status: int, error: str) -> None:
    command = f"{sys.executable} -m clustergym cluster describe arena-b"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell.format(command)}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (status, error)
    text = (tmp_path / "out.json").read_text()
    assert text.startswith('{\n  "name": "arena-b"')
    if "stdout" not in shell:
        assert json.loads(text)["gpus"] == 384
