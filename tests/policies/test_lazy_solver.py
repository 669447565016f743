"""SCIP is imported by the policies that solve programs with it, and by no other."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import clustergym
scenario = clustergym.load_scenario("testbed", ["trace=philly-like", "trace.jobs=10"])
for policy in ("fcfs", "optimus", "gavel", "sia"):
    clustergym.simulate(scenario, policy)
    print(policy, "pyscipopt" in sys.modules)
"""


@pytest.mark.processes
def test_scip_is_imported_by_policies_that_solve_with_it():
    pytest.importorskip("pyscipopt")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    imported = dict(line.split() for line in done.stdout.splitlines())
    assert imported.pop("sia") == "True"
    assert set(imported.values()) == {"False"}
