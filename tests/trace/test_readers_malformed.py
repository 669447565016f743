"""Malformed traces: one line on stderr with file, line and field, exit status 2, nothing written."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest
from log_samples import ACME, ALIBABA_2025, ALIBABA_2026, SUPERCLOUD, SWF

from clustergym.commands.trace import main
from clustergym.common.errors import InputError
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace import draw
from clustergym.trace.formats import FORMATS, ReadOptions, load_trace

OF_SCHEDULERS = {"kueue", "sacct", "slurmdbd"}
"""What schedulers print of themselves: damaged in tests/support/readers.py."""


def seconds(model: ModelClass, gpu_type: str, gpus: int) -> float:
    """Seconds per iteration of anything."""
    return 1.0


HEADER = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpu_type,gpus,deadline_s"
NATIVE = f"{HEADER}\na,0,gpt3,1.3B,128,10,A100,4,900\nb,5,resnet18,,64,20,,1,\n"
ARENA = (
    "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,gpu_type\n"
    "a,100,14,moe__690M,900,256,4,a10\n"
    "b,200,34,bert__2.6B,990,128,8,a40\n"
)
PHILLY = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-10-09 07:01:55,66.0,1,66.0,x\n"
    "2017-10-09 07:02:55,6,2,12,y\n"
)
PHILLY_JSON = json.dumps(
    [
        {
            "status": "Pass",
            "vc": "v",
            "jobid": f"application_{number}",
            "attempts": [
                {
                    "start_time": "2017-10-07 01:00:10",
                    "end_time": "2017-10-07 01:00:40",
                    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
                }
            ],
            "submitted_time": "2017-10-07 01:00:00",
            "user": "u",
        }
        for number in range(2)
    ],
    indent=0,
)
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,u,v,8,64,1,COMPLETED,2020-04-02 00:00:30,2020-04-02 00:01:00,2020-04-02 00:03:00,120,30\n"
    "2,u,v,1,64,1,COMPLETED,2020-04-02 00:00:40,2020-04-02 00:01:00,2020-04-02 00:03:00,120,20\n"
)
DURATIONS = "submit_time,duration,gpus\n0,3600,4\n60,1800.5,2\n"
SECOND_JOB = PHILLY_JSON.count("\n", 0, PHILLY_JSON.rindex('{\n"status"')) + 1
SIA = "name,time,application,num_replicas,batch_size\nx,0,cifar10,4,2048\ny,9,bert,8,384\n"
GAVEL = (
    "ResNet-18 (batch size 128)\tc\tw\t-n\t1\t1000\t4\t1\t-1.0\t0\n"
    "Transformer (batch size 64)\tc\tw\t-n\t1\t2000\t1\t1\t-1.0\t9\n"
)
ELASTICFLOW = (
    "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
    "0,100,2011,cifar10,4511,4096,1,5644\n"
    "1,105,1548,ncf,533,32768,8,66\n"
)
PAI_JOBS = "j1,i,u,Terminated,100,400\nj2,i,u,Terminated,200,500\n"
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"
    "a,4000,2048,1,500,,100,160,110\nb,2000,1024,0,0,T4,50,150,60\n"
)
PAI_TASKS = "j1,w,2,Terminated,110,400,600,29,50,T4\nj2,w,1,Terminated,210,500,600,29,100,V100\n"


class Bad(NamedTuple):
    """A malformed file: name, content, the line and the field its error names, and words of it."""

    name: str
    content: str | bytes
    line: int | None
    field: str
    words: str


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def edited(
    text: str, old: str, new: str, line: int | None, field: str, words: str, name: str = "x.csv"
) -> Bad:
    return Bad(name, changed(text, old, new), line, field, words)


BAD = {
    # The file as a whole.
    "empty": Bad("x.csv", "", None, "", "the file is empty"),
    "blank": Bad("x.csv", " \n\n", None, "", "the file is empty"),
    "header-only": Bad("x.csv", HEADER + "\n", None, "", "there is a header but no rows"),
    "latin-1": Bad("x.csv", changed(NATIVE, "b,5", "b\xe9,5").encode("latin-1"), 3, "", "is not UTF-8"),
    "utf-16": Bad("x.csv", NATIVE.encode("utf-16"), 1, "", "is not UTF-8"),
    "nul-byte": edited(NATIVE, "b,5", "b\0,5", 3, "", "NUL byte"),
    "binary": Bad("x.csv", bytes(range(256)) * 20, 1, "", "NUL byte"),
    "no-format": Bad("x.csv", "speed,colour\n1,red\n", 1, "", "looks like none of the formats"),
    # The table.
    "missing-column": edited(NATIVE, "iterations", "steps", 1, "iterations", "column missing"),
    "misspelt-column": edited(NATIVE, ",gpus,", ",gpuz,", 1, "gpus", "did you mean gpuz"),
    "unknown-column": edited(NATIVE, "deadline_s", "deadline", 1, "deadline", "did you mean deadline_s"),
    "twice-a-column": edited(NATIVE, "model_size", "submit_s", 1, "submit_s", "appears twice"),
    "ragged-short": edited(NATIVE, "b,5,", "b,", 3, "", "has 8 cells, not 9"),
    "ragged-long": edited(NATIVE, "b,5,", "b,5,5,", 3, "", "has 10 cells, not 9"),
    "open-quote": edited(NATIVE, "b,5", '"b,5', 3, "", "unexpected end of data"),
    "stray-quote": edited(NATIVE, "b,5", '"b"b,5', 3, "", "expected after"),
    "long-field": edited(NATIVE, "b,5", "b" * 200_000 + ",5", 3, "", "field larger than field limit"),
    # Jobs.
    "no-id": edited(NATIVE, "b,5", ",5", 3, "job_id", "is empty"),
    "same-id": edited(NATIVE, "b,5", "a,5", 3, "job_id", "'a' is already the job of line 2"),
    "control-character": edited(NATIVE, "b,5", "b\x1b[31m,5", 3, "job_id", "control character"),
    "no-model": edited(NATIVE, "resnet18", "", 3, "model_family", "is empty"),
    "unknown-model": edited(NATIVE, "resnet18", "resnet19", 3, "model_family", "did you mean resnet18"),
    "unknown-size": edited(NATIVE, "1.3B", "1.4B", 2, "model_size", "did you mean"),
    "negative-time": edited(NATIVE, "b,5", "b,-5", 3, "submit_s", "-5 is below 0"),
    "nan-time": edited(NATIVE, "b,5", "b,NaN", 3, "submit_s", "'NaN' is not a finite number"),
    "infinite-time": edited(NATIVE, "b,5", "b,inf", 3, "submit_s", "'inf' is not a finite number"),
    "overflowing-time": edited(NATIVE, "b,5", "b,1e999", 3, "submit_s", "too large"),
    "time-in-words": edited(NATIVE, "b,5", "b,noon", 3, "submit_s", "'noon' is not a finite number"),
    "underscore": edited(NATIVE, "b,5", "b,5_0", 3, "submit_s", "'5_0' is not a finite number"),
    "arabic-digits": edited(
        NATIVE, "b,5", "b,\N{ARABIC-INDIC DIGIT FIVE}", 3, "submit_s", "is not a finite number"
    ),
    "empty-time": edited(NATIVE, "b,5", "b,", 3, "submit_s", "is empty"),
    "no-iterations": edited(NATIVE, "64,20", "64,0", 3, "iterations", "0 is below 1"),
    "half-iteration": edited(NATIVE, "64,20", "64,2.5", 3, "iterations", "not a whole number"),
    "huge-iterations": edited(NATIVE, "64,20", f"64,{10**30}", 3, "iterations", "too large"),
    "endless-iterations": edited(NATIVE, "64,20", "64," + "9" * 6000, 3, "iterations", "too large"),
    "no-batch": edited(NATIVE, "64,20", "0,20", 3, "global_batch", "0 is below 1"),
    "no-gpus": edited(NATIVE, "20,,1,", "20,,0,", 3, "gpus", "0 is below 1"),
    "billion-gpus": edited(NATIVE, "20,,1,", f"20,,{10**9},", 3, "gpus", "is above 1000000"),
    "unknown-gpu": edited(NATIVE, "A100", "A1000", 2, "gpu_type", "did you mean A100"),
    "early-deadline": edited(NATIVE, "1,\n", "1,4\n", 3, "deadline_s", "deadline 4 is not after"),
    "deadline-at-submission": edited(NATIVE, "1,\n", "1,5\n", 3, "deadline_s", "deadline 5 is not after"),
    "nan-deadline": edited(NATIVE, "900", "nan", 2, "deadline_s", "not a finite number"),
    "outcome-alone": edited(
        changed(NATIVE, HEADER, f"{HEADER},outcome")
        .replace("900\n", "900,killed\n")
        .replace("1,\n", "1,,\n"),
        "900,",
        "901,",
        1,
        "end_iterations",
        "column missing",
    ),
    # Published formats.
    "arena-model": edited(ARENA, "bert__", "berd__", 3, "model_name", "did you mean bert"),
    "arena-no-size": edited(ARENA, "bert__2.6B", "bert", 3, "model_name", "names no size"),
    "arena-size": edited(ARENA, "2.6B", "2.7B", 3, "model_name", "did you mean"),
    "arena-deadline": edited(ARENA, "990", "150", 3, "deadline", "is not after"),
    "arena-gpu": edited(ARENA, "a40", "b40", 3, "gpu_type", "unknown GPU type"),
    "arena-billion-gpus": edited(ARENA, "128,8", f"128,{10**9}", 3, "num_gpu", "is above 1000000"),
    "philly-billion-gpus": edited(PHILLY, ",6,2,", f",6,{10**9},", 3, "num_gpus", "is above 1000000"),
    "helios-billion-gpus": edited(HELIOS, "2,u,v,1", f"2,u,v,{10**9}", 3, "gpu_num", "is above 1000000"),
    "sia-billion-gpus": edited(SIA, "bert,8", f"bert,{10**9}", 3, "num_replicas", "is above 1000000"),
    "gavel-billion-gpus": edited(
        GAVEL, "2000\t1", f"2000\t{10**9}", 2, "scale_factor", "is above 1000000", name="x.trace"
    ),
    "elasticflow-billion-gpus": edited(
        ELASTICFLOW, "32768,8", f"32768,{10**9}", 3, "num_gpu", "is above 1000000"
    ),
    "durations-billion-gpus": edited(DURATIONS, "1800.5,2", f"1800.5,{10**9}", 3, "gpus", "is above 1000000"),
    "acme-billion-gpus": edited(
        ACME, "u2,1,1,16,Eval", f"u2,1,{10**9},16,Eval", 4, "gpu_num", "is above 1000000"
    ),
    "arena-column": edited(ARENA, "batch_size", "batch", 1, "batch_size", "column missing"),
    "simulate-no-iterations": edited(
        ARENA, ",34,", ",0,", 3, "num_iteration", "below 1", name="simulate_trace.csv"
    ),
    "philly-date": edited(PHILLY, "07:02:55", "25:02:55", 3, "timestamp", "is not a time"),
    "philly-duration": edited(PHILLY, ",6,", ",-6,", 3, "duration", "-6 is below 0"),
    "philly-all-zero": Bad(
        "x.csv",
        changed(changed(PHILLY, ",6,", ",0,"), ",66.0,", ",0,"),
        None,
        "",
        "no job is left (2 ran 0 s)",
    ),
    "philly-gpus": edited(PHILLY, "6,2,", "6,two,", 3, "num_gpus", "'two' is not a finite number"),
    "json-truncated": Bad("log", PHILLY_JSON[:-40], PHILLY_JSON[:-40].count("\n") + 1, "", "broken JSON"),
    "json-no-list": Bad("x.json", '[{"jobid": 3}', 1, "submitted_time", "is missing"),
    "json-numbers": Bad("x.json", "[1, 2]", 1, "job", "is not a JSON object"),
    "json-two": Bad("x.json", "[]]", 1, "", "text after the list"),
    "json-empty": Bad("x.json", "[]", None, "", "the list is empty"),
    "json-nested": Bad("x.json", "[" * 100_000, 1, "", "broken JSON"),
    "json-trailing": Bad(
        "x.json", PHILLY_JSON + "\n]", PHILLY_JSON.count("\n") + 1, "", "text after the list"
    ),
    "json-attempts": edited(
        PHILLY_JSON, '"attempts": [', '"attempts": 3, "a": [', 2, "attempts", "list", name="x.json"
    ),
    "json-time": edited(PHILLY_JSON, "01:00:40", "1 am", 2, "end_time", "is not a time", name="x.json"),
    "json-same-id": edited(
        PHILLY_JSON, "_1", "_0", SECOND_JOB, "jobid", "is already the job of line 2", name="x.json"
    ),
    "json-surrogate": edited(PHILLY_JSON, '"u"', r'"\ud800"', 2, "user", "control character", name="x.json"),
    "helios-gpus": edited(HELIOS, "2,u,v,1", "2,u,v,-1", 3, "gpu_num", "-1 is below 0"),
    "helios-same-id": edited(HELIOS, "2,u,v,1", "1,u,v,1", 3, "job_id", "already the job of line 2"),
    "helios-column": edited(HELIOS, "duration", "length", 1, "duration", "column missing"),
    "sia-application": edited(SIA, "cifar10", "cifar11", 2, "application", "did you mean cifar10"),
    "sia-other-model": edited(SIA, "cifar10", "vgg16", 2, "application", "unknown application 'vgg16'"),
    "sia-replicas": edited(SIA, "bert,8", "bert,0", 3, "num_replicas", "0 is below 1"),
    "gavel-fields": edited(GAVEL, "2000\t", "2000 ", 2, "", "the row has 9 fields, not 10", name="x.trace"),
    "gavel-no-tabs": Bad("x.trace", GAVEL.replace("\t", ","), 1, "", "the row has 1 fields, not 10"),
    "gavel-model": edited(
        GAVEL, "Transformer", "Transfomer", 2, "job_type", "did you mean transformer", name="x.trace"
    ),
    "gavel-no-batch": edited(GAVEL, " (batch size 64)", "", 2, "job_type", "names no batch", name="x.trace"),
    "gavel-steps": edited(GAVEL, "2000", "0", 2, "total_steps", "0 is below 1", name="x.trace"),
    "elasticflow-model": edited(ELASTICFLOW, "ncf", "nfc", 3, "model_name", "unknown model 'nfc'"),
    "elasticflow-deadline": edited(ELASTICFLOW, "533", "105", 3, "ddl", "is not after"),
    "pai-fields": edited(PAI_JOBS, "j2,i,", "j2,", 2, "", "has 5 cells, not 6", name="pai_job_table.csv"),
    "pai-time": edited(PAI_JOBS, "200", "late", 2, "start_time", "'late'", name="pai_job_table.csv"),
    "pai-same-id": edited(
        PAI_JOBS, "j2", "j1", 2, "job_name", "is already the job", name="pai_job_table.csv"
    ),
    "pai-task": edited(PAI_TASKS, ",50,", ",many,", 1, "plan_gpu", "'many'", name="pai_task_table.csv"),
    "pai-gpus": edited(
        PAI_TASKS, "j2,w,1", f"j2,w,{10**9}", 2, "plan_gpu", "more than 1000000", name="pai_task_table.csv"
    ),
}


@pytest.fixture(autouse=True)
def fake_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "reference_times", lambda cluster: seconds)


def _fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    return captured.err


@pytest.mark.parametrize("case", BAD)
def test_malformed_trace(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = BAD[case]
    path = tmp_path / bad.name
    if bad.name.startswith("pai"):
        (tmp_path / "pai_job_table.csv").write_text(PAI_JOBS)
        (tmp_path / "pai_task_table.csv").write_text(PAI_TASKS)
    path.write_bytes(bad.content.encode() if isinstance(bad.content, str) else bad.content)
    before = sorted(tmp_path.iterdir())
    figures = tmp_path / "figures.json"
    error = _fails(["import", str(path), "-o", str(tmp_path / "out.csv"), "--json", str(figures)], capsys)
    file = tmp_path / "pai_job_table.csv" if case == "pai-gpus" else path
    where = (
        str(file)
        + ("" if bad.line is None else f":{bad.line}")
        + ": "
        + (f"{bad.field}: " if bad.field else "")
    )
    assert error.startswith(f"error: {where}"), error
    assert bad.words in error
    assert sorted(tmp_path.iterdir()) == before


def test_there_are_enough_malformed_traces() -> None:
    assert len(BAD) >= 35


def test_the_good_twins_are_read(tmp_path: Path) -> None:
    good = {
        "a.csv": NATIVE,
        "b.csv": ARENA,
        "c.csv": PHILLY,
        "d.json": PHILLY_JSON,
        "e.csv": HELIOS,
        "f.csv": SIA,
        "g.trace": GAVEL,
        "h.csv": ELASTICFLOW,
        "i.csv": DURATIONS,
        "j.csv": OPENB,
        "pai_job_table.csv": PAI_JOBS,
    }
    logs = {"acme": ACME, "swf": SWF, "supercloud": SUPERCLOUD}
    logs |= {"alibaba-2025": ALIBABA_2025, "alibaba-2026": ALIBABA_2026}
    (tmp_path / "pai_task_table.csv").write_text(PAI_TASKS)
    found = set()
    for name, text in good.items():
        (tmp_path / name).write_text(text)
        trace = load_trace(tmp_path / name)
        assert len(trace) == 2
        found.add(str(trace.provenance["format"]))
    for name, text in logs.items():
        (tmp_path / name).write_text(text)
        found.add(str(load_trace(tmp_path / name).provenance["format"]))
    assert found == set(FORMATS) - {"arena-simulate", *OF_SCHEDULERS}


def test_a_folder_for_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = _fails(["import", str(tmp_path), "-o", str(tmp_path / "out.csv")], capsys)
    assert f"{tmp_path}: is a folder, not a file" in error
    assert not list(tmp_path.iterdir())


def test_a_missing_file_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "philly.csv").write_text(PHILLY)
    error = _fails(["validate", str(tmp_path / "phily.csv")], capsys)
    assert "phily.csv: no such file (did you mean philly.csv?)" in error
    error = _fails(["validate", str(tmp_path / "nowhere" / "phily.csv")], capsys)
    assert f"nor is there a folder {tmp_path / 'nowhere'} to read" in error


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/dev/null", "is not a regular file"),
        ("/dev/null/x", "no such file"),
        ("x" * 5000, "cannot be read: File name too long"),
        ("nul\0byte", "cannot be read"),
    ],
)
@pytest.mark.parametrize("form", ["auto", "native", "pai"])
def test_what_is_no_file(path: str, words: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in _fails(["validate", path, "--format", form], capsys)


@pytest.mark.parametrize("form", sorted(set(FORMATS) - OF_SCHEDULERS))
def test_damaged_files_never_end_in_a_traceback(form: str, tmp_path: Path) -> None:
    """Each good file, damaged at random: it is read, or refused in one line that names it."""
    texts = {
        "native": NATIVE,
        "arena": ARENA,
        "arena-simulate": ARENA,
        "philly": PHILLY,
        "philly-json": PHILLY_JSON,
        "helios": HELIOS,
        "durations": DURATIONS,
        "sia": SIA,
        "gavel": GAVEL,
        "elasticflow": ELASTICFLOW,
        "pai": PAI_JOBS,
        "acme": ACME,
        "swf": SWF,
        "supercloud": SUPERCLOUD,
        "alibaba-2025": ALIBABA_2025,
        "alibaba-2026": ALIBABA_2026,
        "openb": OPENB,
    }
    (tmp_path / "pai_task_table.csv").write_text(PAI_TASKS)
    path = tmp_path / ("pai_job_table.csv" if form == "pai" else "damaged")
    rng = random.Random(form)
    junk = b' - nan 1e400 \xff \0 " , \n \t 999999999999999999999999999999 [ { null 0'.split(b" ")
    refused = []
    for _ in range(150):
        content = texts[form].encode()
        for _ in range(rng.randint(1, 3)):
            position = rng.randrange(len(content))
            content = content[:position] + rng.choice(junk) + content[position + rng.randint(0, 4) :]
        path.write_bytes(content)
        try:
            load_trace(path, form, ReadOptions(reference_time_s=seconds))
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 30
    assert all(f"{tmp_path}{os.sep}" in message and "\n" not in message for message in refused)
