"""Traces whose jobs ask for parts of GPUs, CPU and memory; clusters whose nodes can be divided."""

import numpy as np
import pytest
from published_data import DATA, needs

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.parts import DivisibleCluster
from clustergym.common.errors import InputError
from clustergym.trace.formats import find_format, load_trace
from clustergym.trace.generators.parts import PartWorkload, at_load, generate_parts
from clustergym.trace.native import read_trace, write_trace

HEADER = "job_id,submit_s,model_family,global_batch,iterations,gpus,"
OPENB = DATA / "openb"


def written(tmp_path, columns, *rows):
    path = tmp_path / "jobs.csv"
    path.write_text(
        HEADER + columns + "\n" + "\n".join(f"{n},{n},recorded,1,10,{row}" for n, row in enumerate(rows))
    )
    return path


def test_a_native_trace_is_read_and_written(tmp_path):
    rows = ("1,500,4000,100,B|A", "0,,1000,0,", "2,1000,0,0,", "1,,0,0,A")
    trace = read_trace(written(tmp_path, "gpu_milli,cpu_milli,memory_mib,gpu_models", *rows))
    assert trace.gpus.tolist() == [1, 1, 2, 1]
    assert trace.gpu_milli.tolist() == [500, 0, 1000, 1000]
    assert trace.gpu_models == ("A|B", "", "", "A")
    write_trace(trace, tmp_path / "again.csv")
    again = read_trace(tmp_path / "again.csv")
    assert (again.sha256, again.gpus.tolist()) == (trace.sha256, [1, 1, 2, 1])
    assert "1,0,,0," not in (tmp_path / "again.csv").read_text()
    assert trace.take([1, 2]).gpu_milli.tolist() == [0, 1000]


def test_a_trace_without_parts_has_no_such_columns(tmp_path):
    trace = read_trace(written(tmp_path, "user", "1,", "2,"))
    assert trace.gpu_milli is None
    assert "gpu_milli" not in trace.csv_text()


PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"


def test_pods_of_openb(tmp_path):
    path = tmp_path / "openb_pod_list_mine.csv"
    path.write_text(
        PODS
        + "late,1000,10,1,460,T4|A10,100,160.5,110\n"  # 50.5 s
        + "cpu,2000,20,0,0,,40,60,50\n"
        + "never,1000,10,1,1000,,50,60,\n"
        + "nothing,1000,10,1,1000,,50,60,60\n"
    )
    assert find_format(path).name == "openb"
    trace = load_trace(path)
    assert trace.job_id == ("cpu", "late")
    assert (trace.submit_s.tolist(), trace.iterations.tolist()) == ([0, 60], [10, 51])
    assert (trace.gpu_milli.tolist(), trace.gpu_models) == ([0, 460], ("", "A10|T4"))
    assert trace.provenance["left_out"] == {"never scheduled": 1, "ran 0 s": 1}
    # 51 s of 0.46 GPUs over 60 s on 2 GPUs; at load 0.1 over 117.3 s.
    assert at_load(trace, 2, 0.1).submit_s.tolist() == pytest.approx([0, 51 * 0.46 / 0.2], abs=1e-6)
    with pytest.raises(InputError, match=r"trace.load: load 0 cannot be reached"):
        at_load(trace, 2, 0.0)


def test_pods_without_a_time_of_scheduling_ran_since_their_creation(tmp_path):
    path = tmp_path / "pods.csv"
    path.write_text(PODS.replace(",scheduled_time", "") + "a,1000,10,1,1000,,40,60\n")
    assert load_trace(path, "openb").iterations.tolist() == [20]


def test_pods_that_never_ran(tmp_path):
    path = tmp_path / "pods.csv"
    path.write_text(PODS + "a,1000,10,1,500,,0,10,\n")
    with pytest.raises(InputError, match=r"no pod ran"):
        load_trace(path)


def test_amounts_have_a_limit(tmp_path):
    path = tmp_path / "nodes.csv"
    for column, row in (("cpu_milli", "{},100,2,T4"), ("memory_mib", "8000,{},2,T4")):
        path.write_text(f"sn,cpu_milli,memory_mib,gpu,model\na,{row.format(10**9)}\n")
        assert int(getattr(load_cluster(str(path)).empty_nodes(), column)[0]) == 10**9
        path.write_text(f"sn,cpu_milli,memory_mib,gpu,model\na,{row.format(10**9 + 1)}\n")
        with pytest.raises(InputError, match=f"{column}: 1000000001 is above 1000000000"):
            load_cluster(str(path))


def test_generated_jobs_are_like_openbs():
    workload = PartWorkload(4000, 0, 200, 1.2, 30, 3600)
    trace, again = generate_parts(workload), generate_parts(workload)
    assert trace.sha256 == again.sha256
    assert trace.sha256 != generate_parts(PartWorkload(4000, 1, 200, 1.2, 30, 3600)).sha256
    # The shapes and weights of requests are part of what a seed draws.
    assert trace.sha256.startswith("e08732fc252eba76")
    part = (trace.gpu_milli > 0) & (trace.gpu_milli < 1000)
    # Published: 13.3 % without GPUs, 37.8 % with a part of one, whose mean is 563 thousandths.
    assert (trace.gpu_milli == 0).mean() == pytest.approx(0.133, abs=0.03)
    assert part.mean() == pytest.approx(0.378, abs=0.03)
    assert trace.gpu_milli[part].mean() == pytest.approx(563, abs=30)
    assert 30 <= trace.iterations.min() <= trace.iterations.max() <= 3600
    demand = (trace.iterations * trace.gpus * trace.gpu_milli).sum() / 1000
    assert demand / (200 * trace.span_s) == pytest.approx(1.2, rel=1e-6)
    assert (np.diff(trace.submit_s) >= 0).all()


def test_clusters_that_can_be_divided(tmp_path):
    cluster = load_cluster("openb-like")
    assert isinstance(cluster, DivisibleCluster)
    assert (len(cluster.node_gpus), int(cluster.capacity[0]), cluster.gpu_types) == (40, 205, ("GPU",))
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,100,2,T4\nb,4000,50,0,\nc,9000,70,1,A10\n")
    listed = load_cluster(str(path))
    nodes = listed.empty_nodes()
    assert (listed.name, listed.models, listed.capacity.tolist()) == ("nodes", ("A10", "T4"), [3])
    assert (nodes.cpu_milli.tolist(), nodes.gpu_milli.tolist()) == (
        [8000, 4000, 9000],
        [[1000, 1000], [0, 0], [1000, 0]],
    )
    assert nodes.model.tolist() == [1, 0, 0]
    assert listed.fingerprint() != cluster.fingerprint()


@needs("openb")
def test_openbs_own_files():
    trace = load_trace(OPENB / "pods" / "openb_pod_list_default.csv.gz")
    # Of 8,152 pods 897 were never scheduled.
    assert len(trace) == 8152 - 897
    assert trace.provenance["left_out"] == {"never scheduled": 897}
    cluster = load_cluster(str(OPENB / "openb_node_list_gpu_node.csv.gz"))
    assert (len(cluster.node_gpus), int(cluster.capacity[0])) == (1213, 6212)
