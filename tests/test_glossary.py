"""The glossary names what is there; functions are verbs, classes no metaphors."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(
    r"(?m)^\| ([^|]+) \| [^|]+ \| `(clustergym[\w.]+)` \|$", (ROOT / "docs/glossary.md").read_text()
)
ROOMS = ("clustergym", "policies", "papers", "operators")
FILES = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
METAPHORS = {"Book", "Course", "Desk", "Dues", "Facts", "Happenings", "Remembered", "Rota", "Standing"}
METAPHORS |= {"Takings"}
PREPOSITIONS = {"at", "by", "for", "from", "in", "of", "on", "to", "with", "within", "without"}
PARTICIPLES = re.compile(r"(?:[a-z]+(?<!e)ed|begun|built|drawn|found|held|kept|known|made|shown|told)$")
NOT_PARTICIPLES = {"seed", "speed"}
EXCEPTIONS = {"expected", "of", "paired"}
"""Public names still to change; policies of others call `Decision.of` and `Decision.paired`."""
KINDS = {
    "common/kubernetes.py": "a Kubernetes object's kind",
    "operators/policies/cohorts.py": "a Kubernetes object's kind",
    "trace/readers/kueue.py": "a Kubernetes object's kind",
    "cluster/schema.py": "`link_kind`, a key of clusters' files",
    "cluster/spec.py": "`link_kind`",
    "commands/cluster.py": "`link_kind`",
    "oracle/models/catalog.py": "`kind`, a key of models' files",
}
"""Modules with an identifier `kind`, and what it is there; everything else has its own name."""
KIND_LINES = 56
"""Lines with the word, in prose and in stored keys: events' and measurements' files have a column `kind`."""


def functions():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if public and not any("property" in ast.unparse(one) for one in node.decorator_list):
                yield path.relative_to(ROOT), node.name


def test_there_are_at_most_60_terms():
    assert 30 <= len(ROWS) <= 60
    assert len({term for term, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize("name", [name for _, name in ROWS])
def test_every_term_is_in_the_code(name):
    module, _, thing = name.rpartition(".")
    assert hasattr(importlib.import_module(module), thing)


def test_no_public_function_is_a_bare_participle_or_ends_in_a_preposition():
    allowed = EXCEPTIONS | NOT_PARTICIPLES
    wrong = {
        (str(path), name)
        for path, name in functions()
        if name not in allowed and (PARTICIPLES.fullmatch(name) or name.rpartition("_")[2] in PREPOSITIONS)
    }
    assert len(wrong) <= 9, sorted(wrong)


def test_no_class_is_a_metaphor():
    classes = {
        node.name.lstrip("_")
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert not classes & METAPHORS


NOT_OURS = re.compile(r"dtype\.kind|\bkind=\"(?:stable|mergesort)\"")
"""Names of NumPy's."""


def own_text(path):
    return NOT_OURS.sub(lambda match: match.group().replace("kind", "numpys"), path.read_text())


def test_kind_names_nothing_but_what_files_call_so():
    found = set()
    for path in FILES:
        for node in ast.walk(ast.parse(own_text(path))):
            names = (getattr(node, field, None) for field in ("id", "attr", "name", "arg"))
            if any(isinstance(name, str) and "kind" in name.lower() for name in names):
                found.add(path.relative_to(ROOT).as_posix().removeprefix("clustergym/"))
    assert found == set(KINDS)


def test_kind_does_not_spread():
    lines = (line for path in FILES for line in own_text(path).splitlines())
    assert sum("kind" in line.lower() for line in lines) <= KIND_LINES
