"""Verdicts on claims, each worked out by hand."""

from dataclasses import replace

import pytest
from clustergym.papers.claims import PaperClaim, claims_table


@pytest.mark.parametrize(
    ("paper", "ours", "neutral", "verdict"),
    [
        (-50.0, -45.0, 0.0, "reproduced"),  # nine tenths of the effect
        (-50.0, -44.0, 0.0, "smaller"),
        (-50.0, -55.0, 0.0, "reproduced"),  # eleven tenths
        (-50.0, -56.0, 0.0, "larger"),
        (-33.1, -74.3, 0.0, "larger"),
        (-50.0, 0.0, 0.0, "reversed"),
        (1.5, 1.44, 1.0, "smaller"),  # 0.88 of the gain
        (1.5, 1.56, 1.0, "larger"),  # 1.12 of it, though 1.04 of the figure
        (1.3, 5.4, 1.0, "larger"),
        (1.5, 0.9, 1.0, "reversed"),
        (4.0, 4.4, None, "reproduced"),
        (4.0, 4.5, None, "larger"),
        (4.0, 3.5, None, "smaller"),
        (0.0, 0.04, None, "reproduced"),  # 0.0 as printed
        (0.0, 0.7, None, "larger"),
        (100 - 96.2, 100 - 88.9, None, "larger"),  # an accuracy by its error: 11.1 is three times 3.8
    ],
)
def test_verdict(paper, ours, neutral, verdict):
    assert PaperClaim("x", "Fig. 1", paper, fair=ours, neutral=neutral).verdict == verdict


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(29.9, "smaller"), (30.0, "reproduced"), (49.9, "reproduced"), (50.0, "reproduced"), (54.0, "larger")],
)
def test_a_range_is_judged_by_its_ends(ours, verdict):
    # 54 is within a tenth of the upper end, and 40, the midpoint, is no figure of the paper's.
    claim = PaperClaim("share", "Fig. 1", 30.0, ours, neutral=None, paper_most=50.0)
    assert (claim.verdict, claim.shown_paper) == (verdict, "30.0 to 50.0 %")


@pytest.mark.parametrize(
    ("comparison", "ours", "verdict"),
    [
        ("at least", 86.2, "smaller"),
        ("at least", 90.0, "reproduced"),
        ("at least", 99.9, "reproduced"),
        ("at most", 86.2, "reproduced"),
        ("at most", 90.1, "larger"),
    ],
)
def test_a_side_of_a_figure_has_no_margin(comparison, ours, verdict):
    claim = PaperClaim("jobs", "Fig. 9", 90.0, ours, neutral=None, comparison=comparison)
    assert (claim.verdict, claim.shown_paper) == (verdict, f"{comparison} 90.0 %")


@pytest.mark.parametrize(
    ("direction", "neutral", "ours", "verdict"),
    [
        (1, 1.0, 1.21, "no figure in the text"),
        (1, 1.0, 0.92, "reversed"),
        (1, 1.0, 1.0, "reversed"),
        (-1, 0.0, 15.8, "reversed"),
        (-1, 0.0, -60.8, "no figure in the text"),
        (0, 0.0, 15.8, "no figure in the text"),
    ],
)
def test_the_sign_is_judged_where_the_text_states_no_size(direction, neutral, ours, verdict):
    claim = PaperClaim("gain", "section 5.7", None, ours, neutral=neutral, direction=direction)
    assert claim.verdict == verdict


def test_both_settings_are_told_where_they_differ():
    differs = PaperClaim("x", "Fig. 1", -50.0, fair=10.0, as_published=-50.0)
    assert differs.verdict == "reproduced (fair: reversed)"
    assert PaperClaim("x", "Fig. 1", -50.0, fair=-50.0, as_published=-50.0).verdict == "reproduced"


def test_without_a_figure_of_ours():
    assert PaperClaim("x", "Fig. 1", None, why="needs GPUs").verdict == "not simulated"
    assert PaperClaim("x", "Fig. 1", 3.0, quick=False).verdict == "not run"


def test_without_a_figure_of_the_papers():
    assert PaperClaim("x", "Fig. 1", None, fair=3.0).verdict == "no figure in the text"


def test_a_claim_comes_back_from_its_row():
    more = {"unit": "x", "neutral": None, "why": "y", "decimals": 3, "quick": False}
    claim = PaperClaim("x", "Fig. 1", -50.0, fair=10.0, **more)
    assert PaperClaim.from_row(claim.plain()) == claim
    assert claim.plain()["verdict"] == "larger"


def test_table_shows_units_and_signs():
    text = claims_table(
        [
            PaperClaim("mean JCT", "section 5", -50.0, fair=2.0),
            PaperClaim("gain", "Fig. 2", 1.5, 1.5, unit="x", neutral=1.0),
        ]
    )
    assert text.split("\n\n")[0] == "### section 5"
    assert "| mean JCT | -50.0 % | +2.0 % | reversed |" in text
    assert "| gain | 1.5x | 1.5x | reproduced |" in text


def test_a_reason_stands_once_below_the_table_of_its_place():
    kept = PaperClaim("kept", "Fig. 1", 1.0, as_published=1.0, why="costs are free")
    gaps = [replace(kept, claim=name, as_published=3.0) for name in ("a", "b")]
    text = claims_table([kept, *gaps, replace(kept, claim="c", as_published=3.0, why="not known")])
    assert "| kept | +1.0 % | +1.0 % | reproduced |" in text
    assert text.count("| +1.0 % | +3.0 % | larger (1) |") == 2
    assert "| c | +1.0 % | +3.0 % | larger |" in text
    assert text.endswith("\n\n1. costs are free")


def test_a_figure_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no figure"):
        PaperClaim("x", "Fig. 1", float("nan"))
    with pytest.raises(ValueError, match="a direction is for"):
        PaperClaim("x", "Fig. 1", 2.0, direction=1)
