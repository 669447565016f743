"""Hidden tests: a board publishes the hash of a salt, and later the salt."""

from __future__ import annotations

import pytest
import yaml
from error_lines import error_line

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.salted_seeds import commitment_of, hidden_seeds
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError

SALT = "correct horse battery"


def freeze(root, *words) -> int:
    return main(["--root", str(root), "freeze", "small", "--workers", "1", *words])


def test_seeds_follow_from_salt_and_board():
    seeds = hidden_seeds("small", SALT, 3)
    assert seeds == hidden_seeds("small", SALT, 5)[:3]
    assert len({*seeds, *hidden_seeds("small", SALT + "!", 3), *hidden_seeds("large", SALT, 3)}) == 9
    assert all(10**9 <= seed < 2**39 for seed in seeds)
    assert commitment_of("small", SALT) != commitment_of("large", SALT)


def test_a_salt_is_kept_until_its_reveal(root, capsys):
    before = load_board("small", root)
    path = root / "small" / "board.yaml"
    assert freeze(root, "--salt", SALT) == 0
    text = path.read_text()
    assert yaml.safe_load(text)["hidden"] == {"commitment": commitment_of("small", SALT), "seeds": 2}
    seeds = hidden_seeds("small", SALT, 2)
    assert not any(str(word) in text for word in (SALT, *seeds))
    # Neither the cells nor their constants change, so entries stand.
    assert load_board("small", root).scenarios == before.scenarios
    capsys.readouterr()
    assert freeze(root, "--salt", SALT) == 2
    assert "has a hidden split" in error_line(capsys)
    assert freeze(root, "--reveal", SALT + "?") == 2
    assert "is not the salt" in error_line(capsys)
    assert path.read_text() == text
    assert freeze(root, "--reveal", SALT) == 0
    after = load_board("small", root)
    assert (after.version, after.seeds, after.hidden.salt) == (before.version + 1, seeds, SALT)
    assert after.splits == {"test-3": [5, 6], "test": seeds}
    assert sorted(after.scenarios[0].constants) == sorted(seeds)
    capsys.readouterr()
    assert freeze(root, "--reveal", SALT) == 2
    assert "has no hidden split" in error_line(capsys)


@pytest.mark.parametrize("salt", ["short", "x" * 201, "fifteen\u200bletters or so"])
def test_a_salt_must_be_a_secret_that_can_be_read(root, capsys, salt):
    assert freeze(root, "--salt", salt) == 2
    assert "openssl rand" in error_line(capsys)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"salt": SALT + "?"}, "not that of its commitment"), ({}, "not those that follow")],
)
def test_a_published_salt_must_fit_commitment_and_seeds(root, changes, words):
    path = root / "small" / "board.yaml"
    content = yaml.safe_load(path.read_text())
    hidden = {"commitment": commitment_of("small", SALT), "seeds": 2, "salt": SALT}
    path.write_text(yaml.safe_dump(content | {"hidden": hidden | changes}))
    with pytest.raises(InputError, match=words):
        load_board("small", root)
