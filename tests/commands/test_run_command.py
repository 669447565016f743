"""The main job from the command line: what it prints, writes, and refuses."""

import gzip
import json
import shlex
import shutil

import pytest
from error_lines import error_line
from python_process import printed_by
from refusals import refused

from clustergym.commands import collect, replay, run

FILES = {"config.yaml", "jobs.csv", "timeline.csv", "decisions.jsonl.gz", "events.jsonl.gz", "result.json"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Overrides that run eight jobs on 64 GPUs."""
    path = tmp_path_factory.mktemp("trace") / "eight.csv"
    header = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpu_type,gpus\n"
    rows = [
        f"job-{i},{i * 200},gpt3,760M,128,{40 + 10 * i},{'A40' if i % 2 else 'A10'},{2 ** (i % 4)}"
        for i in range(8)
    ]
    path.write_text(header + "\n".join(rows) + "\n")
    return ["trace=file", f"trace.path={path}", "progress=false"]


@pytest.fixture(scope="module")
def finished_once(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    assert run.main(["policy=fcfs", f"hydra.run.dir={folder}", "compare=null", *small]) == 0
    return folder


@pytest.fixture
def out(finished_once, tmp_path):
    """A finished run that a test may change."""
    return shutil.copytree(finished_once, tmp_path / "out")


RESULT_KEYS = ["schema", "run_key", "policy", "placer", "information_class", "scenario", "seed"]
RESULT_KEYS += ["horizon_s", "end_s", "requests_changed", "metrics", "digest", "decisions", "wall_s"]
RESULT_KEYS += ["engine", "versions"]


def test_a_run_writes_what_it_says(small, tmp_path, capsys):
    out = tmp_path / "out"
    assert run.main(["policy=arena", f"hydra.run.dir={out}", *small]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("arena against fcfs on scenario testbed+trace=eight v0: trace eight (8 jobs)")
    assert f"wrote {out}/" in printed
    last = printed.splitlines()[-1]
    assert last.startswith("try next: ")
    program, *words = shlex.split(last.removeprefix("try next: ").partition("    ")[0])
    assert shutil.which(program) is not None
    assert words[-3:] == ["report", str(out), "--serve"]
    assert {path.name for path in out.iterdir()} == FILES | {"compare", "report.html"}
    assert {path.name for path in (out / "compare" / "fcfs").iterdir()} == FILES
    result = json.loads((out / "result.json").read_text())
    assert list(result) == RESULT_KEYS
    assert result["policy"]["name"] == "arena"
    assert result["information_class"] == "profiled"
    assert result["metrics"]["jobs_finished"] == 8
    assert (out / "jobs.csv").read_text().count("\n") == 9


def test_an_engine_that_does_not_cover_a_scenario_refuses_it_in_one_line(small, tmp_path, capsys):
    args = ["policy=fcfs", f"hydra.run.dir={tmp_path / 'out'}", "compare=null", *small]
    assert run.main([*args, "run.engine=compiled", "scenario.contention=true"]) == 2
    line = error_line(capsys)
    assert "shares network links, which the compiled engine does not cover (choose run.engine=simpy)" in line
    assert run.main([*args, "run.engine=fast"]) == 2
    assert "run.engine" in error_line(capsys)
    assert run.main([*args, "run.engine=simpy"]) == 0
    assert json.loads((tmp_path / "out" / "result.json").read_text())["engine"] == "simpy"


def test_a_finished_run_is_not_run_again_but_a_changed_one_is(small, tmp_path, capsys):
    args = ["policy=fcfs", f"hydra.run.dir={tmp_path / 'out'}", *small]
    assert run.main(args) == 0
    first = (tmp_path / "out" / "result.json").read_bytes()
    assert "finished already" not in capsys.readouterr().out
    assert run.main(args) == 0
    assert "fcfs: finished already, not run again" in capsys.readouterr().out
    assert (tmp_path / "out" / "result.json").read_bytes() == first
    # Nor is its report written again, unless it is gone.
    report = tmp_path / "out" / "report.html"
    report.write_text("mine")
    assert run.main(args) == 0
    assert report.read_text() == "mine"
    report.unlink()
    assert run.main(args) == 0
    assert "<html" in report.read_text()
    capsys.readouterr()
    assert run.main([*args, "policy.queue=cluster"]) == 0
    assert "finished already" not in capsys.readouterr().out
    assert (tmp_path / "out" / "result.json").read_bytes() != first


def test_open_mappings_of_costs_take_new_keys(small, tmp_path, capsys):
    args = ["policy=fcfs", "compare=null", f"hydra.run.dir={tmp_path / 'out'}", *small]
    assert run.main([*args, "costs=ares", "costs.measured_s={resnet18: 50}"]) == 0
    assert "measured_s:\n    resnet18: 50" in (tmp_path / "out" / "config.yaml").read_text()
    assert run.main([*args, "costs.measured_s.bert=7", "costs.search_s_per_gpu={proxy: 1}"]) == 0
    assert "    bert: 7" in (tmp_path / "out" / "config.yaml").read_text()
    assert run.main([*args, "costs.measured_s={resnet18: -1}"]) == 2
    assert "costs.measured_s.resnet18: -1 is not valid" in capsys.readouterr().err
    assert run.main([*args, "costs.measured={resnet18: 50}"]) == 2


def test_a_sweep_runs_every_cell_and_is_collected(small, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = ["-m", "policy=arena,fcfs,srtf", "seed=0,1", "hydra.sweep.dir=sweep", "compare=null"]
    assert run.main([*sweep, *small]) == 0
    results = list((tmp_path / "sweep").rglob("result.json"))
    assert len(results) == 6
    capsys.readouterr()
    assert collect.main([str(tmp_path / "sweep"), "--json", str(tmp_path / "table.json")]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("arena", "fcfs", "srtf"))
    assert run.main([*sweep, *small]) == 0
    assert capsys.readouterr().out.count("finished already") == 6


@pytest.mark.processes
@pytest.mark.parametrize("policy", ["fcfs", "srtf", "arena"])
def test_replay_is_equal_in_another_process_and_hash_seed(policy, small, tmp_path):
    out = tmp_path / "out"
    assert run.main([f"policy={policy}", f"hydra.run.dir={out}", "compare=null", *small]) == 0
    digests = set()
    for hash_seed in ("1", "4242"):
        words = ("-m", "clustergym.replay", out, "--json", tmp_path / "replay.json")
        printed_by(*words, PYTHONHASHSEED=hash_seed)
        digests.add(json.loads((tmp_path / "replay.json").read_text())[str(out)]["digest"])
    assert digests == {json.loads((out / "result.json").read_text())["digest"]}


def test_a_run_on_a_relative_path_replays_from_another_folder(small, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(small[1].removeprefix("trace.path="), tmp_path)
    args = ["policy=fcfs", "compare=null", "hydra.run.dir=out", "trace=file", "trace.path=eight.csv"]
    assert run.main(args) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert replay.main(["../out"]) == 0
    assert "equal" in capsys.readouterr().out


def test_replay_of_a_file_names_its_folder(out, tmp_path, capsys):
    shutil.copy(out / "jobs.csv", tmp_path)
    for file, remedy in ((out / "jobs.csv", f"give {out}"), (tmp_path / "jobs.csv", "give the folder that")):
        assert replay.main([str(file)]) == 2
        assert f"{file}: is a file, not the folder of a finished run ({remedy}" in error_line(capsys)


def test_replay_notices_an_edited_decision_and_an_edited_metric(out, capsys):
    result = json.loads((out / "result.json").read_text())
    good = (out / "result.json").read_bytes()
    result["metrics"]["jct_mean"] *= 0.9
    (out / "result.json").write_text(json.dumps(result))
    assert replay.main([str(out)]) == 1
    assert "DIFFERS" in capsys.readouterr().out
    (out / "result.json").write_bytes(good)
    lines = gzip.decompress((out / "decisions.jsonl.gz").read_bytes()).decode().splitlines()
    entry = json.loads(lines[1])
    entry["launch"][0][2] *= 2
    (out / "decisions.jsonl.gz").write_bytes(
        gzip.compress("\n".join([lines[0], json.dumps(entry), *lines[2:]]).encode())
    )
    assert replay.main([str(out)]) in (1, 2)


def assert_one_line(capsys, *expected):
    line = error_line(capsys)
    for text in expected:
        assert text in line


@refused("run", words=True)
def test_a_bad_configuration_is_one_line_and_writes_nothing(
    given, said, small, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    keys = {override.partition("=")[0] for override in given}
    keys |= {"trace.path"} if "trace" in keys else set()
    rest = [one for one in small if one.partition("=")[0] not in keys]
    if "hydra.run.dir" not in keys:
        rest.append("hydra.run.dir=out/deep")
    assert run.main([*rest, *given]) == 2
    said.check(error_line(capsys), tmp_path)
    assert list(tmp_path.iterdir()) == []


BAD_JOBS = {
    "more GPUs than the cluster": ("a,0,gpt3,760M,128,10,A40,64", ":2: gpus: job a asks for 64 GPUs"),
    "a GPU type it does not have": ("a,0,gpt3,760M,128,10,V100,1", ":2: gpu_type: job a asks for V100"),
    "an unknown model": ("a,0,gpt33,760M,128,10,A40,1", "gpt33"),
    "an unknown size": ("a,0,gpt3,761M,128,10,A40,1", "761M"),
}


@pytest.mark.parametrize("name", list(BAD_JOBS))
def test_a_trace_that_does_not_suit_is_one_line(name, tmp_path, capsys):
    row, expected = BAD_JOBS[name]
    path = tmp_path / "mine.csv"
    path.write_text(f"job_id,submit_s,model_family,model_size,global_batch,iterations,gpu_type,gpus\n{row}\n")
    out = tmp_path / "out"
    assert run.main(["trace=file", f"trace.path={path}", f"hydra.run.dir={out}"]) == 2
    assert_one_line(capsys, "mine.csv", expected)
    assert not out.exists()


def test_a_stalled_policy_fails_and_writes_nothing(small, tmp_path, capsys, monkeypatch):
    from clustergym.policies.fcfs import FirstComeFirstServed

    from clustergym.scenario.policy import Decision

    monkeypatch.setattr(FirstComeFirstServed, "schedule", lambda self, view: Decision.of([]))
    out = tmp_path / "out"
    assert run.main(["policy=fcfs", "compare=null", f"hydra.run.dir={out}", *small]) == 2
    assert_one_line(capsys, "policy fcfs: stalled at", "8 jobs wait (first: job-0)")
    assert not out.exists()


def test_half_a_result_is_no_result(out, small, capsys):
    (out / "result.json").write_text('{"schema": "clustergym.result/1", "run_')
    assert run.main(["policy=fcfs", "compare=null", f"hydra.run.dir={out}", *small]) == 0
    assert "finished already" not in capsys.readouterr().out
    assert json.loads((out / "result.json").read_text())["metrics"]["jobs_finished"] == 8
