"""Files and folders that a normal user may not read or write are one line and exit status 2."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from error_lines import error_line
from normal_user import normal_user

from clustergym import __main__ as console
from clustergym.common.paths import conf_dir, traces_dir

TRAINED = Path(__file__).parents[2] / "clustergym" / "agents" / "trained" / "elastic.safetensors"
SMALL = ["compare=null", "cluster=arena-16", "trace=philly-like", "trace.jobs=4", "report=false"]
SMALL += ["progress=false"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a file of each kind; every test copies it."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copy(traces_dir() / "philly-like-160.csv", folder / "trace.csv")
    (folder / "cluster.yaml").write_text((conf_dir() / "cluster" / "arena-16.yaml").read_text())
    (folder / "costs.json").write_text(json.dumps({}))
    for suffix in (".safetensors", ".yaml"):
        shutil.copy(TRAINED.with_suffix(suffix), folder / f"agent{suffix}")
    (folder / "failures.csv").write_text("time_s,node,repair_s\n100,0,60\n")
    (folder / "times.csv").write_text("model_family,gpu_type,gpus,iteration_time_s\n")
    assert console.main(["run", "policy=fcfs", f"hydra.run.dir={folder / 'out'}", *SMALL]) == 0
    return folder


LEARNED = "run policy=learned policy.checkpoint=agent.safetensors compare=null"
CASES = {
    "trace of run": ("trace.csv", "run policy=fcfs trace=file trace.path=trace.csv compare=null"),
    "trace of trace": ("trace.csv", "trace validate trace.csv"),
    "cluster of run": ("cluster.yaml", "run policy=fcfs cluster=file cluster.path=cluster.yaml compare=null"),
    "cluster of cluster": ("cluster.yaml", "cluster describe cluster.yaml"),
    "checkpoint": ("agent.safetensors", LEARNED),
    "what describes it": ("agent.yaml", LEARNED),
    "failures": ("failures.csv", "run policy=fcfs scenario.failures.path=failures.csv compare=null"),
    "oracle": ("times.csv", "run policy=fcfs oracle=table oracle.path=times.csv compare=null"),
    "result of collect": ("out/result.json", "collect out"),
    "result of report": ("out/result.json", "report out --out page.html"),
    "folder of collect": ("out", "collect out"),
    "config of replay": ("out/config.yaml", "replay out"),
    "decisions of replay": ("out/decisions.jsonl.gz", "replay out"),
    "result of replay": ("out/result.json", "replay out"),
}


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    monkeypatch.chdir(copy)
    return copy


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="rights are checked as Linux has them")
@pytest.mark.parametrize("case", CASES)
def test_an_unreadable_file_is_one_line(case, folder, capsys):
    name, line = CASES[case]
    path = folder / name
    words = [*line.split(), *(["progress=false"] if line.startswith("run") else [])]
    path.chmod(0)
    try:
        with normal_user():
            status = console.main(words)
    finally:
        path.chmod(0o755)
    said = error_line(capsys)
    assert status == 2
    assert name in said
    assert "Permission denied" in said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="rights are checked as Linux has them")
@pytest.mark.parametrize(
    "line",
    [
        "run policy=fcfs hydra.run.dir=closed/out",
        "run policy=fcfs hydra.run.dir=closed",
        "train agent=ppo env.jobs=4 output=closed/agent",
        "collect out --json closed/table.json",
        "report out --out closed/page.html",
    ],
)
def test_a_folder_that_may_not_be_written_is_one_line(line, folder, capsys):
    (folder / "closed").mkdir()
    (folder / "closed" / "kept").touch()
    (folder / "closed").chmod(0o555)
    words = [*line.split(), *(SMALL if line.startswith("run") else [])]
    with normal_user():
        assert console.main(words) == 2
    said = error_line(capsys)
    assert "closed" in said
    assert "Permission denied" in said
    assert [path.name for path in (folder / "closed").iterdir()] == ["kept"]
