"""ElasticFlow's second algorithm, which works returns out once a job, against the same worked out anew."""

import numpy as np
from clustergym.policies.elasticflow import Jobs, Shares, scale_up
from hypothesis import given, settings
from hypothesis import strategies as st

COUNTS = np.array([1, 2, 4, 8])


def plain_scale_up(jobs, shares, gpus):
    """Give back what jobs hold, then one doubling at a time to the job of highest marginal return."""
    level = shares.now.tolist()
    free = gpus - sum(int(COUNTS[k]) for k in level if k >= 0)

    def worth(row, above):
        base = jobs.rate[row, shares.cap[row]] / COUNTS[shares.cap[row]]
        if level[row] < 0 or above <= level[row] or not base > 0:
            return 0.0
        gained = jobs.rate[row, above] - jobs.rate[row, level[row]]
        return float(gained / ((COUNTS[above] - COUNTS[level[row]]) * base))

    for row in sorted(range(len(level)), key=lambda row: -worth(row, jobs.held[row])):
        held, more = jobs.held[row], int(COUNTS[jobs.held[row]] - COUNTS[level[row]])
        if 0 <= level[row] < held and more <= free and jobs.rate[row, held] > jobs.rate[row, level[row]]:
            level[row], free = int(held), free - more
    while True:
        best = None
        for row, now in enumerate(level):
            above = next(
                (k for k in range(now + 1, 4) if now >= 0 and jobs.rate[row, k] > jobs.rate[row, now]), -1
            )
            if above < 0 or COUNTS[above] - COUNTS[now] > free:
                continue
            saved_s = jobs.iterations[row] * (1 / jobs.rate[row, now] - 1 / jobs.rate[row, above])
            pays = saved_s > jobs.standstill_s[row, above] - jobs.standstill_s[row, now]
            if pays and worth(row, above) > 0 and (best is None or worth(row, above) > best[0]):
                best = worth(row, above), row, above
        if best is None:
            return level
        _, row, above = best
        free -= int(COUNTS[above] - COUNTS[level[row]])
        level[row] = above


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 40))
def test_scaling_up_is_that_of_the_plain_loop(seed, m, spare):
    rng = np.random.default_rng(seed)
    rate = np.cumsum(rng.choice([0.25, 0.5, 1.0, -0.25], (m, 4)), axis=1)
    rate = np.where(rate > 0, rate, 0.0)
    cap = np.argmax(rate > 0, axis=1)
    now = np.where((rate > 0).any(axis=1) & (rng.random(m) < 0.8), cap, -1)
    jobs = Jobs(
        np.arange(m),
        rate,
        rng.choice([0.0, 5.0, 60.0], (m, 4)),
        rng.integers(1, 200, m).astype(np.float64),
        np.full(m, np.inf),
        np.where(rng.random(m) < 0.5, rng.integers(0, 4, m), -1),
    )
    shares = Shares(now, np.where(now >= 0, cap, -1), now >= 0)
    gpus = spare + int(COUNTS[now[now >= 0]].sum())
    assert scale_up(jobs, shares, COUNTS, gpus).tolist() == plain_scale_up(jobs, shares, gpus)
