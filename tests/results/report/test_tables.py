"""Tables of metrics: units, numbers, ratios, and what is shown of estimates."""

import pytest

from clustergym.common.tables import print_table
from clustergym.results.metrics.catalogue import METRICS
from clustergym.results.metrics.statistics import Aggregate, estimate, estimate_nonnegative
from clustergym.results.report.metric_tables import (
    comparison_table,
    human_number,
    human_unit,
    human_value,
    ratio,
    verdict,
)


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("jct_mean", 93.0, "93.00 s"),
        ("jct_mean", 119.9, "119.9 s"),
        ("jct_mean", 120.0, "2.000 min"),
        ("jct_mean", 7200.0, "2.000 h"),
        ("jct_mean", 7.2e9, "2,000,000 h"),
        ("gpu_utilization", 0.1234, "12.34 %"),
        ("throughput_mean", 123456.7, "123,457 samples/s"),
        ("overhead_gpu_hours", 0.25, "0.2500 GPU h"),
        ("jobs_finished", 12345, "12,345"),
        ("restarts_mean", 2.294, "2.294"),
        ("jct_mean", None, "-"),
    ],
)
def test_human_units(metric, value, shown):
    assert human_value(value, human_unit(METRICS[metric], value or 0.0)) == shown


def test_estimates_show_their_interval():
    hours = human_unit(METRICS["jct_mean"], 36000.0)
    assert human_value(estimate([7200.0, 10800.0]), hours) == "2.500 [2.000, 3.000] h"
    # s = 1 h of 2 h on average: factors of e^(4.302653 / sqrt(3) / 2) = 3.463.
    assert human_value(estimate_nonnegative([3600.0, 7200.0, 10800.0]), hours) == "2.000 [0.5776, 6.926] h"
    assert human_value(estimate([3600.0, 3600.0, 3600.0]), hours) == "1.000 h"
    assert human_value(estimate([3600.0]), hours) == "1.000 h"


def test_three_digits_at_least():
    assert [human_number(v) for v in (0.01234, 1.0, 12.3, 123.4, 1234.5, -5.5)] == [
        "0.0123", "1.000", "12.30", "123.4", "1,234", "-5.500"
    ]  # fmt: skip


def test_ratio():
    assert ratio(1.0, 4.0) == 0.25
    assert ratio(estimate([1.0, 3.0]), 4) == 0.5
    assert ratio(None, 4.0) is ratio(1.0, None) is ratio(1.0, 0.0) is None


def rows():
    return [
        {"policy": {"name": "arena"}, "metrics": {"jct_mean": 60.0, "jobs_finished": 9, "jobs_total": 10}},
        {"policy": {"name": "fcfs"}, "metrics": {"jct_mean": 90.0, "jobs_finished": 10, "jobs_total": 10}},
    ]


def test_results_are_rows_and_the_last_is_the_reference(capsys):
    print_table(comparison_table(rows()))
    lines = capsys.readouterr().out.splitlines()
    jct = next(line for line in lines if "jct_mean" in line)
    assert "60.00 s  0.67x" in jct
    assert jct.count("x") == 1
    # A plain count has no better direction, hence no ratio; a metric nobody has is not shown.
    assert "x" not in next(line for line in lines if "jobs_total" in line)
    assert not any("makespan" in line for line in lines)


def test_better_and_worse_are_coloured_by_direction():
    table = comparison_table(rows(), ["jct_mean", "jobs_finished"], 1)
    cells = list(table.columns[1].cells)
    assert [cell.spans[0].style for cell in cells] == ["green", "red"]


def test_a_ratio_that_may_be_1_is_neither_better_nor_worse():
    sure, unsure = (rows()[0] | {"ratios": {"jct_mean": Aggregate(2 / 3, 0.5, high)}} for high in (0.9, 1.1))
    cells = [comparison_table([one, rows()[1]], ["jct_mean"], 1).columns[1] for one in (sure, unsure)]
    (clear,), (unclear,) = (cell.cells for cell in cells)
    assert (str(clear), clear.spans[0].style) == ("60.00 s  0.67x [0.50, 0.90]", "green")
    assert (str(unclear), unclear.spans[0].style) == ("60.00 s  0.67x [0.50, 1.10]", "dim")


def test_no_reference_no_ratios(capsys):
    print_table(comparison_table(rows(), reference=None))
    assert "0.67x" not in capsys.readouterr().out


def test_wide_tables_are_not_cut_where_there_is_no_terminal(capsys):
    many = [{"policy": f"policy_number_{n}", "metrics": {"jct_mean": 1e5 + n}} for n in range(30)]
    print_table(comparison_table(many))
    out = capsys.readouterr().out
    assert all(f"policy_number_{n}" in out for n in range(30))
    assert "…" not in out


def policy_row(name, jct_s, **metrics):
    given = {
        "jct_mean": jct_s,
        "jct_mean_censored": 2 * jct_s,
        "restarts_mean": 0.5,
        "overhead_gpu_hours": 12.0,
    }
    return {"policy": {"name": name}, "metrics": given | metrics}


@pytest.mark.parametrize(
    ("ours", "theirs", "horizon", "expected"),
    [
        (
            60.0,
            90.0,
            False,
            "arena: mean JCT 60.00 s, 33% less than fcfs (better), with 0.5000 restarts a job",
        ),
        (99.0, 90.0, False, "arena: mean JCT 99.00 s, 10% more than fcfs (worse)"),
        (90.1, 90.0, False, "arena: mean JCT 90.10 s, as fcfs, with"),
        (
            30.0,
            45.0,
            True,
            "mean JCT with unfinished jobs counted to the horizon 60.00 s, 33% less than fcfs",
        ),
    ],
)
def test_the_verdict_is_one_sentence(ours, theirs, horizon, expected):
    found = verdict([policy_row("arena", ours), policy_row("fcfs", theirs)], horizon)
    assert expected in found
    assert found.endswith("restarts a job and 12.00 GPU h of standstill")


def test_there_is_no_verdict_where_nothing_finished():
    assert verdict([policy_row("arena", 1.0, jct_mean=None), policy_row("fcfs", 1.0)], False) == ""


def test_a_table_says_which_way_is_better():
    table = comparison_table([policy_row("arena", 1.0, jobs_finished=1, jobs_total=2)])
    names = list(table.columns[0].cells)
    shown = {str(name) for name in names}
    assert {"jct_mean ↓", "jobs_finished ↑", "jobs_total"} <= shown
