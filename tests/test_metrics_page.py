"""docs/metrics.md names every metric, and every column and key of the files that runs write."""

import csv
import gzip
import json
import re
from pathlib import Path

import pytest

from clustergym import __main__ as console
from clustergym.results.metrics.catalogue import METRICS, OF_ONE_QUEUE

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
RUNS = {
    "failures": ["scenario.failures.mtbf_s=100000", "scenario.failures.checkpoint_write_s=10"],
    "profiles": ["policy=arena", "trace.outcomes=philly"],
}


def named(title: str) -> set[str]:
    """Return the names in the first columns of the tables of a section."""
    section = re.split(r"^### ", PAGE.split(f"### {title}\n")[1], flags=re.MULTILINE)[0]
    cells = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def lines_of(path: Path) -> list[dict[str, object]]:
    """Return the objects of a packed file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def header(path: Path) -> set[str]:
    """Return the columns of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return set(next(csv.reader(file)))


def test_every_metric_is_on_the_page() -> None:
    rows = set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE))
    assert {*METRICS, *OF_ONE_QUEUE} <= rows


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_writes_is_on_the_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["compare=null", "report=false", "trace=philly-like", "trace.jobs=20", "hydra.run.dir=made"]
    assert console.main(["run", *common, *RUNS[name]]) == 0
    made = tmp_path / "made"
    content = json.loads((made / "result.json").read_text(encoding="utf-8"))
    assert set(content) <= named("result.json")
    assert header(made / "jobs.csv") <= named("jobs.csv")
    columns = {re.sub(r"^held_gpus_.*", "held_gpus_TYPE", one) for one in header(made / "timeline.csv")}
    assert columns <= named("timeline.csv")
    events = lines_of(made / "events.jsonl.gz")
    assert {key for event in events for key in event} <= named("events.jsonl.gz")
    assert {event["kind"] for event in events if "job_id" in event} <= named("events.jsonl.gz")
    changes = lines_of(made / "decisions.jsonl.gz")[1:]
    assert {key for change in changes for key in change} <= named("decisions.jsonl.gz")
