"""Every command and file of docs/, used as a reader would; and the site builds without a warning."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from clustergym import __main__ as console

ROOT = Path(__file__).parent.parent
PAGES = (
    "tutorial.md",
    "own-trace-and-cluster.md",
    "sweeps.md",
    "contention-failures-reservations.md",
    "pretraining.md",
    "leaderboards.md",
    "reports.md",
)
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


# Optuna warns of what of it is experimental or old.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page, tmp_path, monkeypatch, capfd):
    if page == "sweeps.md":
        pytest.importorskip(
            "hydra_plugins.hydra_optuna_sweeper", reason="pip install 'clustergym[sweep,tune]'"
        )
        pytest.importorskip(
            "hydra_plugins.hydra_joblib_launcher", reason="pip install 'clustergym[sweep,tune]'"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    blocks = BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert sum(kind == "sh" for kind, _, _ in blocks) >= 2
    for kind, title, text in blocks:
        if title:
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(text, encoding="utf-8")
        if kind == "sh":
            for line in text.splitlines():
                command, *arguments = shlex.split(line)
                assert (command, console.main(arguments)) == ("clustergym", 0), line
        if title == "compare.py":
            capfd.readouterr()
            runpy.run_path(title)
            assert re.findall(r"(\S+): mean JCT", capfd.readouterr().out) == ["fcfs", "las", "smallest-first"]


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: pip install 'clustergym[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    for page in ("policies/arena", "commands", "api", "tutorial"):
        assert (tmp_path / "site" / page / "index.html").stat().st_size > 5000
