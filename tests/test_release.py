"""A release: what is built, what it needs, and what is said of it."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import clustergym

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSIONS = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")


def test_every_extra_is_documented():
    rows = re.findall(r"^\| (`[^|]+) \|", VERSIONS.split("## Extras")[1], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(PROJECT["optional-dependencies"])


def test_the_changelog_has_the_version_that_is_built():
    titles = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert titles[0] == clustergym.__version__
    assert len(set(titles)) == len(titles)


def test_the_wheel_is_typed_and_holds_the_package_only(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    needed = {"py.typed", "results/report/player.html", "_data/conf/study.yaml"}
    assert {f"clustergym/{name}" for name in needed} <= set(names)
    folders = {"clustergym", f"clustergym-{clustergym.__version__}.dist-info"}
    assert {name.split("/")[0] for name in names} == folders
    assert not [name for name in names if re.search(r"/tests?/|\.pyc$|\.ipynb$", name)]
    assert wheel.stat().st_size < 3_000_000


@pytest.mark.processes
@pytest.mark.parametrize("check", [["twine", "check", "--strict"], ["check_wheel_contents"]])
def test_the_wheel_passes_the_usual_checks(check, wheel):
    pytest.importorskip(check[0], reason=f"{check[0]} is not installed: pip install 'clustergym[dev]'")
    command = [sys.executable, "-W", "ignore", "-m", *check, str(wheel)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_site_is_made_for_several_versions():
    assert "version: {provider: mike}" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
