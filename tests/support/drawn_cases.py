"""Many drawn cases of one test; AGREEMENT_CASES says how many, `.ci/nightly` 20,000."""

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

CASES = int(os.environ.get("AGREEMENT_CASES", "250"))
BATCH = 250
counted: Counter[str] = Counter()


def run(test: Callable[..., None], cases: int, **drawn: st.SearchStrategy[Any]) -> None:
    """Run a test on so many drawn cases; show how far it is if they are many."""
    began, counted_before = time.process_time(), counted.copy()
    for batch in range(-(-cases // BATCH)):
        rules = settings(
            max_examples=min(BATCH, cases - batch * BATCH),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
        )
        seed(batch)(rules(given(**drawn)(test)))()
        if cases > 5000 and batch % 20 == 19:
            print(f"{(batch + 1) * BATCH} cases in {time.process_time() - began:.0f} s of CPU", flush=True)
    print(f"\n{dict(counted - counted_before)} in {time.process_time() - began:.0f} s of CPU")
