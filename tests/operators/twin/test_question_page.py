"""The page of a what-if question and the tables of a fit, cell by cell, from figures given here."""

from typing import Any

from clustergym.operators.twin.fit import UNKNOWN, fit_text
from clustergym.operators.twin.page import Section, html_page, list_sections, markdown_page


def spread(mean: float) -> dict[str, float]:
    """Return a figure with an interval of a tenth less and a fifth more."""
    return {"mean": mean, "low": 0.9 * mean, "high": 1.2 * mean}


def waited(minutes: float) -> dict[str, Any]:
    """Return the waits of a group: a mean, a half and three times as much."""
    mean_s = 60 * minutes
    return {
        "mean_s": spread(mean_s),
        "p50_s": spread(mean_s / 2),
        "p90_s": spread(3 * mean_s),
        "p99_s": spread(4 * mean_s),
    }


def option(minutes: float, **rest: Any) -> dict[str, Any]:
    waits = {
        "all": {"all jobs": waited(minutes)},
        "size": {"1": waited(minutes)},
        "team": {"(none)": waited(minutes)},
        "partition": {"a": waited(minutes), "b": {"jobs": 0}},
        "hour": {},
    }
    lost = {"team": {"(none)": spread(1000.0)}, "size": {"1": spread(2.0)}}
    counts = {"late_jobs": spread(2.0), "rented_gpu_hours": spread(0.0), "rent": spread(0.0)}
    return {"waits": waits, "lost": lost, "goodput_gpu_hours": {"productive": spread(5000.0)}} | counts | rest


TODAY = option(
    10.0, utilisation=spread(0.5), cost={"all": spread(617.0)}, energy_kwh=spread(14.0), carbon_kg=spread(6.0)
)
MORE = option(5.0, cost={"all": spread(1234.0)}, energy_kwh=spread(7.0), carbon_kg=spread(3.0))
# Only one of the options has a group of four GPUs: the other shows a dash.
MORE["waits"]["size"]["3-4"] = waited(2000.0)
MORE["lost"]["size"]["3-4"] = spread(3.0)
RATIOS = {"today": {}, "more": {"all": {"all jobs": {"ratio": 0.5, "low": 0.4, "high": 0.6}}}}
DIFFERENCES = {
    "more": {"wait_s": {"mean": -300.0, "low": -360.0, "high": -240.0, "periods": 3}}
    | {"late_jobs": {"mean": 1.0, "periods": 2}}
}


def test_every_cell() -> None:
    options = {"today": TODAY, "more": MORE}
    made = list_sections({"options": options, "ratios": RATIOS, "differences": DIFFERENCES})
    short, size, partition, team_lost, size_lost, goodput = made
    assert short == Section(
        "In short",
        ["", "today", "more"],
        [
            ["mean wait (min)", "10.0 [9.0, 12.0]", "5.0 [4.5, 6.0]"],
            ["to today's", "-", "0.50x [0.40, 0.60]"],
            ["half wait less than (min)", "5.0 [4.5, 6.0]", "2.5 [2.2, 3.0]"],
            ["9 of 10 (min)", "30.0 [27.0, 36.0]", "15.0 [13.5, 18.0]"],
            ["99 of 100 (min)", "40.0 [36.0, 48.0]", "20.0 [18.0, 24.0]"],
            ["late jobs", "2.0 [1.8, 2.4]", "2.0 [1.8, 2.4]"],
            ["GPUs in use, steady window", "50.0 %", "-"],
            ["cost of all GPUs", "617", "1,234"],
            ["energy (kWh)", "14", "7"],
            ["carbon (kg CO2)", "6", "3"],
            ["mean wait less today's (min)", "-", "-5.0 [-6.0, -4.0] (n = 3)"],
            ["late jobs less today's", "-", "+1.0 (n = 2)"],
            ["cost less today's", "-", "-"],
        ],
    )
    assert size == Section(
        "Wait in minutes, by GPUs of a job",
        ["GPUs of a job", "today: mean, 90 %", "more: mean, 90 %"],
        [
            ["1", "10.0 [9.0, 12.0], 30.0", "5.0 [4.5, 6.0], 15.0"],
            ["3-4", "-", "2,000.0 [1,800.0, 2,400.0], 6,000"],
        ],
    )
    # Nobody has a team, so that waits by team say nothing; of hours there are none.
    assert partition == Section(
        "Wait in minutes, by partition",
        ["partition", "today: mean, 90 %", "more: mean, 90 %"],
        [["a", "10.0 [9.0, 12.0], 30.0", "5.0 [4.5, 6.0], 15.0"], ["b", "-", "-"]],
    )
    assert team_lost == Section(
        "GPU-hours lost, by team", ["team", "today", "more"], [["(none)", "1,000", "1,000"]]
    )
    assert size_lost == Section(
        "GPU-hours lost, by GPUs of a job",
        ["GPUs of a job", "today", "more"],
        [["1", "2", "2"], ["3-4", "-", "3"]],
    )
    assert (goodput.title, goodput.headers) == (
        "What became of the GPU-hours",
        ["GPU-hours", "today", "more"],
    )
    assert goodput.rows[0] == ["work of jobs that completed", "5,000", "5,000"]
    assert goodput.rows[1] == ["work of jobs that failed or were killed", "-", "-"]
    assert len(goodput.rows) == 6


