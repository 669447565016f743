"""What the YAML of a network has to say: each fault is one line with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustergym.common.errors import InputError
from clustergym.training.network_checkpoints import _check

GOOD = {"agent": "maskable_ppo", "hidden": [64, 64], "traces": {"env": {"id": "Elastic-16"}}}


def test_what_is_complete_passes():
    _check(Path("net.yaml"), GOOD)
    _check(Path("net.yaml"), {**GOOD, "hidden": [1, 4096]})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"agent": "maskable_pp"}, r"agent: unknown agent 'maskable_pp' \(did you mean maskable_ppo\?\)"),
        ({"agent": None}, r"agent: unknown agent None \("),
        ({"hidden": "64"}, r"hidden: is missing \(the file is damaged\)"),
        ({"traces": [1]}, r"traces: is missing \(the file is damaged\)"),
        ({"hidden": [64, 0]}, r"hidden: \[64, 0\] are no widths \(the file is damaged\)"),
        ({"hidden": [64, 4097]}, r"hidden: \[64, 4097\] are no widths \(the file is damaged\)"),
        ({"hidden": []}, r"hidden: \[\] are no widths"),
        ({"hidden": [64, True]}, r"hidden: \[64, True\] are no widths"),
    ],
)
def test_what_is_not_is_one_line(changed, message):
    with pytest.raises(InputError, match=f"^net.yaml: {message}"):
        _check(Path("net.yaml"), {**GOOD, **changed})
