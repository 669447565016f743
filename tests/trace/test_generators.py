"""Synthetic traces against the published statistics they are calibrated on."""

import hashlib
import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from python_process import printed_by
from refusals import refused

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common.errors import InputError
from clustergym.common.paths import conf_dir, traces_dir
from clustergym.trace.generators import DeadlineOptions, generate, load_source, source_names
from clustergym.trace.generators.arrivals import _with_memory, arrival_times, in_bursts
from clustergym.trace.generators.sizes import ARENA_SHARES, draw_durations, draw_gpus, draw_virtual_clusters
from clustergym.trace.generators.synthesis import oracle_fingerprint
from clustergym.trace.native import read_trace
from clustergym.trace.trace_statistics import (
    build_tables,
    count_statistics,
    hour_of_day_share,
    offer,
    trace_statistics,
)

SOURCES = ("helios", "newtrace", "pai", "philly")
SEEDS = (0, 1, 2, 3)

# Of the published traces: Sia's philly.csv (82,247 jobs), Lucid's counts of Helios Venus (125,214 GPU
# jobs), Alibaba's openb pods (8,152), Sia's ten newTrace workloads (960 jobs each, means).
FANO = {  # of counts per 10 minutes, hour and day; None: not known
    "philly": (58.055, 161.384, 871.491),
    "helios": (15.418, 39.330, None),
    "pai": (3.467, 13.458, 226.520),
    "newtrace": (2.778, 4.788, None),
}
LAG1_HOURLY = {"philly": 0.476, "helios": 0.479, "pai": 0.839}
LN_DURATION = {  # (source, GPUs): mean and standard deviation of ln(duration)
    ("philly", 1): (6.7187, 1.9718),
    ("philly", 2): (4.5220, 3.2690),
    ("philly", 4): (9.1061, 2.7819),
    ("philly", 8): (9.6538, 2.7923),
    ("philly", 16): (9.1862, 3.3294),
    ("philly", 32): (8.6382, 2.5329),
    ("pai", 1): (6.4278, 1.8878),
    ("pai", 2): (7.4634, 2.6024),
    ("pai", 4): (5.9656, 2.6941),
    ("pai", 8): (7.5188, 2.7008),
}


@cache
def full(source, seed):
    """Return the arrivals of a trace of the source's own size."""
    known = load_source(source)
    return arrival_times(known, known.jobs, known.span_s, seed)


@cache
def jobs_of(source, n=60_000):
    """Return GPU counts and durations."""
    known = load_source(source)
    gpus = draw_gpus(known.gpus, n, 5)
    return gpus, draw_durations(known.durations, gpus, 5)


def test_the_sources():
    assert tuple(source_names()) == SOURCES


@pytest.mark.parametrize("source", SOURCES)
def test_fano_factors_are_within_a_factor_two_of_the_source(source):
    for width, published in zip((600.0, 3600.0, 86_400.0), FANO[source], strict=True):
        if published is not None:
            found = [count_statistics(full(source, seed), width)["fano"] for seed in SEEDS]
            assert published / 1.5 < np.mean(found) < published * 1.5
            assert published / 2.0 < min(found)
            assert max(found) < published * 2.0


@pytest.mark.parametrize("source", sorted(LAG1_HOURLY))
def test_bursts_last_as_long_as_the_source_s(source):
    found = [count_statistics(full(source, seed), 3600.0)["lag1_autocorrelation"] for seed in SEEDS]
    assert np.mean(found) == pytest.approx(LAG1_HOURLY[source], abs=0.1)


@pytest.mark.parametrize("source", SOURCES)
def test_the_day_has_the_source_s_profile(source):
    mean = np.mean([hour_of_day_share(full(source, seed)) for seed in range(8)], axis=0)
    assert np.corrcoef(mean, load_source(source).arrivals.hour_of_day)[0, 1] > 0.9


