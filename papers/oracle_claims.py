"""Makes Arena's and Crius's claims on estimates, proxy plans, pruned search and profiling.

"Fair" is the oracle as every simulation uses it. "As published" is it by the papers' texts to the letter:
`strategy=least_bias overlap=true` and Arena's three rules, or `strategy=assembly overlap=true` and Crius's.
It takes some seconds, so the quick form has all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import load_cluster
from clustergym.oracle.calibration.accuracy import CLUSTERS, PAPER_COUNTS, PAPER_ERRORS, plan_clusters
from clustergym.oracle.calibration.planning import PlanningOutcomes, by_gpus, join_outcomes, summary
from clustergym.oracle.measured.iteration_times import MEASUREMENTS, Measurements, read_measurements
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.stacks.stack_oracle import make_operators_oracle

from .arena_claims import PREPRINT, cite_preprint
from .arena_scenarios import MARGIN, USABLE, read_memory
from .claims import PaperClaim, quantity
from .reproduction import check_published

GPT, MOE = ModelClass("gpt3", "1.3B", 256), ModelClass("gshard_moe", "2.4B", 512)
ILLEGIBLE = "the paper's figure is missing from the text that we have"
COSTS = "ours by an assumed 3 s a compilation and five runs"
WITHOUT = "as published without `overlap`"
STRATEGIES = {"arena": "least_bias", "crius": "assembly"}
"""The oracle's strategy that follows each paper's text to the letter."""


def oracle_claims(data: Path, paper: str) -> list[PaperClaim]:
    """Return the claims of the paper `arena` or `crius` on iteration times alone, beside our predictions."""
    path, memory = (data / "arena" / name for name in ("arena_profile.csv", "arena_dp_memory.csv"))
    check_published([path, memory])
    measured = read_measurements(path, load_catalog())
    strategy = STRATEGIES[paper]
    found = _Oracles(_figures(), _figures(strategy=strategy, overlap=True), _figures(strategy=strategy))
    if paper == "crius":
        return list(_crius(found, measured))
    return [*_motivation(found.ours, measured, memory), *_arena(found, measured)]


class _OracleFigures:
    """Figures of one oracle on 1 to 16 GPUs of Arena's clusters."""

    def __init__(self, clusters: Mapping[str, PlanningOutcomes]) -> None:
        self.rows = join_outcomes(list(clusters.values()))
        self.figures = summary(self.rows)
        self.error = {gpus: 100 * row["estimate_error_mean"] for gpus, row in by_gpus(self.rows).items()}
        every = [np.bincount(rows.job, rows.profiling_gpu_s) for rows in clusters.values()]
        self.job_min = np.concatenate([spent[spent > 0] for spent in every]) / 60

    def percent(self, name: str) -> float:
        return 100 * float(self.figures[name])

    def minutes(self, name: str) -> float:
        """Return the mean wall-clock minutes of a plan search that uses all GPUs of an allocation."""
        return float((getattr(self.rows, name) / self.rows.gpus).mean() / 60)

    @property
    def worst_error(self) -> float:
        """The greatest over GPU counts of the mean error, in percent."""
        return float(max(self.error.values()))

    @property
    def tuning_error(self) -> float:
        """1 minus Crius's tuning accuracy (section 8.2): (T - T_optimum) / T_optimum, percent.

        Over the allocations on which half of the space holds a plan at all.
        """
        found = np.isfinite(self.rows.half_space_s)
        return float((100 * self.rows.half_space_s[found] / self.rows.best_s[found] - 100).mean())

    @property
    def without_plan(self) -> int:
        """Number of allocations on which the pruned search finds no plan although a full search does."""
        return int((~np.isfinite(self.rows.half_space_s)).sum())


@cache
def _figures(**parameters: Any) -> _OracleFigures:
    """Return the figures of an oracle with these parameters."""
    return _OracleFigures(plan_clusters(make_operators_oracle(**parameters), PAPER_COUNTS))


class _Oracles(NamedTuple):
    """Figures of three oracles: the simulations', one to the paper's letter, and that without `overlap`."""

    ours: _OracleFigures
    letter: _OracleFigures
    charged: _OracleFigures

    def both(self, of: Callable[[_OracleFigures], float]) -> tuple[float, float]:
        """Return a figure for two oracles: the one of our simulations, and one by the letter of the paper."""
        return of(self.ours), of(self.letter)


