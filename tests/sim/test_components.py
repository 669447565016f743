"""The simulation is made of parts: small classes, of which none reaches for another's private names.

The rest of the house obeys the same limits.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("clustergym", "policies")
MOST_METHODS, MOST_LINES = 25, 400
MOST_LINES_OF_FUNCTION, MOST_LINES_OF_FILE = 80, 600

PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit"}
"""Names that are no secret in spite of their underscore: those of named tuples, and `os._exit`."""

OF_LIBRARIES = {
    *("_cache", "_impl_class", "_locator_classes", "_load_configuration_impl"),
    *("_setup_lr_schedule", "_last_obs", "_total_timesteps", "_seeds"),
}
"""Private names of Numba's cache, Hydra's loader and Stable-Baselines3, which have no public ones."""


class Class(NamedTuple):
    """A class of the house; `names` are those that it defines, `bases` as (module, name)."""

    module: str
    node: ast.ClassDef
    bases: tuple[tuple[str, str], ...]
    names: frozenset[str]

    @property
    def methods(self) -> set[str]:
        return {step.name for step in self.node.body if isinstance(step, ast.FunctionDef)}

    @property
    def lines(self) -> int:
        return (self.node.end_lineno or 0) - self.node.lineno + 1


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_") and name not in PUBLIC | OF_LIBRARIES


def is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def names_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield what a class defines: its methods and fields, and the attributes that its methods set."""
    for step in node.body:
        if isinstance(step, ast.FunctionDef | ast.ClassDef):
            yield step.name
    for step in ast.walk(node):
        if isinstance(step, ast.Attribute) and isinstance(step.ctx, ast.Store) and is_own(step.value):
            yield step.attr
    for step in node.body:
        targets = step.targets if isinstance(step, ast.Assign) else [getattr(step, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def imported(tree: ast.Module, module: str) -> dict[str, tuple[str, str]]:
    """Return where each name that a module imports is from: (module, name there)."""
    found = {}
    for step in ast.walk(tree):
        if isinstance(step, ast.ImportFrom):
            above = module.split(".")[: -step.level] if step.level else []
            origin = ".".join([*above, *filter(None, [step.module])])
            origin = origin.replace("clustergym.policies", "policies")
            found |= {alias.asname or alias.name: (origin, alias.name) for alias in step.names}
    return found


@cache
def trees() -> dict[str, ast.Module]:
    """Return every file of the house, by its module."""
    files = (file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py")))
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): ast.parse(file.read_text()) for file in files
    }


@cache
def classes() -> dict[tuple[str, str], Class]:
    found = {}
    for module, tree in trees().items():
        origins = imported(tree, module)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                named = [base.id for base in bases if isinstance(base, ast.Name)]
                resolved = tuple(origins.get(name, (module, name)) for name in named)
                found[module, node.name] = Class(module, node, resolved, frozenset(names_of(node)))
    return found


def lineage(one: Class) -> list[Class]:
    """Return a class and all classes of the house that it derives from."""
    line, at = [one], 0
    while at < len(line):
        bases = (classes().get(base) for base in line[at].bases)
        line += [base for base in bases if base is not None and base not in line]
        at += 1
    return line


def large_classes() -> set[str]:
    large = set()
    for (module, name), one in classes().items():
        line = lineage(one)
        methods = set[str]().union(*(of.methods for of in line))
        if len(methods) > MOST_METHODS or sum(of.lines for of in line) > MOST_LINES:
            large.add(f"{module}.{name}")
    return large


def uses() -> list[str]:
    """Return where files use private names of other objects or of bases, as `module:line name`."""
    found = []
    for module, tree in trees().items():
        for step in ast.walk(tree):
            if isinstance(step, ast.Attribute) and is_private(step.attr) and not is_own(step.value):
                found.append(f"{module}:{step.lineno} {step.attr}")
    for one in classes().values():
        of_bases = set[str]().union(*(base.names for base in lineage(one)[1:])) - one.names
        of_bases = {name for name in of_bases if is_private(name)}
        for step in ast.walk(one.node) if of_bases else ():
            if isinstance(step, ast.Attribute) and step.attr in of_bases and is_own(step.value):
                found.append(f"{one.module}:{step.lineno} {step.attr}")
    return found


def test_no_class_is_large():
    assert large_classes() == set(), f"with its bases, more than {MOST_METHODS} methods or {MOST_LINES} lines"


def test_private_names_are_used_by_their_class_alone():
    assert uses() == [], "module, line and private name of another class"


def test_no_function_and_no_file_is_long():
    long = [
        f"{module}.{step.name}"
        for module, tree in trees().items()
        for step in ast.walk(tree)
        if isinstance(step, ast.FunctionDef) and step.end_lineno - step.lineno >= MOST_LINES_OF_FUNCTION
    ]
    assert long == []
    files = {file: file.read_text().count("\n") for room in ROOMS for file in (ROOT / room).rglob("*.py")}
    assert [str(file) for file, lines in files.items() if lines > MOST_LINES_OF_FILE] == []
