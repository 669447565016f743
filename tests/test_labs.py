"""The exercises of docs/lab: with the solutions all checks pass, without any one of them some check fails."""

import importlib
import json
from pathlib import Path

import pytest

LAB = Path(__file__).parent.parent / "docs" / "lab"
LABS = sorted(LAB.glob("*.ipynb"))


def cells(path):
    return [
        cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"
    ]


EXERCISES = [
    (path, at) for path in LABS for at, cell in enumerate(cells(path)) if "solution" in cell["metadata"]
]


def run(path, unsolved):
    """Run the cells of a lab with the solutions, but for one."""
    space = {"__name__": "lab"}
    for at, cell in enumerate(cells(path)):
        own = "".join(cell["source"])
        text = own if at == unsolved else cell["metadata"].get("solution", own)
        # What does not learn does not in one generation either.
        text = text.replace("generations=6", "generations=1")
        exec(compile(text, f"{path.name}, cell {at}", "exec", dont_inherit=True), space)


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_the_solutions_pass_every_check(path, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="pip install 'clustergym[dev]'")
    pytest.importorskip("ipykernel", reason="pip install 'clustergym[dev]'")
    if "Knobs" in path.read_text(encoding="utf-8"):
        pytest.importorskip("numba", reason="pip install 'clustergym[learn]'")
    monkeypatch.setenv("PYTHONPATH", str(LAB.parents[1]))
    notebook = importlib.import_module("nbformat").read(path, as_version=4)
    for cell in notebook.cells:
        # Half of the generations are enough for every check.
        text = cell["metadata"].get("solution", cell["source"]).replace("generations=6", "generations=3")
        cell["source"] = text
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(("path", "at"), EXERCISES, ids=lambda value: getattr(value, "stem", str(value)))
def test_a_lab_notices_what_is_not_solved(path, at, tmp_path, monkeypatch):
    if "Knobs" in path.read_text(encoding="utf-8"):
        pytest.importorskip("numba", reason="pip install 'clustergym[learn]'")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError):
        run(path, at)


def test_labs_are_saved_without_outputs_and_with_exercises():
    assert {path for path, _ in EXERCISES} == set(LABS)
    assert all(cell["outputs"] == [] for path in LABS for cell in cells(path))
