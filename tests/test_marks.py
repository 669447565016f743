"""What `pytest` runs without a flag, with a folder, with a mark and with `--lf`."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two tests of the core, one of which fails, one of the training and one of the wheel."""
    (tmp_path / "tests" / "training").mkdir(parents=True)
    shutil.copy(TESTS / "conftest.py", tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_core.py").write_text(
        "def test_fails(): assert 0\n\ndef test_passes(): pass\n"
    )
    (tmp_path / "tests" / "training" / "test_network.py").write_text(
        "open('imported', 'w').close()\ndef test_trains(): pass\n"
    )
    (tmp_path / "tests" / "test_install.py").write_text("def test_installs(wheel): pass\n")
    return tmp_path


def passed_and_failed(checkout: Path, *arguments: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-o", "addopts=-q --import-mode=importlib"]
    done = subprocess.run([*command, "-rA", *arguments], cwd=checkout, capture_output=True, text=True)
    return set(re.findall(r"^(?:PASSED|FAILED) \S+::(\w+)", done.stdout, re.MULTILINE))


@pytest.mark.processes
def test_without_a_flag_the_core_runs_and_then_what_failed(checkout: Path) -> None:
    assert passed_and_failed(checkout) == {"test_fails", "test_passes"}
    assert passed_and_failed(checkout, "--lf") == {"test_fails"}
    assert not (checkout / "imported").exists()


@pytest.mark.processes
def test_a_folder_or_a_mark_that_is_named_runs(checkout: Path) -> None:
    assert passed_and_failed(checkout, "tests", "--deselect", "tests/test_install.py") == {
        "test_fails",
        "test_passes",
        "test_trains",
    }
    assert passed_and_failed(checkout, "-m", "training") == {"test_trains"}


@pytest.mark.processes
def test_a_cache_that_cannot_be_written_is_no_failure(checkout: Path) -> None:
    (checkout / "file").write_text("")
    assert passed_and_failed(checkout, "-o", "cache_dir=file/cache") == {"test_fails", "test_passes"}


def test_marks_are_registered_described_and_name_tests_that_exist(request: pytest.FixtureRequest) -> None:
    registered = {line.partition(":")[0] for line in OPTIONS["markers"]}
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "testing.md").read_text(), re.MULTILINE)
    (conftest,) = (
        one for one in request.config.pluginmanager.get_plugins() if getattr(one, "MARKS", None) is not None
    )
    assert {*registered, "hypothesis"} == set(table) == {*conftest.MARKS, "browser", "hypothesis", "wheel"}
    assert [
        place for places in conftest.MARKS.values() for place in places if not (TESTS / place).exists()
    ] == []
