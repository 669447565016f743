"""Boards that are scored by a metric of tenants: their columns, and entries with a policy within another."""

import pytest

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.entry import ComponentChoice
from clustergym.benchmark.leaderboard.registered import WORD, list_training_data
from clustergym.benchmark.leaderboard.score import TENANT_COLUMNS, titles


def test_only_a_board_of_tenants_has_their_columns():
    assert set(TENANT_COLUMNS) <= set(titles(load_board("tenants")))
    assert not set(TENANT_COLUMNS) & set(titles(load_board("fair")))


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
    tenants = load_board("tenants")
    found = [
        list_training_data([ComponentChoice(name="quotas", parameters={"within": name})], tenants)
        for name in ("learned checkpoint=fair", "ares")
    ]
    assert found == [["train"], []]
    learned = [ComponentChoice(name="learned")]
    assert list_training_data(learned, tenants) == ["train"]
    # No checkpoint was trained on the jobs of llm-2026.
    assert list_training_data(learned, load_board("llm-2026")) == ["elsewhere"]