def test_what_nobody_asked_for_is_left_out() -> None:
    plain = {"options": {"today": option(10.0)}, "ratios": {"today": {}}, "differences": {}}
    assert [row[0] for row in list_sections(plain)[0].rows][-3:] == [
        "GPUs in use, steady window", "mean wait less today's (min)", "late jobs less today's"
    ]  # fmt: skip
    rents = option(10.0) | {"rented_gpu_hours": spread(10.0), "rent": spread(20.0)}
    found = list_sections(plain | {"options": {"rented": rents}, "ratios": {"rented": {}}})[0].rows
    assert found[-5:-3] == [["rent", "20"], ["rented GPU-hours", "10"]]
    assert found[-1] == ["cost less today's", "-"]


def test_pages() -> None:
    sections = [Section("A & B", ["", "x<y"], [["mean", "1"], ["p90", "2"]])]
    assert markdown_page("Why?", ["A note."], sections) == (
        "# Why?\n\nA note.\n\n## A & B\n\n|  | x&lt;y |\n| --- | ---: |\n| mean | 1 |\n| p90 | 2 |\n"
    )
    page = html_page("Why?", ["A <note>."], sections)
    assert page.startswith(
        '<!doctype html><html lang=en><head><meta charset="utf-8"><title>Why?</title><style>body {'
    )
    assert page.endswith(
        "</style></head><body><h1>Why?</h1><p>A &lt;note&gt;.</p><h2>A &amp; B</h2><table>"
        "<tr><th></th><th>x&lt;y</th></tr><tr><td>mean</td><td>1</td></tr><tr><td>p90</td><td>2</td></tr>"
        "</table></body></html>\n"
    )


def side(jobs: int, minutes: float | None, slowdown: float | None) -> dict[str, Any]:
    seconds = None if minutes is None else 60 * minutes
    return {
        "jobs": jobs,
        "mean_s": seconds,
        "p50_s": seconds,
        "p90_s": seconds,
        "p99_s": seconds,
        "slowdown": slowdown,
    }


def test_a_fit() -> None:
    rows = {
        "all jobs": {"logged": side(1234, 10.0, 1.5), "simulated": side(1234, 999.96, None), "close": 0.25}
    }
    left = {
        "mean_error_of_starts_s": 90.0,
        "earlier_than_logged": 0.1,
        "later_than_logged": 0.2,
        "never_started": 1000,
        "largest": [
            {"job_id": "7", "gpus": 4, "late_s": 120.0},
            {"job_id": "8", "gpus": 1, "late_s": -120_000.0},
        ],
    }
    assert fit_text({"waits": {"all": rows}, "unexplained": left}).splitlines() == [
        "Waits in minutes.",
        "",
        "| all jobs | jobs | logged mean | p50 | p90 | p99 | simulated mean | p50 | p90 | p99 "
        "| slowdown logged | simulated | starts within 60 s |",
        "| --- |" + " ---: |" * 12,
        "| all jobs | 1,234 | 10.0 | 10.0 | 10.0 | 10.0 | 1,000.0 | 1,000.0 | 1,000.0 | 1,000.0 "
        "| 1.50 | - | 25.0 % |",
        "",
        "Not explained by the rules:",
        "- starts are off by 1.5 min on average; 10.0 % are more than 60 s earlier than logged, 20.0 % later",
        "- 1,000 jobs of the log do not start under these rules",
        "- job 7 (4 GPUs): 2.0 min later",
        "- job 8 (1 GPUs): 2,000 min earlier",
        f"A log does not say: {UNKNOWN}.",
    ]
    none = left | {"never_started": 0, "largest": [], "mean_error_of_starts_s": None}
    assert fit_text({"waits": {}, "unexplained": none}).splitlines()[2:] == [
        "Not explained by the rules:",
        "- starts are off by - min on average; 10.0 % are more than 60 s earlier than logged, 20.0 % later",
        f"A log does not say: {UNKNOWN}.",
    ]
