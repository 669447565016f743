"""Reports: figures against small runs worked by hand, bad input, and the page's text."""

import errno
import gzip
import json
import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clustergym.commands import run
from clustergym.commands.report import main
from clustergym.common.errors import InputError
from clustergym.results.report.colours import GREYLESS, choose_style, choose_styles
from clustergym.results.report.event_curves import collect_log, overhead_gpu_h, read_log
from clustergym.results.report.payload import payload, place_boxes, shares
from clustergym.results.report.seeds import band_of_distributions, band_over_time
from clustergym.results.report.series import cdf, read_table, resample_steps
from clustergym.results.result_files import read_results
from clustergym.results.result_writing import FILES


def log(path, *events):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    return path


def event(time_s, kind, job, gpus=0, overhead_s=0.0):
    held = {"gpu_type": "A40", "gpus": gpus, "nodes": [[0, gpus]], "overhead_s": overhead_s}
    return {"time_s": time_s, "kind": kind, "job_id": job} | (held if gpus else {})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of six jobs by arena, and one by fcfs beside it; one job's name is markup."""
    folder = tmp_path_factory.mktemp("runs")
    header = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpu_type,gpus\n"
    names = ["</script><script>alert(1)</script>", *(f"job-{i}" for i in range(1, 6))]
    rows = [
        f"{name},{i * 200},gpt3,760M,128,{40 + 10 * i},{'A40' if i % 2 else 'A10'},{2 ** (i % 4)}"
        for i, name in enumerate(names)
    ]
    (folder / "six.csv").write_text(header + "\n".join(rows) + "\n")
    out = folder / "out"
    args = ["policy=arena", "trace=file", f"trace.path={folder / 'six.csv'}", "progress=false"]
    assert run.main([*args, f"hydra.run.dir={out}"]) == 0
    return out


def test_holdings_and_overhead_by_hand(tmp_path):
    # a: 2 GPUs from 0 to 100 (10 s of overhead), 4 GPUs from 100 to 105, cut off within its overhead of 20 s.
    # b: profiled from 5 to 15 on 1 GPU, started at 105 on 1 GPU, still there at the end, 205.
    path = log(
        tmp_path / "events.jsonl.gz",
        event(0, "submit", "a"),
        event(0, "start", "a", 2, 10),
        event(5, "profile_start", "b", 1),
        event(15, "profile_end", "b", 1),
        event(100, "rescale", "a", 4, 20),
        event(105, "complete", "a"),
        event(105, "start", "b", 1, 36),
    )
    held = read_log(path, 205).held
    assert [(one.job, one.action, one.gpus, one.start_s, one.end_s, one.overhead_s) for one in held] == [
        ("a", "start", 2, 0, 100, 10),
        ("b", "profile", 1, 5, 15, 0),
        ("a", "rescale", 4, 100, 105, 5),
        ("b", "start", 1, 105, 205, 36),
    ]
    # start: (2 x 10 + 1 x 36) / 3600; rescale: 4 x 5 / 3600.
    assert overhead_gpu_h(held) == pytest.approx(
        {"start": 56 / 3600, "resume": 0, "rescale": 20 / 3600, "migrate": 0, "save": 0}
    )


def test_a_failed_node_takes_the_gpus_of_its_jobs(tmp_path):
    path = log(
        tmp_path / "events.jsonl.gz",
        event(0, "start", "a", 2),
        {"time_s": 40, "kind": "node_fail", "gpu_type": "A40", "gpus": 2, "nodes": [[0, 2]]},
        event(40, "fail", "a"),
        {"time_s": 90, "kind": "node_repair", "gpu_type": "A40", "gpus": 2, "nodes": [[0, 2]]},
        event(90, "resume", "a", 2),
    )
    found = read_log(path, 100)
    assert [(one.action, one.start_s, one.end_s) for one in found.held] == [
        ("start", 0, 40),
        ("resume", 90, 100),
    ]
    assert found.outages == [(0, 40, 90)]


def boxes(path, end_s, node_gpus):
    """The boxes of each holding on its first node, with its job, times and share."""
    held = read_log(path, end_s).held
    assert shares(held)
    places = [one[0] for one in place_boxes(held, node_gpus)]
    return [
        (one.job, one.start_s, one.end_s, one.share, [tuple(box) for box in place])
        for one, place in zip(held, places, strict=True)
    ]


