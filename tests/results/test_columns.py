"""Tables of large runs in columns have what the lines have, and readers of lines say what to do with them."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.results import columns
from clustergym.results.columns import IN_COLUMNS, choose_logs, event_tables, write_columns
from clustergym.results.decision_log import read_decisions
from clustergym.results.measured_run import Result, simulate
from clustergym.results.report.run_text import print_results
from clustergym.results.report.write import PAGE, write_report, write_run_report
from clustergym.results.result_writing import FILES, find_finished_result, make_content, run_key, write_result
from clustergym.scenario.registry import make_policy
from clustergym.sim import columns as c
from clustergym.sim.compiled.event_log import ArrayEvents, LazyLog
from clustergym.sim.engine import Change
from clustergym.sim.log import Event, EventLog, EventType

parquet = pytest.importorskip("pyarrow.parquet")

# On two GPUs, a is preempted by the shorter b, and c waits for both.
JOBS = [Job("a", 0.0, 100), Job('b"ä', 10.0, 10, gpus=2), Job("c", 11.0, 200, gpus=2)]
POLICY = make_policy({"name": "srtf", "round_s": None})


def run(engine: Any = "simpy") -> Result:
    scenario = small_scenario(JOBS, {"X": (1, 2)}, {"m": {"X": {1: 3.0, 2: 1.5}}})
    return simulate(scenario, POLICY, Buddy(), engine=engine)


def write(folder: Path, logs: Any, engine: Any = "simpy") -> Result:
    result = run(engine)
    write_result(folder, {"seed": 0}, result, make_content(result, POLICY, Buddy(), 0), logs)
    return result


def read_events(folder: Path) -> list[Event]:
    """Return the events of a table in columns."""
    table = parquet.read_table(folder / "events.parquet").to_pylist()
    found = []
    for row in table:
        nodes = tuple(zip(row.pop("nodes"), row.pop("node_gpus"), strict=True))
        gpu_type = {None: -1, "X": 0}[row.pop("gpu_type")]
        found.append(Event(event_type=row.pop("kind"), **row, nodes=nodes, gpu_type=gpu_type))
    return found


def test_columns_have_the_events_and_the_decisions(tmp_path: Path) -> None:
    simulation = write(tmp_path, "columns").run.simulation
    assert read_events(tmp_path) == list(simulation.log.events)
    table = parquet.read_table(tmp_path / "decisions.parquet")
    head = json.loads(table.schema.metadata[b"clustergym"])
    assert head["scenario_sha256"] == simulation.scenario.sha256
    assert head["policy"] == "srtf"
    rows = [(row["time_s"], row["change"], row["job"], row["gpus"]) for row in table.to_pylist()]
    # b takes 15 s from 10 s on, a is back at 25 s with 290 s left of one GPU's 300, and then c.
    assert rows[:4] == [
        (0.0, "launch", 0, 1),
        (10.0, "launch", 1, 2),
        (10.0, "preempt", 0, 0),
        (25.0, *rows[3][1:]),
    ]
    logged = [(change.time_s, len(change.launch) + len(change.preempt)) for change in simulation.changes]
    assert [time_s for time_s, number in logged for _ in range(number)] == [row[0] for row in rows]


def test_a_folder_has_tables_in_one_form(tmp_path: Path) -> None:
    result = write(tmp_path, "lines")
    key = run_key(result.run.simulation.scenario, POLICY, Buddy(), 0)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert find_finished_result(tmp_path, key, "auto") is not None
    assert find_finished_result(tmp_path, key, "columns") is None
    write(tmp_path, "columns")
    assert {path.name for path in tmp_path.iterdir()} == {IN_COLUMNS.get(name, name) for name in FILES}
    assert find_finished_result(tmp_path, key, "columns") is not None
    assert find_finished_result(tmp_path, key, "lines") is None
    write(tmp_path, "lines")
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)


def test_lines_of_events_are_equal_from_both_engines(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    for engine in ("simpy", "compiled"):
        write(tmp_path / engine, "lines", engine)
    paths = (tmp_path / engine / "events.jsonl.gz" for engine in ("simpy", "compiled"))
    mine, other = (gzip.decompress(path.read_bytes()) for path in paths)
    assert mine == other
    assert [json.loads(line)["kind"] for line in mine.splitlines()][:3] == ["submit", "start", "submit"]


def test_a_page_may_be_left_for_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "lines")
    write_run_report([tmp_path])
    assert (tmp_path / PAGE).exists()
    write_run_report([tmp_path], later=True)
    assert f"`clustergym report {tmp_path}` makes the page" in capsys.readouterr().out
    # That of an earlier run would be taken for this run's.
    assert not (tmp_path / PAGE).exists()


def test_readers_of_lines_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = write(tmp_path, "columns")
    said = r"in columns \((events|decisions)\.parquet\).*run it again with run\.logs=lines"
    with pytest.raises(InputError, match=said):
        read_decisions(tmp_path / "decisions.jsonl.gz", result.run.simulation.scenario)
    with pytest.raises(InputError, match=said):
        write_report([tmp_path], tmp_path / PAGE)
    write_run_report([tmp_path])
    assert "run.logs=lines" in capsys.readouterr().out
    assert not (tmp_path / PAGE).exists()


def test_columns_are_for_many_jobs_where_pyarrow_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_logs("auto", columns.MANY_JOBS) == "lines"
    assert choose_logs("auto", columns.MANY_JOBS + 1) == "columns"
    assert choose_logs("columns", 1) == "columns"
    monkeypatch.setattr(columns, "find_spec", lambda name: None)
    assert choose_logs("auto", columns.MANY_JOBS + 1) == "lines"
    with pytest.raises(InputError, match=r"run\.logs.*pyarrow.*\[columns\]"):
        choose_logs("columns", 1)


def array_events() -> tuple[ArrayEvents, list[Event]]:
    """Return four events in arrays, and as they are made."""
    nodes = np.array([[3, 4], [5, 2], [7, 1]])
    event = np.zeros((4, c.EVENT_COLUMNS), np.int64)
    event[:, c.TIME] = [0, 1_500_000, 1_500_000, 2_000_001]
    event[:, c.EVENT_TYPE] = [c.SUBMITTED, c.START, c.RESCALE, c.FITS_NOWHERE]
    event[:, c.JOB] = [0, 0, 1, 2]
    event[:, c.EVENT_GPU_TYPE] = [-1, 0, 0, -1]
    event[:, c.EVENT_GPUS] = [0, 6, 1, 0]
    event[:, c.FIRST_NODE] = [0, 0, 2, 3]
    event[:, c.NODE_COUNT] = [0, 2, 1, 0]
    event[:, c.LOCALITY] = [-1, 2, 0, -1]
    event[:, c.OVERHEAD] = [0, 250_000, 0, 0]
    made = [
        Event(0.0, EventType.SUBMIT, 0),
        Event(1.5, EventType.START, 0, 0, 6, ((3, 4), (5, 2)), 2, 0.25, 1.25),
        Event(1.5, EventType.RESCALE, 1, 0, 1, ((7, 1),), 0, 0.0, 0.1),
        Event(2.000001, EventType.DROP, 2, reason="fits nowhere"),
    ]
    return ArrayEvents(event, np.array([0.0, 1.25, 0.1, 0.0]), nodes), made


def test_events_in_arrays_are_those_that_are_made() -> None:
    events, made = array_events()
    assert list(events) == made
    assert events == made
    assert events != made[:3]
    assert [events[at] for at in range(-4, 4)] == [made[at] for at in range(-4, 4)]
    assert list(events[1:3]) == made[1:3]
    assert list(events[3:]) == made[3:]
    with pytest.raises(IndexError):
        events[4]
    log = EventLog()
    log.extend(made)
    assert LazyLog(events.event, events.iteration_s, events.event_node).digest == log.digest


def test_events_in_arrays_are_written_as_those_that_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, made = array_events()
    for together in (1, 2, 3, 100):
        monkeypatch.setattr(columns, "TOGETHER", together)
        written = []
        for some in (events, made, events[:0], []):
            write_columns(tmp_path / "events.parquet", event_tables(some, ["X"]), {})
            written.append(parquet.read_table(tmp_path / "events.parquet"))
            assert read_events(tmp_path) == list(some)
        assert written[0].to_pylist() == written[1].to_pylist()
        assert all(table.schema == written[0].schema for table in written)


def test_what_only_some_runs_change_is_written_too() -> None:
    change = Change(5.0, ((1, 0, 2),), (), (), ((1, 64),), ((1, 2),), ((1, (3, 4)),))
    (table,) = columns.change_tables([change], ["X"])
    assert table["change"].to_pylist() == ["launch", "batch", "beside", "avoid"]
    assert table["value"].tolist() == [0, 64, 2, 0]
    assert table["nodes"].to_pylist() == [[], [], [], [3, 4]]


def test_every_field_of_an_event_has_its_columns() -> None:
    assert tuple("kind" if name == "event_type" else name for name in Event._fields) == columns.FIELDS


@pytest.mark.parametrize(
    ("logs", "tables"),
    [
        ("lines", "jobs.csv, timeline.csv, decisions.jsonl.gz, events.jsonl.gz"),
        ("columns", "jobs.parquet, timeline.parquet, decisions.parquet, events.parquet"),
    ],
)
def test_a_run_prints_the_names_of_the_files_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], logs: Any, tables: str
) -> None:
    result = write(tmp_path, logs)
    content = make_content(result, POLICY, Buddy(), 0)
    print_results([content], result.run.simulation.scenario, tmp_path, in_full=True)
    printed = capsys.readouterr().out
    assert f"wrote {tmp_path}/: config.yaml, {tables}, result.json\n" in printed
    # Columns are not drawn, so no page is offered.
    assert (f"report {tmp_path} --serve" in printed) == (logs == "lines")
