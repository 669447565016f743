"""The metadata of the data, the lists' entries and the container's recipe are what their readers demand."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent

RAI = ("dataLimitations", "dataBiases", "personalSensitiveInformation", "dataUseCases", "dataSocialImpact")
RAI += ("hasSyntheticData",)


@pytest.fixture
def maker(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("croissant")


def test_metadata_are_current(maker):
    written = json.loads((ROOT / "croissant.json").read_text(encoding="utf-8"))
    assert written == maker.describe_data(), "run `python benchmarks/croissant.py`"
    required = {"name", "description", "url", "license", "version", "datePublished", "creator", "citeAs"}
    required |= {f"rai:{name}" for name in RAI} | {"prov:wasDerivedFrom", "prov:wasGeneratedBy"}
    assert required <= set(written)
    for file in written["distribution"]:
        assert (ROOT / file["contentUrl"]).is_file()
        assert {"@id", "name", "contentUrl", "encodingFormat", "sha256"} <= set(file)
    files = {file["@id"] for file in written["distribution"]}
    for records in written["recordSet"]:
        (source,) = {field["source"]["fileObject"]["@id"] for field in records["field"]}
        assert source in files
        columns = [field["source"]["extract"]["column"] for field in records["field"]]
        assert columns == maker.read_rows(ROOT / source)[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:rdflib", "ignore::DeprecationWarning:mlcroissant")
def test_mlcroissant_takes_the_metadata_and_reads_every_row(maker):
    croissant = pytest.importorskip("mlcroissant", reason="pip install mlcroissant")
    command = [sys.executable, "-m", "mlcroissant.scripts.cli", "validate", "--jsonld", "croissant.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, re.findall(r"(?i)warning|error", done.stderr)) == (0, [])
    data = croissant.Dataset(jsonld=str(ROOT / "croissant.json"))
    written = maker.describe_data()
    for file, records in zip(written["distribution"], written["recordSet"], strict=True):
        rows = maker.read_rows(ROOT / file["@id"])
        assert sum(1 for _ in data.records(records["@id"])) == len(rows) - 1


def entries():
    text = (ROOT / "docs" / "third-party-entries.md").read_text(encoding="utf-8")
    return re.findall(r"```markdown\n(.*?)```", text, re.DOTALL)


def test_the_entries_have_the_form_of_the_lists():
    gymnasium, pettingzoo = entries()
    badge = r"!\[Gymnasium version dependency\]\(\S+Gymnasium-v(\S+)-blue\)"
    pattern = r"- \[[\w-]+: [^\]]+\]\(https://\S+\)\n\n  " + badge + "\n"
    (version,) = re.findall(pattern, gymnasium)
    said = gymnasium.split("\n\n")[-1]
    assert 2 <= len(re.findall(r"\.\s", said)) <= 5
    (other,) = re.findall(
        r"### \[\w+\]\(https://\S+\)\n\n\[!\[PettingZoo version dependency\]\(\S+PettingZoo-v(\S+)-blue\)",
        pettingzoo,
    )
    pinned = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").lower().split()
    assert {f"gymnasium=={version}", f"pettingzoo=={other}"} <= set(pinned)


def test_the_container_runs_the_first_command_with_locked_versions():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    found = dict(lines)
    assert [word for word, _ in lines] == ["FROM", "WORKDIR", "COPY", "ENV", "RUN", "ENTRYPOINT", "CMD"]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", found["FROM"])
    assert json.loads(found["ENTRYPOINT"]) == ["python", "-m", "clustergym.run"]
    assert json.loads(found["CMD"]) == ["policy=arena"]
    assert found["COPY"] == ". ."
    assert f"PIP_CONSTRAINT={found['WORKDIR']}/.ci/constraints.txt" in found["ENV"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extra = re.fullmatch(r"pip install -e '\.\[(\w+)\]'", found["RUN"])[1]
    needed = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"][extra]]
    names = {Requirement(line).name.lower() for line in needed} - {"clustergym"}
    locked = dict(line.lower().split("==") for line in (ROOT / ".ci/constraints.txt").read_text().split())
    assert names <= set(locked)
