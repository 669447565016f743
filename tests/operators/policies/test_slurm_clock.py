"""When slurmctld does what it does periodically, worked out by hand."""

import pytest
from clustergym.operators.policies.slurm_clock import SlurmClock


def passes(clock: SlurmClock, until_s: int) -> list[int]:
    """Return the whole seconds at which backfill passes, if something has changed at each."""
    found = []
    for now_s in range(until_s):
        clock.see(str(now_s).encode())
        if clock.begins_backfill(now_s):
            found.append(now_s)
    return found


@pytest.mark.parametrize(
    ("boot_s", "expected"),
    [
        (None, [0, 30, 60]),
        # 12 s before the first job: the first pass 30 s after slurmctld began, at 18 s.
        (-12.0, [18, 48, 78]),
        # 100 s before it passes came at -70, -40, -10.
        (-100.0, [20, 50, 80]),
        (0.0, [30, 60]),
        # Begun again at 1,000 s: 1,000 = 33 x 30 + 10.
        (1000.0, [10, 40, 70]),
    ],
)
def test_backfill_passes_at_intervals_from_the_start_of_slurmctld(boot_s, expected):
    assert passes(SlurmClock(30.0, 3.0, 300.0, boot_s), 90) == expected


def test_shares_are_computed_at_whole_periods_after_the_start_of_slurmctld():
    clock = SlurmClock(30.0, 3.0, 300.0, -12.0)
    # With the first jobs, and at -12 + 300 and -12 + 600.
    assert [now_s for now_s in range(700) if clock.begins_shares(now_s)] == [0, 288, 588]
    # A decision point that comes late does not move those that follow.
    clock = SlurmClock(30.0, 3.0, 300.0, -12.0)
    assert [now_s for now_s in (0, 290, 587, 588, 600) if clock.begins_shares(now_s)] == [0, 290, 588]
