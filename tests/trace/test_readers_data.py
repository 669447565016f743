"""Every reader on the published files, where they are to hand."""

import numpy as np
import pytest
from published_data import find_published

from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.formats import ReadOptions, load_trace
from clustergym.trace.readers import philly
from clustergym.trace.trace import Trace

OPTIONS = ReadOptions(reference_time_s=lambda model, gpu_type, gpus: 2.0 / gpus, gpu_types=("A100", "A40"))


def load(name: str) -> Trace:
    return load_trace(find_published(name), options=OPTIONS)


def test_arena_philly_has_986_jobs_in_its_first_600000_seconds() -> None:
    trace = load("arena/simulate_trace_philly.csv")
    assert len(trace) == 1938
    assert int((trace.submit_s < 600_000).sum()) == 986
    assert trace.provenance["format"] == "arena-simulate"
    # Its first row: 119,965 iterations of bert 2.6B at 1,945,645 s, due at 1,956,739 s.
    assert trace.model_class(0) == ModelClass("gpt3", "2.6B", 256)
    assert (int(trace.iterations[0]), float(trace.deadline_s[0])) == (23_993, 11_094)
    whole = load_trace(find_published("arena/simulate_trace_philly.csv"), "arena", OPTIONS)
    assert (trace.iterations == whole.iterations // 5).all()


@pytest.mark.parametrize(
    ("name", "jobs", "types"),
    [
        ("simulate_trace_venus", 438, {"A100", "A40", "A10", "V100"}),
        ("runtime_trace", 244, {"A40", "A10"}),
        ("runtime_trace_revision", 244, {"H100", "L20"}),
    ],
)
def test_arenas_other_traces(name: str, jobs: int, types: set[str]) -> None:
    trace = load(f"arena/{name}.csv")
    assert len(trace) == jobs
    assert set(trace.gpu_type) == types
    assert trace.submit_s[0] == 0
    assert (trace.deadline_s > trace.submit_s).all()


@pytest.mark.slow
def test_philly_keeps_its_gpu_time() -> None:
    path = find_published("sia/philly.csv")
    log, trace = philly.read_log(path), load_trace(path, options=OPTIONS)
    assert len(log.row) == len(trace) == 64_483
    facts = trace.provenance["draw"]
    assert facts["gpu_s_recorded"] == pytest.approx(float((log.duration_s * log.gpus).sum()))
    assert facts["gpu_s_drawn"] == pytest.approx(facts["gpu_s_recorded"], rel=1e-6)
    assert (np.diff(trace.submit_s) >= 0).all()
    assert facts["gpus_rounded_up"] == 7 + 4  # 12 and 24 GPUs


@pytest.mark.parametrize(
    ("name", "jobs", "last_s", "most"),
    [
        ("traces_msr/11cb48", 2000, 8_799_232, 64),
        ("traces_msr/ee9e8c", 2000, 4_508_448, 32),
        ("traces_physical/max_min_fairness", 96, 46_317, 4),
        ("traces_physical/minimize_makespan", 100, 0, 4),
        ("traces_physical/artifact_evaluation", 15, 0, 2),
    ],
)
def test_both_layouts_of_gavel(name: str, jobs: int, last_s: float, most: int) -> None:
    trace = load(f"gavel/{name}.trace")
    assert len(trace) == jobs
    assert trace.submit_s[-1] == last_s
    assert trace.gpus.max() == most
    assert np.isnan(trace.deadline_s).all()


@pytest.mark.parametrize(("workload", "jobs"), [("newtrace", 960), ("philly", 160), ("saturn", 160)])
def test_sias_workloads(workload: str, jobs: int) -> None:
    for number in range(1, 5):
        trace = load(f"sia/workloads/{workload}/workload-{number}.csv")
        assert len(trace) == jobs
        assert set(trace.model_family) <= {"resnet18", "deepspeech2", "bert", "yolov3", "resnet50"}
        assert trace.provenance["origin"] == 0


def test_sias_isolated_run_times_are_those_of_the_published_profiles() -> None:
    import json

    from clustergym.trace.readers.sia import ISOLATED_GPUS, ISOLATED_S

    table = json.loads(find_published("sia/sia_isolated_runtime_s.json").read_text())
    column = {"A100": "dgx-ext", "RTX2080Ti": "rtx", "T4": "aws"}
    for gpu_type, rows in ISOLATED_S.items():
        for application, times in rows.items():
            known = table[application][column[gpu_type]]
            assert times == tuple(known[str(gpus)][0] for gpus in ISOLATED_GPUS)


@pytest.mark.parametrize(
    ("name", "jobs"), [("elasticVpollux_e", 195), ("philly_103959", 876), ("resnet_cifar_trace", 5)]
)
def test_elasticflows_traces(name: str, jobs: int) -> None:
    trace = load(f"elasticflow/{name}.csv")
    assert len(trace) == jobs
    assert (trace.deadline_s > trace.submit_s).all()
    assert trace.submit_s[0] == 0
