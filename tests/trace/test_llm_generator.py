"""The workload of today's language models."""

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common.errors import InputError
from clustergym.oracle.stacks.stack_oracle import StackOracle
from clustergym.oracle.table_cache import table_source
from clustergym.scenario.by_name import compose
from clustergym.scenario.scenario import list_allowed_counts
from clustergym.scenario.scenario_config import build_scenario
from clustergym.trace.draw import ReferenceTimes
from clustergym.trace.generators.llm import CLASSES, DAY_S, LlmWorkload, generate_llm
from clustergym.trace.trace import Trace

CLUSTER = load_cluster("llm-2026")


@cache
def times() -> ReferenceTimes:
    """Return the time of an iteration of every model, by the tables that the scenario has too."""
    counts = list_allowed_counts(CLUSTER, "power_of_two")
    return ReferenceTimes(CLUSTER, table_source(StackOracle()), counts)


@cache
def drawn(**options: Any) -> Trace:
    return generate_llm(LlmWorkload(**options), CLUSTER, times())


def seconds(trace: Trace) -> np.ndarray:
    """Return how long each job runs on GPUs of mean speed over the types it fits on."""
    found = []
    for row in range(len(trace)):
        model, gpus = trace.model_class(row), int(trace.gpus[row])
        rooms = zip(CLUSTER.gpu_types, CLUSTER.capacity.tolist(), strict=True)
        each_type = [(room, times()(model, name, gpus)) for name, room in rooms if room >= gpus]
        fits = [(room, each) for room, each in each_type if np.isfinite(each)]
        speed = sum(room / each for room, each in fits) / sum(room for room, _ in fits)
        assert trace.end_iterations is not None
        found.append(trace.end_iterations[row] / speed)
    return np.array(found)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return drawn(seed=3, load=0.9)


@pytest.fixture(scope="module")
def seconds_each(trace: Trace) -> np.ndarray:
    return seconds(trace)


def test_numbers_and_sizes_of_each_purpose(trace: Trace, seconds_each: np.ndarray) -> None:
    assert Counter(trace.virtual_cluster) == {
        "evaluation": 1077, "debugging": 225, "fine-tuning": 150, "pretraining": 48,
    }  # fmt: skip
    rows = {name: np.array(trace.virtual_cluster) == name for name in CLASSES}
    gpus = {name: (trace.gpus[of].min(), trace.gpus[of].max()) for name, of in rows.items()}
    assert (gpus["pretraining"], gpus["fine-tuning"]) == ((64, 512), (1, 64))
    # Most of the GPU time pre-trains: 94 % in Kalos.
    gpu_s = seconds_each * trace.gpus
    assert gpu_s[rows["pretraining"]].sum() > 0.9 * gpu_s.sum()
    assert 90 < np.median(seconds_each[rows["evaluation"]]) < 160


def test_load_and_limits(trace: Trace, seconds_each: np.ndarray) -> None:
    assert trace.submit_s[0] == 0
    assert trace.submit_s[-1] == pytest.approx(14 * DAY_S)
    # Iterations are whole: the load is met up to their rounding.
    load = float((seconds_each * trace.gpus).sum()) / (1600 * 14 * DAY_S)
    assert load == pytest.approx(0.9, rel=0.01)
    purpose = np.array(trace.virtual_cluster)
    for name, job_class in CLASSES.items():
        # One iteration more than the limit, at most.
        assert (seconds_each[purpose == name] <= job_class.most_s + 600).all()
    shorter = drawn(seed=3, max_duration_s=4 * 3600.0)
    assert seconds(shorter).max() <= 4 * 3600 + 600


def test_evaluations_come_in_bursts(trace: Trace) -> None:
    purpose = np.array(trace.virtual_cluster)
    gaps = np.diff(trace.submit_s[purpose == "evaluation"])
    # Means of 20 together: most evaluations follow another one within a minute.
    assert (gaps < 60).mean() > 0.85
    assert (np.diff(trace.submit_s[purpose == "pretraining"]) > 600).mean() > 0.8


def test_outcomes_have_kalos_shares() -> None:
    traces = [drawn(seed=seed) for seed in range(4)]
    ended = Counter(outcome for trace in traces for outcome in trace.outcome or ())
    assert ended["failed"] / ended.total() == pytest.approx(0.397, abs=0.03)
    assert ended["killed"] / ended.total() == pytest.approx(0.062, abs=0.015)
    early = np.array(traces[0].outcome) != "completed"
    assert (traces[0].end_iterations <= traces[0].iterations).all()
    assert (traces[0].end_iterations[~early] == traces[0].iterations[~early]).all()


def test_one_seed_gives_one_trace(trace: Trace) -> None:
    again = generate_llm(LlmWorkload(seed=3, load=0.9), CLUSTER, times())
    assert again.sha256 == trace.sha256
    assert again.provenance == trace.provenance
    assert drawn(seed=4, load=0.9).sha256 != trace.sha256


def test_every_request_fits_somewhere(trace: Trace, seconds_each: np.ndarray) -> None:
    assert np.isfinite(seconds_each).all()
    big = {trace.model_class(row).model for row in np.flatnonzero(trace.gpus == 512)}
    assert big <= {"llama3-405B", "deepseek-v3", "kimi-k2", "qwen3-235B-A22B"}


def test_refusals() -> None:
    with pytest.raises(InputError, match="1 jobs have no span"):
        LlmWorkload(jobs=1)
    with pytest.raises(InputError, match="too short"):
        LlmWorkload(max_duration_s=60.0)
    with pytest.raises(InputError, match="not among those that 50 jobs can have"):
        generate_llm(LlmWorkload(jobs=50, load=5.0), CLUSTER, times())
    with pytest.raises(InputError, match="does not know"):
        build_scenario(compose(["scenario=llm-2026", "oracle=roofline"]))


def test_the_scenario() -> None:
    scenario = build_scenario(compose(["scenario=llm-2026", "trace.jobs=60", "trace.load=null"]))
    assert scenario.name == "llm-2026"
    assert scenario.round_s(1920.0) == 300.0
    assert scenario.trace.outcome is not None
    assert scenario.tables.segments is not None
    assert {disturbance.key for disturbance in scenario.disturbances} == {"failures"}
    off = compose(["scenario=llm-2026", "trace.jobs=60", "trace.load=null", "scenario.failures=null"])
    assert build_scenario(off).disturbances == ()
    ignored = build_scenario(
        compose(["scenario=llm-2026", "trace.jobs=60", "trace.load=null", "trace.outcomes=ignore"])
    )
    assert ignored.trace.outcome is None
