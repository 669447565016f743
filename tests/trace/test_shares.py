"""Traces and clusters of parts of GPUs: Alibaba's openb lists, PAI's plans, and what `describe` says."""

import gzip
import json

import pytest
from error_lines import error_line

from clustergym.commands.cluster import main as cluster_command
from clustergym.commands.trace import main
from clustergym.trace.formats import ReadOptions, load_trace

COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,pod_phase"
HEAD = f"{COLUMNS},creation_time,deletion_time,scheduled_time\n"
PODS = (
    f"{HEAD}a,4000,2048,1,500,,Succeeded,100,160,110\n"
    "b,2000,1024,0,0,,Failed,50,150,60\n"
    "c,8000,1024,1,1000,,Pending,70,170,\n"
    "d,16000,8192,2,1000,V100M32|T4,Running,150,250.5,150\n"
    "e,1000,1024,1,250,,Running,160,160,160\n"
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nx,32000,65536,2,T4\ny,32000,65536,2,T4\nz,8000,4096,0,\n"
PAI_JOBS = "".join(
    f"{job},i,u,Terminated,{at},2000\n" for at, job in enumerate(("part", "sum", "more"), 1000)
)
PAI_TASKS = (
    "part,worker,1,Terminated,1010,1070.5,600,29,33.3,T4\n"
    "sum,worker,4,Terminated,1010,1030,600,29,25,T4\n"
    "more,worker,3,Terminated,1010,1030,600,29,50,V100\n"
)


@pytest.fixture
def pods(tmp_path):
    """Return a packed list of pods."""
    path = tmp_path / "pods.csv.gz"
    path.write_bytes(gzip.compress(PODS.encode()))
    return path


def test_pods_become_a_trace(pods, tmp_path, capsys):
    trace = load_trace(pods)
    # By creation; c was never scheduled, e ran 0 s. Run times are from scheduling to deletion, rounded up.
    assert trace.job_id == ("b", "a", "d")
    assert trace.submit_s.tolist() == [0, 50, 100]
    assert trace.iterations.tolist() == [90, 50, 101]
    assert trace.gpu_milli.tolist() == [0, 500, 1000]
    assert (trace.gpus.tolist(), trace.cpu_milli.tolist()) == ([1, 1, 2], [2000, 4000, 16000])
    assert (trace.memory_mib.tolist(), trace.gpu_models) == ([1024, 2048, 8192], ("", "", "T4|V100M32"))
    assert trace.provenance["left_out"] == {"never scheduled": 1, "ran 0 s": 1}
    assert main(["import", str(pods), "-o", str(tmp_path / "out.csv")]) == 0
    assert load_trace(tmp_path / "out.csv").sha256 == trace.sha256


def test_describe_tells_of_shares(pods, tmp_path, capsys):
    cluster, figures_file = tmp_path / "nodes.csv", tmp_path / "figures.json"
    cluster.write_text(NODES)
    assert main(["describe", str(pods), "--cluster", str(cluster), "--json", str(figures_file)]) == 0
    figures, shown = json.loads(figures_file.read_text()), capsys.readouterr().out
    assert figures["gpus"]["share"] == {"0": 1 / 3, "0.5": 1 / 3, "2": 1 / 3}
    part = {"jobs": 1, "job_share": 1 / 3, "gpu_share": 0.2, "gpus": 0.5, "cores": 4.0, "memory_gib": 2.0}
    assert figures["requests"]["a part of a GPU"] == part
    assert list(figures["requests"]) == ["no GPU", "a part of a GPU", "several GPUs"]
    # 0.5 x 50 s + 2 x 101 s in 100 s on 4 GPUs; (2 x 90 + 4 x 50 + 16 x 101) core-seconds on 72 cores.
    load = figures["offered_load"]
    assert load["overall"] == pytest.approx(227 / 400)
    assert load["cpu"] == pytest.approx((180 + 200 + 1616) / 7200)
    assert figures["gpu_hours"] == pytest.approx(227 / 3600)
    for text in ("a part of a GPU", "of the GPUs asked for", "Offered load on nodes", "0.57"):
        assert text in shown


def test_describe_names_a_cluster_without_cpu(pods, capsys):
    assert main(["describe", str(pods), "--cluster", "arena-a"]) == 2
    assert "--cluster: arena-a has no nodes with cpu_milli and memory_mib (name one" in error_line(capsys)


def test_nodes_are_a_cluster(tmp_path, capsys):
    path, figures_file = tmp_path / "nodes.csv", tmp_path / "figures.json"
    path.write_text(NODES)
    assert cluster_command(["describe", str(path), "--json", str(figures_file)]) == 0
    figures = json.loads(figures_file.read_text())
    assert (figures["gpus"], figures["nodes"], figures["cpu_milli"]) == (4, 3, 72000)
    shape = {"model": "T4", "gpus_per_node": 2, "cpu_milli": 32000, "memory_mib": 65536}
    assert figures["shapes"][0] == shape | {"nodes": 2, "gpus": 4}
    assert "4 GPUs that can be divided" in capsys.readouterr().out


def test_pai_keeps_its_shares(tmp_path):
    (tmp_path / "pai_job_table.csv").write_text(PAI_JOBS)
    (tmp_path / "pai_task_table.csv").write_text(PAI_TASKS)
    rounded = load_trace(tmp_path, options=ReadOptions(reference_time_s=lambda *_: 1.0, power_of_two=False))
    assert (rounded.gpus.tolist(), rounded.gpu_milli) == ([1, 1, 2], None)
    trace = load_trace(tmp_path, options=ReadOptions(keep_shares=True))
    # 33.3 % of a GPU; 4 x 25 % are a whole one; 3 x 50 % are 1.5, two whole ones.
    assert (trace.gpus.tolist(), trace.gpu_milli.tolist()) == ([1, 1, 2], [333, 1000, 1000])
    assert (trace.iterations.tolist(), trace.gpu_type) == ([61, 20, 20], ("T4", "T4", "V100"))
    assert trace.provenance["rounded_up"] == 1


def test_the_command_keeps_pais_shares(tmp_path, capsys):
    (tmp_path / "pai_job_table.csv").write_text(PAI_JOBS)
    (tmp_path / "pai_task_table.csv").write_text(PAI_TASKS)
    assert main(["describe", str(tmp_path), "--keep-shares"]) == 0
    shown = capsys.readouterr().out
    assert "0.333" in shown
    assert "a part of a GPU      1" in shown
