"""Policies and placers that exit, hang, or end the process: one error that says where, and no result."""

import itertools
import mmap
import os
import sys
import time
from functools import partial
from multiprocessing import Pipe

import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.scenario.policy import Decision, InformationClass, Policy
from clustergym.sim import child
from clustergym.sim.child import run_supervised
from clustergym.sim.drive import simulate
from clustergym.sim.guard import PLACE, PLACER, StepWatchdog, StoppedError

# a comes at 0 and b at 10, and each event is a decision point: the second decision, at 10, sees both jobs.
SCENARIO = small_scenario(
    [Job("a", 0, 100, 2), Job("b", 10, 10, 2)], {"X": (1, 4)}, {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}}
)
WHERE = "in decision 2, at 10 s of simulated time with 2 jobs in the view (there is no result of this run)"


def stubborn():
    while True:
        try:
            for _ in range(10**9):
                len("x")
        except BaseException:
            continue


class Scripted(Policy):
    """Starts every job at its request; does something else at its second decision."""

    name = "scripted"
    information_class = InformationClass.NONE

    def __init__(self, act=lambda: None):
        self.act = act

    def reset(self, setting, rng):
        self.record_decision = 0

    def schedule(self, view):
        self.record_decision += 1
        if self.record_decision == 2:
            self.act()
        waits = view.gpus == 0
        wanted = zip(view.job[waits], view.requested_type[waits], view.requested_gpus[waits], strict=True)
        return Decision.keep(view).also(
            (int(job), max(int(kind), 0), int(gpus)) for job, kind, gpus in wanted
        )


class ScriptedPlacer(Buddy):
    """Does something else at its second placement."""

    name = "scripted-placer"

    def __init__(self, act):
        super().__init__()
        self.act, self.placed = act, 0

    def place(self, allocations, gpu_type, gpus):
        self.placed += 1
        if self.placed == 2:
            self.act()
        return super().place(allocations, gpu_type, gpus)


def digest_of(policy, placer, watch):
    return simulate(SCENARIO, policy, placer, watch=watch).simulation.log.digest


def run_guarded(policy, placer=None, limit_s=None):
    placer = placer or Buddy()
    return run_supervised(partial(digest_of, policy, placer), policy, placer, limit_s)


def raise_(error):
    raise error


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (partial(sys.exit, 0), "called sys.exit(0)"),
        (partial(sys.exit, "two\nlines"), r"called sys.exit('two\nlines')"),
        (partial(raise_, GeneratorExit()), "raised GeneratorExit"),
    ],
)
def test_an_exit_is_an_error_that_says_where(act, said):
    with pytest.raises(StoppedError) as raised:
        simulate(SCENARIO, Scripted(act), Buddy())
    assert str(raised.value) == f"policy scripted: {said} {WHERE}"


def test_an_exit_of_a_placer_is_its_own():
    with pytest.raises(StoppedError) as raised:
        simulate(SCENARIO, Scripted(), ScriptedPlacer(partial(sys.exit, 0)))
    assert str(raised.value) == f"placer scripted-placer: called sys.exit(0) {WHERE}"


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (partial(os._exit, 0), "ended its process with exit status 0"),
        (lambda: os.kill(os.getpid(), 9), "had its process ended by SIGKILL (out of memory?)"),
        (partial(raise_, KeyboardInterrupt()), "raised KeyboardInterrupt"),
    ],
)
def test_whatever_ends_the_process_is_noticed_by_its_parent(act, said):
    with pytest.raises(StoppedError) as raised:
        run_guarded(Scripted(act))
    assert str(raised.value) == f"policy scripted: {said} {WHERE}"


def test_an_exit_before_the_first_decision_names_whose_code_is_not_the_projects():
    policy = Scripted()
    policy.reset = lambda setting, rng: os._exit(0)
    with pytest.raises(StoppedError, match=r"policy scripted: .* exit status 0 before the first decision"):
        run_guarded(policy)
    with pytest.raises(StoppedError, match=r"placer scripted-placer: .* exit status 0 in decision 2"):
        run_guarded(Scripted(), ScriptedPlacer(partial(os._exit, 0)))


def test_an_error_of_a_policy_comes_with_its_traceback():
    with pytest.raises(ZeroDivisionError, match="mine") as raised:
        run_guarded(Scripted(partial(raise_, ZeroDivisionError("mine"))))
    assert 'test_guard.py", line' in raised.value.__notes__[0]
    with pytest.raises(InputError, match=r"^is wrong \(give 1\)$"):
        run_guarded(Scripted(partial(raise_, InputError("is wrong", remedy="give 1"))))


def loop():
    while True:
        pass


def careless():
    try:
        loop()
    except Exception:
        loop()


@pytest.mark.parametrize("act", [loop, careless, partial(time.sleep, 1e6)])
def test_a_decision_that_does_not_end_is_interrupted(act):
    with pytest.raises(StoppedError) as raised:
        simulate(SCENARIO, Scripted(act), Buddy(), watch=StepWatchdog(0.3))
    assert str(raised.value) == f"policy scripted: took longer than 0.3 s {WHERE}"


def test_a_placement_that_does_not_end_is_interrupted():
    with pytest.raises(StoppedError, match=r"^placer scripted-placer: took longer than 0.3 s in decision 2"):
        simulate(SCENARIO, Scripted(), ScriptedPlacer(loop), watch=StepWatchdog(0.3))


@pytest.mark.parametrize("act", [stubborn, partial(sum, itertools.repeat(0))])
def test_what_cannot_be_interrupted_is_killed(act, monkeypatch):
    monkeypatch.setattr(child, "GRACE_S", 0.3)
    with pytest.raises(StoppedError) as raised:
        run_guarded(Scripted(act), limit_s=0.3)
    said = "took longer than 0.3 s, could not be interrupted and was killed"
    assert str(raised.value) == f"policy scripted: {said} {WHERE}"


def test_a_watched_run_and_one_in_a_process_of_its_own_have_the_same_digest():
    plain = digest_of(Scripted(), Buddy(), None)
    assert digest_of(Scripted(), Buddy(), StepWatchdog(30.0)) == plain
    assert run_guarded(Scripted(), limit_s=30.0) == plain


def test_the_projects_own_policies_stay_in_this_process():
    assert run_supervised(lambda watch: os.getpid(), Buddy(), Buddy()) == os.getpid()
    assert run_supervised(lambda watch: os.getpid(), Scripted(), Buddy()) != os.getpid()


def test_the_limit_is_one_of_a_decision_and_not_of_the_run():
    policy = Scripted()
    decide = policy.schedule
    policy.schedule = lambda view: (time.sleep(0.4), decide(view))[1]
    assert simulate(SCENARIO, policy, Buddy(), watch=StepWatchdog(1.0)).wall_s > 1.0


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_limit_that_is_no_duration_is_refused(limit_s):
    with pytest.raises(InputError, match=r"run\.decision_limit_s"):
        StepWatchdog(limit_s)


def test_a_step_whose_beginning_is_being_written_is_not_late():
    # Packing writes the numbers one after the other, the time of the beginning last; until then it is 0.
    place, (reader, writer) = mmap.mmap(-1, PLACE.size), Pipe(duplex=False)
    PLACE.pack_into(place, 0, PLACER, 487, 2, 0.0, 0.0)
    process = os.fork()
    if not process:
        time.sleep(0.5)
        os._exit(0)
    writer.close()
    assert child._receive_answer(reader, process, place, 0.1) is None
    os.waitpid(process, 0)
