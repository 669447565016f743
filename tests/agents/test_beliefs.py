"""What an agent that measures jobs learns and believes, worked out by hand."""

from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np
import pytest

from clustergym.agents import auction, auction_features, beliefs
from clustergym.agents.auction import NONE, Bids
from clustergym.agents.beliefs import JobsView, RunStats
from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry

COUNTS = np.array([1, 2, 4])
NAN = float("nan")


# What is compiled as a part can be called by compiled functions alone.
@compile_entry
def note(observed: RunStats, shown: JobsView, bids: Bids, gpu_type: Ints, level: Ints) -> None:
    beliefs.note(observed, shown, bids, gpu_type, level)


@compile_entry
def measure(observed: RunStats, counts: Ints, shown: JobsView, bids: Bids) -> None:
    beliefs.measure(observed, counts, shown, bids)


@compile_entry
def believe(given: Floats, observed: RunStats, counts: Ints, shown: JobsView, bids: Bids) -> None:
    beliefs.believe(given, observed, counts, shown, bids)


@dataclass
class Point:
    """A decision point of two jobs, rows 0 and 2 of the trace, on two types of up to four GPUs."""

    now_s: float = 0.0
    held: tuple[tuple[int, int], ...] = ((NONE, NONE), (NONE, NONE))
    remaining: tuple[float, float] = (100.0, 100.0)
    standstill_s: tuple[float, float] = (0.0, 0.0)

    def shown(self) -> JobsView:
        feasible = np.ones((2, 2, 3), dtype=np.bool_)
        feasible[1, 1, 0] = False
        return JobsView(np.array([0, 2]), self.now_s, np.array([100.0, 400.0]), np.array([2, 4]), feasible)

    def bids(self) -> Bids:
        cost_s = np.arange(12.0).reshape(2, 2, 3)
        types, levels = (np.array(column) for column in zip(*self.held, strict=True))
        nothing = np.zeros(2)
        return Bids(
            np.array(self.remaining), np.full((2, 2, 3), np.inf), cost_s, types, levels,
            np.array(self.standstill_s), nothing, nothing, np.full(2, NAN),
        )  # fmt: skip


def ran(observed: RunStats, at: tuple[int, int], from_s: float, until_s: float, done: float) -> None:
    """Let the first job begin on an allotment, and be seen again there."""
    before = Point(now_s=from_s, remaining=(100.0, 100.0))
    gpu_type, level = np.array([at[0], NONE]), np.array([at[1], NONE])
    note(observed, before.shown(), before.bids(), gpu_type, level)
    after = Point(now_s=until_s, held=(at, (NONE, NONE)), remaining=(100.0 - done, 100.0))
    measure(observed, COUNTS, after.shown(), after.bids())


