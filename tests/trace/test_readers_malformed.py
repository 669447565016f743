"""Malformed traces: one line on stderr with file, line and field, exit status 2, nothing written."""

import json
from pathlib import Path

import pytest
from log_samples import ACME, ALIBABA_2025, ALIBABA_2026, SUPERCLOUD, SWF
from refusals import Said, refused

from clustergym.commands.trace import main
from clustergym.trace import draw
from clustergym.trace.formats import FORMATS, load_trace

OF_SCHEDULERS = {"kueue", "sacct", "slurmdbd"}
"""What schedulers print of themselves: damaged in tests/support/readers.py."""


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
ATTEMPT = {"start_time": "2017-10-07 01:00:10", "end_time": "2017-10-07 01:00:40"}
ENDS = {"submitted_time": "2017-10-07 01:00:00", "user": "u"}
ATTEMPTS = {"attempts": [ATTEMPT | {"detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}
PHILLY_JSON = json.dumps(
    [{"status": "Pass", "vc": "v", "jobid": f"application_{at}"} | ATTEMPTS | ENDS for at in range(2)],
    indent=0,
)
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,u,v,8,64,1,COMPLETED,2020-04-02 00:00:30,2020-04-02 00:01:00,2020-04-02 00:03:00,120,30\n"
    "2,u,v,1,64,1,COMPLETED,2020-04-02 00:00:40,2020-04-02 00:01:00,2020-04-02 00:03:00,120,20\n"
)
DURATIONS = "submit_time,duration,gpus\n0,3600,4\n60,1800.5,2\n"
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


PARTS = (
    "job_id,submit_s,model_family,global_batch,iterations,gpus,gpu_milli,cpu_milli,memory_mib,gpu_models\n"
    "0,0,recorded,1,10,1,500,4000,100,\n"
)
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "f,1,1,1,500,,R,1,2,1\n"
)
OUTCOMES = (
    "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus,outcome,end_iterations\n"
    "a,0,gpt3,760M,128,20,1,failed,5\nb,0,gpt3,760M,128,30,1,completed,30\n"
)
GOOD = {
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
    "openb": OPENB,
    "pai": PAI_JOBS,
    "acme": ACME,
    "swf": SWF,
    "supercloud": SUPERCLOUD,
    "alibaba-2025": ALIBABA_2025,
    "alibaba-2026": ALIBABA_2026,
}
"""A small file of each format."""
OTHERS = {"pai-tasks": PAI_TASKS, "parts": PARTS, "pods": PODS, "outcomes": OUTCOMES}
OTHERS |= {"raw": "", "raw-json": ""}
NAMES = {
    "arena-simulate": "simulate_trace.csv",
    "philly-json": "x.json",
    "gavel": "x.trace",
    "pai": "pai_job_table.csv",
    "pai-tasks": "pai_task_table.csv",
    "raw-json": "x.json",
    "swf": "x.swf",
}
WITH_OUTCOMES = ("acme", "swf", "supercloud", "helios", "philly-json", "pai", "durations")


def written(form: str, text: str, folder: Path) -> Path:
    """Return a file of a format, whose other files lie beside it."""
    if form.startswith("pai"):
        (folder / "pai_job_table.csv").write_text(PAI_JOBS)
        (folder / "pai_task_table.csv").write_text(PAI_TASKS)
    path = folder / NAMES.get(form, "x.csv")
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def fake_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "reference_times", lambda cluster: lambda *_: 1.0)


def _fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    return captured.err


@refused("trace-edits")
def test_malformed_trace(
    given: dict[str, list[str]], said: Said, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((form, edits),) = given.items()
    text = (GOOD | OTHERS)[form]
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        assert old in text
        text = text.replace(old, new, 1)
    path = written(form, text, tmp_path)
    before = sorted(tmp_path.iterdir())
    words = ["import", str(path), "-o", str(tmp_path / "out.csv"), "--json", str(tmp_path / "figures.json")]
    keep = ["--outcomes", "keep"] if form in WITH_OUTCOMES else []
    said.check(_fails([*words, *keep], capsys), tmp_path)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("form", GOOD)
def test_the_good_twins_are_read(form: str, tmp_path: Path) -> None:
    assert load_trace(written(form, GOOD[form], tmp_path)).provenance["format"] == form


def test_each_format_has_a_good_twin() -> None:
    assert GOOD.keys() == FORMATS.keys() - OF_SCHEDULERS


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
