"""Digests of whole runs: the same on any machine, in any process.

A change of a digest is a change of results: it needs a new minor version and a line in the
changelog. `python tests/test_golden.py` prints the present ones.
"""

import json
from functools import cache
from pathlib import Path

import pytest

import clustergym
from clustergym.scenario.scenario import Scenario

GOLDEN = Path(__file__).parent / "golden.json"
POLICIES = ("fcfs", "srtf", "sjf", "las", "tiresias", "gandiva", "optimus", "ares", "arena")
"""Those whose decisions need no solver, whose choice among equal optima may change with its version."""
CASES = [(scenario, policy) for scenario in ("testbed", "ares") for policy in POLICIES]
CASES += [("sharing", policy) for policy in ("fcfs", "srtf", "tiresias")]
TENANTS = ("kai", "kueue", "capacity", "slurm-multifactor")
CASES += [("testbed queues", policy) for policy in TENANTS]


OVERRIDES = {
    "sharing": ("sharing", ["trace.jobs=400", "trace.load=2.0"]),
    "testbed queues": ("testbed", ["scenario.queues=virtual_cluster", "trace.time_limits=[1,5]"]),
}


@cache
def loaded(scenario: str) -> Scenario:
    return clustergym.load_scenario(*OVERRIDES.get(scenario, (scenario,)))


def digest(scenario: str, policy: str) -> str:
    placer = "parts" if scenario == "sharing" else "buddy"
    return clustergym.simulate(loaded(scenario), policy, placer).digest


@pytest.mark.parametrize(("scenario", "policy"), CASES)
def test_digest(scenario, policy):
    assert digest(scenario, policy) == json.loads(GOLDEN.read_text())[f"{scenario} {policy}"]


if __name__ == "__main__":
    print(json.dumps({f"{s} {p}": digest(s, p) for s, p in CASES}, indent=2))