def _arena(found: _Oracles, measured: Measurements) -> Iterator[PaperClaim]:
    claim = "proxy plan against the best of its grid: Wide-ResNet on 4, 8 and 16 GPUs"
    why = f"{ILLEGIBLE}; the next row has all models and grids"
    yield PaperClaim(claim, "section 5.4, Fig. 14", None, why=why)
    lost, claim = (
        _measure_loss("proxy_share_of_optimum_mean"),
        "best proxy plan: loss against the searched optimum",
    )
    why = f"{WITHOUT} {lost(found.charged):.1f} %; in the texts at hand 93.4 % is Crius's, of estimates"
    yield quantity(claim, "section 5.4", 100 - 93.4, *found.both(lost), why=why, first_stated_by=PREPRINT)
    pruned = _measure_loss("pruned_share_of_optimum_mean")(found.ours)
    by_rules = _measure_loss("three_rules_share_of_optimum_mean")(found.letter)
    claim, why = "pruned search: loss against the searched optimum", f"{ILLEGIBLE}; fair: our `wide` rules"
    yield quantity(claim, "section 5.4, Fig. 15", None, pruned, by_rules, why=why)
    yield from _savings("section 5.4, Fig. 15", found, ("pruned", "three_rules"), "section 8.2, Fig. 13")
    for gpus, paper in PAPER_ERRORS.items():
        stored, count = _compute_stored_error(measured, "estimated_best", int(gpus))
        why = (
            f"{WITHOUT} {found.charged.error[gpus]:.1f} %; its artifact's estimates "
            f"against its measured optima {stored:.1f} % ({count} rows)"
        )
        claim = f"error of profiled iteration time, {gpus} GPU{'s' * (gpus != '1')}"
        errors = found.both(lambda figures, gpus=gpus: figures.error[gpus])  # type: ignore[misc]
        yield quantity(claim, "section 5.5, Fig. 16", 100 * paper, *errors, why=why)
    yield from _profiling("section 5.5, Fig. 16", found, "section 8.2, Fig. 12")
    source, why = "section 5.8", f"{COSTS}; all grids of 1 to 16 GPUs"
    minutes = found.both(lambda figures: float(figures.job_min.mean()))
    yield quantity("profiling a job on one GPU of each type", source, 8.5, *minutes, "min", why=why)
    minutes = found.ours.minutes("pruned_gpu_s"), found.letter.minutes("three_rules_gpu_s")
    why = f"{COSTS}, side by side on the job's GPUs"
    yield quantity("space-pruned AP search", source, 1.0, *minutes, "min", why=why, paper_most=2.0)
    yield quantity("profiling a node's collectives offline", source, 3.5, unit="h", why="needs GPUs")
    claim = "loss of GPT-2.6B when its data parallelism changes, mean square deviation"
    yield quantity(claim, source, 0.06, unit="", decimals=2, why="needs a training run")


def _measure_loss(share: str) -> Callable[[_OracleFigures], float]:
    """Return by how many percent a mean share of the optimum misses it."""
    return lambda figures: 100 - figures.percent(share)


def _motivation(ours: _OracleFigures, measured: Measurements, memory: Path) -> Iterator[PaperClaim]:
    """Yield the claims of sections 2.2 and 2.3, on data-parallel profiles and linear estimates."""
    parallel, best = _fewest_a100()
    fits = [
        key.nodes * key.per_node
        for key in measured.seconds
        if key.model == MOE and key.measurement == MEASUREMENTS[0]
    ]
    for by, paper, fair, stored, how in (
        ("data parallelism", 4.0, parallel, _fewest_by_memory(memory), "by its artifact's memory"),
        ("the best plan", 2.0, best, float(min(fits)), "the fewest that its artifact measured"),
    ):
        claim = f"fewest A100 for MoE-2.4B by {by}"
        why = f"batch 512 (the text names none); as published: {how}"
        yield quantity(claim, "section 2.2, Fig. 3a", paper, fair, stored, "GPUs", 0, why)
    found = np.isfinite(ours.rows.data_parallel_s)
    slower = 100 * (ours.rows.data_parallel_s[found] / ours.rows.best_s[found] - 1)
    stored, _ = _compute_stored_error(measured, "estimated_dp")
    why = (
        f"the text has none; it does not fit on {100 * (1 - found.mean()):.0f} % of the allocations; "
        "as published: its artifact's table"
    )
    claim = "data-parallel profile against the best plan's time: error"
    yield quantity(claim, "section 2.2", None, float(slower.mean()), stored, why=why)
    claim = "FLOPs by peak and utilisation, GPT-2.6B on 4 A40: error"
    yield PaperClaim(claim, "section 2.3", None, why=f"{ILLEGIBLE}, and so is the utilisation")
    for gpus, error in _linear_errors().items():
        claim = f"linear estimate of GPT-1.3B's throughput on {gpus} GPUs: error"
        why = f"{ILLEGIBLE}; batch 256, mean over the GPU types of which one has room"
        yield quantity(claim, "section 2.3", None, error, why=why)


