"""Boards that are scored by a metric of tenants: their columns, and entries with a policy within another."""

from __future__ import annotations

import pytest

from clustergym.leaderboard.board import load_board
from clustergym.leaderboard.figure_texts import OF_QUEUES, titles_of
from clustergym.leaderboard.registered import WORD, trained_on


def test_only_a_board_of_tenants_has_their_columns():
    assert set(OF_QUEUES) <= set(titles_of(load_board("tenants")))
    assert not set(OF_QUEUES) & set(titles_of(load_board("fair")))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("ares", True),
        ("ares work_conserving=true", True),
        ("learned checkpoint=fair round_s=60", True),
        ("learned checkpoint=/dev/zero", False),
        ("learned checkpoint=../x.yaml", False),
        ("ares work_conserving", False),
        ("ares\nalpha=1", False),
    ],
)
def test_a_policy_within_has_plain_words_as_parameters(text, plain):
    assert bool(WORD.fullmatch(text)) is plain


def test_what_a_policy_within_was_trained_on_counts():
    assert trained_on("quotas", {"within": "learned checkpoint=fair"}) == ["train"]
    assert trained_on("quotas", {"within": "ares"}) == []
    assert trained_on("learned", {}) == ["train"]
