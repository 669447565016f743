"""Which functions of the package open files that users bring: found in its source."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPENERS = {
    "clustergym.common.reading": {"opened", "read_regular", "read_json", "read_json_lines"},
    "clustergym.common.text_files": {"read_bytes", "read_text", "first_lines", "read_csv"},
    "clustergym.common.yaml_file": {"read_mapping"},
}
"""What opens a file, by module."""


def file_readers() -> dict[tuple[str, str], str]:
    """Return the functions that call an opener: (file, qualified name) to the opener's name."""
    found: dict[tuple[str, str], str] = {}
    for folder in ("clustergym", "policies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent != ROOT / "clustergym" / "common":
                tree = ast.parse(path.read_text(encoding="utf-8"))
                names = _imported(tree)
                found |= {
                    (str(path.relative_to(ROOT)), name): opener for name, opener in _calls(tree, names, "")
                }
    return found


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the openers that a module imports, anywhere in it, by the names it gives them."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in OPENERS.get(node.module or "", ())
    }


def _calls(node: ast.AST, names: dict[str, str], inside: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        within = inside
        if isinstance(child, ast.FunctionDef):
            within = f"{inside}{child.name}"
            called = [one.func.id for one in _own(child) if isinstance(one.func, ast.Name)]
            yield from ((within, names[name]) for name in called if name in names)
            within += ".<locals>."
        elif isinstance(child, ast.ClassDef):
            within = f"{inside}{child.name}."
        yield from _calls(child, names, within)


def _own(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """Yield the calls in a function but not in those defined in it."""
    rest: list[ast.AST] = list(function.body)
    while rest:
        node = rest.pop()
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, ast.FunctionDef):
            rest += ast.iter_child_nodes(node)