def test_parts_of_a_gpu_lie_below_each_other(tmp_path):
    # Device 1: a 0.3 and b 0.5 from the top; a leaves, c's 0.4 does not fit into its gap and is drawn in two.
    # d has both devices of node 1, e none.
    def part(time_s, job, milli, devices=(1,), node=0):
        shown = {"nodes": [[node, max(len(devices), 1)]], "devices": list(devices), "gpu_milli": milli}
        return event(time_s, "start", job, max(len(devices), 1)) | shown

    path = log(
        tmp_path / "events.jsonl.gz",
        part(0, "a", 300),
        part(10, "b", 500),
        event(20, "complete", "a"),
        part(20, "c", 400),
        part(30, "d", 1000, (0, 1), 1),
        part(40, "e", 0, ()),
        event(50, "complete", "c"),
    )
    assert boxes(path, 60, [2, 2]) == [
        ("a", 0, 20, 0.3, [(1, 0, 300)]),
        ("b", 10, 60, 0.5, [(1, 300, 500)]),
        ("c", 20, 50, 0.4, [(1, 0, 300), (1, 800, 100)]),
        ("d", 30, 60, 1.0, [(0, 0, 1000), (1, 0, 1000)]),
        ("e", 40, 60, 0.0, []),
    ]


@pytest.mark.parametrize(("device", "legal"), [(1_000_000, True), (1_000_001, False), (-1, False)])
def test_numbers_of_devices_have_a_limit(tmp_path, device, legal):
    start = event(0, "start", "a", 1) | {"nodes": [[0, 1]], "devices": [device], "gpu_milli": 300}
    path = log(tmp_path / "events.jsonl.gz", start)
    if legal:
        assert [one.job for one in read_log(path, 10).held] == ["a"]
    else:
        with pytest.raises(InputError, match="devices are not a list of numbers"):
            read_log(path, 10)


def test_a_job_has_half_of_its_gpus_while_it_has_a_partner(tmp_path):
    # a and b have a GPU each; c joins a at 10. a leaves at 30: c has all of the GPU, until d joins at 40.
    # a stands still for 10 s before c comes and 10 s after it, for which it is charged half, as c is for 4 s.
    path = log(
        tmp_path / "events.jsonl.gz",
        event(0, "start", "a", 1, 20),
        event(0, "start", "b", 1),
        event(10, "start", "c", 1, 4) | {"beside": "a"},
        {"time_s": 10, "kind": "rate", "job_id": "a", "beside": "c"},
        event(30, "complete", "a"),
        {"time_s": 30, "kind": "rate", "job_id": "c"},
        event(40, "start", "d", 1) | {"beside": "c"},
        {"time_s": 40, "kind": "rate", "job_id": "c", "beside": "d"},
    )
    assert boxes(path, 50, [2]) == [
        ("a", 0, 10, 1.0, [(0, 0, 1000)]),
        ("b", 0, 50, 1.0, [(1, 0, 1000)]),
        ("a", 10, 30, 0.5, [(0, 0, 500)]),
        ("c", 10, 30, 0.5, [(0, 500, 500)]),
        ("c", 30, 40, 1.0, [(0, 0, 1000)]),
        ("c", 40, 50, 0.5, [(0, 0, 500)]),
        ("d", 40, 50, 0.5, [(0, 500, 500)]),
    ]
    assert overhead_gpu_h(read_log(path, 50).held)["start"] == pytest.approx((10 + 10 / 2 + 4 / 2) / 3600)


def paced(time_s, kind, job, iteration_s):
    return {**event(time_s, kind, job, 0 if kind == "rate" else 2), "iteration_time_s": iteration_s}


def test_jobs_slowed_by_others_by_hand(tmp_path):
    # a runs alone from 0; b comes at 10 and slows both; b leaves at 30, a is as fast as before.
    path = log(
        tmp_path / "events.jsonl.gz",
        paced(0, "start", "a", 1.0),
        paced(10, "start", "b", 3.0),
        paced(10, "rate", "a", 1.5),
        paced(10, "rate", "b", 3.2),
        event(30, "complete", "b"),
        paced(30, "rate", "a", 1.0),
        event(40, "complete", "a"),
    )
    found = read_log(path, 40)
    assert found.paces == [(0, 1, 0), (10, 2, 2), (30, 1, 0), (40, 0, 0)]
    assert found.outages == []


def test_what_is_down_at_the_end_is_down_until_then(tmp_path):
    fail = {"time_s": 40, "kind": "node_fail", "gpu_type": "A40", "gpus": 2, "nodes": [[3, 2]]}
    assert read_log(log(tmp_path / "events.jsonl.gz", fail), 100).outages == [(3, 40, 100)]


