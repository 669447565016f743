"""A search that changes a program: what it begins with, what a change may do, and what it writes."""

import ast
import random
import sys
from types import ModuleType, SimpleNamespace

import pytest
from example_files import ROOT, import_file

SEED = ROOT / "examples" / "program_to_evolve.py"


@pytest.fixture(scope="module")
def evolve():
    return import_file("examples/evolve_a_policy.py")


def test_it_begins_with_srtf(evolve) -> None:
    assert evolve.evaluate(str(SEED), 1)["combined_score"] == pytest.approx(1.0, rel=1e-9)


def test_openevolve_gets_numbers_and_texts(evolve, monkeypatch) -> None:
    given = ModuleType("openevolve.evaluation_result")
    given.EvaluationResult = SimpleNamespace
    monkeypatch.setitem(sys.modules, "openevolve", ModuleType("openevolve"))
    monkeypatch.setitem(sys.modules, given.__name__, given)
    found = evolve.evaluate(str(SEED), 1)
    assert found.metrics["combined_score"] == pytest.approx(1.0, rel=1e-9)
    assert all(isinstance(one, float | int) for one in found.metrics.values())
    assert "waited" in found.artifacts["worst_jobs"]


def test_changes_stay_between_the_marks_and_are_python(evolve) -> None:
    text = SEED.read_text(encoding="utf-8")
    before, _, after = (evolve.BLOCK.split(text)[at] for at in (0, 2, 4))
    found = set()
    for seed in range(200):
        changed = evolve.mutate(text, random.Random(seed))
        ast.parse(changed)
        assert changed.startswith(before)
        assert changed.endswith(after)
        assert evolve.mutate(text, random.Random(seed)) == changed
        found.add(changed)
    assert len(found) > 150


def test_the_search_improves_its_seed_and_writes_a_package(evolve, tmp_path, monkeypatch, capsys) -> None:
    """The second program that it tries lets jobs take other types than they ask for."""
    evaluate = evolve.evaluate
    monkeypatch.setattr(evolve, "evaluate", lambda path, traces: evaluate(path, traces or 3))
    assert evolve.main(["--programs", "2", "--out", str(tmp_path / "best")]) == 0
    printed = capsys.readouterr().out
    assert "seed: combined_score 1.0000" in printed
    assert "program 2: 1.1657" in printed
    assert (tmp_path / "best" / "evolved.py").read_text(encoding="utf-8") != SEED.read_text(encoding="utf-8")
    assert 'evolved = "evolved:Evolved"' in (tmp_path / "best" / "pyproject.toml").read_text(encoding="utf-8")


def test_a_program_without_marks_is_refused(evolve, tmp_path, capsys) -> None:
    (tmp_path / "plain.py").write_text("x = 1\n", encoding="utf-8")
    assert evolve.main(["--program", str(tmp_path / "plain.py")]) == 2
    assert "has no marks" in capsys.readouterr().err


def test_the_stand_in_answers_with_a_program(evolve) -> None:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    model = evolve.StandIn(SimpleNamespace(name="stand-in", random_seed=1))
    prompt = f"# Current program\n```python\n{SEED.read_text(encoding='utf-8')}```\nImprove it."
    # In a thread of its own: where a browser was opened before, this one has a loop already.
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: asyncio.run(model.generate(prompt))).result()
    assert answer.startswith("```python\n")
    ast.parse(answer.removeprefix("```python\n").removesuffix("```"))
