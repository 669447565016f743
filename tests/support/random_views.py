"""Random Views, for comparing a policy's calculations with the same written plainly."""

import numpy as np
from hypothesis import strategies as st

from clustergym.scenario.policy import QUEUED, RUNNING, Setting, View

COUNTS = ([1, 2, 4, 8], [1, 2, 3, 4, 6, 8])
"""Powers of two, and counts as a scenario with `counts=any` may have them."""


@st.composite
def random_views(draw: st.DrawFn, most_jobs: int = 14, round_s: float | None = 60.0) -> View:
    """Draw a View of up to `most_jobs` jobs on one to three types; many values are equal, to draw ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = np.array(draw(st.sampled_from(COUNTS)), dtype=np.int64)
    n, types = draw(st.integers(1, most_jobs)), draw(st.integers(1, 3))
    capacity = rng.integers(1, 33, types)
    feasible = rng.random((n, types, len(counts))) < 0.8
    steps = draw(st.sampled_from([3, 1000]))
    time_s = np.where(feasible, rng.integers(1, steps, feasible.shape) / 4, np.inf)
    free, kind, gpus = capacity.copy(), np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for at in np.flatnonzero(rng.random(n) < draw(st.sampled_from([0.0, 0.5, 1.0]))).tolist():
        fits = np.argwhere(feasible[at] & (counts <= free[:, None]))
        if len(fits):
            kind[at], level = fits[rng.integers(len(fits))]
            gpus[at] = counts[level]
            free[kind[at]] -= gpus[at]
    cost_s = rng.choice([0.0, 30.0, 200.0], feasible.shape)
    held = np.flatnonzero(gpus)
    cost_s[held, kind[held], np.searchsorted(counts, gpus[held])] = 0.0
    names = tuple(f"type{t}" for t in range(types))
    setting = Setting(names, capacity, np.full(types, 8), counts, round_s)
    submit_s = np.sort(rng.integers(0, 1000, n)).astype(np.float64)
    iterations = rng.integers(1, 500, n).astype(np.float64)
    return View(
        now_s=1000.0,
        setting=setting,
        available=capacity.copy(),
        free=free,
        job=np.sort(rng.permutation(3 * n)[:n]),
        state=np.where(gpus > 0, RUNNING, QUEUED),
        gpu_type=kind,
        gpus=gpus,
        requested_type=rng.integers(-1, types, n),
        requested_gpus=rng.choice(counts, n),
        submit_s=submit_s,
        deadline_s=np.where(rng.random(n) < 0.3, np.nan, rng.integers(500, 3000, n)),
        queued_s=np.where(gpus > 0, np.nan, submit_s),
        standstill_s=np.where(gpus > 0, rng.choice([0.0, 15.0], n), 0.0),
        iterations=iterations,
        remaining_iterations=np.ceil(iterations * rng.choice([0.1, 0.5, 1.0], n)),
        global_batch=rng.choice([16, 64], n),
        priority=rng.integers(0, 3, n),
        restarts=rng.integers(0, 3, n),
        attained_gpu_s=rng.integers(0, 9000, n).astype(np.float64),
        feasible=feasible,
        batch=np.full(n, 16, dtype=np.int64),
        queue=np.zeros(n, dtype=np.int64),
        times=lambda: time_s,
        costs=lambda: cost_s.copy(),
        batches=lambda: None,
    )
