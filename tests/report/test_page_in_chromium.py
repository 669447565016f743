"""The page of a report in a real browser, opened from a file."""

from __future__ import annotations

import pytest

from clustergym import run

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
    assert page.locator("canvas").get_attribute("aria-label").endswith("fcfs")
    page.locator("#run").select_option(label="srtf")
    assert page.locator("canvas").get_attribute("aria-label").endswith("srtf")
    page.locator("canvas").scroll_into_view_if_needed()
    page.locator("canvas").hover(position={"x": 400, "y": 40})
    assert page.locator(".readout").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(opened, scheme):
    page = opened(360, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in background.strip("rgb()").split(",")) > 3 * 128
    assert light == (scheme == "light")
    page.set_viewport_size({"width": 1000, "height": 700})
    assert page.evaluate(WAIT_UNTIL_REDRAWN)
