"""The page of a board in a real browser, opened from a file."""

import shutil

import pytest
import yaml
from boards import WITH_ENTRIES

from clustergym.benchmark.leaderboard.board import boards_dir, load_board
from clustergym.benchmark.leaderboard.render import pages
from clustergym.benchmark.leaderboard.score import standings

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
CHARTS = ("GPUs, ", "jobs, ", "Distribution of job completion times, ")


@pytest.fixture
def page_path(root):
    """The page of the small board, one of whose entries has a title that would be markup."""
    entry = root / "small" / "first" / "entry.yaml"
    content = yaml.safe_load(entry.read_text())
    entry.write_text(yaml.safe_dump(content | {"title": EVIL, "authors": [EVIL]}))
    shutil.copytree(root / "small" / "short", root / "small" / "zz")
    (root / "small" / "zz" / "curves.json").unlink()
    for path, text in pages(load_board("small", root)).items():
        path.write_text(text)
    return root / "small" / "index.html"


def names_of(page) -> list[str]:
    return [row.get_attribute("data-name") for row in page.query_selector_all("tbody tr[data-name]")]


def drawn(page, chart) -> list[str]:
    """Return whose lines a chart has."""
    lines = page.locator(f"#cluster svg[aria-label^='{chart}'] path[data-entry]")
    return [line.get_attribute("data-entry") for line in lines.all()]


def test_the_page_sorts_and_filters(open_page, page_path):
    page = open_page(page_path)
    assert names_of(page) == ["short", "zz", "first"]
    # By rank, under the name of each division; by another column without.
    assert page.locator("tbody th").all_inner_texts() == [
        "clairvoyant: an oracle: knows the times jobs will really run at",
        "none: knows no speeds",
    ]
    page.get_by_role("button", name="rank, all").click()
    assert page.locator("tbody th").count() == 0
    assert names_of(page) == ["short", "zz", "first"]
    assert page.locator("tbody tr:last-child td").all_inner_texts()[:2] == ["1", "3"]
    page.get_by_role("button", name="makespan").click()
    page.get_by_role("button", name="score").click()
    assert names_of(page)[-1] == "first"
    page.get_by_role("button", name="score").click()
    assert names_of(page)[0] == "first"
    page.get_by_label("Division").select_option("none: knows no speeds")
    assert names_of(page) == ["first"]
    page.get_by_label("Division").select_option("")
    page.get_by_label("Find").fill("short")
    assert names_of(page) == ["short", "zz"]


def test_a_click_shows_the_curves_of_an_entry(open_page, page_path):
    page = open_page(page_path)
    assert page.locator("#panel").is_hidden()
    page.get_by_role("button", name="short").first.click()
    assert page.locator("#panel h2").inner_text() == "short"
    # Two charts of scores, with a dot for each cell, and three of the cluster.
    assert page.locator("#panel svg[role=img]").count() == 5
    assert page.locator("#panel circle").count() == 2
    # The entry's line last, over that of fcfs.
    assert [drawn(page, chart) for chart in CHARTS] == [["first", "short"]] * 3
    page.locator("#beside").select_option("")
    assert [drawn(page, chart) for chart in CHARTS] == [["short"]] * 3
    # The curve of GPUs: 120 steps, none outside the axes.
    path = page.locator("#cluster svg[aria-label^='GPUs'] path[data-entry]").get_attribute("d")
    assert path.count("H") == 120
    assert all(24 <= float(part.split("V")[1]) <= 190 for part in path.split("H")[1:-1])


def test_keys_alone_open_an_entry_and_close_it(open_page, page_path):
    page = open_page(page_path)
    page.get_by_label("Find").focus()
    page.keyboard.type("short")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "short":
            break
    page.keyboard.press("Enter")
    assert page.locator("#panel h2").inner_text() == "short"
    assert drawn(page, "GPUs") == ["first", "short"]
    # From the heading, Shift+Tab is the button that closes, Tab the first choice.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "scenario"
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    assert page.evaluate("document.activeElement.textContent") == "short"


def test_an_entry_without_curves_has_its_scores(open_page, page_path):
    page = open_page(page_path)
    page.locator("tr[data-name=zz] button").click()
    assert page.locator("#panel svg[role=img]").count() == 2
    assert page.locator("#scenario").count() == 0


def test_what_an_entry_brings_is_text(open_page, page_path):
    page = open_page(page_path)
    page.get_by_role("button", name="<img").click()
    assert page.locator("#panel h2").inner_text() == EVIL
    assert page.locator("#cluster").inner_text().count("<img src=x") >= 1
    assert page.locator("img").count() == 0


def brightness(page, script) -> float:
    colour = page.evaluate(f"getComputedStyle({script}")
    return sum(float(part) for part in colour[4:-1].split(",")[:3]) / 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_the_dark(open_page, page_path, scheme):
    page = open_page(page_path, 375, scheme)
    page.get_by_role("button", name="short").first.click()
    widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1]
    background = brightness(page, "document.body).backgroundColor")
    text = brightness(page, "document.querySelector('#cluster svg text')).fill")
    assert (background > 200) == (scheme == "light")
    assert abs(background - text) > 90


OPEN_ALL = """() => [...document.querySelectorAll("tr[data-name]")].map(row => row.dataset.name).map(name => {
  document.querySelector(`tr[data-name="${name}"] button`).click();
  return [name, [...document.querySelectorAll("#scenario option")].map(option => {
    const choice = document.querySelector("#scenario");
    choice.value = option.value;
    choice.dispatchEvent(new Event("change"));
    const charts = [...document.querySelectorAll("#cluster svg[role=img]")];
    return charts.map(chart => [...chart.querySelectorAll("path[data-entry]")].at(-1).dataset.entry);
  })];
})"""


@pytest.mark.parametrize("name", WITH_ENTRIES)
def test_committed_pages_draw_every_entry_in_every_scenario(name, open_page):
    path, board = boards_dir() / name / "index.html", load_board(name)
    assert path.stat().st_size < 1_500_000
    found = dict(open_page(path).evaluate(OPEN_ALL))
    ranked = [one.name for one in standings(board)]
    assert found == {entry: [[entry] * 3] * len(board.scenarios) for entry in ranked}
