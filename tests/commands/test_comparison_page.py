"""The page of `clustergym evaluate`: every cell worked out from the figures, here by hand."""

import math
from typing import Any

import numpy as np
import pytest

from clustergym.common.errors import InputError
from clustergym.training import evaluation
from clustergym.training.comparison import METRICS, Entrant, Ratio

NAN = float("nan")


def figures(*rows: tuple[float, ...]) -> list[list[float]]:
    """Return the figures of a window: rows of `METRICS`."""
    return [list(row) for row in rows]


def outcome(**changes: Any) -> dict[str, Any]:
    """Return a comparison of srtf, fcfs and an agent of two training seeds on two windows."""
    group = {
        "load": [0.5, 0.5],
        # Columns: srtf, fcfs, then the agent's seeds.
        "figures": [
            figures(
                (3600.0, 1.0, 1.0, 0.1, 1.0, 0.8, NAN, NAN),
                (7200.0, 1.0, 1.0, 0.3, 0.0, 0.6, NAN, NAN),
                (3600.0, 1.0, 1.0, 0.2, 2.0, 0.5, NAN, NAN),
                (14400.0, 1.0, 1.0, 0.4, 3.0, 0.7, NAN, NAN),
            ),
            figures(
                (14400.0, 1.0, 1.0, 0.2, 2.0, 0.6, NAN, NAN),
                (28800.0, 1.0, 1.0, 0.5, 0.0, 0.4, NAN, NAN),
                (3600.0, 1.0, 1.0, 0.2, 2.0, 0.5, NAN, NAN),
                (14400.0, 1.0, 1.0, 0.4, 3.0, 0.7, NAN, NAN),
            ),
        ],
        # Of each row, the first entry of the reference: srtf / this.
        "ratios": {
            "jct_mean": [[[1.0] * 5], [[0.5, 0.4, 0.6, 0.5, 0.5]], [[1.0, 0.9, 1.1, 0.5, 2.0]]],
            "jct_p99": [[[1.0] * 5], [[None] * 5], [[1.25, 1.0, 1.5, 1.25, 1.25]]],
        },
    }
    policies = [
        {"label": "srtf", "knows": "clairvoyant", "columns": [0]},
        {"label": "fcfs", "knows": "none", "columns": [1]},
        {"label": "learned", "knows": "data_parallel", "columns": [2, 3]},
    ]
    made = {"policies": policies, "groups": [group], "windows": 2, "split": "test", "traces": None}
    return made | changes


def test_every_cell_of_the_page() -> None:
    # srtf: sqrt(1 h x 4 h) = 2 h; fcfs: sqrt(2 h x 8 h) = 4 h; the seeds: 1 h and 4 h, together 2 h.
    # Restarts, unfair share and GPUs at work are means over windows and seeds.
    words = ["windows=2", "policies=[srtf,fcfs]", "report=a.md", "json=b.json", "processes=2"]
    assert evaluation.markdown(outcome(), [*words, "split=a b", "x='1'"]).splitlines() == [
        "`clustergym evaluate windows=2 'policies=[srtf,fcfs]' 'split=a b' \"x='1'\"`",
        "",
        "In parentheses: the least and the greatest of single training seeds.",
        "",
        "Load 0.5, 2 windows of the test split:",
        "",
        "| policy | knows | mean JCT, h (geometric mean) | first / this: mean JCT | p99 JCT | restarts a job "
        "| unfair | GPUs at work |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| srtf | clairvoyant | 2.000 | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] | 1.50 | 0.150 | 0.700 |",
        "| fcfs | none | 4.000 | 0.500 [0.400, 0.600] |  | 0.00 | 0.400 | 0.500 |",
        "| learned | data parallel | 2.000 (1.000 to 4.000) | 1.000 [0.900, 1.100] (0.500 to 2.000) "
        "| 1.250 [1.000, 1.500] (1.250 to 1.250) | 2.50 | 0.300 | 0.600 |",
        "",
    ]


def test_single_seeds_are_said_to_be_none() -> None:
    made = outcome()
    made["policies"] = made["policies"][:2]
    made["groups"][0]["load"] = [0.5, 1.25]
    lines = evaluation.markdown(made, ["a=$'b'"]).splitlines()
    # What a shell would expand is not in double quotes.
    assert lines[0] == "`clustergym evaluate 'a=$'\"'\"'b'\"'\"''`"
    assert lines[2] == "Load 0.5 to 1.25, 2 windows of the test split:"
    assert evaluation.markdown(outcome(traces=["a.csv", "b.csv"]), []).splitlines()[4] == "2 traces:"


