"""A View as text, line by line: a small run of which every number is worked out here."""

import numpy as np
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.scenario.policy import Decision, InformationClass
from clustergym.scenario.view_text import describe
from clustergym.sim.engine import Simulation

# On X a job of model m takes 2 s an iteration on one GPU and 1 s on two; it does not fit on Y.
JOBS = [
    Job("a", 0.0, 100, gpus=2, gpu_type="X", priority=3),
    Job("b", 40.0, 50, gpus=1, deadline_s=1000.0),
    Job("c", 40.0, 60, gpus=2),
]


def simulation() -> Simulation:
    """Return a run at 40 s, when a has done 40 of its iterations on two GPUs."""
    made = small_scenario(JOBS, {"X": (1, 2), "Y": (1, 4)}, {"m": {"X": {1: 2.0, 2: 1.0}}})
    found = Simulation(made, Buddy(), InformationClass.CLAIRVOYANT, None, 0)
    view = found.advance()
    found.apply(Decision.keep(view).also([(0, 0, 2)]))
    return found


def test_every_line() -> None:
    view = simulation().advance()
    head = [
        "now_s = 40 s; 3 jobs in the system",
        "A job may hold 1, 2, 4 GPUs of one type.",
        "GPU types (index name: GPUs in all, available to a decision, free now, per node):",
        "  0 X: 2, 2, 0, 2",
        "  1 Y: 4, 4, 4, 4",
        "Jobs, in order of submission (job = its row of the trace, which a Decision names):",
    ]
    times = "; seconds per iteration by GPUs X {1: 2, 2: 1}"
    jobs = [
        "  job 0: submitted at 0 s, asks for 2 GPUs of X, runs on 2 X, 60 of 100 iterations left, 0 restarts,"
        " 80 GPU-seconds held, priority 3",
        "  job 1: submitted at 40 s, asks for 1 GPUs of any type, waits since 40 s, 50 of 50 iterations left,"
        " 0 restarts, 0 GPU-seconds held, deadline at 1000 s",
        "  job 2: submitted at 40 s, asks for 2 GPUs of any type, waits since 40 s, 60 of 60 iterations left,"
        " 0 restarts, 0 GPU-seconds held",
    ]
    assert view.describe().splitlines() == [*head, *(line + times for line in jobs)]
    unknown = [line + "; fits on X {1, 2}" for line in jobs]
    assert describe(view, None).splitlines() == [*head, *unknown]
    assert describe(view, None, most_jobs=2).splitlines() == [*head, *unknown[:2], "  and 1 more"]
    # What a job cannot run on is left out: here everything but two GPUs of Y, three seconds an iteration.
    slow = np.full((3, 2, 3), np.inf)
    slow[1, 1, 1] = 3.0
    assert describe(view, slow).splitlines()[6:] == [
        jobs[0],
        jobs[1] + "; seconds per iteration by GPUs Y {2: 3}",
        jobs[2],
    ]
