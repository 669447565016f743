"""The page that plays runs, in a real browser, and the server of it."""

import csv
import itertools
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from error_lines import error_line

from clustergym.commands import run
from clustergym.commands.report import main as report

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "out"
    words = ["policy=arena", "trace=philly-like", "trace.jobs=30", "trace.load=1.6", "progress=false"]
    assert run.main([*words, "report=false", f"hydra.run.dir={out}"]) == 0
    return out


@pytest.fixture(scope="module")
def player(folder):
    assert report([str(folder), "--player"]) == 0
    return folder / "player.html"


def figures(page, number):
    """Return what the run of a number shows, by its name."""
    shown = page.locator(".run").nth(number).locator("dl div")
    return dict(
        zip(shown.locator("dt").all_inner_texts(), shown.locator("dd").all_inner_texts(), strict=True)
    )


def test_the_player_shows_what_the_timeline_says(open_page, player, folder):
    page = open_page(player)
    assert page.locator("h2").all_inner_texts() == ["fcfs", "arena"]
    for number, place in enumerate((folder / "compare" / "fcfs", folder)):
        rows = list(csv.DictReader((place / "timeline.csv").read_text().splitlines()))
        checked = 0
        for row, after in itertools.pairwise(rows):
            middle = (float(row["time_s"]) + float(after["time_s"])) / 2
            if checked == 40 or float(after["time_s"]) - float(row["time_s"]) < 1:
                continue
            page.evaluate(f"seek({middle!r})")
            shown = figures(page, number)
            held = sum(int(row[name]) for name in row if name.startswith("held_gpus_"))
            assert shown["running"] == row["running_jobs"], middle
            assert shown["waiting"] == row["queued_jobs"], middle
            assert shown["GPUs in use"] == f"{held + int(row['profiling_gpus'])} of 64", middle
            checked += 1
        assert checked == 40


def test_the_first_figures_of_a_long_run_are_those_of_the_timeline(open_page, tmp_path):
    words = ["policy=srtf", "trace=philly-like", "trace.jobs=250", "compare=null", "report=false"]
    assert run.main([*words, "progress=false", "table=false", f"hydra.run.dir={tmp_path}"]) == 0
    rows = list(csv.DictReader((tmp_path / "timeline.csv").read_text().splitlines()))
    assert len(rows) > 500, "more than the report's lines have, which are means"
    assert report([str(tmp_path), "--player"]) == 0
    shown = figures(open_page(tmp_path / "player.html"), 0)
    assert float(shown["samples/s"]) == float(rows[0]["throughput"]) == 0.0, "the first job is restored"
    assert shown["running"] == rows[0]["running_jobs"]


def test_keys_move_through_the_run(open_page, player):
    page = open_page(player)
    at = "Number(document.getElementById('time').value)"
    page.keyboard.press("End")
    end = page.evaluate(at)
    assert figures(page, 1)["done"] == "30 of 30"
    page.keyboard.press("Home")
    assert page.evaluate(at) == 0
    page.keyboard.press("ArrowRight")
    first = page.evaluate(at)
    page.keyboard.press("ArrowRight")
    assert 0 < first < page.evaluate(at)
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(at) == first
    page.keyboard.press("Shift+ArrowRight")
    assert page.evaluate(at) == pytest.approx(first + end / 100)
    page.keyboard.press(" ")
    # The page's policy forbids to evaluate text in it, which `wait_for_function` does.
    for _ in range(200):
        if page.evaluate(at) > first + end / 100 + 1:
            break
        page.wait_for_timeout(50)
    assert page.evaluate(at) > first + end / 100 + 1
    assert page.locator("#play").inner_text() == "Stop"
    page.keyboard.press(" ")
    assert page.locator("#play").get_attribute("aria-pressed") == "false"
    assert page.locator("#clock").inner_text().count(":") == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_one_below_the_other_without_sideways_scrolling(open_page, player, scheme):
    page = open_page(player, 420, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 420
    first, second = (page.locator(".run").nth(number).bounding_box() for number in (0, 1))
    assert second["y"] >= first["y"] + first["height"]
    page.locator("#second").select_option(label="none")
    assert page.locator(".run").count() == 1
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in background.strip("rgb()").split(",")) > 3 * 128
    assert light == (scheme == "light")


def test_a_gpu_tells_its_job(open_page, player):
    page = open_page(player)
    page.evaluate("seek(prepared(RUNS[0]).bars[0].start + 1)")
    job, node = page.evaluate("[prepared(RUNS[0]).bars[0].job, prepared(RUNS[0]).bars[0].node]")
    canvas = page.locator(".run").first.locator("canvas").first
    x, y = page.evaluate(
        "layout(RUNS[0], document.querySelector('.run').clientWidth).places[prepared(RUNS[0]).bars[0].node]"
        "[prepared(RUNS[0]).bars[0].boxes[0].slot].slice(0, 2)"
    )
    canvas.hover(position={"x": x + 2, "y": y + 2})
    told = page.locator(".readout").first.inner_text()
    assert told.startswith(f"node {node} (")
    assert job in told


