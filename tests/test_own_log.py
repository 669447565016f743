"""A user's own log on the user's own cluster: durations, GPU types, counts and drops, and what a run says."""

import copy
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from error_lines import error_line
from hypothesis import given, settings
from hypothesis import strategies as st

import clustergym
from clustergym.commands import run
from clustergym.commands.trace import main as trace_main
from clustergym.common.errors import InputError
from clustergym.oracle.measured.iteration_times import COLUMNS
from clustergym.scenario.by_name import compose
from clustergym.scenario.request_changes import request_changes
from clustergym.scenario.scenario_config import build_scenario

H200 = {"fp16_tflops": 989, "fp32_tflops": 67, "tf32_tflops": 494, "memory_gb": 141, "memory_gbs": 4800}
H200 |= {"link_kind": "nvlink4", "link_gbs": 450, "nic_gbps": 400}


@pytest.fixture(scope="module")
def base():
    """A run of a file on a cluster of a file, in which nothing but training takes time."""
    words = ["trace=file", "trace.path=none.csv", "costs=free", "scenario.rounds=event"]
    return compose(words)


def nodes(**count):
    """Return the configuration of a cluster of so many nodes of 8 GPUs."""
    listed = [{"gpu_type": name, "count": number, "gpus_per_node": 8} for name, number in count.items()]
    fabric = {"nodes_per_leaf": 16, "leaves_per_minipod": 8}
    return {"name": "mine", "path": None, "nodes": listed, "fabric": fabric, "gpu_types": {"H200": H200}}


def write(folder, *rows, header="submit_s,duration_s,gpus,gpu_type"):
    path = Path(folder) / "log.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def scenario_of(base, path, cluster, rules=None, **trace):
    config = copy.deepcopy(base)
    config["cluster"] = cluster
    config["trace"] |= {"path": str(path), **trace}
    config["scenario"] |= rules or {}
    return build_scenario(config)


clusters = st.lists(
    st.sampled_from(["A100", "V100", "A40", "H200"]), min_size=1, max_size=3, unique=True
).map(lambda names: nodes(**{name: 3 + at for at, name in enumerate(names)}))
jobs = st.tuples(st.integers(600, 20_000), st.integers(1, 20), st.booleans())


@settings(max_examples=12, deadline=None)
@given(cluster=clusters, log=st.lists(jobs, min_size=1, max_size=5), any_type=st.booleans())
def test_a_log_keeps_its_durations_on_its_own_cluster(base, cluster, log, any_type):
    # Jobs are so far apart that each runs alone, and so as closely placed as can be.
    types = [group["gpu_type"] for group in cluster["nodes"]]
    rows = [
        f"{30_000 * n},{s},{gpus},{types[n % len(types)] * named}" for n, (s, gpus, named) in enumerate(log)
    ]
    with tempfile.TemporaryDirectory() as folder:
        scenario = scenario_of(base, write(folder, *rows), cluster, counts="keep", any_type=any_type)
    recorded = np.array([seconds for seconds, _, _ in log])
    assert scenario.trace.gpus.tolist() == [gpus for _, gpus, _ in log]
    iteration_s = scenario.reference_iteration_time_s
    assert (abs(scenario.trace.iterations * iteration_s - recorded) <= 0.51 * iteration_s).all()
    result = clustergym.simulate(scenario, "fcfs")
    on_its_type = (scenario.request_type >= 0) | (len(types) == 1)
    missed = abs(result.jobs.run_s - recorded)[on_its_type]
    assert (missed <= 0.51 * iteration_s[on_its_type] + 0.001).all()


def test_durations_hold_by_the_oracle_of_the_run(base, tmp_path):
    recorded = {**base, "oracle": {"name": "recorded", "models": None}}
    scenario = scenario_of(recorded, write(tmp_path, "0,7200,8,", "9,600,2,"), nodes(A100=2))
    assert scenario.trace.iterations.tolist() == [7200, 600]


