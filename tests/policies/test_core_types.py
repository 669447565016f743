"""Decisions do not depend on the kernels that BLAS takes by the processor's type."""

import hashlib
import json
import platform
import sys
from pathlib import Path

import numpy as np
import pytest
from python_process import printed_by

POLICIES = "allox arena ares crius elasticflow-ls fcfs fcfs-backfill gandiva gavel hesrpt las learned lucid"
POLICIES += " morphling optimus pollux random sia sjf srtf themis tiresias"


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def solve_programs(rng):
    """Yield choices and bounds of drawn programs that no rounding of prices solves."""
    from policies.shared.integer_programs import Choices, _lagrangian, solve

    gpu_type, gpus = np.repeat(np.arange(4), 5), np.tile(2 ** np.arange(5), 4)
    for jobs in (20, 30, 40, 50):
        kinds = 1.1 - (1 + 3 * np.sort(rng.random((jobs // 3, 4, 5)), axis=2).reshape(-1, 20)) ** -0.5
        value = kinds[rng.integers(len(kinds), size=jobs)]
        problem = Choices(value, gpu_type, gpus, np.full(4, 11))
        solution = solve(problem, np.full(jobs, -1))
        yield solution.choice
        # What rules out variables: an ulp of it decides which of equal solutions the search meets first.
        yield np.array(_lagrangian(problem, rng.integers(1, 5, jobs), rng.random(4) / 9)[0])


def fit_times(rng):
    """Yield the seconds that Pollux's model says for counts of drawn times."""
    from policies.pollux import fit_time_s

    counts = np.array([1, 2, 4, 8, 16, 32])
    for _ in range(20):
        known = (rng.random(6) < 0.5) | (counts == 1)
        yield fit_time_s(counts, 4, known, rng.lognormal(0.0, 1.0, 6) / counts)


def find_digests():
    """Return the digest of a product by BLAS, and those of what policies compute, by name."""
    import clustergym

    rng = np.random.default_rng(0)
    found = {"blas": digest(rng.random((7, 40)) @ rng.random(40))}
    found |= {"programs": digest(*solve_programs(rng)), "fits": digest(*fit_times(rng))}
    scenario = clustergym.load_scenario(
        "board-testbed",
        ["trace.jobs=12", "scenario.scored_s=null", "trace.load=2.0", "trace.max_duration_s=7200.0"],
    )
    for policy in POLICIES.split():
        found[policy] = clustergym.simulate(scenario, policy, "buddy").digest
    found["arnold"] = clustergym.simulate(scenario, "srtf", "arnold").digest
    return found


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the core types are those of x86-64")
def test_decisions_are_the_same_under_two_core_types():
    old, new = (
        json.loads(printed_by(Path(__file__), OPENBLAS_CORETYPE=core)) for core in ("Prescott", "Haswell")
    )
    # The setting takes: the same product by BLAS has other bits.
    assert old.pop("blas") != new.pop("blas")
    assert old == new


if __name__ == "__main__":
    json.dump(find_digests(), sys.stdout)
