"""What the moments at which slurmctld wakes do to agreement: the policy decides at those of a log alone.

`python benchmarks/slurm_agreement.py --logs FOLDER --json FILE` keeps logs and draws; then
`python benchmarks/slurm_clocks.py FOLDER FILE [SETTING ...] [--json FILE]` runs the same jobs under
`policy=slurm-multifactor` twice: at moments of its own, as slurm_agreement.py does, and whenever the main
scheduler or the backfill of that run of Slurm began. What it decides there is its own.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import slurm_agreement
from clustergym.operators.policies.slurm_clock import SlurmClock
from clustergym.operators.policies.slurm_multifactor import SlurmMultifactor
from slurm_agreement import SETTINGS, SleepJob, compare, print_table, run_policy

from clustergym.common.errors import InputError
from clustergym.scenario.policy import Decision, Setting, View

STEP_S = 0.01
"""The time between decision points: finer than the time between two moments at which slurmctld wakes."""
AFTER_S = 0.5
"""Between moments beyond the log's last."""
LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT[\d:.]+)\] (.*)")


@dataclass(frozen=True)
class Clock:
    """Seconds since the minute of the first submission, of main passes and of backfill."""

    main_s: list[float]
    backfill_s: list[float]


def read_clock(path: Path) -> Clock:
    """Read the log of a slurmctld (`SlurmctldDebug=debug`)."""
    lines = [found for line in path.read_text(errors="replace").splitlines() if (found := LINE.match(line))]
    events = [(datetime.fromisoformat(line[1]).timestamp(), line[2]) for line in lines]
    submitted_s = [time_s for time_s, text in events if "submit_batch_job" in text]
    if not submitted_s:
        raise InputError("submits no job", file=path, remedy="give a log of slurm_agreement.py --logs")
    first_s = submitted_s[0] // 60 * 60
    found = Clock([], [])
    for time_s, text in events:
        if "Running job scheduler" in text:
            found.main_s.append(time_s - first_s)
        elif "attempt_backfill: beginning" in text:
            found.backfill_s.append(time_s - first_s)
    return found


@dataclass
class GivenClock(SlurmClock):
    """A clock that somebody else says the moments of."""

    is_pass: bool = False

    def begins_main_pass(self, view: View) -> bool:
        """Whether jobs are started in order: at each moment."""
        return True

    def begins_backfill(self, now_s: float) -> bool:
        """Whether the moment is one of a pass of backfill."""
        return self.is_pass


@dataclass
class ClockedSlurm(SlurmMultifactor):
    """The policy, which decides at given moments alone.

    Parameters
    ----------
    moments : sequence of (float, bool)
        Seconds, and whether it is a pass of backfill rather than of the main scheduler, in order.
    """

    moments: Sequence[tuple[float, bool]] = ()
    _next: int = field(default=0, init=False, repr=False)
    _clock: GivenClock = field(init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Begin with the first moment."""
        super().reset(setting, rng)
        self._next, self._clock = 0, GivenClock(0.0, 0.0, self.fair_share_interval_s)

    def schedule(self, view: View) -> Decision:
        """Decide as the policy does if a moment lies between the decision point before and this one."""
        due = []
        while self._next < len(self.moments) and self.moments[self._next][0] <= view.now_s:
            due.append(self.moments[self._next][1])
            self._next += 1
        self._clock.is_pass = any(due)
        if due:
            return super().schedule(view)
        # Use is counted, and starts are noted, whether somebody decides or not.
        self._use(view.now_s)
        self._book.open(view)
        running = view.job[view.gpus > 0].tolist()
        self._since_s = {job: self._since_s.get(job, view.now_s) for job in running}
        return Decision.keep(view)


def run_clocked(
    setting: slurm_agreement.Setting, jobs: Sequence[SleepJob], clock: Clock, folder: Path
) -> dict[str, list[list[float]]]:
    """Return submission, start and end of the jobs under the policy at the moments of a log."""
    moments = sorted([(at, False) for at in clock.main_s] + [(at, True) for at in clock.backfill_s])
    last_s = moments[-1][0]
    rest = np.arange(last_s + AFTER_S, last_s + slurm_agreement.LONGEST_S, AFTER_S).tolist()
    moments += [(at, kind) for at in rest for kind in (False, True)]
    return run_policy(
        setting, jobs, folder, rounds_s=STEP_S, policy=lambda **given: ClockedSlurm(moments=moments, **given)
    )


def main() -> None:
    """Compare all logs of a folder and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", type=Path, metavar="FOLDER", help="logs that slurm_agreement.py --logs kept")
    parser.add_argument("recorded", type=Path, metavar="FILE", help="what its --json wrote")
    parser.add_argument("settings", nargs="*", metavar="SETTING", help="by default all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    try:
        recorded = json.loads(arguments.recorded.read_text(encoding="utf-8"))
        for setting in SETTINGS:
            if setting.name not in (arguments.settings or recorded["jobs"]):
                continue
            jobs = [SleepJob(**job) for job in recorded["jobs"][setting.name]]
            for number, run in enumerate(recorded["slurm"][setting.name], 1):
                clock = read_clock(arguments.logs / f"{setting.name.replace('_', '')}{number}.log")
                submitted = slurm_agreement.as_submitted(jobs, run)
                with tempfile.TemporaryDirectory() as folder:
                    found = {
                        "own moments": run_policy(setting, submitted, Path(folder)),
                        "Slurm's moments": run_clocked(setting, submitted, clock, Path(folder)),
                    }
                rows += [
                    {"setting": setting.name, "pair": f"{number}, {name}", **compare(run["runs"], one)}
                    for name, one in found.items()
                ]
    except (InputError, OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{arguments.recorded} or a log cannot be used: {error}")
    print_table(rows)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}), encoding="utf-8")
        print(f"wrote {arguments.json}")


if __name__ == "__main__":
    main()
