"""The table of the layers in docs/architecture.md is the contract that `lint-imports` keeps."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_shows_the_layers_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    clients = layers.pop(0)
    assert {name.strip() for name in clients.split("|")} == {
        "clustergym.bench", "clustergym.operators", "clustergym.papers"
    }  # fmt: skip
    kept = [{name.strip().removeprefix("clustergym.") for name in layer.split("|")} for layer in layers]
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    shown: dict[int, set[str]] = {}
    for number, package in rows:
        shown.setdefault(int(number), set()).add(package)
    assert list(shown) == list(range(len(layers), 0, -1))
    assert list(shown.values()) == kept


def test_each_package_has_its_main_type_where_the_page_says() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(
        r"^\| \d+ \| `(\w+)` \|[^|]*\| `(\w+)` \| \[[^]]*\]\(\.\./([^)]*)\) \|", text, re.MULTILINE
    )
    assert len(rows) == 13
    for package, name, file in rows:
        assert package in Path(file).parts
        assert re.search(rf"^(class|def) {name}\b", (ROOT / file).read_text(), re.MULTILINE), file
    walks = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text.partition("## A run")[2])
    assert len(walks) > 20
    assert all(
        (ROOT / ("" if one.startswith(("policies/", "operators/")) else "clustergym") / one).is_file()
        for one in walks
    )


def test_every_package_has_a_layer() -> None:
    packages = {path.parent.name for path in (ROOT / "clustergym").glob("*/__init__.py")}
    files = {path.stem for path in (ROOT / "clustergym").glob("*.py")}
    shown = set(re.findall(r"`(?:clustergym\.)?(\w+)`", (ROOT / "docs/architecture.md").read_text()))
    assert (packages | files) - {"__init__", "__main__"} <= shown
