"""Verdicts on claims, each worked out by hand."""

import pytest

from clustergym.reproduction.claims import PaperClaim, claims_table


@pytest.mark.parametrize(
    ("paper", "ours", "neutral", "verdict"),
    [
        (-50.0, -45.0, 0.0, "reproduced"),  # nine tenths of the effect
        (-50.0, -44.0, 0.0, "smaller"),
        (-50.0, -90.0, 0.0, "reproduced"),  # more than was claimed
        (-50.0, 0.0, 0.0, "reversed"),
        (1.5, 1.44, 1.0, "smaller"),  # 0.88 of the gain
        (1.5, 0.9, 1.0, "reversed"),
        (4.0, 4.4, None, "reproduced"),
        (4.0, 4.5, None, "larger"),
        (4.0, 3.5, None, "smaller"),
    ],
)
def test_verdict(paper, ours, neutral, verdict):
    assert PaperClaim("x", "Fig. 1", paper, fair=ours, neutral=neutral).verdict == verdict


def test_both_settings_are_told_where_they_differ():
    assert (
        PaperClaim("x", "Fig. 1", -50.0, fair=10.0, as_published=-50.0).verdict
        == "reproduced (fair: reversed)"
    )
    assert PaperClaim("x", "Fig. 1", -50.0, fair=-50.0, as_published=-50.0).verdict == "reproduced"


def test_without_a_figure_of_ours():
    assert PaperClaim("x", "Fig. 1", None, why="needs GPUs").verdict == "not simulated"
    assert PaperClaim("x", "Fig. 1", 3.0, quick=False).verdict == "not run"


def test_without_a_figure_of_the_papers():
    assert PaperClaim("x", "Fig. 1", None, fair=3.0).verdict == "no figure"


def test_a_claim_comes_back_from_its_row():
    claim = PaperClaim(
        "x", "Fig. 1", -50.0, fair=10.0, unit="x", neutral=None, why="y", decimals=3, quick=False
    )
    assert PaperClaim.of(claim.plain()) == claim
    assert claim.plain()["verdict"] == "larger"


def test_table_shows_units_and_signs():
    text = claims_table(
        [
            PaperClaim("mean JCT", "section 5", -50.0, fair=2.0),
            PaperClaim("gain", "Fig. 2", 1.5, 1.5, unit="x", neutral=1.0),
        ]
    )
    assert "| mean JCT | section 5 | -50.0 % | +2.0 % | - | reversed |  |" in text
    assert "| gain | Fig. 2 | 1.5x | 1.5x | - | reproduced |  |" in text


def test_a_figure_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no figure"):
        PaperClaim("x", "Fig. 1", float("nan"))
