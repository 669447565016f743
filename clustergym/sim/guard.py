"""Guard a run against a policy or placer that exits or hangs: a time limit and a clear error."""

from __future__ import annotations

import mmap
import signal
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import ClassVar, Literal, NoReturn, ParamSpec, TypeVar

from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Period
from clustergym.common.parameters import Parameters, check_value
from clustergym.scenario.policy import Policy
from clustergym.sim.engine import Steps
from clustergym.sim.engines import AnySimulation, Engine

P = ParamSpec("P")
R = TypeVar("R")

AGAIN_S = 1.0
"""Wall seconds after which a step that caught its interruption is interrupted again."""
PLACE = struct.Struct("=qqqdd")
"""Where a process is in its run: role, decision, jobs in the view, simulated and monotonic seconds."""
NO_ROLE, POLICY, PLACER = range(3)


class StoppedError(InputError):
    """Raised if the policy or placer ended its process, crashed, or exceeded its time limit."""

    def __reduce__(self) -> tuple[type[InputError], tuple[str]]:
        """Pickle as the error line alone."""
        return StoppedError, (str(self),)


class OvertimeError(BaseException):
    """Raised inside a step of a run (a decision, or what follows it) that exceeds its time limit.

    It is not an `Exception`, so that a policy that catches exceptions does not catch it.
    """


def make_stopped_error(
    role: int, simulation: AnySimulation, policy: Policy, error: BaseException
) -> StoppedError:
    """Return the error that a policy or placer (by `role`) has ended its process instead of answering."""
    what = f"raised {type(error).__name__}"
    if isinstance(error, SystemExit):
        what = f"called sys.exit({error.code!r})"
    elif isinstance(error, OvertimeError):
        what = str(error)
    who = f"placer {simulation.placer.name}" if role == PLACER else f"policy {policy.name}"
    place = simulation.decision_points, simulation.jobs_in_view, simulation.now_s
    return describe_stop(who, what, role, *place)


def describe_stop(who: str, what: str, role: int, decision: int, jobs: int, now_s: float) -> StoppedError:
    """Make the error for a run that `who` stopped: what happened, in which decision, at what simulated time.

    A `role` of NO_ROLE stands for before the first decision or after the last; `jobs` are those in view.
    """
    shown = f"{jobs} job{'s' * (jobs != 1)} in the view"
    where = f"in decision {decision}, at {now_s:,.0f} s of simulated time with {shown}"
    if role == NO_ROLE:
        where = "after the last decision" if decision else "before the first decision"
    return StoppedError(f"{what} {where}", field=who, remedy="there is no result of this run")


class StepWatchdog:
    """Interrupts steps of a run that take too long, and reports the run's progress to a parent process.

    Python code can be interrupted anywhere; a call into C that does not return cannot.

    Parameters
    ----------
    limit_s : float, optional
        Wall seconds that a decision of the policy, or what the simulator and the placer do until the next
        one, may take.
    place : mmap, optional
        Memory shared with the parent process.

    Raises
    ------
    InputError
        If the limit is not a duration, or there is no timer: in a thread, or on a system without timers.
    """

    def __init__(self, limit_s: float | None = None, place: mmap.mmap | None = None) -> None:
        self.limit_s, self.place = check_limit(limit_s), place

    def __enter__(self) -> StepWatchdog:
        """Install the handler of this process's alarm signal."""
        if self.limit_s is not None:
            alone = threading.current_thread() is threading.main_thread()
            if not hasattr(signal, "setitimer") or not alone:
                message = "needs the timer of a process's main thread"
                raise InputError(message, field="run.decision_limit_s", remedy="leave it out here")
            self._before = signal.signal(signal.SIGALRM, self._interrupt)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        """Restore the previous handler of the alarm signal."""
        if self.limit_s is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)
        if self.place is not None and error_type is None:
            PLACE.pack_into(self.place, 0, NO_ROLE, *PLACE.unpack_from(self.place)[1:])

    def _interrupt(self, signum: int, frame: FrameType | None) -> NoReturn:
        raise OvertimeError(f"took longer than {self.limit_s:g} s")

    def steps(self, simulation: AnySimulation, policy: Policy) -> Steps:
        """Return a run's three functions (advance, schedule, apply), each with the time limit."""
        steps = simulation.steps(policy)
        if self.limit_s is None and self.place is None:
            return steps

        def limit_step(role: int, step: Callable[P, R]) -> Callable[P, R]:
            def run(*given: P.args, **named: P.kwargs) -> R:
                self._begin(role, simulation)
                answer = step(*given, **named)
                if self.limit_s is not None:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
                return answer

            return run

        advance, schedule, apply = steps
        return limit_step(PLACER, advance), limit_step(POLICY, schedule), limit_step(PLACER, apply)

    def _begin(self, role: int, simulation: AnySimulation) -> None:
        if self.place is not None:
            where = simulation.decision_points, simulation.jobs_in_view, simulation.now_s
            PLACE.pack_into(self.place, 0, role, *where, time.monotonic())
        if self.limit_s is not None:
            # Repeated, for a step that swallowed the first interruption is interrupted again.
            signal.setitimer(signal.ITIMER_REAL, self.limit_s, AGAIN_S)


def check_limit(limit_s: float | None, field: str = "run.decision_limit_s") -> float | None:
    """Check that a time limit of decisions is a valid number of seconds, and return it."""
    seconds: float | None = check_value(limit_s, Period | None, field)
    return seconds


Logs = Literal["auto", "lines", "columns"]


@dataclass(frozen=True)
class RunOptions(Parameters):
    """Options of a run: its engine, its logs, and the time limit of decisions.

    Attributes
    ----------
    decision_limit_s : float or None
        Wall seconds that a decision may take; null: no limit.
    engine : str
        `simpy`, `compiled`, or `auto`: compiled where that covers the scenario and many decisions are
        expected.
    logs : str
        How the tables of a run are written: `lines` (CSV, JSON), `columns` (Parquet), or `auto`: columns for
        more than 100,000 jobs where pyarrow is there.
    """

    config_key: ClassVar[str] = "run"
    decision_limit_s: Period | None = None
    engine: Engine = "auto"
    logs: Logs = "auto"
