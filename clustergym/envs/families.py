"""The families of scheduling environments: one class with other defaults, and what is said of each."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from clustergym.envs.vector.compiled_episode import EngineEnv
from clustergym.envs.vector.environment import make_vector


class ElasticEnv(EngineEnv):
    """An environment whose agent gives GPUs to jobs of a cluster, by type and count, and takes them away.

    ## Description

    Jobs are submitted to a cluster, run at a speed that depends on the GPU type and count they
    hold, and leave when their iterations are done. At each decision point, every `round_s`
    seconds, the agent starts from the present allotments and edits them one job at a time, until
    it stops; then the clock moves on to the next point. Starting, moving and resuming a job costs
    standstill (checkpoint, and the search for a parallel plan).

    ## Action Space

    `Discrete(R (T K + 1) + 1)`: R rows of jobs, T GPU types, K counts (powers of two).

    | Action | Meaning |
    |---|---|
    | r (T K + 1) + t K + k | give the job of row r `counts[k]` GPUs of type t, in place of what it holds |
    | r (T K + 1) + T K | preempt the job of row r |
    | R (T K + 1) | stop: the allotments as edited hold from now on |

    A job is assigned at most once at a decision point, and preempted at most once, before that. An
    assignment is legal where the job fits in memory and the GPUs are free as edited. Stopping is illegal
    while a waiting job in a row could use idle GPUs, unless `mask_stop_while_idle=False`. `action_masks()`
    and `info["action_mask"]` say what is legal. If there are more than R jobs,
    `clustergym.envs.actions.choose_rows` decides which have a row: those at both ends of the queue,
    and those in the middle in turn.

    ## Observation Space

    `Dict` of `Box(0, 1, float32)`; with `observation="flat"` one `Box` of the same numbers, in this
    order. `env.unwrapped.features.unpack(observation)` gives the parts their shapes, with R, T and K
    as axes.

    | Key | Shape | Meaning |
    |---|---|---|
    | `cluster` | (3 T,) | GPUs of each type: free as edited, available, share of all |
    | `jobs` | (R J,) | J = 20 + 2 T features of each row; 0 where there is no job |
    | `options` | (R T K 3,) | speed, speed per GPU and restart cost of each row's (type, count) |
    | `queue` | (8,) | summary of all jobs in the system, also those without a row |

    A time is log(1 + seconds) / log(1 + ten years), a count of GPUs log2(1 + x) / log2(1 + the largest
    count), any other count x / (x + a constant). Unless a row says "as edited", it describes the start
    of the decision point. Columns that need iteration times are 0 if `information` is `none`.

    | Column of `jobs` | Meaning |
    |---|---|
    | `present` | 1: the row has a job |
    | `waiting` | holds no GPUs |
    | `gpus`, `gpus_held` | GPUs as edited; GPUs held |
    | `assigned`, `preempted`, `may_reject` | edited so at this point; may be rejected now |
    | `age` | seconds since submission |
    | `attained` | GPU-seconds held so far |
    | `work_left` | GPU-seconds left at the most efficient type and count |
    | `time_left` | seconds left at the fastest type and count |
    | `done` | share of the iterations |
    | `waited` | seconds since it last began to wait |
    | `restarts` | x / (x + 4) |
    | `standstill` | seconds until a launched job works |
    | `gpus_requested` | GPUs asked for |
    | `has_deadline`, `slack`, `late` | has a deadline; seconds to the deadline; the deadline has passed |
    | `fair_lag` | age / (age + the time that an even share takes): above 0.5 the job is later than that |
    | T columns, T columns | one-hot: the type held as edited, the type asked for; all 0: none, any |

    The even share of `fair_lag` is of the cluster among the jobs now in the system: the whole job's
    GPU-seconds at the most efficient type and count, times these jobs / GPUs; or, if that is more, its time
    at the fastest.

    | Column of `options` | Meaning |
    |---|---|
    | `speed` | iterations per second / the job's highest; 0: does not fit in memory |
    | `efficiency` | iterations per second and GPU / the job's highest |
    | `restart` | seconds of standstill that a move to it costs |

    | Column of `queue` | Meaning |
    |---|---|
    | `jobs`, `waiting`, `without_row` | x / (x + 50) |
    | `mean_age` | seconds since submission, mean |
    | `demand` | GPUs that waiting jobs ask for: x / (x + GPUs of the cluster) |
    | `work_left` | GPU-seconds left of all jobs / GPUs of the cluster |
    | `edits` | edits at this point: x / (x + 10) |
    | `progress` | share of the jobs met so far that have left |

    ## Rewards

    The sum of the terms in `reward`, times their weights. A term is minus the increase of a cost; only
    an action that ends a decision point has a reward other than 0. The default is
    `{"jobs_in_system": 1.0}`: the return is minus the mean JCT in hours (legal actions at random have minus 3
    to 4 in `Elastic-16`). With `baseline="fcfs"`, or any
    policy with its parameters, the same terms of that policy on the same trace are subtracted, so that
    the return is what the agent gains over it. Do not discount rewards (gamma 1).

    | Term | Cost |
    |---|---|
    | `jobs_in_system` | integral of the number of jobs in the system / jobs of the episode, hours |
    | `slowdown` | mean of time in the system / run time at the request, the latter at least 10 min |
    | `unfairness` | mean of how far finish-time fairness is above 1 |
    | `deadlines_met` | minus the share of jobs that completed by their deadline |
    | `broken_promises` | share of jobs not dropped whose deadline passed before they completed |

    `info["rewards"]` has the terms unweighted. They are for learning, not for deciding: they divide by the
    jobs of the episode, and some measure against what nobody knows before its end.

    ## Illegal Actions

    With `on_illegal="ignore"`, the default, nothing changes, the reward is 0 and `info["illegal"]`
    is true; with `"penalty"` the reward is minus `illegal_penalty`; with `"raise"` an illegal action is an
    `InputError`. With `"repair"`, for agents that know no masks, a legal action is taken in its place, and
    `info["illegal"]` is true: the nearest of the same row, with fewer GPUs or else with more; for a row
    without any it is to stop, or, where that is illegal, the first legal action. A value outside of the
    action space is always an `InputError`.

    ## Starting State

    The first decision point of a trace that resembles Philly's and is drawn from the seed. `trace=` and
    `scenario=` fix the jobs of every episode.

    | Option of `reset` | Meaning |
    |---|---|
    | `trace_seed`, `load` | which trace is drawn |
    | `trace` | a name of traces/, or a trace file |
    | `scenario` | a `Scenario` of the same GPU types and counts |
    | `run_seed` | the seed `clustergym.simulate` takes; 0 |

    ## Episode End

    - Termination: every job has left; or the episode is stalled, after 1,000 illegal actions in a row, or
      after 1,000 rounds in which no job runs, none will be submitted, and the agent starts none. The last
      reward of a stalled episode has what the jobs that have not left would cost if they stayed until all
      jobs could have run one after another, so that a stall never pays; or with a number as `stall_penalty`
      that is subtracted, times their share. `info["stalled"]` is true.
    - Truncation: the clock reaches `horizon_s`.

    The last observation is of the end: at the horizon, of the jobs and GPUs there, and `info["now_s"]` is
    the horizon's time. Only after illegal actions it stays as it was. The last `info` has `metrics`, as a
    run's result.json, and `digest`, that of the event log. Where the
    episode is stalled, completion times and fairness count jobs in the system as if they had left at its end.

    ## Arguments

    Parameters
    ----------
    render_mode : {"ansi", "rgb_array"}, optional
    **parameters
        Fields of `clustergym.envs.scheduling_parameters.SchedulingParameters`.
    """


class FairEnv(EngineEnv):
    """An environment whose agent schedules data-parallel jobs on GPUs of one type, for speed and fairness.

    ## Description

    As `ElasticEnv`, in the setting of Ares: GPUs of one type, rounds of 60 s, measured relaunch
    costs, profiles of data parallelism. The default reward weighs fairness too. Everything else is as
    in `ElasticEnv`.

    ## Action Space

    As `ElasticEnv`, T = 1.

    ## Observation Space

    As `ElasticEnv`; the column `fair_lag` is age / (age + the time that an even share takes): above 0.5
    a job is later than it would be if all jobs now in the system always had as much of the cluster. The
    reward measures against fair sharing among the jobs that really come, which nobody knows before the end.

    ## Rewards

    As `ElasticEnv`; the default is `{"jobs_in_system": 1.0, "unfairness": 1.0}`.
    """

    defaults = MappingProxyType(
        {
            "cluster": "ares-64",
            "rule": "ares",
            "costs": "ares-profiled-free",
            "information": "data_parallel",
            "round_s": 60.0,
            "reward": {"jobs_in_system": 1.0, "unfairness": 1.0},
        }
    )


class DeadlineEnv(EngineEnv):
    """An environment whose agent admits or rejects jobs with deadlines, and has to meet those it admits.

    ## Description

    As `ElasticEnv`; every job has a deadline, as in ElasticFlow's trace, and may be rejected at the
    first decision point that shows it. A job that is not rejected there is admitted for good. Everything
    else is as in `ElasticEnv`.

    ## Action Space

    `Discrete(R (T K + 2) + 1)`, as `ElasticEnv` with one more action for each row:

    | Action | Meaning |
    |---|---|
    | r (T K + 2) + T K + 1 | reject the job of row r: it leaves for good |

    With `actions="drop"` a job may be rejected at any decision point.

    ## Observation Space

    As `ElasticEnv`; the columns `has_deadline`, `slack`, `late` and `may_reject` of `jobs` matter here.

    ## Rewards

    As `ElasticEnv`; the default is `{"deadlines_met": 1.0, "broken_promises": 1.0}`: the return is the
    share of jobs that met their deadline minus the share that was admitted and missed it. Terms of
    time in the system would reward rejection. `stall_penalty` is 2.
    """

    defaults = MappingProxyType(
        {
            "actions": "admit",
            "deadlines": True,
            "information": "data_parallel",
            "reward": {"deadlines_met": 1.0, "broken_promises": 1.0},
            "stall_penalty": 2.0,
        }
    )


class AuctionEnv(EngineEnv):
    """An environment whose agent scores the possible changes of jobs' GPUs; an auction makes the best ones.

    ## Description

    As `ElasticEnv`, but an action is a whole decision. At a decision point all GPUs are put up for
    auction: a job without GPUs starts with its least count on a type, or a job with GPUs doubles
    them. The move with the best score that has room is made, again and again, until no start
    has room and no doubling scores above 0. An enlargement of a running job that does not repay its
    restart is reverted. Only order and sign of scores count. The agents of `agent=auction_es` are
    agents of this environment: with `actions="weights"`, and their information class, their weights
    give the digest of `clustergym run policy=learned`. Everything else is as in `ElasticEnv`.

    ## Action Space

    `Box(-1, 1, (R T K,), float32)`: the score of the move of each row's job to each (type, count); that
    of row r to `counts[k]` GPUs of type t is number (r T + t) K + k. A move is a start, or a doubling of
    that count's half. `info["action_mask"]` has 1 where there is such a move; the other numbers have
    no effect. A job without a row keeps what it has. With `actions="weights"` it is
    `Box(-100, 100, (35,), float32)`: a weight of each of `clustergym.agents.auction_features.NAMES`;
    a move's score is the weighted sum of its features, and jobs without a row take part too.

    ## Observation Space

    As `ElasticEnv`; `assigned`, `preempted`, `may_reject` and `edits` are 0. One more part is a
    `Box(-100, 100, float32)`, unless `features` is `jobs` or `summary`:

    | Key | Shape | Meaning |
    |---|---|---|
    | `scored_moves` | (R T K 35,) | the features of each row's move to each (type, count); 0: there is none |

    `clustergym.agents.auction_features.NAMES` names the features.

    ## Rewards

    As `ElasticEnv`; every action ends a decision point.

    ## Illegal Actions

    There are none. A vector of another shape, or with numbers outside of the action space, is an
    `InputError`.
    """

    defaults = MappingProxyType({"actions": "scores", "features": "moves"})


class PriorityEnv(EngineEnv):
    """An environment whose agent gives each job a priority to start and one to double its GPUs in an auction.

    ## Description

    As `AuctionEnv`, with fewer numbers to choose: those of a job say how early it should start, and how early
    what it has should be doubled. An episode has about 230 decisions of 50 jobs, and each of them counts, so
    that a policy gradient learns from scratch. Everything else is as in `ElasticEnv`.

    ## Action Space

    `Box(-1, 1, (2 R,), float32)`: of the job of row r number 2 r is the priority p of its start, 2 r + 1 the
    priority q of its doublings. A start scores 3 p + 0.5 `marginal_start` + 0.2 `keep`, a doubling
    3 q + 0.5 + `marginal_double` + 0.2 `keep` (`clustergym.agents.auction_features`); a job with q < 0 is
    not doubled. `info["action_mask"]` has 1 for rows with a job; the other numbers have no effect. A job
    without a row keeps what it has.

    ## Observation Space

    As `ElasticEnv`; `assigned`, `preempted`, `may_reject` and `edits` are 0. One more part is a
    `Box(-100, 100, float32)`:

    | Key | Shape | Meaning |
    |---|---|---|
    | `ranked` | (R 5,) | `size`, `rank`, `age`, `stretch`, `attained` of each row's job; 0: no job |

    `clustergym.agents.auction_features.NAMES` describes them.

    ## Rewards

    As `ElasticEnv`; every action ends a decision point.

    ## Illegal Actions

    There are none. A vector of another shape, or with numbers outside of the action space, is an
    `InputError`.
    """

    defaults = MappingProxyType({"actions": "priorities", "features": "ranked", "rows": 32})


class KnobsEnv(EngineEnv):
    """An environment whose agent sets an auction's weights once; the auction then schedules all jobs.

    ## Description

    A bandit: an action is what is added to the weights of a known auction
    (`clustergym.agents.auction_features.PRIOR`), which then decides until the episode ends. A step is an
    episode, so that libraries that count steps see few: set PPO's `n_steps` to 4 or so. With `hold=N` an
    action holds for N decision points, so that the state of the cluster matters. Everything else is as
    in `ElasticEnv`.

    ## Action Space

    `Box(-2, 2, (28,), float32)`: what is added to the weights of `clustergym.agents.auction_features.KNOBS`.
    Zeros are the known auction.

    ## Observation Space

    | Key | Shape | Meaning |
    |---|---|---|
    | `cluster` | (3 T,) | as `ElasticEnv` |
    | `queue` | (8,) | as `ElasticEnv` |

    ## Rewards

    The default is `{"log_jct": 1.0}` with `baseline="learned checkpoint=prior round_s=300"`: the return is
    the logarithm of the known auction's mean JCT over that of the action, on the same trace. Episodes are
    drawn among 64 traces, as the known auction is run once on each.

    ## Illegal Actions

    There are none. A vector of another shape, or with numbers outside of the action space, is an
    `InputError`.
    """

    defaults = MappingProxyType(
        {
            "actions": "knobs",
            "hold": None,
            "features": "summary",
            "reward": {"log_jct": 1.0},
            "baseline": "learned checkpoint=prior round_s=300",
            "traces": 64,
        }
    )


class TenantsEnv(EngineEnv):
    """An environment whose agent gives GPUs to the jobs of tenants, who each have a quota and a fair share.

    ## Description

    As `ElasticEnv`, in the setting of `FairEnv`, with [queues of tenants](../tenants.md) shaped as
    Philly's virtual clusters (`queues="philly"` on 64 GPUs, `philly-16` and so on elsewhere), half of
    which submit their jobs in bursts. The agent may lend the GPUs of a queue to others, and has to take
    them back. Quotas are kept only because of the reward. Everything else is as in `ElasticEnv`.

    ## Action Space

    As `ElasticEnv`, T = 1.

    ## Observation Space

    As `ElasticEnv`, with one more part, GPUs of the queue of each row's job over those of the cluster:

    | Key | Shape | Meaning |
    |---|---|---|
    | `tenants` | (R 3,) | `held` as edited, `quota`, `fair_share` of all that is wanted; 0: no job |

    A job wants what it asks for, or holds if that is more; past use does not count.

    ## Rewards

    As `ElasticEnv`; the default is `{"jobs_in_system": 1.0, "owed": 1.0}`. One more term:

    | Term | Cost |
    |---|---|
    | `owed` | GPU-hours that queues lacked of their quotas while they wanted them / GPUs of the cluster |
    """

    defaults = MappingProxyType(
        {
            **FairEnv.defaults,
            "queues": "philly",
            "bursty": 0.5,
            "features": "tenants",
            "reward": {"jobs_in_system": 1.0, "owed": 1.0},
        }
    )


ElasticVectorEnv = partial(make_vector, ElasticEnv)
FairVectorEnv = partial(make_vector, FairEnv)
DeadlineVectorEnv = partial(make_vector, DeadlineEnv)
AuctionVectorEnv = partial(make_vector, AuctionEnv)
PriorityVectorEnv = partial(make_vector, PriorityEnv)
KnobsVectorEnv = partial(make_vector, KnobsEnv)
TenantsVectorEnv = partial(make_vector, TenantsEnv)
"""What `gymnasium.make_vec` calls for each family."""
