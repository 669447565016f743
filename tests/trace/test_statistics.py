"""Statistics and offered load of traces, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.oracle.base import OracleTables
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
from clustergym.trace.trace import Trace
from clustergym.trace.trace_statistics import (
    build_tables,
    correlations,
    count_statistics,
    hour_of_day_share,
    interarrival_statistics,
    offer,
    trace_statistics,
)

A, B, C = (ModelClass(name, "", 32) for name in "abc")
INF = math.inf


def gpu(name):
    return GpuType(name, 100.0, 10.0, None, 16.0, 500.0, "pcie4", 32.0, 100.0)


CLUSTER = ClusterSpec("small", (NodeGroup(gpu("X"), 2, 2), NodeGroup(gpu("Y"), 1, 8)), Fabric())
"""4 GPUs of X on two nodes, 8 of Y on one."""

TIMES = {  # seconds per iteration on 1, 2, 4, 8 GPUs
    A: {"X": (8.0, 4.0, 2.0, 1.0), "Y": (4.0, 2.0, 1.0, 0.5)},
    B: {"X": (INF, INF, INF, INF), "Y": (INF, INF, 3.0, 2.0)},
    C: {"X": (INF, INF, INF, 9.0), "Y": (INF, INF, INF, INF)},
}


def tables(slower_across=1.0):
    table = np.array([[TIMES[model][kind] for kind in ("X", "Y")] for model in (A, B, C)])
    execution = np.repeat(table[..., None], 4, axis=3)
    execution[..., 1:] *= slower_across
    return OracleTables((A, B, C), ("X", "Y"), np.array([1, 2, 4, 8]), execution, execution, execution)


def trace(*jobs, submit_s=None, **more):
    """Return a trace of (model, GPU type, GPUs, iterations) jobs; by default submitted evenly over 100 s."""
    n = len(jobs)
    submit = np.linspace(0.0, 100.0, n) if submit_s is None else np.array(submit_s, dtype=float)
    models, kinds, gpus, iterations = zip(*jobs, strict=True)
    families = tuple(model.family for model in models)
    own = {"model_family": families, "gpu_type": kinds, "global_batch": np.full(n, 32)}
    return Trace.from_columns("hand", submit, np.array(iterations), np.array(gpus), **own, **more)


def test_offered_load_by_hand():
    jobs = trace(
        (A, "X", 2, 10),  # X: 10 x 4 s x 2 GPUs = 80
        (A, "", 1, 30),  # any type, 4 : 8 GPUs: X 1/3 of 30 x 8 s = 80, Y 2/3 of 30 x 4 s = 80
        (B, "Y", 2, 5),  # does not fit on 2; on 4: 5 x 3 s x 4 = 60 of Y
        (B, "X", 4, 5),  # fits on no X; on Y as requested: 60
        (C, "X", 2, 7),  # fits on 8 X only, which has 4; nor on Y: nowhere
    )
    offered = offer(jobs, CLUSTER, tables())
    assert offered.demand_gpu_s.tolist() == pytest.approx([160.0, 200.0])
    assert offered.load.tolist() == pytest.approx([160 / (4 * 100), 200 / (8 * 100)])
    assert offered.overall == pytest.approx(360 / (12 * 100))
    assert offered.job_gpu_s.tolist() == pytest.approx([80.0, 160.0, 60.0, 60.0, 0.0])
    # Run times: 10 x 4, 30 x (8/3 + 4 x 2/3), 5 x 3, 5 x 3, none.
    assert offered.duration_s[:4].tolist() == pytest.approx([40.0, 160.0, 15.0, 15.0])
    assert math.isnan(offered.duration_s[4])
    assert (offered.infeasible, offered.nowhere) == (3, 1)


def test_any_type_prefers_types_that_fit_as_requested():
    # B on 4 GPUs fits on Y only, so all of it goes there: 10 x 3 x 4.
    offered = offer(trace((B, "", 4, 10), (A, "Y", 1, 1)), CLUSTER, tables())
    assert offered.demand_gpu_s.tolist() == pytest.approx([0.0, 120.0 + 4.0])
    assert offered.infeasible == 0


def test_any_type_that_fits_nowhere_as_requested_takes_the_least_count_that_does():
    offered = offer(trace((B, "", 1, 10), (A, "Y", 1, 1)), CLUSTER, tables())
    assert offered.demand_gpu_s.tolist() == pytest.approx([0.0, 120.0 + 4.0])
    assert offered.infeasible == 1


def test_a_type_the_cluster_lacks_counts_on_the_others():
    # 1 GPU, 30 iterations, on X and Y as for any type; but not as requested.
    offered = offer(trace((A, "Z", 1, 30), (A, "Y", 1, 1)), CLUSTER, tables())
    assert offered.demand_gpu_s.tolist() == pytest.approx([80.0, 80.0 + 4.0])
    assert offered.infeasible == 1


def test_more_gpus_than_the_type_has():
    # 8 X of 4: least count that fits is 1, so 10 x 8 s x 1.
    offered = offer(trace((A, "X", 8, 10), (A, "Y", 1, 1)), CLUSTER, tables())
    assert offered.demand_gpu_s.tolist() == pytest.approx([80.0, 4.0])
    assert offered.infeasible == 1


def test_compact_locality_prices_a_job():
    # Twice as slow across nodes: 4 X need two nodes, 2 X do not, 8 Y do not.
    offered = offer(trace((A, "X", 4, 1), (A, "X", 2, 1), (A, "Y", 8, 1)), CLUSTER, tables(slower_across=2.0))
    assert offered.duration_s.tolist() == pytest.approx([4.0, 4.0, 0.5])


def test_all_at_once_is_an_unbounded_load():
    jobs = trace((A, "X", 2, 10), (A, "X", 2, 10), submit_s=[5.0, 5.0])
    assert offer(jobs, CLUSTER, tables()).load.tolist() == [INF, 0.0]
    statistics = trace_statistics(jobs, CLUSTER, tables())
    assert statistics["offered_load"]["by_gpu_type"] == {"X": None, "Y": 0.0}
    assert statistics["rate_per_hour"] is None


def test_interarrival_statistics_by_hand():
    # Gaps 1, 1, 4: mean 2, variance (1 + 1 + 4) / 3 = 2, cv = sqrt(2) / 2.
    cv = math.sqrt(2) / 2
    found = interarrival_statistics(np.array([0.0, 1.0, 2.0, 6.0]))
    assert found == pytest.approx(
        {"mean_s": 2.0, "median_s": 1.0, "cv": cv, "burstiness": (cv - 1) / (cv + 1)}
    )


def test_a_clock_has_burstiness_minus_one():
    assert interarrival_statistics(np.arange(10.0))["burstiness"] == pytest.approx(-1.0)


def test_counts_by_hand():
    # Windows of 10 s, whole ones up to 45 s: [0,10) 3, [10,20) 0, [20,30) 1, [30,40) 0; 45 is in none.
    # Mean 1, off 2, -1, 0, -1: squares 6, variance 6 / 3 = 2, Fano 2; lag 1: (-2 + 0 + 0) / 6.
    found = count_statistics(np.array([0.0, 1.0, 9.0, 20.0, 45.0]), 10.0)
    assert found == pytest.approx(
        {"windows": 4, "mean": 1.0, "max": 3, "fano": 2.0, "lag1_autocorrelation": -1 / 3}
    )


def test_counts_of_a_trace_shorter_than_a_window():
    assert set(count_statistics(np.array([0.0, 5.0]), 10.0).values()) == {0, None}


def test_poisson_arrivals_have_fano_one():
    submit = np.cumsum(np.random.default_rng(3).exponential(1.0, 200_000))
    found = count_statistics(submit - submit[0], 50.0)
    assert found["fano"] == pytest.approx(1.0, abs=0.1)
    assert found["lag1_autocorrelation"] == pytest.approx(0.0, abs=0.05)


def test_hour_of_day_wraps_at_midnight():
    share = hour_of_day_share(np.array([0.0, 3599.0, 3600.0, 86_400.0]))
    assert share[0] == 0.75
    assert share[1] == 0.25


def test_correlations_by_hand():
    # ln duration = 2 log2 gpus: both are 1 exactly.
    gpus = np.array([1, 2, 4, 8])
    found = correlations(gpus, np.exp(2.0 * np.log2(gpus)))
    assert found == pytest.approx({"pearson_log2_gpus_ln_duration": 1.0, "spearman": 1.0})
    assert set(correlations(np.array([2, 2]), np.array([1.0, 9.0])).values()) == {None}


def test_shares_and_percentiles():
    jobs = trace((A, "X", 1, 1), (A, "", 1, 1), (B, "Y", 4, 1), (A, "Y", 8, 1))
    found = trace_statistics(jobs)
    assert found["gpus"]["share"] == {"1": 0.5, "4": 0.25, "8": 0.25}
    assert found["gpus"]["mean"] == 3.5
    assert found["gpus"]["p50"] == 2.5
    assert found["gpu_type_share"] == {"X": 0.25, "any": 0.25, "Y": 0.5}
    assert found["model_share"] == {"a": 0.75, "b": 0.25}
    assert found["rate_per_hour"] == pytest.approx(4 * 36.0)
    assert "offered_load" not in found


def test_start_hour_of_the_provenance_moves_the_hour_of_day():
    jobs = trace((A, "X", 1, 1), (A, "X", 1, 1), provenance={"start_hour": 9})
    assert trace_statistics(jobs)["hour_of_day_share"][9] == 1.0


def test_one_job():
    found = trace_statistics(trace((A, "X", 1, 1), submit_s=[0.0]), CLUSTER, tables())
    assert found["interarrival"]["cv"] is None
    assert found["span_s"] == 0.0


def test_tables_cover_the_counts_of_the_trace_and_all_doublings(monkeypatch):
    monkeypatch.setattr(RooflineOracle, "tables", lambda _, classes, cluster, counts: (classes, counts))
    classes, counts = build_tables(trace((B, "X", 3, 1), (A, "", 2, 1)), CLUSTER)
    assert classes == [A, B]
    assert counts == [1, 2, 3, 4, 8]