def test_deadlines_and_finish_times_are_columns_where_compared() -> None:
    made = outcome()
    made["policies"] = made["policies"][:1]
    group = made["groups"][0]
    for window, (fairness, met) in zip(group["figures"], ((1.0, 0.25), (2.0, 0.75)), strict=True):
        window[0][6:] = [fairness, met]
    one = [[[1.0] * 5]]
    group["ratios"] = {"ftf_mean": one, "deadline_satisfaction": one}
    lines = evaluation.markdown(made, []).splitlines()
    assert lines[4].endswith(
        "| first / this: mean FTF | deadlines met | restarts a job | unfair | GPUs at work | mean FTF "
        "| deadlines met |"
    )
    assert lines[6].endswith("| 1.50 | 0.150 | 0.700 | 1.500 | 0.500 |")


def test_ratios_of_each_row_to_each_other() -> None:
    # Two windows; a takes 1 h and 2 h, b twice that, so that the ratio is 2 in every resample.
    jct_s = np.array([[3600.0, 7200.0], [7200.0, 14400.0]])
    made = np.full((2, 2, len(METRICS)), NAN)
    made[:, :, METRICS.index("jct_mean")] = jct_s
    found = evaluation._ratios(made, [[0], [1]], ["jct_mean"])
    assert list(found) == ["jct_mean"]
    own, twice = found["jct_mean"]
    assert own[0] == twice[1] == [1.0] * 5
    assert own[1] == pytest.approx([2.0] * 5)
    assert twice[0] == pytest.approx([0.5] * 5)
    made[0, 0, METRICS.index("jct_mean")] = 0.0
    with pytest.raises(InputError, match=r"ratios: jct_mean is 0 or missing in a window \(leave it out"):
        evaluation._ratios(made, [[0], [1]], ["jct_mean"])
    with pytest.raises(InputError, match="jct_p99 is 0 or missing"):
        evaluation._ratios(made, [[0], [1]], ["jct_p99"])


def test_rows_of_several_seeds_have_as_many_columns() -> None:
    assert evaluation._columns([["a"], ["b", "c", "d"], ["e"]]) == [[0], [1, 2, 3], [4]]


@pytest.mark.parametrize(
    ("given", "loads"), [(None, [None]), ([], [None]), (0.5, [0.5]), ([0.5, 2], [0.5, 2.0]), (99.9, [99.9])]
)
def test_loads(given: Any, loads: list[float | None]) -> None:
    assert evaluation._loads(given) == loads


@pytest.mark.parametrize("given", [0, [100], -1.0, "a"])
def test_loads_outside_0_and_100_are_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"^loads"):
        evaluation._loads(given)


def test_compared_metrics() -> None:
    for names, deadlines in ((["jct_p99", "ftf_mean"], False), (["deadline_satisfaction"], True)):
        assert evaluation._list_compared_metrics(names, deadlines=deadlines) == names
    for given, line in (
        ([], "name some of jct_mean, jct_p99, slowdown_mean, ftf_mean, deadline_satisfaction"),
        ("jct_mean", "name some of"),
        (["jct_men"], r"no ratios of 'jct_men' \(did you mean jct_mean"),
        (["deadline_satisfaction"], "as these jobs have no deadlines"),
    ):
        with pytest.raises(InputError, match=line):
            evaluation._list_compared_metrics(given, deadlines=False)


def test_a_tuned_row_names_the_values_chosen() -> None:
    entrant = Entrant.from_given({"name": "gandiva", "a": 1, "b": [2, 3], "c": [4]})
    assert entrant.label == "gandiva a=1"
    assert entrant.choices() == [
        {"name": "gandiva", "a": 1, "b": 2, "c": 4},
        {"name": "gandiva", "a": 1, "b": 3, "c": 4},
    ]
    label = evaluation._label(entrant.label, entrant.knobs, entrant.choices()[1])
    assert label == "gandiva a=1 b=3 (tuned) c=4 (tuned)"


def test_cells_of_ratios() -> None:
    five = Ratio(0.5, 0.25, 1.0, 0.125, 2.0)
    assert evaluation._ratio([*five], spread=False) == "0.500 [0.250, 1.000]"
    assert evaluation._ratio([*five], spread=True) == "0.500 [0.250, 1.000] (0.125 to 2.000)"
    assert evaluation._ratio([0.5, None, 1.0, 0.1, 2.0], spread=True) == ""
    # Nothing has a mean of 0 s; what ended at once counts as a billionth of a second.
    assert evaluation._hours(np.array([[0.0]])) == f"{1e-9 / 3600:.3f}"
    assert math.isclose(float(evaluation._hours(np.array([[36.0], [360000.0]]))), 1.0)
