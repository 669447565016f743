"""The page of a report in a real browser, opened from a file."""

import pytest

from clustergym.commands import run
from clustergym.commands.report import main as report

NO_VALUE = "\u2013"
WAIT_UNTIL_REDRAWN = """async () => {
  for (let turn = 0; turn < 100; turn++) {
    if (document.querySelector("svg[role=img]").viewBox.baseVal.width > 360) return true;
    await new Promise(done => setTimeout(done, 50));
  }
  return false;
}"""


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "out"
    assert run.main(["policy=srtf", "progress=false", "horizon_s=20000", f"hydra.run.dir={out}"]) == 0
    return out / "report.html"


@pytest.fixture
def opened(open_page, page_path):
    return lambda width=1200, scheme="light": open_page(page_path, width, scheme)


def first_column(page, number):
    return page.locator(f"section:has(> h2:text-is('Jobs')) tbody td:nth-child({number})").all_inner_texts()


def test_jobs_are_sorted_by_mouse_and_keyboard(opened):
    page = opened()
    head = page.locator("th button", has_text="jct_s")
    head.click()
    place = page.locator("th", has=page.locator("button")).all_inner_texts().index("jct_s") + 1
    rising = [float(text.replace(",", "")) for text in first_column(page, place) if text != NO_VALUE]
    assert len(rising) > 20
    assert rising == sorted(rising)
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=descending]").inner_text() == "jct_s"
    falling = [float(text.replace(",", "")) for text in first_column(page, place) if text != NO_VALUE]
    assert falling == sorted(rising, reverse=True)


def test_charts_show_both_policies_and_the_run_can_be_chosen(opened):
    page = opened()
    lines = page.locator("svg[aria-label='Queued jobs over time'] path")
    assert sorted(lines.locator("title").all_text_contents()) == ["fcfs", "srtf"]
    assert page.locator("canvas").get_attribute("aria-label").endswith("srtf")
    page.locator("#run").select_option(label="fcfs")
    assert page.locator("canvas").get_attribute("aria-label").endswith("fcfs")
    page.locator("canvas").scroll_into_view_if_needed()
    page.locator("canvas").hover(position={"x": 400, "y": 40})
    assert page.locator(".readout").inner_text()


def widths(page):
    """The width of each policy's line in a chart, the last one drawn in front."""
    paths = page.locator("svg[aria-label='Queued jobs over time'] path").all()
    return [(path.text_content(), float(path.get_attribute("stroke-width"))) for path in paths]


def test_charts_open_on_the_policy_that_the_run_is_about(opened):
    page = opened()
    assert [name for name, _ in widths(page)] == ["fcfs", "srtf"]
    assert widths(page)[1][1] > widths(page)[0][1]
    page.locator("#legend button", has_text="fcfs").click()
    assert [name for name, _ in widths(page)] == ["srtf", "fcfs"]
    assert page.locator("#legend button[aria-pressed=true]").all_inner_texts() == ["fcfs"]


def test_charts_have_a_unit_and_a_description_with_figures_of_every_policy(opened):
    page = opened()
    drawn = page.locator("svg[role=img]").all()
    assert len(drawn) >= 7
    for chart in drawn:
        name = chart.get_attribute("aria-describedby")
        said = chart.locator(f"desc#{name}").text_content()
        assert any(letter.isdigit() for letter in said)
        label = chart.get_attribute("aria-label")
        if "in use" not in label:
            assert ("fcfs" in said, "srtf" in said) == (True, True), label


def test_every_policy_is_in_sight_on_a_phone(opened):
    page = opened(420)
    cells = page.locator("tr", has=page.locator("th:text-is('jct_mean')")).locator("td").all()
    assert [cell.get_attribute("data-run") for cell in cells] == ["fcfs", "srtf"]
    for cell in cells:
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 420


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(opened, scheme):
    page = opened(360, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in background.strip("rgb()").split(",")) > 3 * 128
    assert light == (scheme == "light")
    page.set_viewport_size({"width": 1000, "height": 700})
    assert page.evaluate(WAIT_UNTIL_REDRAWN)


FABRIC = """\
name: fabric
nodes: [{gpu_type: A40, count: 8, gpus_per_node: 2}]
fabric: {nodes_per_leaf: 3, leaves_per_minipod: 2, spine_oversubscription: 2.0, core_oversubscription: 4.0}
"""
JOBS = """\
job_id,submit_s,model_family,model_size,global_batch,iterations,gpu_type,gpus
a,0,gpt3,760M,128,400,A40,8
b,1,gpt3,760M,128,400,A40,8
"""