def test_a_distribution_by_hand():
    assert cdf(np.array([4.0, np.nan, 1.0, 2.0, 2.0]), 10) == ([1, 2, 2, 4], [0.25, 0.5, 0.75, 1])
    assert cdf(np.arange(101.0), 3) == ([0, 50, 100], [1 / 101, 51 / 101, 1])
    assert cdf(np.array([np.nan]), 3) == ([], [])


def test_fewer_steps_by_hand():
    # 0 until 1, 4 until 2, 2 until 4: means over [0, 2] and [2, 4].
    times, values = resample_steps(np.array([0.0, 1.0, 2.0]), np.array([[0.0], [4.0], [2.0]]), 4.0, 2)
    assert (times.tolist(), values.tolist()) == ([0, 2], [[2], [2]])
    kept = resample_steps(np.array([0.0, 1.0]), np.array([3.0, 5.0]), 4.0, 2)
    assert [part.tolist() for part in kept] == [[0, 1], [3, 5]]


# The machine may be busy.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 1000)), min_size=1, max_size=40),
    st.integers(1, 10),
)
def test_fewer_steps_keep_the_integral(steps, most):
    lasting, values = (np.array(part) for part in zip(*steps, strict=True))
    times = np.concatenate([[0.0], np.cumsum(lasting)])
    new_times, new_values = resample_steps(times[:-1], values, times[-1], most)
    assert len(new_times) <= max(most, 0) or len(new_times) == len(values) <= most
    area = np.dot(new_values, np.diff(np.append(new_times, times[-1])))
    assert area == pytest.approx(np.dot(values, lasting), rel=1e-9, abs=1e-6)


def test_a_band_over_time_by_hand():
    # 4 until 2, 2 until 4; and 8 until 2, where that run ends: means 6 and 1 of both halves.
    times, values = band_over_time([([0, 2], [4, 2], 4.0), ([0], [8], 2.0)], 4.0, 2)
    assert times.tolist() == [0, 2]
    assert values.tolist() == [[6, 1], [4, 0], [8, 2]]
    assert band_over_time([([], [], 0.0), ([1], [3], 2.0)], 2.0, 2)[1].tolist() == [[0, 1.5], [0, 0], [0, 3]]


