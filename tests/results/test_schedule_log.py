"""Schedule logs that someone edited."""

import gzip
import json
from pathlib import Path

import pytest
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.schedule_log import SCHEDULE_SCHEMA, read_schedule


@pytest.mark.parametrize("count", [-1, True, "2", None])
def test_a_wrong_number_of_decisions_is_named_with_its_key(tmp_path: Path, count: object) -> None:
    path = tmp_path / "schedule.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"schema": SCHEDULE_SCHEMA, "decisions": count}).encode()))
    with pytest.raises(InputError, match=r"gz:1: decisions: .* is not a number of decisions"):
        read_schedule(path, small_scenario([Job("a", 0, 1)], {"A100": (1, 4)}, {("A100", 1): 1.0}))
