"""`python -m clustergym.trace`: import, validate, slice; describe and generate are delegated."""

import json
from pathlib import Path

import pytest
from error_lines import error_line
from python_process import run_python
from refusals import Said, refused

from clustergym.commands.trace import main
from clustergym.common.errors import InputError
from clustergym.trace import draw
from clustergym.trace.native import read_trace
from clustergym.trace.trace import cut_trace

HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,u,v,6,64,1,COMPLETED,2020-04-02 00:00:30,2020-04-02 00:01:00,2020-04-02 00:03:00,120,30\n"
    "2,u,v,0,64,1,COMPLETED,2020-04-02 00:00:40,2020-04-02 00:01:00,2020-04-02 00:03:00,120,20\n"
    "3,u,v,1,64,1,COMPLETED,2020-04-02 01:00:30,2020-04-02 01:01:00,2020-04-02 01:03:00,500,20\n"
)
NATIVE = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus,deadline_s\n" + "".join(
    f"j{row},{row * 10},gpt3,1.3B,128,{row + 1},2,{row * 10 + 100.5}\n" for row in range(10)
)


@pytest.fixture(autouse=True)
def fake_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "reference_times", lambda cluster: lambda *_: 0.5)


@pytest.fixture
def helios(tmp_path: Path) -> Path:
    path = tmp_path / "cluster_log.csv"
    path.write_text(HELIOS)
    return path


@pytest.fixture
def native(tmp_path: Path) -> Path:
    path = tmp_path / "native.csv"
    path.write_text(NATIVE)
    return path


def test_import_writes_and_says_what(helios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figures = helios.with_name("out.csv"), helios.with_name("figures.json")
    arguments = f"import {helios} -o {out} --rule ares --seed 3 --json {figures}"
    assert main(arguments.split()) == 0
    shown = capsys.readouterr()
    printed = shown.out
    assert shown.err == "left out 1 job: CPU job\n"
    trace = read_trace(out)
    for part in (str(out), "out.provenance.json", "helios", "jobs     2 over 1.0 h", trace.sha256):
        assert part in printed
    # 6 GPUs for 120 s are 8 for 90 s, at 0.5 s an iteration; 500 s on one GPU.
    assert trace.gpus.tolist() == [8, 1]
    assert trace.iterations.tolist() == [180, 1000]
    assert trace.provenance["draw"]["seed"] == 3
    assert trace.provenance["draw"]["rule"] == "ares"
    saved = json.loads(figures.read_text())
    assert saved["rows"] == 2
    assert saved["span_s"] == 3600
    assert saved["sha256"] == trace.sha256
    assert saved["left_out"] == {"CPU job": 1}


def test_import_takes_gpu_types_and_counts_as_told(helios: Path) -> None:
    out = helios.with_name("out.csv")
    assert main(["import", str(helios), "-o", str(out), "--gpu-types", "h100", "--keep-counts"]) == 0
    trace = read_trace(out)
    assert trace.gpu_type == ("H100", "H100")
    assert trace.gpus.tolist() == [6, 1]
    assert main(["import", str(helios), "-o", str(out), "--gpu-types", "any", "--force"]) == 0
    assert read_trace(out).gpu_type == ("", "")


def test_nothing_is_overwritten_unless_forced(helios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = helios.with_name("out.csv")
    assert main(["import", str(helios), "-o", str(out)]) == 0
    before = out.read_bytes()
    capsys.readouterr()
    assert main(["import", str(helios), "-o", str(out), "--seed", "1"]) == 2
    assert "out.csv: --output: exists already (choose another name, or --force)" in capsys.readouterr().err
    assert out.read_bytes() == before
    out.unlink()
    assert main(["slice", str(helios), "-o", str(out)]) == 2  # its provenance file is still there
    assert not out.exists()
    assert main(["import", str(helios), "-o", str(out), "--seed", "1", "--force"]) == 0


def test_validate_says_ok_of_the_good_and_one_line_of_each_bad(
    helios: Path, native: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = native.with_name("bad.csv")
    bad.write_text(NATIVE.replace(",2,100.5", ",0,100.5").replace("j5,", "j4,"))
    worse = native.with_name("worse.csv")
    worse.write_text("")
    figures = native.with_name("figures.json")
    assert main(["validate", str(native), str(bad), str(helios), str(worse), "--json", str(figures)]) == 2
    captured = capsys.readouterr()
    good, errors = captured.out.splitlines(), captured.err.splitlines()
    assert errors.pop() == "left out 1 job: CPU job"
    assert len(good) == len(errors) == 2
    assert good[0] == f"OK {native}: native, 10 jobs over 0.0 h, sha256 {read_trace(native).sha256}"
    assert good[1].startswith(f"OK {helios}: helios, 2 jobs over 1.0 h, sha256 ")
    assert errors[0].startswith(f"error: {bad}:2: gpus: 0 is below 1")
    assert errors[1].startswith(f"error: {worse}: the file is empty")
    saved = json.loads(figures.read_text())
    assert [entry["rows"] for entry in saved["valid"]] == [10, 2]
    assert len(saved["errors"]) == 2
    assert main(["validate", str(native)]) == 0


def test_slice_by_time_and_by_number(native: Path) -> None:
    out = native.with_name("out.csv")
    assert main(["slice", str(native), "-o", str(out), "--start-s", "20", "--end-s", "70"]) == 0
    assert read_trace(out).job_id == ("j2", "j3", "j4", "j5", "j6")
    arguments = f"slice {native} -o {out} --force --start-s 20 --skip 1 --first 2 --rebase"
    assert main(arguments.split()) == 0
    part = read_trace(out)
    assert part.job_id == ("j3", "j4")
    assert part.submit_s.tolist() == [0, 10]
    assert part.deadline_s.tolist() == [100.5, 110.5]
    assert part.provenance["slices"][0]["rebased_by_s"] == 30
    assert part.provenance["slices"][0]["of"] == read_trace(native).sha256


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"start_s": 1000.0}, "no job lies in that part"),
        ({"first": 0}, "no job lies in that part"),
        ({"skip": -1}, "--skip: -1 is negative"),
        ({"first": -1}, "--first: -1 is negative"),
        ({"start_s": float("nan")}, "--start-s: nan is negative or no number"),
    ],
)
def test_slices_that_cannot_be(native: Path, bounds: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        cut_trace(read_trace(native), **bounds)


@refused("trace-command", words=True)
def test_wrong_usage_is_one_line_and_writes_nothing(
    given: list[str],
    said: Said,
    helios: Path,
    native: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(helios.parent)
    assert main(given) == 2
    said.check(error_line(capsys))
    assert {*helios.parent.iterdir()} == {helios, native}


@pytest.mark.processes
def test_the_same_import_in_two_processes_is_the_same_to_the_byte(helios: Path) -> None:
    written = []
    for seed in ("1", "2"):
        out = helios.with_name(f"out{seed}.csv")
        words = ("-m", "clustergym.trace", "import", helios, "-o", out)
        run = run_python(*words, PYTHONHASHSEED=seed)
        assert (run.returncode, run.stderr) == (0, "left out 1 job: CPU job\n")
        written.append((out.read_bytes(), out.with_name(f"out{seed}.provenance.json").read_bytes()))
    assert written[0] == written[1]
