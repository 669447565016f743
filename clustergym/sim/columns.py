"""Columns of the arrays of a run. Times are ticks (microseconds) unless a name ends in `_S`.

Both engines keep jobs in `job` and `figures`; the other arrays are those of a compiled episode.
"""

from __future__ import annotations

import enum

import numpy as np

from clustergym.scenario import clock

TICKS_PER_S = clock.TICKS_PER_S


class Phase(enum.IntEnum):
    """Phases of a job in the simulation, from its submission to its end."""

    FUTURE = 0
    PROFILING = 1
    """Submitted, but no GPU type is profiled yet."""
    QUEUED = 2
    RUNNING = 3
    COMPLETED = 4
    DROPPED = 5


NEVER = np.int64(2**62)
"""A tick that does not come."""
NONE = -1

# Columns of `clock`, one row an episode.
(
    JOBS,  # jobs of the trace
    AHEAD,  # first row that is not submitted yet
    IN_VIEW,  # jobs that a View shows
    NOW,
    DECIDED_AT,  # tick of the last decision point
    DECISION_DUE,
    ROUND_PENDING,
    NEXT_ID,  # events at one tick happen in the order in which they were planned: by this number
    ARRIVAL_ID,
    IDLE_ROUNDS,
    LAUNCHES,  # since a job left or any had fewer iterations left than ever; ENDLESS: too many
    DEFRAGMENTED_AT,
    DEFRAGMENT_EVERY,  # ticks between moves of jobs to closer nodes; 0: none
    ROUND,  # ticks between decision points; 0: one at every event
    APART,  # least ticks between decision points at events
    HORIZON,  # NEVER: none
    VOID_UNTIL,  # latest planned completion, up to the horizon, that a change of the allotment made void
    VOID_BEYOND,  # whether there is such a completion beyond the horizon
    END,
    DECISION_POINTS,
    LEFT,  # jobs that have left
    SCORED_LEFT,  # jobs that are scored and have not left
    EVENTS,  # rows of the event log
    EVENT_NODES,  # rows of the event log's nodes
    FIRST_LAUNCH_COSTS,
    PROFILE_GPUS,  # that a profile holds; 0: nothing is profiled
    SHARED_PROFILES,  # whether jobs of a class share their profiles
    REQUESTED_ONLY,  # whether only the requested type is profiled, where one is requested
    WAITING_PROFILES,
    RUNNING_PROFILES,
    DECISIONS,  # of a policy, those included that were not legal
    RUNNING_JOBS,
    FREE_SHARE,  # first row of `share` that nobody holds; each names the next
    LISTED,  # rows of `in_view`, where a job that leaves stays, as ~row, until the next decision point
    ALWAYS,  # whether there is something to decide without jobs: which nodes to rent
    WAKE,  # tick at which rented nodes come or go next; NEVER
    SERVED,  # whether those of this tick have come and gone
    CLOCK_COLUMNS,
) = range(38)
ENDLESS = -1
"""Value of LAUNCHES if jobs are launched again and again, and none comes nearer to its end."""

# Columns of `job`, one row a job.
(
    SUBMIT,
    CLASS,
    REQUESTED_TYPE,
    REQUESTED_GPUS,
    REQUESTED_BATCH,  # samples
    PHASE,
    TYPE,  # held; NONE
    LEVEL,  # index of the count held; NONE
    GPUS,  # held; 0
    READY,  # tick from which a running job works
    WORKED_UNTIL,
    HELD_SINCE,
    QUEUED_SINCE,
    RESTARTS,
    LAUNCHED,
    DUE,  # tick of the completion; NEVER
    DUE_ID,
    NODES,  # number of nodes held
    FIRST_SHARE,  # first row of `share` of what is held; NONE
    PLACE,  # of a running job in `running`
    LEAVE,  # tick; NEVER
    TARGET_TYPE,  # allotment as edited
    TARGET_LEVEL,
    ASSIGNED,
    PREEMPTED,
    REJECTED,
    DECIDED,  # a decision has ended that showed the job: it is admitted
    HIDDEN,  # bit t: the job is not profiled yet on type t
    NAMED_BY,  # number of the last decision of a policy that names the job
    SCORED,  # whether the job is scored
    MOVES,  # whether the job leaves its nodes, which are given back
    JOB_COLUMNS,
) = range(32)

# Columns of `figures`, one row a job.
(
    SUBMIT_S,
    DEADLINE_S,
    ITERATIONS,
    REMAINING,  # iterations left at WORKED_UNTIL
    ITERATION_S,
    ATTAINED_GPU_S,  # up to HELD_SINCE
    FAIR_S,
    RUN_S,
    LEAST_LEFT,  # fewest iterations left at any look for progress
    FIGURE_COLUMNS,
) = range(10)

# Columns of `profile`; row u T + t is the profile of unit u, a job or a class, on type t.
(
    STATE,
    OWNER,  # the job in whose name the profile holds GPUs
    LEFT_TICKS,  # still to measure, counted from the last start
    SINCE,  # tick of the last start
    PROFILE_DUE,
    PROFILE_ID,
    PROFILE_NODES,  # number of nodes held
    PROFILE_SHARE,  # first row of `share` of what is held
    NTH_WAITING,  # row of the profile that waits in this place
    NTH_RUNNING,  # row of the profile that was the n-th to start of those that run
    PROFILE_COLUMNS,
) = range(11)

IDLE, WAITING, MEASURING = range(3)
"""Values of STATE."""

FUTURE, PROFILING, QUEUED, RUNNING, COMPLETED, DROPPED = map(int, Phase)
"""Values of PHASE."""

# Columns of `share`, one row for what a job or a profile holds of a node.
NODE, ON_NODE, NEXT_SHARE, SHARE_COLUMNS = range(4)

# Columns of `event`, one row an event.
(
    TIME,
    EVENT_TYPE,
    JOB,
    EVENT_GPU_TYPE,
    EVENT_GPUS,
    FIRST_NODE,  # row of `event_node`
    NODE_COUNT,
    LOCALITY,
    OVERHEAD,
    EVENT_COLUMNS,
) = range(10)

(
    SUBMITTED, PROFILE_START, PROFILE_END, START, RESUME, RESCALE, MIGRATE, PREEMPT, COMPLETE,
    DROP_BY_POLICY, FITS_NOWHERE, MOVED, PREEMPT_AT_TERM, NODE_ORDER, NODE_BEGIN, NODE_END,
) = range(16)  # fmt: skip
"""Values of EVENT_TYPE."""

DECISION, OVER, STALLED, WAKEUP = range(4)
"""What `advance` comes to: a decision point, the end of the episode, that nothing more can happen, or that
rented nodes are due."""