def test_contention_and_failures_are_shown_where_there_are_some(open_page, opened, tmp_path):
    # Two jobs of four nodes each, over leaves of three: they share the uplinks. Node 0 fails under the first.
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "failures.csv").write_text("time_s,node,repair_s\n300,0,900\n")
    args = [f"cluster.path={tmp_path / 'fabric.yaml'}", "trace=file", f"trace.path={tmp_path / 'jobs.csv'}"]
    args += ["scenario.contention=true", f"scenario.failures.path={tmp_path / 'failures.csv'}"]
    args += ["policy=fcfs", "compare=null", "progress=false", f"hydra.run.dir={tmp_path / 'out'}"]
    assert run.main(args) == 0
    page = open_page(tmp_path / "out" / "report.html")
    # Both run and are slowed from the first second to the failure, each alone after that: 100 %, and 0.
    line = page.locator("svg[aria-label='Share of jobs slowed over time'] path").get_attribute("d")
    heights = {float(part.split("H")[0]) for part in line.split("V")[1:]}
    assert (min(heights), max(heights)) == (8, 204)
    canvas = page.locator("canvas")
    assert "hatched a node out of use" in page.locator(".readout").inner_text()
    canvas.scroll_into_view_if_needed()
    end_s = page.evaluate("DATA.groups[0].runs[0].end_s")
    # The chart begins 96 pixels from the left and ends 8 from the right; node 0 is its first row.
    x = 96 + (page.evaluate("document.querySelector('canvas').clientWidth") - 104) * 600 / end_s
    canvas.hover(position={"x": x, "y": 8})
    assert page.locator(".readout").inner_text() == "node 0 (A40): out of use, 5 min to 20 min"
    assert "failures" in page.locator("th button").all_inner_texts()
    usual = opened()
    assert usual.locator("h2", has_text="Contention").count() == 0
    assert "failures" not in usual.locator("th button").all_inner_texts()


def test_queues_have_a_band_each(open_page, opened, tmp_path):
    # a holds all 16 GPUs of a type from 0 on, of which 4 are its quota; b's job runs on the other type.
    (tmp_path / "queues.yaml").write_text("queues: {a: {quota: {A40: 4}}, b: {quota: 8}}\n")
    head = f"{JOBS.splitlines()[0]},virtual_cluster"
    rows = ["x,0,gpt3,760M,128,400,A40,16,a", "y,0,gpt3,760M,128,400,A10,8,b"]
    (tmp_path / "jobs.csv").write_text("\n".join([head, *rows, ""]))
    args = ["trace=file", f"trace.path={tmp_path / 'jobs.csv'}", "policy=fcfs", "compare=null"]
    args += [
        f"scenario.queues={tmp_path / 'queues.yaml'}",
        "progress=false",
        f"hydra.run.dir={tmp_path / 'out'}",
    ]
    assert run.main(args) == 0
    page = open_page(tmp_path / "out" / "report.html")
    bands = page.locator("svg[aria-label='GPUs held by each queue over time, fcfs']")
    assert bands.locator("path.tenant").count() == 2
    said = bands.locator("desc").text_content()
    assert said == "GPUs at most, and quota: a 16, 4; b 8, 16"
    usual = opened()
    assert usual.locator("h2", has_text="Queues").count() == 0
    (one,) = page.evaluate("DATA.groups[0].runs")
    assert one["timeline"]["queue_gpus"]["a"][0] == 16
    assert not {"queue_gpus", "quota_gpus"} & set(str(usual.evaluate("DATA.groups[0]")).split("'"))


def test_seeds_of_a_policy_are_drawn_as_a_mean_with_a_band(open_page, tmp_path):
    for seed in (0, 1):
        args = ["policy=fcfs", f"seed={seed}", "trace=philly-like", "trace.jobs=8", "report=false"]
        args += ["compare=null", "progress=false", "table=false", f"hydra.run.dir={tmp_path / str(seed)}"]
        assert run.main(args) == 0
    assert report([str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    page = open_page(tmp_path / "page.html")
    for title in ("Throughput over time", "Queued jobs over time", "Distribution of job completion times"):
        paths = page.locator(f"svg[aria-label='{title}'] path")
        assert sorted(paths.locator("title").all_text_contents()) == [
            "fcfs, mean of 2 seeds",
            "fcfs, mean of 2 seeds: least to greatest",
        ]
        assert page.locator(f"svg[aria-label='{title}'] path.band").get_attribute("d").endswith("Z")
    assert page.locator("#run option").all_inner_texts() == ["fcfs, seed 0", "fcfs, seed 1"]
    cell = page.locator("tr", has=page.locator("th:text-is('jct_mean')")).locator("td").inner_text()
    assert "[" in cell
    assert "a line is the mean of a policy's seeds" in page.locator("#title").inner_text()
