"""Judges Arena's and Crius's claims on estimates, proxy plans, pruned search and profiling.

"Fair" is the oracle as every simulation uses it. "As published" is it by the papers' texts to the letter:
`strategy=least_bias overlap=true` and Arena's three rules, or `strategy=assembly overlap=true` and Crius's.
It takes some seconds, so the quick form has all rows.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.cluster.cluster_files import load_cluster
from clustergym.oracle.measured.iteration_times import MEASUREMENTS, Measurements, read_measurements
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.stacks.stack_oracle import make_operators_oracle

from .arena_scenarios import MARGIN, USABLE, read_memory
from .claim_files import judge_claims
from .claims import FAIR, PUBLISHED, PaperClaim
from .planning import (
    PAPER_COUNTS,
    PAPER_ERRORS,
    by_gpus,
    join_outcomes,
    plan_clusters,
    summary,
)
from .reproduction import check_published

MOE = ModelClass("gshard_moe", "2.4B", 512)
STRATEGIES = {"arena": "least_bias", "crius": "assembly"}
"""The oracle's strategy that follows each paper's text to the letter."""


def judge_estimates(data: Path, paper: str) -> list[PaperClaim]:
    """Return the claims of the paper `arena` or `crius` on iteration times alone, beside our predictions."""
    path, memory = (data / "arena" / name for name in ("arena_profile.csv", "arena_dp_memory.csv"))
    check_published([path, memory])
    measured, strategy = read_measurements(path, load_catalog()), STRATEGIES[paper]
    figures: dict[str, Any] = {
        FAIR: _figures(),
        PUBLISHED: _figures(strategy=strategy, overlap=True),
        "charged": _figures(strategy=strategy),
        "stored": _stored_errors(measured),
        "paper_errors": {gpus: 100 * error for gpus, error in PAPER_ERRORS.items()},
    }
    if paper == "arena":
        figures["fewest_a100"] = _fewest_a100() | {
            "by its artifact's memory": _fewest_by_memory(memory),
            "the fewest that its artifact measured": min(
                key.nodes * key.per_node
                for key in measured.seconds
                if key.model == MOE and key.measurement == MEASUREMENTS[0]
            ),
        }
    return judge_claims(f"{paper}-estimates", figures)


@cache
def _figures(**parameters: Any) -> dict[str, Any]:
    """Return the figures of an oracle with these parameters on 1 to 16 GPUs of Arena's clusters.

    Errors and losses are in percent. `worst_error` is the greatest over GPU counts of the mean error.
    `tuning_error` is 1 minus Crius's tuning accuracy (section 8.2), (T - T_optimum) / T_optimum, over the
    allocations on which half of the space holds a plan at all; `without_plan` counts the others. A plan
    search takes all GPUs of an allocation.
    """
    clusters = plan_clusters(make_operators_oracle(**parameters), PAPER_COUNTS)
    rows = join_outcomes(list(clusters.values()))
    found, best_s = summary(rows), rows.best_s
    error = {gpus: 100 * row["estimate_error_mean"] for gpus, row in by_gpus(rows).items()}
    spent = [np.bincount(of.job, of.profiling_gpu_s) for of in clusters.values()]
    job_min = np.concatenate([seconds[seconds > 0] for seconds in spent]) / 60
    half = np.isfinite(rows.half_space_s)
    return {
        **found,
        "proxy_loss": 100 - 100 * float(found["proxy_share_of_optimum_mean"]),
        "three_rules_min": float((rows.three_rules_gpu_s / rows.gpus).mean() / 60),
        "error": error,
        "mean_error": 100 * float(found["estimate_error_mean"]),
        "worst_error": float(max(error.values())),
        "tuning_error": float((100 * rows.half_space_s[half] / best_s[half] - 100).mean()),
        "without_plan": int((~half).sum()),
        "job_min_mean": float(job_min.mean()),
        "job_min_max": float(job_min.max()),
        "plan_profiling_s": float(rows.plan_profiling_gpu_s.mean()),
    }


def _stored_errors(measured: Measurements) -> dict[str, dict[str, float]]:
    """Return the mean error of the artifact's own estimates (%) and their number, by GPUs and of all."""
    errors: dict[str, list[float]] = {"all": []}
    for key, seconds in measured.seconds.items():
        best_s = measured.seconds.get(key._replace(measurement=MEASUREMENTS[0]), np.inf)
        if key.measurement == "estimated_best" and np.isfinite(seconds) and np.isfinite(best_s):
            for gpus in ("all", str(key.nodes * key.per_node)):
                errors.setdefault(gpus, []).append(abs(seconds / best_s - 1))
    return {
        gpus: {"error": 100 * float(np.mean(of)) if of else float("nan"), "rows": len(of)}
        for gpus, of in errors.items()
    }


def _fewest_a100() -> dict[str, float]:
    """Return the fewest GPUs that MoE-2.4B runs on, by data parallelism and by the best plan."""
    tables = make_operators_oracle().tables([MOE], load_cluster("arena-sim"), PAPER_COUNTS)
    column, found = tables.gpu_types.index("A100"), {}
    for name, times in (("data parallelism", tables.data_parallel), ("the best plan", tables.execution)):
        found[name] = float(tables.counts[np.isfinite(times[0, column]).any(axis=1)].min())
    return found


def _fewest_by_memory(path: Path) -> float:
    """Return the fewest A100 of 40 GB that MoE-2.4B runs on by data parallelism, by the artifact's rule."""
    degrees = read_memory(path)[MOE.family, MOE.size, MOE.global_batch]
    return float(min(n for n, gb in degrees.items() if MARGIN * gb <= USABLE * 40.0))
