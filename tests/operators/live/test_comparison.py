"""The first difference between the logs of a live run and of the simulator."""

import gzip

import pytest
from clustergym.operators.live.live_run import first_difference


@pytest.mark.parametrize(
    ("live", "simulated", "told"),
    [
        ("", "", ""),
        ("a b", "a b", ""),
        ("b", "a", "event 1: live b, simulated a"),
        ("a b c", "a c c", "event 2: live b, simulated c"),
        ("a b", "a b c", "event 3: live nothing, simulated c"),
        ("a", "", "event 1: live a, simulated nothing"),
    ],
)
def test_the_first_event_that_differs_is_told_by_its_number(live, simulated, told, tmp_path):
    for name, events in (("live", live), ("simulated", simulated)):
        (tmp_path / name).mkdir()
        lines = "".join(f"{event}\n" for event in events.split())
        (tmp_path / name / "events.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert first_difference(tmp_path / "live", tmp_path / "simulated") == told
