"""A file of claims: what each rule of it makes of our figures, worked out by hand, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
from clustergym.papers.claims import PaperClaim
from refusals import Said, refused

from clustergym.common.errors import InputError
from clustergym.papers import claim_files


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that judges claims written in a file against figures."""
    monkeypatch.setattr(claim_files, "FOLDER", tmp_path)
    claim_files._read.cache_clear()

    def judge_text(text: str, **figures: Any) -> list[PaperClaim]:
        claim_files._read.cache_clear()
        (tmp_path / "mine.yaml").write_text(text)
        named = {name.replace("_", " "): of for name, of in figures.items()}
        return claim_files.judge_claims("mine", named)

    yield judge_text
    claim_files._read.cache_clear()


def test_ours_is_found_by_its_path_in_each_setting(judge: Any) -> None:
    figures = {"fair": {"a": {"b c": 1.2}}, "as_published": {"a": {"b c": 1.5}}, "other": {"d": -3}}
    text = """
published: {told: {1: 1.5}}
claims:
- {claim: gain, source: Fig. 1, rule: ratio, paper: published/told/1, ours: a/b c}
- {claim: gain, source: Fig. 1, paper: 2, ours: {fair: other/d}, unit: points, decimals: 0}
- {claim: gain, source: Fig. 1, paper: 2, ours: a/none, why: "{a/none} is no figure"}
- {claim: gain, source: Fig. 1, why: needs GPUs}
"""
    ratio, change, absent, never = judge(text, **figures)
    assert (ratio.paper, ratio.fair, ratio.as_published, ratio.neutral) == (1.5, 1.2, 1.5, 1.0)
    assert ratio.verdict == "reproduced (fair: smaller)"
    assert (change.shown_paper, change.fair, change.as_published, change.verdict) == (
        *("2 points", -3.0, None, "reversed"),
    )
    whys = [claim.why for claim in (ratio, change, absent, never)]
    assert whys == ["not known", "not known", "", "needs GPUs"]
    assert (absent.verdict, never.verdict) == ("not run", "not simulated")


@pytest.mark.parametrize(
    ("paper", "shown"),
    [
        ("[30, 50]", "30.0 to 50.0 %"),
        ("{at least: 90}", "at least 90.0 %"),
        ("{at most: 90}", "at most 90.0 %"),
        ("{accuracy: 93.4}", "6.6 %"),
        ("5", "5.0 %"),
        ("null", "-"),
    ],
)
def test_the_papers_figure(judge: Any, paper: str, shown: str) -> None:
    text = f"claims: [{{claim: c, source: s, rule: quantity, paper: {paper}, ours: x}}]"
    assert judge(text, fair={"x": 40})[0].shown_paper == shown


def test_a_sign_and_a_statement(judge: Any) -> None:
    text = """
claims:
- {claim: gain, source: s, paper: above, ours: x, why: lost, why_reversed: "reversed: not known"}
- {claim: loss, source: s, paper: below, ours: x, why: lost, why_reversed: "reversed: not known"}
- {claim: it holds, source: s, rule: statement, ours: holds}
"""
    gain, loss, statement = judge(text, fair={"x": 2.0, "holds": False})
    assert (gain.direction, gain.verdict, gain.why) == (1, "no figure in the text", "lost")
    assert (loss.direction, loss.verdict, loss.why) == (-1, "reversed", "lost; reversed: not known")
    assert (statement.claim, statement.paper, statement.fair) == ("it holds (1: yes)", 1.0, 0.0)


def test_groups_hand_down_their_keys_and_stand_once_for_each_case(judge: Any) -> None:
    text = """
claims:
- each: {trace: [one, two], paper: [1, 2]}
  source: "{trace}'s section"
  claims:
  - {claim: "{metric} of {policy} on {trace}", metric: JCT, ours: "{trace}/{policy}", each: {policy: [a, b]}}
  - {claim: "{trace}: {fair/one/a:.2f} h in {count:,}", source: Fig. 2}
- {claim: of the code, source: s, each: rows}
"""
    rows = judge(text, fair={"one": {"a": 1, "b": 2}}, count=1000, rows={"paper": [5]})
    assert [(row.claim, row.source, row.paper, row.fair) for row in rows] == [
        ("JCT of a on one", "one's section", 1.0, 1.0),
        ("JCT of b on one", "one's section", 1.0, 2.0),
        ("one: 1.00 h in 1,000", "Fig. 2", 1.0, None),
        ("JCT of a on two", "two's section", 2.0, None),
        ("JCT of b on two", "two's section", 2.0, None),
        ("two: 1.00 h in 1,000", "Fig. 2", 2.0, None),
        ("of the code", "s", 5.0, None),
    ]


def test_the_first_reason_whose_figures_are_there(judge: Any) -> None:
    text = 'claims: [{claim: c, source: s, paper: 1, ours: x, why: ["{y:.1f} in full", "{z} in short"]}]'
    assert judge(text, fair={"x": 1}, y=2, z=3)[0].why == "2.0 in full"
    assert judge(text, fair={"x": 1}, z=3)[0].why == "3 in short"
    with pytest.raises(InputError, match=r"mine\.yaml:1: claims\[0\]\.why: there is no figure 'z'"):
        judge(text, fair={"x": 1})


def test_a_claim_that_follows_from_a_reversed_one_says_so(judge: Any) -> None:
    # 8.0 % better on one and 27.6 % worse on the other differ by 35.6 points, as no paper would have it.
    text = """
claims:
- {claim: "on {at}", source: s, paper: -30, ours: "{at}", each: {at: [a, b]}}
- {claim: a less b, source: s, paper: 30, ours: less, rests_on: [on a, on b]}
"""
    assert (
        judge(text, fair={"a": -8, "b": 27.6, "less": 30})[2].verdict == "reproduced, as 'on b' is reversed"
    )
    assert judge(text, fair={"a": -8, "b": -27.6, "less": 30})[2].verdict == "reproduced"


@refused("claims")
def test_a_bad_file_is_one_line(judge: Any, given: str, said: Said, tmp_path: Path) -> None:
    with said.of_error(tmp_path):
        judge(f"# A file.\nclaims:\n{given}\n", fair={"a": 1, "t": "text"})


def test_a_file_without_claims(judge: Any) -> None:
    with pytest.raises(InputError, match=r"mine\.yaml:1: claims: is missing"):
        judge("published: {}")