def _crius(found: _Oracles, measured: Measurements) -> Iterator[PaperClaim]:
    source = "section 8.2, Fig. 12"
    stored, count = _compute_stored_error(measured, "estimated_best")
    error = "estimate_error_mean"
    why = (
        f"the text says accuracies, 93.4 % here; {WITHOUT} {found.charged.percent(error):.1f} %; Arena's "
        f"artifact's estimates against its measured optima {stored:.1f} % ({count} rows)"
    )
    pair = found.both(lambda figures: figures.percent(error))
    yield quantity("error of estimates, mean", source, 100 - 93.4, *pair, why=why)
    why = (
        "accuracy 90.5 %; of the means by GPU count (the text does not say of what it is the worst); "
        f"{WITHOUT} {found.charged.worst_error:.1f} %"
    )
    pair = found.both(lambda figures: figures.worst_error)
    yield quantity("error of estimates, worst", source, 100 - 90.5, *pair, why=why)
    yield from _profiling(source, found)
    seconds = found.both(lambda figures: float(figures.rows.plan_profiling_gpu_s.mean()))
    yield quantity("profiling one plan", "section 8.2", 30.0, *seconds, "s", why=COSTS)
    minutes = found.both(lambda figures: float(figures.job_min.max()))
    why = f"{COSTS}; all grids of 1 to 16 GPUs, one plan a grid (Crius: two)"
    claim = "profiling one job"
    yield quantity(claim, "section 8.2", 30.0, *minutes, "min", why=why, comparison="at most")
    errors = found.both(lambda figures: figures.tuning_error)
    none = found.both(lambda figures: float(figures.without_plan))
    why = (
        f"accuracy 96.2 %; {WITHOUT} {found.charged.tuning_error:.1f} %; without allocations on which half "
        f"of the space holds no plan ({none[0]:.0f}; as published {none[1]:.0f})"
    )
    yield quantity("error of tuning", "section 8.2, Fig. 13", 100 - 96.2, *errors, why=why)
    yield from _savings("section 8.2, Fig. 13", found, ("half_space", "half_space"))


def _savings(
    source: str, found: _Oracles, rules: tuple[str, str], figures_of: str = ""
) -> Iterator[PaperClaim]:
    for most, paper in (("mean", 5.48), ("most", 10.88)):
        fair, letter = (f"{rule}_times_cheaper_{most}" for rule in rules)
        times = found.ours.figures[fair], found.letter.figures[letter]
        claim = f"pruned search: cost saved, {most}"
        why = f"{COSTS}; how many plans its full search tries is not known"
        shown, first = cite_preprint(source, figures_of), PREPRINT if figures_of else ""
        yield quantity(claim, shown, paper, *times, "x", 2, why, first_stated_by=first)


def _profiling(source: str, found: _Oracles, figures_of: str = "") -> Iterator[PaperClaim]:
    for least, paper in (("mean", 18.1), ("least", 2.55)):
        name = f"measuring_over_profiling_gpu_time_{least}"
        times = found.ours.figures[name], found.letter.figures[name]
        claim = f"GPU time of running a plan over profiling it, {least}"
        why = f"{COSTS}; elapsed time by GPUs occupied"
        shown, first = cite_preprint(source, figures_of), PREPRINT if figures_of else ""
        yield quantity(claim, shown, paper, *times, "x", 2, why, first_stated_by=first)


def _compute_stored_error(
    measured: Measurements, measurement: str, gpus: int | None = None
) -> tuple[float, int]:
    """Return the mean error of the artifact's own estimates, and the number of them."""
    errors = [
        abs(seconds / measured.seconds[best] - 1)
        for key, seconds in measured.seconds.items()
        if key.measurement == measurement
        and gpus in (None, key.nodes * key.per_node)
        and np.isfinite(seconds)
        if np.isfinite(measured.seconds.get(best := key._replace(measurement=MEASUREMENTS[0]), np.inf))
    ]
    return (100 * float(np.mean(errors)) if errors else float("nan")), len(errors)


def _fewest_a100() -> tuple[float, float]:
    """Return the fewest GPUs that MoE-2.4B runs on, by data parallelism and by the best plan."""
    tables = make_operators_oracle().tables([MOE], load_cluster("arena-sim"), PAPER_COUNTS)
    column = tables.gpu_types.index("A100")
    fits = (np.isfinite(t[0, column]).any(axis=1) for t in (tables.data_parallel, tables.execution))
    parallel, best = (float(tables.counts[row].min()) for row in fits)
    return parallel, best


def _fewest_by_memory(path: Path) -> float:
    """Return the fewest A100 of 40 GB that MoE-2.4B runs on by data parallelism, by the artifact's rule."""
    degrees = read_memory(path)[MOE.family, MOE.size, MOE.global_batch]
    return float(min(n for n, gb in degrees.items() if MARGIN * gb <= USABLE * 40.0))


def _linear_errors() -> dict[int, float]:
    """Return by how many percent n times the throughput of one GPU is above that of n, n = 2 and 16."""
    found: dict[int, dict[str, float]] = {2: {}, 16: {}}
    for name in CLUSTERS:
        cluster = load_cluster(name)
        seconds = make_operators_oracle().tables([GPT], cluster, PAPER_COUNTS).execution[0]
        for column, gpu_type in enumerate(cluster.gpu_types):
            alone = seconds[column, 0, cluster.compact_locality(column, 1)]
            for gpus, errors in found.items():
                several = seconds[column, PAPER_COUNTS.index(gpus), cluster.compact_locality(column, gpus)]
                if np.isfinite(alone):
                    errors[gpu_type] = 100 * float(gpus * several / alone - 1)
    return {gpus: float(np.mean(list(errors.values()))) for gpus, errors in found.items()}
