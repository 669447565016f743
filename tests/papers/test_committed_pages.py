"""The committed pages and claims of papers are those that the code makes, whatever figures the runs have."""

import hashlib
import importlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clustergym.papers.claims import NOT_RUN
from clustergym.papers.reproduction import Options, RunSpec, summarise_run
from published_data import DATA, needs
from scenarios import Job, small_scenario

from clustergym.papers import ares_looks, ares_runs, reproduction
from clustergym.results.measured_run import simulate
from clustergym.scenario.registry import make_placer, make_policy

PAGES = Path(__file__).parents[2] / "docs" / "reproduction"
OURS = ("fair", "as_published", "neutral", "verdict", "why", "rests_on")
"""What a claim's row says of our runs."""


@pytest.fixture(scope="module")
def names() -> list[str]:
    """The names of all figures of a run."""
    scenario = small_scenario([Job("a", 0, 10, 1)], {"A100": (1, 4)}, {("A100", 1): 1.0})
    result = simulate(scenario, make_policy({"name": "fcfs"}), make_placer({"name": "buddy"}), 0)
    return [*result.metrics, *summarise_run(result)]


class Counters(dict[str, float]):
    """Whatever a policy counts."""

    def __missing__(self, name: str) -> float:
        return 3.0


def make_up(spec: RunSpec, names: Iterable[str]) -> dict[str, Any]:
    """Return made-up figures of a run, between 100 and 200, the same in each process."""
    value = 100 * (1 + int(hashlib.sha256(repr(spec).encode()).hexdigest()[:8], 16) / 2**32)
    waits = {"jobs": 10, "jct_mean_so_far": value, "queue_max": value}
    samples = dict.fromkeys(("gpt3-1.3B 128", "gshard_moe-1.3B 256", "wide_resnet-1.0B 256"), value)
    return dict.fromkeys(names, value) | {
        "counters": Counters(),
        "unfit": 0,
        "jobs_finished": int(value),
        "by_priority": {"0": waits, "1": waits},
        "gpu_s_per_sample": samples,
    }


def list_structure(text: str) -> list[str]:
    """Return a page's headings, the heads of its tables, and the first cells of their rows; no claims."""
    lines = re.sub(r"^## Claims\n.*?(?=^## )", "", text, flags=re.DOTALL | re.MULTILINE).splitlines()
    return [
        line if line.startswith("#") or following.startswith("| ---") else line.split(" | ")[0]
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith(("|", "#"))
    ]


def say_the_papers(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a claim's row says of the paper; without a figure of the paper its direction is ours."""
    left_out = (*OURS, "direction") if claim["paper"] is None else OURS
    return {key: value for key, value in claim.items() if key not in left_out}


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what Ares's page simulates besides its runs be 20 jobs of a trace, and 64 GPUs at each size."""
    monkeypatch.setattr(ares_runs, "START_JOBS", 20)
    look, take_times = ares_looks._measure_looks, ares_looks.decision_times
    monkeypatch.setattr(
        ares_looks,
        "_measure_looks",
        lambda options, spec: look(options, replace(spec, setting=ares_runs.START)),
    )
    monkeypatch.setattr(
        ares_looks, "decision_times", lambda options, gpus: take_times(options, 64) | {"gpus": gpus}
    )


@needs("arena", "gavel", "sia")
@pytest.mark.parametrize("paper", ["arena", "ares", "crius", "gavel", "sia"])
def test_a_page_has_the_sections_rows_and_claims_of_the_committed_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, paper: str, names: list[str]
) -> None:
    module = importlib.import_module(f"clustergym.papers.{paper}")

    def run_all(specs: Iterable[RunSpec], *_: Any) -> dict[RunSpec, dict[str, Any]]:
        return {spec: make_up(spec, names) for spec in specs}

    for one in (module, reproduction):
        monkeypatch.setattr(one, "run_all", run_all, raising=False)
    # They stand last, and take the searches of test_estimates.py, which holds them to the committed ones.
    monkeypatch.setattr(module, "judge_estimates", lambda *_: [], raising=False)
    shorten(monkeypatch)
    report = module.reproduce(Options(DATA, quick=False, policies=None, work=tmp_path))
    committed = json.loads((PAGES / f"{paper}.claims.json").read_text())["claims"]
    assert NOT_RUN not in {claim.verdict for claim in report.claims}
    ours = [say_the_papers(claim.plain()) for claim in report.claims]
    assert ours == [say_the_papers(claim) for claim in committed[: len(ours)]]
    assert len(ours) == len(committed) or paper in ("arena", "crius")
    assert list_structure(report.text) == list_structure((PAGES / f"{paper}.md").read_text())