def test_a_log_of_another_cluster_needs_that_cluster(base, tmp_path):
    path = write(tmp_path, "0,7200,8,A100", "9,600,8,V100")
    with pytest.raises(
        InputError, match=r"log\.csv:3: gpu_type: .* ran on V100, .* trace\.reference_cluster=NAME"
    ):
        scenario_of(base, path, nodes(A100=2))
    moved = [
        scenario_of(base, path, cluster, {"other_types": "any"}, reference_cluster="arena-sim")
        for cluster in (nodes(A100=2), nodes(H200=4), nodes(A40=4, V100=2))
    ]
    kept = {(tuple(one.trace.model_classes), tuple(one.trace.iterations.tolist())) for one in moved}
    assert len(kept) == 1
    with pytest.raises(InputError, match=r"trace\.reference_cluster: unknown cluster 'arena-sin'.*arena-sim"):
        scenario_of(base, path, nodes(A100=2), reference_cluster="arena-sin")


@pytest.mark.parametrize("spelled", ["H200", "h200"])
def test_a_gpu_type_of_the_users_own_may_be_asked_for(base, tmp_path, spelled):
    cluster = nodes(H200=2, A100=2)
    assert scenario_of(base, write(tmp_path, f"0,600,8,{spelled}"), cluster).trace.gpu_type == ("H200",)
    header = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus,gpu_type"
    native = write(tmp_path, f"a,0,gpt3,760M,128,200,4,{spelled}", header=header)
    assert scenario_of(base, native, cluster).trace.gpu_type == ("H200",)
    with pytest.raises(
        InputError, match=r"log\.csv:2: gpu_type: unknown GPU type 'H20O' \(did you mean H200"
    ):
        scenario_of(base, write(tmp_path, "0,600,8,H20O"), cluster)


def test_drawn_types_can_hold_the_job(base, tmp_path):
    path = write(tmp_path, *(f"{n},600,{gpus}," for n, gpus in enumerate([32, 16] * 20)))
    scenario = scenario_of(base, path, nodes(H100=2, A40=8))
    drawn = np.array(scenario.trace.gpu_type)
    assert set(drawn[::2]) == {"A40"}  # 16 H100 do not hold a job of 32 GPUs.
    assert set(drawn[1::2]) == {"A40", "H100"}


def test_counts_are_rounded_as_is_said_or_kept(base, tmp_path, capsys):
    path, cluster = write(tmp_path, "0,7200,6,", "9,600,8,", "20,600,5,"), nodes(A100=4)
    rounded, kept = (scenario_of(base, path, cluster, counts=counts) for counts in ("round", "keep"))
    changes = request_changes(rounded)
    assert (changes.rounded, changes.asked_gpus, changes.given_gpus, changes.largest) == (2, 11, 16, (5, 8))
    assert kept.trace.gpus.tolist() == kept.request_gpus.tolist() == [6, 8, 5]
    assert kept.tables.counts.tolist() == [1, 2, 4, 5, 6, 8, 16, 32]
    assert request_changes(kept).counts == {}
    for policy in ("arena", "ares", "sia", "optimus", "srtf"):
        assert clustergym.simulate(kept, policy).metrics["jobs_finished"] == 3
    # A native trace keeps its iterations; its counts are rounded by the scenario.
    header = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus"
    native = write(tmp_path, "a,0,gpt3,760M,128,200,6", header=header)
    assert request_changes(scenario_of(base, native, cluster)).counts == {"rounded": 1}
    assert scenario_of(base, native, cluster, counts="keep").request_gpus.tolist() == [6]


def test_an_error_names_the_count_that_was_asked_for(base, tmp_path):
    with pytest.raises(
        InputError, match=r"asks for 200 GPUs \(rounded up to 256\), .* has 32 A100 \(name a larger"
    ):
        scenario_of(base, write(tmp_path, "0,600,8,", "9,600,200,"), nodes(A100=4))
    with pytest.raises(
        InputError, match=r"asks for 20 GPUs .* has 24 A100 \(keep counts with trace\.counts=keep"
    ):
        scenario_of(base, write(tmp_path, "0,600,20,"), nodes(A100=3))


def run_words(tmp_path, path, *more):
    cluster = tmp_path / "mine.yaml"
    cluster.write_text("name: mine\nnodes: [{gpu_type: A100, count: 4, gpus_per_node: 8}]\n")
    words = ["trace=file", f"trace.path={path}", "cluster=file", f"cluster.path={cluster}", "policy=fcfs"]
    words += ["compare=null", "report=false", "progress=false", f"hydra.run.dir={tmp_path / 'out'}"]
    return [*words, *more]