def test_a_band_of_distributions_by_hand():
    # Of 1, 3 half is at or below 1; of 2, 2 nothing; the third has no job that ended.
    values, shares = band_of_distributions([([1, 3], [0.5, 1]), ([2, 2], [0.5, 1]), ([], [])], 10)
    assert values.tolist() == [1, 2, 3]
    assert shares.tolist() == [[0.25, 0.75, 1], [0, 0.5, 1], [0.5, 1, 1]]
    many = band_of_distributions([(list(range(100)), [0.01 * i for i in range(1, 101)])] * 2, 3)[0]
    assert (len(many), many[0], many[-1]) == (3, 0, 99)
    assert band_of_distributions([([], [])], 3)[1].shape == (3, 0)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Three seeds of fcfs and two of srtf on drawn traces of eight jobs."""
    folder = tmp_path_factory.mktemp("seeds")
    for policy, some in (("fcfs", (0, 1, 2)), ("srtf", (0, 1))):
        for seed in some:
            args = [f"policy={policy}", f"seed={seed}", "trace=philly-like", "trace.jobs=8", "report=false"]
            args += ["compare=null", "progress=false", "table=false"]
            assert run.main([*args, f"hydra.run.dir={folder / f'{policy}-{seed}'}"]) == 0
    return folder


def test_seeds_of_a_policy_are_one_line_with_a_band(seeds):
    results = read_results([seeds])
    (group,) = payload(results)["groups"]
    assert [line["label"] for line in group["lines"]] == ["fcfs, mean of 2 seeds", "srtf, mean of 2 seeds"]
    assert [one["label"] for one in group["runs"]] == [
        *("fcfs, seed 0", "fcfs, seed 1", "fcfs, seed 2", "srtf, seed 0", "srtf, seed 1")
    ]
    line = group["lines"][0]
    assert line["runs"] == [0, 1]
    mine = [group["runs"][place] for place in line["runs"]]
    for name in ("throughput", "queued_jobs"):
        mean, (low, high) = np.array(line["timeline"][name]), np.array(line["bands"][name])
        assert (low <= mean + 1e-6).all()
        assert (mean <= high + 1e-6).all()
        # What the mean covers is the mean of what the runs cover.
        areas = [
            np.dot(one["timeline"][name], np.diff([*one["timeline"]["time_s"], one["end_s"]])) for one in mine
        ]
        assert mean.sum() * line["end_s"] / len(mean) == pytest.approx(np.mean(areas), rel=1e-4)
    jct = [result.metrics["jct_mean"] for result in results if result.policy.name == "fcfs"][:2]
    assert line["metrics"]["jct_mean"] == pytest.approx(np.mean(jct))
    assert line["intervals"]["jct_mean"] == sorted(jct)
    assert line["overhead_gpu_h"]["start"] == pytest.approx(
        np.mean([m["overhead_gpu_h"]["start"] for m in mine])
    )


def test_seeds_that_are_one_run_are_drawn_once(finished, tmp_path):
    for seed in (0, 1):
        shutil.copytree(finished, tmp_path / str(seed), ignore=shutil.ignore_patterns("compare"))
    result = json.loads((tmp_path / "1" / "result.json").read_text())
    (tmp_path / "1" / "result.json").write_text(json.dumps(result | {"seed": 1, "run_key": "another"}))
    (group,) = payload(read_results([tmp_path]))["groups"]
    assert [one["label"] for one in group["runs"]] == ["arena"]
    assert group["lines"] == [0]
    assert "one and the same run" in group["notes"][0]


def test_a_page_agrees_with_the_metrics(finished):
    (group,) = payload(read_results([finished]))["groups"]
    assert [one["label"] for one in group["runs"]] == ["fcfs", "arena"]
    for one in group["runs"]:
        metrics, timeline = one["metrics"], one["timeline"]
        assert sum(one["overhead_gpu_h"].values()) == pytest.approx(metrics["overhead_gpu_hours"])
        assert len(one["jct"][0]) == metrics["jobs_finished"] == 6
        assert np.mean(one["jct"][0]) == pytest.approx(metrics["jct_mean"])
        assert np.mean(one["fairness"][0]) == pytest.approx(metrics["ftf_mean"])
        assert max(timeline["throughput"]) == pytest.approx(metrics["throughput_peak"], rel=1e-5)
        held = np.sum([*timeline["held_gpus"].values(), timeline["profiling_gpus"]], axis=0)
        capacity = sum(node[1] for node in one["nodes"])
        assert (capacity, held.max() <= capacity) == (64, True)
        # What the areas cover is what the bars of the Gantt chart cover.
        lasting = np.diff([*timeline["time_s"], one["end_s"]])
        bars = sum((stop - start) * gpus for _, start, stop, gpus, *_ in one["bars"]["rows"])
        assert np.dot(held, lasting) == pytest.approx(bars, rel=1e-4)
        # Two leaves, one for each GPU type.
        assert {(kind, leaf) for kind, _, leaf, _ in one["nodes"]} == {("A40", 0), ("A10", 1)}


def test_names_from_a_trace_stay_text(finished):
    text = (finished / "report.html").read_text(encoding="utf-8")
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    jobs = json.loads(data)["groups"][0]["runs"][0]["jobs"]["rows"]
    assert jobs[0][0] == "</script><script>alert(1)</script>"


def test_the_same_results_make_the_same_bytes(finished, tmp_path, capsys):
    assert main([str(finished), "--out", str(tmp_path / "a.html")]) == 0
    assert main([str(finished / "compare"), str(finished), "--out", str(tmp_path / "b.html")]) == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert (tmp_path / "a.html").read_bytes() == (finished / "report.html").read_bytes()
    assert capsys.readouterr().out.splitlines()[0] == f"wrote {tmp_path / 'a.html'}: 2 results"


@pytest.fixture
def full_disk(monkeypatch):
    """No page can be written any more; everything else can."""
    write = Path.write_bytes

    def refuse(path, *args, **kwargs):
        if path.name.startswith(f".{zlib.crc32(b'report.html'):08x}."):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *args, **kwargs)

    monkeypatch.setattr(Path, "write_bytes", refuse)
    return monkeypatch


SMALL = ["policy=fcfs", "compare=null", "progress=false", "horizon_s=600", "table=false"]


@pytest.mark.slow
def test_a_page_that_fails_is_said_and_made_later(full_disk, tmp_path, capsys):
    out = tmp_path / "out"
    assert run.main([*SMALL, f"hydra.run.dir={out}"]) == 0
    shown = capsys.readouterr()
    [line] = shown.err.splitlines()
    assert line.startswith(f"warning: {out}/report.html: cannot be written: No space left on device")
    assert f"`clustergym report {out}` makes the page later" in line
    assert f"wrote {out}/" in shown.out
    before = (out / "result.json").read_bytes()
    assert not (out / "report.html").exists()
    assert main([str(out)]) == 2
    full_disk.undo()
    capsys.readouterr()
    assert main([str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}/report.html: 1 result\n"
    assert (out / "result.json").read_bytes() == before
    assert sorted(path.name for path in out.iterdir()) == sorted([*FILES, "report.html"])


@pytest.mark.slow
def test_no_page_of_an_earlier_run_stays_beside_a_newer_result(full_disk, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("of an earlier run")
    assert run.main([*SMALL, f"hydra.run.dir={out}"]) == 0
    assert not (out / "report.html").exists()
    assert "report:" not in capsys.readouterr().out


def test_the_page_of_several_runs_lies_where_one_stands(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(finished), str(finished / "compare")]) == 0
    assert main([str(finished.parent)]) == 0
    assert capsys.readouterr().out == "wrote report.html: 2 results\n" * 2
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_bytes_that_are_no_text_are_no_table(tmp_path):
    (tmp_path / "timeline.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8"):
        read_table(tmp_path / "timeline.csv", ("time_s",))


def test_a_run_whose_cluster_file_is_gone_shows_the_nodes_it_used(finished, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("compare"))
    # Nesting as deep as the last would take the process down with it in libyaml.
    for text in ("cluster: {path: /gone.yaml}\n", "[]", "", "cluster: " + "[" * 200_000):
        (folder / "config.yaml").write_text(text)
        (group,) = payload(read_results([folder]))["groups"]
        nodes = group["runs"][0]["nodes"]
        assert {leaf for _, _, leaf, _ in nodes} == {-1}
        assert {kind for kind, *_ in nodes} >= {"A40", "A10"}


def test_a_policy_has_one_colour_and_policies_differ():
    assert choose_style("arena") == choose_style("arena queue=cluster")
    assert len({choose_style(name) for name in ("arena", "fcfs", "ares", "sia", "hesrpt", "gandiva")}) == 6
    assert choose_style("somebody's").colour in GREYLESS
    assert len({choose_style(name) for name in ("arnold", "best_fit", "random_fit", "gpu_packing")}) == 4
    assert choose_style("best_fit") == choose_style("best-fit") == choose_style("best_fit_by_node")


def test_variants_of_a_policy_share_its_colour_and_leave_others_their_style():
    # ares and optimus have one colour; the variant of ares takes neither's dash.
    found = choose_styles(["ares", "ares", "optimus", "fcfs"])
    assert [found[0], *found[2:]] == [choose_style(name) for name in ("ares", "optimus", "fcfs")]
    assert len(set(found)) == 4
    assert found[1].colour == found[0].colour
    assert choose_styles(["sia"] * 9)[8].colour == choose_style("sia").colour


def test_each_policy_of_ones_own_has_a_colour_of_its_own_and_none_is_grey():
    mine = [f"mine-{number}" for number in range(8)]
    found = choose_styles(["arena", *mine, "fcfs"])
    assert [found[0], found[-1]] == [choose_style("arena"), choose_style("fcfs")]
    assert len({style.colour for style in found}) == 10
    assert {style.colour for style in found} == set(GREYLESS)
    assert choose_styles(mine[:1]) == [choose_style(mine[0])]


def test_a_job_that_saves_has_a_bar_of_its_own():
    # Two nodes of 4: a starts with 10 s of loading, has notice at 100 and saves for 20 s; then it waits.
    launch = {"gpu_type": "X", "gpus": 8, "nodes": [[0, 4], [1, 4]], "iteration_time_s": 1.0}
    events = [
        {"time_s": 0.0, "kind": "start", "job_id": "a", "overhead_s": 10.0, **launch},
        {"time_s": 100.0, "kind": "save", "job_id": "a", "overhead_s": 20.0, "iteration_time_s": 1.0},
        {"time_s": 120.0, "kind": "preempt", "job_id": "a"},
    ]
    held = collect_log(events, 200.0).held
    assert [(one.action, one.start_s, one.end_s, one.overhead_s, one.gpus) for one in held] == [
        ("start", 0.0, 100.0, 10.0, 8),
        ("save", 100.0, 120.0, 20.0, 8),
    ]
    assert overhead_gpu_h(held) == {
        "start": 8 * 10 / 3600, "resume": 0.0, "rescale": 0.0, "migrate": 0.0, "save": 8 * 20 / 3600,
    }  # fmt: skip