@pytest.mark.processes
def test_it_is_served_to_this_machine_only(folder):
    command = [sys.executable, "-m", "clustergym.report", str(folder), "--serve", "--port", "0"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        # A shell ignores the signal for what it starts in the background, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        address = process.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address) as answer:
            assert "clustergym player" in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"{address}result.json")
        refused.value.close()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        process.stdout.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--serve", "--port", "99999"], "--port: 99999 cannot be had"),
        (["--serve", "--out", "x.html"], "--out: --serve writes no file"),
    ],
)
def test_bad_options_are_one_line(folder, options, told, capsys):
    assert report([str(folder), *options]) == 2
    assert told in error_line(capsys)


FABRIC = """\
name: fabric
nodes: [{gpu_type: A40, count: 40, gpus_per_node: 2}, {gpu_type: V100, count: 5, gpus_per_node: 16}]
fabric: {nodes_per_leaf: 3, leaves_per_minipod: 4}
"""


@pytest.mark.parametrize("width", [420, 1400])
def test_every_gpu_has_a_place_of_its_own_under_its_switch(open_page, tmp_path, width):
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    words = [f"cluster.path={tmp_path / 'fabric.yaml'}", "trace=philly-like", "trace.jobs=3", "compare=null"]
    assert run.main([*words, "policy=fcfs", "progress=false", f"hydra.run.dir={tmp_path}"]) == 0
    assert report([str(tmp_path), "--player"]) == 0
    page = open_page(tmp_path / "player.html", width)
    drawn = page.evaluate("layout(RUNS[0], document.querySelector('.run').clientWidth)")
    room = page.evaluate("document.querySelector('.run').clientWidth")
    places = [tuple(place) for node in drawn["places"] for place in node]
    # 40 x 2 + 5 x 16 GPUs; 40 nodes of A40 and 5 of V100 at 3 a switch, 4 switches a minipod.
    assert len(set(places)) == len(places) == 160
    assert all(
        0 <= x <= room - drawn["cell"] and 0 <= y <= drawn["height"] - drawn["cell"] for x, y in places
    )
    names = [name for name, *_ in drawn["labels"]]
    assert [name for name in names if name.startswith("minipod")] == [f"minipod {pod}" for pod in range(4)]
    nodes = page.evaluate("RUNS[0].nodes")
    assert len([name for name in names if name.startswith("switch")]) == len(
        {(t, leaf) for t, _, leaf, _ in nodes}
    )
    assert page.evaluate("document.documentElement.scrollWidth") == width


PAIRS = """\
gpu_type,gpus,model_a,batch_a,model_b,batch_b,kept_a,kept_b
A40,1,resnet18,64,resnet18,64,0.9,0.9
"""
TWO_JOBS = """\
job_id,submit_s,model_family,model_size,global_batch,iterations,gpu_type,gpus
a,0,resnet18,,64,90000,A40,1
b,400,resnet18,,64,60000,A40,1
"""


def test_two_jobs_on_a_gpu_have_half_of_its_square_each(open_page, tmp_path):
    for name, text in (("pairs.csv", PAIRS), ("jobs.csv", TWO_JOBS)):
        (tmp_path / name).write_text(text)
    (tmp_path / "one.yaml").write_text("name: one\nnodes:\n  - {gpu_type: A40, count: 1, gpus_per_node: 1}\n")
    words = ["policy=gandiva", "policy.pack=true", "compare=null", "progress=false", "costs=free"]
    words += [f"cluster.path={tmp_path / 'one.yaml'}", "trace=file", f"trace.path={tmp_path / 'jobs.csv'}"]
    assert (
        run.main([*words, f"scenario.pairs={tmp_path / 'pairs.csv'}", f"hydra.run.dir={tmp_path / 'out'}"])
        == 0
    )
    assert report([str(tmp_path / "out"), "--player"]) == 0
    page = open_page(tmp_path / "out" / "player.html")
    joined = "prepared(RUNS[0]).bars.find(bar => bar.job === 'b').start"
    page.evaluate(f"seek({joined} - 1)")
    assert figures(page, 0)["GPUs in use"] == "1 of 1"
    page.evaluate(f"seek({joined} + 1)")
    assert figures(page, 0)["GPUs in use"] == "1 of 1"
    canvas = page.locator(".run").first.locator("canvas").first
    x, y = page.evaluate("layout(RUNS[0], document.querySelector('.run').clientWidth).places[0][0]")
    canvas.hover(position={"x": x + 2, "y": y + 2})
    told = page.locator(".readout").first.inner_text()
    assert "a, half of 1 GPU beside b, " in told
    assert "b, half of 1 GPU beside a, " in told
    cell = page.evaluate("layout(RUNS[0], document.querySelector('.run').clientWidth).cell")
    column = "document.querySelector('.run canvas').getContext('2d').getImageData({}, {}, 1, {}).data"
    pixels = page.evaluate(f"Array.from({column.format(x + cell / 2, y, cell)})")
    upper, lower = (pixels[4 * int(part * cell) :][:4] for part in (0.25, 0.75))
    assert upper != lower
    chart = open_page(tmp_path / "out" / "report.html")
    chart.locator("canvas").scroll_into_view_if_needed()
    width, end_s, at_s = chart.evaluate(
        "[document.querySelector('canvas').clientWidth, DATA.groups[0].runs[0].end_s,"
        " DATA.groups[0].runs[0].bars.rows.find(row => row[4] === 'b')[1]]"
    )
    chart.locator("canvas").hover(position={"x": 96 + (width - 104) * (at_s + 1) / end_s, "y": 8})
    told = chart.locator(".readout").inner_text()
    assert "a, half of 1 GPU beside b" in told
    assert "b, half of 1 GPU beside a" in told