def test_a_run_says_what_it_changed_and_dropped(tmp_path, capsys):
    path = write(tmp_path, "0,7200,6,", "9,600,8,", "20,600,200,")
    assert run.main(run_words(tmp_path, path, "table=false", "scenario.oversize=drop")) == 0
    printed = capsys.readouterr().out
    assert "; recorded durations hold on cluster mine (" in printed
    assert "1 of 3 GPU counts were rounded up to powers of two, 6 GPUs to 8 in all" in printed
    assert "note: 1 of 3 jobs are dropped: 1 ask for more GPUs than the cluster has (see" in printed
    assert "without 1 of 3 jobs, which were dropped; wrote" in printed
    assert "raised" not in printed
    assert "note: each 3,600 s placer buddy may move running jobs" in printed
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["request_changes"] == {"rounded": 1, "too_large": 1}


def test_a_run_of_nothing_is_an_error(tmp_path, capsys):
    path = write(tmp_path, "0,7200,200,")
    assert run.main(run_words(tmp_path, path, "scenario.oversize=drop")) == 2
    assert "all 1 jobs would be dropped on cluster mine: 1 ask for more GPUs" in error_line(capsys)
    assert not (tmp_path / "out").exists()


def test_milliseconds_are_found_against_the_span_of_the_log(tmp_path, capsys):
    # 40 jobs of 10 minutes, one an hour; in milliseconds each would take a week, and all but a few would
    # still run when the last is submitted.
    own = tmp_path / "own.csv"
    for unit, factor in (("", 1), ("milliseconds", 1000)):
        lines = [f"{3600 * number},{600 * factor},1" for number in range(40)]
        own.write_text("\n".join(["submit_time,duration,gpus", *lines]) + "\n")
        assert trace_main(["validate", str(own)]) == 0
        warned = capsys.readouterr().err
        assert (unit in warned and "of the jobs end after the last submission" in warned) == bool(unit)
    lines = [f"{1_772_000_000_000 + 3_600_000 * number},600,1" for number in range(40)]
    own.write_text("\n".join(["submit_time,duration,gpus", *lines]) + "\n")
    assert trace_main(["validate", str(own)]) == 2
    said = "submit_time: 1772140400000 s since 1970 lies after the year 2200 (if these are milliseconds"
    assert said in capsys.readouterr().err


def test_durations_in_milliseconds_get_a_warning(tmp_path, capsys):
    path = write(tmp_path, "0,7200000,8,", "9,3600000,8,")
    assert run.main(run_words(tmp_path, path, "table=false", "horizon_s=10")) == 0
    assert "durations are read as seconds: if they are milliseconds" in capsys.readouterr().err
    assert run.main(run_words(tmp_path, write(tmp_path, "0,7200,8,"), "table=false", "horizon_s=10")) == 0
    assert "milliseconds" not in capsys.readouterr().err


TABLE = ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (
            ("model,gpu,seconds", "gpt3,A100,1"),
            f"columns missing (the header needs {TABLE.replace(',', ', ')})",
        ),
        (
            (TABLE, "gpt3,2.6X,128,A100,1,8,3.0"),
            "speeds.csv:2: model_family: model gpt3-2.6X is not in the model",
        ),
        ((TABLE, "gpt3,2.6B,128,A100,1,2,3.0"), "have no row of their model, batch, GPU type and count in"),
    ],
)
def test_a_measured_table_that_cannot_be_used(tmp_path, capsys, lines, wanted):
    header = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus"
    native = write(tmp_path, "a,0,gpt3,760M,128,200,4", header=header)
    speeds = tmp_path / "speeds.csv"
    speeds.write_text("\n".join(lines) + "\n")
    words = run_words(tmp_path, native, "oracle=table", f"oracle.path={speeds}")
    assert run.main(words) == 2
    assert wanted in error_line(capsys)
    if "have no row" in wanted:
        assert run.main([*words, "oracle.missing=estimate", "table=false"]) == 0
