# A policy of one's own, in a file of one's own, compared with sia on the jobs of four seeds.
set -euo pipefail
cat > my_policy.py <<'PY'
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym import Decision, InformationClass, Policy, View


@dataclass
class SmallestFirst(Policy):
    """Starts waiting jobs by the GPUs they ask for, the least first, and never preempts."""

    name: ClassVar[str] = "smallest-first"
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    round_s: float | None = 300.0

    def schedule(self, view: View) -> Decision:
        free, started = view.free.copy(), []
        for at in np.lexsort((view.submit_s, view.requested_gpus)):
            kind, gpus = int(view.requested_type[at]), int(view.requested_gpus[at])
            kind = int(np.argmax(free)) if kind < 0 else kind
            if not view.gpus[at] and gpus <= free[kind]:
                free[kind] -= gpus
                started.append((int(view.job[at]), kind, gpus))
        return Decision.keep(view).also(started)
PY
cat > compare.py <<'PY'
import numpy as np
from my_policy import SmallestFirst

import clustergym
from clustergym.results.metrics.statistics import aggregate_paired_ratio

words = ["cluster=arena-16", "trace=philly-like", "trace.jobs=30", "trace.load=1.5", "trace.max_duration_s=7200"]
scenarios = [clustergym.load_scenario("testbed", words, seed) for seed in range(4)]


def jct(policy):
    return np.array([clustergym.simulate(each, policy).metrics["jct_mean"] for each in scenarios])


ratio = aggregate_paired_ratio(jct(SmallestFirst()), jct("sia"))
print(f"mean JCT of smallest-first over that of sia: {ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")
PY
python compare.py | tee told
grep -E 'over that of sia: [0-9.]+ \[[0-9.]+, [0-9.]+\]' told
