"""Processor seconds and memory of a run of many jobs, beside the seconds of its compiled core alone.

    python benchmarks/large_runs.py 10000|100000|1000000

The core is the compiled functions that make decisions and simulate up to the next, without their loading.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from typing import Any

from clustergym.commands.run import main
from clustergym.sim.compiled.numba_cache import Direct

WORDS = {
    "10000": "cluster=arena-sim trace=philly-like",
    "100000": "cluster=arena-sim trace=philly-like compare=null",
    "1000000": "cluster=arena-10240 trace=philly-like trace.load=0.8 oracle=roofline compare=null",
}
"""Jobs -> the rest of the command. Those of the second wait for three days in the mean."""

spent_s: dict[Direct, float] = {}
call = Direct.__call__


def timed(direct: Direct, *arguments: Any) -> Any:
    """Call a compiled function, and add up the processor seconds of all its calls but the first."""
    began_s = time.process_time()
    found = call(direct, *arguments)
    spent_s[direct] = spent_s[direct] + time.process_time() - began_s if direct in spent_s else 0.0
    return found


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("jobs", choices=WORDS)
jobs = parser.parse_args().jobs
Direct.__call__ = timed  # type: ignore[method-assign]
command = f"policy=fcfs trace.jobs={jobs} {WORDS[jobs]} progress=false table=false"
with tempfile.TemporaryDirectory() as folder:
    main([*command.split(), f"hydra.run.dir={folder}"])
used = resource.getrusage(resource.RUSAGE_SELF)
cpu_s, peak_mb = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6
print(
    f"{cpu_s:.2f} CPU-s, of which {sum(spent_s.values()):.2f} in the core; {peak_mb:,.0f} MB: run {command}"
)
