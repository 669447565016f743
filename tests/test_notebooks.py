"""Notebooks of docs/ run, and print what they were saved with."""

import copy
import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))
LARGEST_BYTES = 200_000


def outputs(notebook):
    """Return what each cell of code prints, and the kinds of what it shows else.

    The kernel cuts what a cell prints into messages by the clock: they are joined.
    """
    found = []
    for cell in notebook.cells:
        shown = cell.get("outputs", ())
        printed = "".join(output.text for output in shown if output.output_type == "stream")
        kinds = [sorted(output.get("data", ())) for output in shown if output.output_type != "stream"]
        found += [(cell["id"], part) for part in (printed, *kinds) if part]
    return found


# The kernel's own libraries warn.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_it_was_saved_with(path, tmp_path, monkeypatch):
    nbclient = pytest.importorskip(
        "nbclient", reason="nbclient is not installed: pip install 'clustergym[dev]'"
    )
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install 'clustergym[dev]'")
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed: pip install 'clustergym[report]'")
    nbformat = importlib.import_module("nbformat")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    saved = nbformat.read(path, as_version=4)
    nbformat.validate(saved)
    again = copy.deepcopy(saved)
    for cell in again.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell["outputs"] = []
    nbclient.NotebookClient(again, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [*tmp_path.iterdir()] == []
    assert outputs(again) == outputs(saved)
    assert len(outputs(saved)) > 5


def test_there_is_a_notebook_and_it_is_small():
    assert [path.name for path in NOTEBOOKS] == ["thirty-minutes.ipynb"]
    assert all(path.stat().st_size < LARGEST_BYTES for path in NOTEBOOKS)


def test_a_notebook_has_a_page_with_its_outputs(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    pages = importlib.import_module("notebook_pages").notebook_pages()
    page = pages["thirty-minutes.md"]
    assert page.startswith("# Thirty minutes with clustergym\n")
    assert "; 1298 figures, none better than its bound\n```" in page
    (picture,) = [content for name, content in pages.items() if name.endswith(".png")]
    assert picture.startswith(b"\x89PNG")