def test_a_job_is_measured_from_when_it_works() -> None:
    observed = beliefs.nothing_observed(3, 2, 3)
    # Its start costs 1 s at level 1 of type 0: in 51 - 1 s it does 25 iterations.
    ran(observed, (0, 1), 0.0, 51.0, 25.0)
    assert observed.works_from_s.tolist() == [1.0, 0.0, 0.0]
    assert (observed.gpu_type.tolist(), observed.level.tolist()) == ([0, NONE, NONE], [1, NONE, NONE])
    assert observed.time_s[0].tolist() == [[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    # Later it counts over the whole time on the allotment: 101 - 1 s for 40 iterations.
    later = Point(now_s=101.0, held=((0, 1), (NONE, NONE)), remaining=(60.0, 100.0))
    measure(observed, COUNTS, later.shown(), later.bids())
    assert observed.time_s[0, 0, 1] == 2.5
    # A standstill that nobody planned begins the measurement anew.
    failed = replace(later, now_s=200.0, standstill_s=(10.0, 0.0))
    measure(observed, COUNTS, failed.shown(), failed.bids())
    assert (observed.works_from_s[0], observed.remaining[0], observed.time_s[0, 0, 1]) == (210.0, 60.0, 2.5)
    # What keeps its allotment goes on being measured from where it began.
    kept = Point(now_s=220.0, held=((0, 1), (NONE, NONE)), remaining=(59.0, 100.0))
    note(observed, kept.shown(), kept.bids(), np.array([0, 1]), np.array([1, 2]))
    assert observed.works_from_s.tolist() == [210.0, 0.0, 220.0 + 11.0]
    assert observed.remaining.tolist() == [60.0, 0.0, 100.0]


@pytest.mark.parametrize(
    ("until_s", "done", "measured"), [(31.0, 10.0, True), (30.9, 10.0, False), (60.0, 0.0, False)]
)
def test_what_is_too_short_is_not_measured(until_s: float, done: float, measured: bool) -> None:
    observed = beliefs.nothing_observed(3, 2, 3)
    ran(observed, (0, 1), 0.0, until_s, done)
    assert (observed.time_s[0, 0, 1] > 0) == measured


def learned() -> RunStats:
    """Return what is seen of a job of 4 s on 1 GPU of type 0, 1 s on 4 there, and 2 s on 4 of type 1."""
    observed = beliefs.nothing_observed(3, 2, 3)
    ran(observed, (0, 0), 0.0, 80.0, 20.0)
    ran(observed, (0, 2), 100.0, 142.0, 40.0)
    ran(observed, (1, 2), 200.0, 285.0, 40.0)
    return observed


def test_powers_and_ratios() -> None:
    observed = learned()
    assert observed.time_s[0].tolist() == [[4.0, 0.0, 1.0], [0.0, 0.0, 2.0]]
    # Four times as fast on four GPUs: a power of 1; type 1 takes twice as long at the same count.
    assert observed.power.tolist() == [1.0, 1.0]
    assert observed.ratio == pytest.approx(np.array([[0.0, log(2)], [-log(2), 0.0]]))
    assert observed.ratios.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_who_is_slower_on_more_gpus_takes_no_hope_from_others() -> None:
    observed = beliefs.nothing_observed(3, 2, 3)
    # 1 s an iteration on one GPU, 8 s on four: a power of -1.5, which counts as 0.
    ran(observed, (0, 0), 0.0, 50.0, 50.0)
    ran(observed, (0, 2), 100.0, 182.0, 10.0)
    assert observed.time_s[0].tolist() == [[1.0, 0.0, 8.0], [0.0, 0.0, 0.0]]
    assert observed.power.tolist() == [0.0, 1.0]
    # The prior is one measurement of 0.5, so the other job is believed to scale with a power of 0.25: from
    # its hour for 400 iterations on the four GPUs that it asks for to fewer.
    given, point = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), Point()
    bids = point.bids()
    believe(given, observed, COUNTS, point.shown(), bids)
    assert bids.time_s[1, 0].tolist() == pytest.approx([9.0 * 4**0.25, 9.0 * 2**0.25, 9.0])


def test_what_is_believed_of_measured_jobs() -> None:
    observed, point = learned(), Point()
    bids = point.bids()
    # Powers count as a half each, with doubt 1: (1/2 + 1) / (1 + 1); equal types count as one measurement.
    believe(np.zeros(beliefs.COUNT), observed, COUNTS, point.shown(), bids)
    power = 0.75
    # Half of a job's own power, which is 1, and half of all jobs'.
    own = (power + 1.0) / 2
    assert bids.time_s[0, 0] == pytest.approx([4.0, 4.0 * 0.5**own, 1.0])
    assert bids.time_s[0, 1] == pytest.approx([2.0 * 4**power, 2.0 * 2**power, 2.0])
    # The second was never seen: 3,600 s for its 400 iterations on 4 GPUs, the same on both types but for
    # their ratio, of one measurement and one of doubt.
    guess = [9.0 * 4**power, 9.0 * 2**power, 9.0]
    assert bids.time_s[1, 0] == pytest.approx(guess)
    factor = exp(log(2) / 2)
    assert bids.time_s[1, 1] == pytest.approx([np.inf, factor * guess[1], factor * guess[2]])


def test_a_type_that_a_job_was_not_measured_on() -> None:
    observed = beliefs.nothing_observed(3, 2, 3)
    ran(observed, (0, 1), 0.0, 51.0, 25.0)
    point, given = Point(), np.zeros(beliefs.COUNT)
    bids = point.bids()
    given[7] = log(1.25)  # Hope: a type that it was not measured on is 1.25 times as fast.
    believe(given, observed, COUNTS, point.shown(), bids)
    assert bids.time_s[0, 0] == pytest.approx([2 * sqrt(2), 2.0, sqrt(2)])
    assert bids.time_s[0, 1] == pytest.approx([1.6 * sqrt(2), 1.6, 0.8 * sqrt(2)])


def test_unequal_powers_and_run_times() -> None:
    observed, point = beliefs.nothing_observed(3, 2, 3), Point()
    bids = point.bids()
    # An hour times e at one GPU, more by the root of the GPUs asked for; powers of 3/4 up and 1/4 down.
    given = np.array([1.0, 0.5, log(3), -log(3), 0.0, 0.0, 0.0, 9.0])
    believe(given, observed, COUNTS, point.shown(), bids)
    first = 36.0 * exp(1) * sqrt(2)
    assert bids.time_s[0, 0] == pytest.approx([first * 2**0.25, first, first / 2**0.75])
    assert bids.time_s[0, 1].tolist() == bids.time_s[0, 0].tolist()  # Hope is of measured jobs alone.
    assert bids.time_s[1, 0, 2] == pytest.approx(9.0 * exp(1) * 2)


def test_what_a_profile_tells() -> None:
    observed, point = learned(), Point()
    bids = point.bids()
    bids.time_s[0] = [[8.0, 4.0, 4.0], [8.0, np.inf, 4.0]]
    bids.time_s[1] = [[np.inf, 6.0, 3.0], [np.inf, 5.0, 1.0]]
    # Powers and profile count as a half each, as geometric means.
    believe(np.zeros(len(beliefs.NAMES_TOLD)), observed, COUNTS, point.shown(), bids)
    own = 0.875
    assert bids.time_s[0, 0] == pytest.approx([4.0, sqrt(4.0 * 0.5**own * 2.0), 1.0])
    # From 2 s on 4 GPUs of type 1, which the profile has at 4 s: at 1 GPU 8 s, so 4 s; nothing of 2 GPUs.
    assert bids.time_s[0, 1] == pytest.approx([sqrt(2.0 * 4**0.75 * 4.0), 2.0 * 2**0.75, 2.0])
    # A job that was not measured counts as measured at the least count told of each type.
    assert bids.time_s[1, 0] == pytest.approx([6.0 * 2**0.75, 6.0, sqrt(6.0 * 0.5**0.75 * 3.0)])
    assert bids.time_s[1, 1] == pytest.approx([np.inf, 5.0, sqrt(5.0 * 0.5**0.75 * 1.0)])


def test_weights_are_split() -> None:
    scores = auction_features.COUNT + 2 * (auction.INPUTS + 2)
    for count in (0, beliefs.COUNT, len(beliefs.NAMES_TOLD)):
        first, last = beliefs.split(np.arange(float(scores + count)))
        assert (len(first), last.tolist()) == (scores, list(np.arange(float(scores), scores + count)))
    assert len(beliefs.START) == beliefs.COUNT == len(beliefs.START_TOLD) - 1


def test_room_for_more_jobs() -> None:
    observed = learned()
    assert beliefs.with_room(observed, 3) is observed
    longer = beliefs.with_room(observed, 4)
    assert len(longer.gpu_type) == 6
    assert len(beliefs.with_room(observed, 7).gpu_type) == 7
    assert longer.time_s[:3].tolist() == observed.time_s.tolist()
    assert not longer.time_s[3:].any()
    assert longer.level.tolist() == [2, NONE, NONE, NONE, NONE, NONE]
    assert longer.works_from_s[:3].tolist() == observed.works_from_s.tolist()
    assert (longer.ratio is observed.ratio, longer.power is observed.power) == (True, True)
