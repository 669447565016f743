"""CI holds the verdicts of quick comparisons against those that are written down."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("quick_verdicts", ROOT / ".ci" / "quick_verdicts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "EXPECTED", tmp_path / "expected.json")
    module.EXPECTED.write_text(json.dumps({"sia": {"mean JCT (Fig. 1)": "reproduced"}}))
    return module


def comparison(folder, **verdicts):
    rows = [{"claim": claim, "source": "Fig. 1", "verdict": verdict} for claim, verdict in verdicts.items()]
    path = folder / "sia.json"
    path.write_text(json.dumps({"paper": "sia", "claims": rows}))
    return str(path)


def test_another_verdict_is_a_line_and_a_failure(script, tmp_path, capsys):
    assert script.main([comparison(tmp_path, **{"mean JCT": "reproduced"})]) == 0
    capsys.readouterr()
    path = comparison(tmp_path, **{"mean JCT": "reversed", "makespan": "reproduced"})
    assert script.main([path]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "sia: makespan (Fig. 1): reproduced, expected no such claim",
        "sia: mean JCT (Fig. 1): reversed, expected reproduced",
    ]
    assert script.main([path, "--write"]) == 0
    assert script.main([path]) == 0


def test_a_claim_that_is_gone_is_a_failure(script, tmp_path, capsys):
    assert script.main([comparison(tmp_path)]) == 1
    assert "no such claim, expected reproduced" in capsys.readouterr().out