def test_the_week_has_the_source_s_profile():
    days = [np.bincount((full("helios", seed) // 86_400).astype(int) % 7, minlength=7) for seed in range(8)]
    assert np.corrcoef(np.mean(days, axis=0), load_source("helios").arrivals.day_of_week)[0, 1] > 0.9


@pytest.mark.parametrize("source", SOURCES)
def test_gpu_counts_have_the_source_s_shares(source):
    gpus, _ = jobs_of(source)
    shares = load_source(source).gpus
    total = sum(shares.values())
    assert set(gpus.tolist()) <= set(shares)
    for count, share in shares.items():
        p = share / total
        assert (gpus == count).mean() == pytest.approx(p, abs=4.5 * np.sqrt(p * (1 - p) / len(gpus)))


@pytest.mark.parametrize(("source", "gpus"), sorted(LN_DURATION))
def test_durations_of_each_count_have_the_source_s_spread(source, gpus):
    mean, sigma = LN_DURATION[source, gpus]
    # Durations under 1 s are drawn again, which takes up to 0.12 from the widest log-normal.
    logs = np.log(draw_durations(load_source(source).durations, np.full(20_000, gpus), 1))
    assert logs.mean() == pytest.approx(mean, abs=0.1)
    assert logs.std() == pytest.approx(sigma, abs=0.16)


def test_durations_have_the_source_s_heavy_tail():
    # Philly, all jobs: percentiles 50, 90 and 99 of Sia's digest.
    _, duration_s = jobs_of("philly")
    for rank, published in ((50, 1144.0), (90, 11_264.8), (99, 254_758.4)):
        assert np.log(np.percentile(duration_s, rank)) == pytest.approx(np.log(published), abs=0.2)


def test_helios_run_times_have_venus_s_means():
    # Little's law on Venus: 12,875 s a job, 14,391 s weighted by GPUs.
    gpus, duration_s = jobs_of("helios", 400_000)
    assert duration_s.mean() == pytest.approx(12_875.0, rel=0.1)
    assert (gpus * duration_s).sum() / gpus.sum() == pytest.approx(14_391.0, rel=0.2)
    assert gpus.mean() == pytest.approx(6.733, rel=0.05)
    gpu_hours = gpus * duration_s / 3600.0
    assert [(gpu_hours < limit).mean() for limit in (1, 10, 100)] == pytest.approx(
        [0.8213, 0.9275, 0.9713], abs=0.01
    )


def test_newtrace_has_the_source_s_classes_of_gpu_time():
    # Shares of cifar10; deepspeech2 and bert; yolov3; imagenet.
    gpus, duration_s = jobs_of("newtrace")
    counts = np.bincount(np.searchsorted((1.0, 10.0, 100.0), gpus * duration_s / 3600.0), minlength=4)
    assert (counts / len(gpus)).tolist() == pytest.approx([0.526, 0.430, 0.036, 0.008], abs=0.015)


@pytest.mark.parametrize(("source", "published"), [("philly", 0.206), ("pai", 0.042)])
def test_gpus_correlate_with_duration_as_in_the_source(source, published):
    gpus, duration_s = jobs_of(source)
    assert np.corrcoef(np.log2(gpus), np.log(duration_s))[0, 1] == pytest.approx(published, abs=0.05)


def test_virtual_clusters_follow_the_gpu_count():
    known = load_source("philly")
    drawn = draw_virtual_clusters(known, np.full(20_000, 8), 0)
    # Of the 8-GPU jobs of all virtual clusters, 2869ce has 422 x 0.694313 = 293 of 1,645.
    weights = {name: group.jobs * group.gpus.get(8, 0.0) for name, group in known.virtual_clusters.items()}
    expected = weights["2869ce"] / sum(weights.values())
    assert drawn.count("2869ce") / len(drawn) == pytest.approx(expected, abs=0.015)
    assert drawn.count("ed69ec") == 0
    assert draw_virtual_clusters(known, np.array([3]), 0)[0] in known.virtual_clusters


@settings(max_examples=60, deadline=None)
@given(
    source=st.sampled_from(SOURCES),
    jobs=st.integers(1, 300),
    span_s=st.floats(0.001, 3e6),
    seed=st.integers(0, 2**40),
    start_hour=st.integers(0, 167),
)
def test_arrivals_fill_the_span_in_whole_milliseconds(source, jobs, span_s, seed, start_hour):
    span_s = round(span_s, 3)
    times = arrival_times(load_source(source), jobs, span_s, seed, start_hour)
    assert len(times) == jobs
    assert (np.diff(times) >= 0).all()
    assert times[0] == 0.0
    assert times[-1] == (span_s if jobs > 1 else 0.0)
    assert (times == np.array([round(time, 3) for time in times.tolist()])).all()


def test_start_hour_moves_the_day():
    # Helios has 6 % of its jobs from 4 to 9 and 33 % from 14 to 19.
    known = load_source("helios")
    shares = []
    for start in (0, 12):
        times = np.concatenate([arrival_times(known, 2000, 86_400.0, seed, start) for seed in range(20)])
        shares.append(((times >= 4 * 3600) & (times < 9 * 3600)).mean())
    assert shares[0] < 0.12
    assert shares[1] > 0.25


def test_limits_redraw_and_do_not_clip():
    known = load_source("helios")
    gpus = draw_gpus(known.gpus, 40_000, 0, max_gpus=4)
    total = known.gpus[1] + known.gpus[2] + known.gpus[4]
    for count in (1, 2, 4):
        assert (gpus == count).mean() == pytest.approx(known.gpus[count] / total, abs=0.01)
    duration_s = draw_durations(known.durations, gpus, 0, 100.0, 200.0)
    assert 100.0 <= duration_s.min() < 100.1
    assert 199.9 < duration_s.max() <= 200.0
    assert (duration_s == 200.0).sum() < 5


def test_max_gpus_holds_after_rounding_up():
    shares = load_source("newtrace").gpus
    assert set(draw_gpus(shares, 2000, 0, max_gpus=12, power_of_two=True).tolist()) == {4, 6, 8}
    assert set(draw_gpus(shares, 2000, 0, max_gpus=12).tolist()) == {4, 6, 8, 10, 12}


@pytest.mark.parametrize("source", SOURCES)
def test_load_alone_scales_the_span(source):
    cluster = load_cluster("arena-a")
    options = {"jobs": 150, "seed": 3, "rule": "ares", "cluster": cluster, "gpu_types": cluster.gpu_types}
    loaded, own = generate(source, load=0.9, **options), generate(source, **options)
    assert offer(loaded, cluster, build_tables(loaded, cluster)).overall == pytest.approx(0.9, rel=0.01)
    assert loaded.iterations.tolist() == own.iterations.tolist()
    known = load_source(source)
    assert own.span_s == pytest.approx(known.span_s * 150 / known.jobs, abs=0.001)


@pytest.mark.parametrize("load", [0.3, 1.2])
def test_load_with_a_span_scales_the_jobs(load):
    cluster = load_cluster("arena-a")
    options = {"jobs": 200, "cluster": cluster, "gpu_types": cluster.gpu_types, "requests": "arena"}
    trace = generate("philly", span_s=86_400.0, load=load, **options)
    assert trace.span_s == 86_400.0
    assert offer(trace, cluster, build_tables(trace, cluster)).overall == pytest.approx(load, rel=0.01)
    other = generate("philly", span_s=86_400.0, **options)
    assert (trace.model_family, trace.gpus.tolist()) == (other.model_family, other.gpus.tolist())


def test_gpu_types_in_proportion_to_capacity():
    cluster = load_cluster("arena-b")
    trace = generate(
        "philly", jobs=3000, rule="ares", cluster=cluster, gpu_types=cluster.gpu_types, max_gpus=8
    )
    # 128 H100 and 256 L20; every model of Ares fits on both.
    assert trace.gpu_type.count("L20") / 3000 == pytest.approx(2 / 3, abs=0.035)
    assert set(trace.gpu_type) == {"H100", "L20"}


def test_any_type_and_a_certain_type():
    assert set(generate("pai", jobs=20, cluster="arena-a").gpu_type) == {""}
    assert set(generate("pai", jobs=20, cluster="arena-a", gpu_types=("A10",)).gpu_type) == {"A10"}


def test_gpu_time_is_kept_when_counts_are_rounded_up():
    cluster = load_cluster("ares-64")
    rounded, kept = (
        generate("newtrace", jobs=200, rule="ares", cluster=cluster, power_of_two=power)
        for power in (True, False)
    )
    assert set(rounded.gpus.tolist()) == {4, 8, 16}
    assert {6, 10, 12} <= set(kept.gpus.tolist())
    demand = [
        float(offer(one, cluster, build_tables(one, cluster)).demand_gpu_s.sum()) for one in (rounded, kept)
    ]
    assert demand[0] == pytest.approx(demand[1], rel=0.02)


def test_arena_s_requests_replace_the_source_s():
    trace = generate("pai", jobs=3000, rule="ares", requests="arena", cluster="arena-sim")
    for count, share in ARENA_SHARES.items():
        assert (trace.gpus == count).mean() == pytest.approx(share / sum(ARENA_SHARES.values()), abs=0.04)


def test_pretraining_requests_are_as_many_gpus_for_each_power_of_two():
    trace = generate("philly", jobs=3000, requests="pretraining", cluster="arnold-ii")
    counts, jobs = np.unique(trace.gpus, return_counts=True)
    assert counts.tolist() == [64, 128, 256, 512, 1024]
    # Shares 16, 8, 4, 2, 1 of 31.
    assert jobs / len(trace.gpus) == pytest.approx(np.array([16, 8, 4, 2, 1]) / 31, abs=0.03)
    with pytest.raises(InputError, match="no job of this source asks for 32 GPUs or fewer"):
        generate("philly", jobs=10, requests="pretraining", cluster="arena-a", max_gpus=32)


def test_deadlines_have_elasticflow_s_slack():
    cluster = load_cluster("ares-64")
    trace = generate("philly", jobs=2000, rule="ares", cluster=cluster, deadlines=DeadlineOptions())
    ideal = offer(trace, cluster, build_tables(trace, cluster)).duration_s
    slack = (trace.deadline_s - trace.submit_s) / ideal
    # ElasticFlow's trace: percentiles 5, 50 and 95 are 0.55, 0.97 and 1.45.
    assert np.percentile(slack, (5, 50, 95)).tolist() == pytest.approx([0.55, 0.97, 1.45], abs=0.06)
    fixed = generate("philly", jobs=50, rule="ares", cluster=cluster, deadlines=DeadlineOptions(2.0, 2.0))
    ideal = offer(fixed, cluster, build_tables(fixed, cluster)).duration_s
    assert (fixed.deadline_s - fixed.submit_s).tolist() == pytest.approx((2.0 * ideal).tolist(), abs=0.002)


@pytest.mark.processes
def test_the_hash_seed_does_not_matter():
    code = (
        "from clustergym.trace.generators import *;import json;"
        "t=generate('philly',jobs=80,cluster='arena-a',gpu_types=('A40','A10'),load=1.1,deadlines=DeadlineOptions());"
        "print(t.sha256,json.dumps(t.provenance,sort_keys=True))"
    )
    assert len({printed_by("-c", code, PYTHONHASHSEED=seed) for seed in ("0", "12345")}) == 1


@refused("generate")
def test_bad_arguments(given, said):
    arguments = {"source": "philly", "jobs": 20, **given}
    arguments["gpu_types"] = tuple(arguments.get("gpu_types", ()))
    if "deadlines" in given:
        arguments["deadlines"] = DeadlineOptions(*given["deadlines"])
    with said.of_error():
        generate(arguments.pop("source"), **arguments)


def test_a_source_of_one_s_own(tmp_path):
    text = (conf_dir() / "generator" / "pai.yaml").read_text()
    own = tmp_path / "mine.yaml"
    own.write_text(text)
    trace = generate(str(own), jobs=5, rule="ares")
    assert trace.name == "mine-like-5"
    assert trace.job_id[0] == "mine-0"


@refused("generator-files")
def test_a_wrong_source_of_one_s_own(given, said, tmp_path):
    old, new = given
    text = (conf_dir() / "generator" / "pai.yaml").read_text()
    assert old in text
    (tmp_path / "mine.yaml").write_text(text.replace(old, new, 1))
    with said.of_error(tmp_path):
        load_source(str(tmp_path / "mine.yaml"))


MANIFEST = json.loads((traces_dir() / "manifest.json").read_text())["traces"]


def regenerate(arguments):
    """Generate a committed trace again from the arguments of its entry in the manifest."""
    given = {**arguments, "gpu_types": tuple(arguments.get("gpu_types", ()))}
    if given.get("deadlines") is not None:
        given["deadlines"] = DeadlineOptions(**given["deadlines"])
    return generate(given.pop("source"), **given)


def test_every_committed_trace_is_in_the_manifest():
    assert {path.name for path in traces_dir().glob("*.csv")} == set(MANIFEST)


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_committed_traces_are_what_the_manifest_says(name):
    entry, content = MANIFEST[name], (traces_dir() / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == entry["sha256"]
    assert len(content) == entry["bytes"] < 60_000
    assert entry["seed"] == entry["arguments"]["seed"]
    assert entry["statistics"]["jobs"] == entry["arguments"]["jobs"]
    found = trace_statistics(read_trace(traces_dir() / name))
    assert found["gpus"] == entry["statistics"]["gpus"]
    assert found["counts"]["1h"]["fano"] == pytest.approx(entry["statistics"]["counts"]["1h"]["fano"])
    assert entry["statistics"]["offered_load"]["overall"] == pytest.approx(
        entry["arguments"]["load"], rel=0.01
    )


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_committed_traces_come_out_of_their_arguments(name):
    entry = MANIFEST[name]
    again, content = regenerate(entry["arguments"]), (traces_dir() / name).read_text()
    oracle = oracle_fingerprint(load_cluster(entry["arguments"]["cluster"]), entry["arguments"]["rule"])
    if oracle == entry["oracle"]:
        assert again.csv_text() == content
    else:  # Another oracle gives other models and iterations, but no other arrivals and sizes.
        rows = [line.split(",") for line in content.splitlines()[1:]]
        assert [float(row[1]) for row in rows] == again.submit_s.tolist()
        assert [int(row[7]) for row in rows] == again.gpus.tolist()


def test_the_fingerprint_depends_on_times_and_rule():
    cluster = load_cluster("ares-64")
    slower = replace(cluster, fabric=replace(cluster.fabric, leaf_oversubscription=4.0))
    assert (
        len({oracle_fingerprint(one, rule) for one in (cluster, slower) for rule in ("arena", "ares")}) == 4
    )


def test_bursts_remember_the_hour_before():
    noise = np.random.default_rng(3).standard_normal(500)
    for correlation_h in (0.5, 1.34, 283.2):
        keep = math.exp(-1 / correlation_h)
        expected = [float(noise[0])]
        for fresh in noise[1:].tolist():
            expected.append(keep * expected[-1] + math.sqrt(1 - keep * keep) * fresh)
        values = _with_memory(noise, correlation_h)
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)
        # Only the order of hours goes into a trace.
        assert np.argsort(values).tolist() == np.argsort(expected).tolist()


def test_bursty_tenants_submit_in_the_first_tenth_of_each_period():
    # A trace of 400 s has 4 periods of 100 s. Jobs of a bursty tenant come in the first tenth of one.
    submit_s = np.array([0.0, 30.0, 130.0, 250.0, 255.0, 390.0, 400.0])
    tenants = ["a", "b", "a", "a", "b", "b", "a"]
    found = in_bursts(submit_s, tenants, 0.5, seed=3)
    moved = {tenant for tenant, before, now in zip(tenants, submit_s, found, strict=True) if before != now}
    assert len(moved) == 1
    rows = np.array([tenant in moved for tenant in tenants])
    assert (found[~rows] == submit_s[~rows]).all()
    assert (found <= submit_s).all()
    assert (np.diff(found[rows]) >= 0).all()
    later = found[rows & (submit_s > 100)]
    # Of the tenant's own periods, whatever their beginning: two jobs are less than 10 s apart, or over 90 s.
    apart = np.diff(np.sort(later))
    assert ((apart <= 10) | (apart >= 90)).all()
    assert (in_bursts(submit_s, tenants, 0.0, seed=3) == submit_s).all()
    # In 4 s, with periods of 1 s, the same comes a hundred times sooner, to the millisecond.
    assert in_bursts(submit_s / 100, tenants, 0.5, seed=3) == pytest.approx(found / 100, abs=1e-3)


def test_tenants_have_their_shares_and_bursts_keep_the_jobs():
    options = {"jobs": 600, "cluster": "ares-64", "rule": "ares", "load": 1.2, "seed": 4}
    plain = generate("helios", tenants={"x": 3, "y": 1}, **options)
    assert np.mean([name == "x" for name in plain.virtual_cluster]) == pytest.approx(0.75, abs=0.06)
    bursty = generate("helios", tenants={"x": 3, "y": 1}, bursty=0.5, **options)
    assert sorted(bursty.job_id) == sorted(plain.job_id)
    assert bursty.iterations.sum() == plain.iterations.sum()
    assert (np.diff(bursty.submit_s) >= 0).all()
    assert bursty.provenance["generator"]["arguments"]["bursty"] == 0.5
    assert "bursty" not in plain.provenance["generator"]["arguments"]
