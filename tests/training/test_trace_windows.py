"""Windows of one's own trace files: their jobs, times and load are the file's; splits share no job."""

import numpy as np
import pytest
import yaml

from clustergym.agents import auction_features
from clustergym.commands import train
from clustergym.common.errors import InputError
from clustergym.common.paths import PACKAGE
from clustergym.scenario.policy import InformationClass
from clustergym.training import windows
from clustergym.training.distribution import Distribution, draw_scenario
from clustergym.training.simulated_episodes import AuctionEpisode
from clustergym.training.windows import TraceFiles

FILE = PACKAGE.parent / "traces" / "philly-like-160.csv"
FREE = "costs=ares-profiled-free"
TRACES = {"scenario": "ares", "overrides": [FREE], "files": [str(FILE)]}
EXACT = {"restart_factor": (1.0, 1.0), "size_error": (0.0, 0.0)}


def drawn(**given: object) -> Distribution:
    """Return windows of 20 to 30 jobs of the file."""
    return Distribution(**{"origin": "files", "traces": TRACES, "jobs": (20, 30), **EXACT, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(("split", "first", "last"), [("train", 0, 96), ("dev", 96, 128), ("test", 128, 160)])
def test_splits_are_parts_of_the_file_in_order(split: str, first: int, last: int) -> None:
    whole = TraceFiles.from_given(TRACES, least=1).draw("train", 0, 0).trace
    allowed = set(whole.job_id[first:last])
    for index in range(10):
        window = draw_scenario(drawn(), split, 0, index).trace
        assert 20 <= len(window) <= 30
        assert set(window.job_id) <= allowed
        begin = whole.job_id.index(window.job_id[0])
        assert window.name == f"{split}-philly-like-160-{begin}-{len(window)}"


def test_a_window_has_the_files_times_and_costs() -> None:
    whole = TraceFiles.from_given(TRACES, least=1).draw("train", 0, 0)
    window = draw_scenario(drawn(), "train", 0, 1)
    rows = [whole.trace.job_id.index(name) for name in window.trace.job_id]
    known = InformationClass.DATA_PARALLEL
    compact = np.take_along_axis(
        whole.execution, np.broadcast_to(whole.compact[None, :, :, None], (*whole.execution.shape[:3], 1)), 3
    )[..., 0]
    wanted = np.where(whole.feasible, compact, np.inf)[whole.class_of[rows]]
    np.testing.assert_allclose(window.known_times(known)[window.class_of], wanted, rtol=1e-5)
    assert window.checkpoint_s[window.class_of].tolist() == whole.checkpoint_s[whole.class_of[rows]].tolist()
    assert window.trace.iterations.tolist() == whole.trace.iterations[rows].tolist()
    weights = np.zeros(auction_features.COUNT)
    weights[auction_features.NAMES.index("start")] = 1.0
    assert AuctionEpisode.from_scenario(window, known).run(weights).min() > 0


@pytest.mark.parametrize("load", [0.5, 2.0])
def test_arrivals_are_stretched_to_the_load(load: float) -> None:
    window = draw_scenario(drawn(load=(load, load)), "train", 0, 2)
    work_s = window.trace.iterations * window.fair_iteration_time_s * window.request_gpus
    offered = work_s.sum() / (window.cluster.capacity.sum() * window.trace.submit_s[-1])
    assert offered == pytest.approx(load, rel=1e-3)


def test_known_times_are_off_by_one_factor_a_job() -> None:
    window = draw_scenario(drawn(size_error=(0.5, 0.5)), "train", 0, 3)
    known = window.known_times(InformationClass.DATA_PARALLEL)[window.class_of]
    real = window.known_times(InformationClass.CLAIRVOYANT)[window.class_of]
    finite = np.isfinite(real)
    factor = np.log(np.where(finite, known, 1.0) / np.where(finite, real, 1.0))
    for job in range(len(factor)):
        own = factor[job][finite[job]]
        assert np.ptp(own) < 1e-4
    assert 0.2 < np.std([row[mask].mean() for row, mask in zip(factor, finite, strict=True)]) < 0.9


def test_where_profiles_cost_jobs_share_them_as_in_the_file() -> None:
    traces = {**TRACES, "overrides": ["costs=default"]}
    whole = TraceFiles.from_given(traces, least=1).draw("train", 0, 0)
    plain = draw_scenario(drawn(traces=traces), "train", 0, 3)
    window = draw_scenario(drawn(traces=traces, size_error=(0.5, 0.5)), "train", 0, 3)
    assert window.costs == whole.costs
    rows = [whole.trace.job_id.index(name) for name in window.trace.job_id]
    assert window.class_of.tolist() == whole.class_of[rows].tolist()
    assert len(set(window.class_of.tolist())) < len(rows)
    # An error is one factor a model, the same on every type and count; what jobs really take stays.
    known, right = (one.known_times(InformationClass.DATA_PARALLEL) for one in (window, plain))
    for own, exact in zip(known, right, strict=True):
        factors = own[np.isfinite(own)] / exact[np.isfinite(exact)]
        assert not len(factors) or np.ptp(factors) < 1e-6
    assert (window.execution == plain.execution).all()
    # The price is paid: with it the same auction takes longer.
    free = AuctionEpisode.from_scenario(plain, InformationClass.CLAIRVOYANT).run(np.zeros(35)).mean()
    assert AuctionEpisode.from_scenario(plain, InformationClass.PROFILED).run(np.zeros(35)).mean() > free


def test_of_several_sources_one_is_drawn_for_each_window_with_its_own_jobs() -> None:
    larger = {**TRACES, "overrides": [FREE, "cluster=ares-384"], "jobs": [40, 50]}
    mixed = drawn(traces=(TRACES, larger))
    windows_of = [draw_scenario(mixed, "train", 0, index) for index in range(20)]
    sizes = [int(window.cluster.capacity.sum()) for window in windows_of]
    assert set(sizes) == {64, 384}
    for window, size in zip(windows_of, sizes, strict=True):
        assert len(window.trace) in (range(20, 31) if size == 64 else range(40, 51))
    # A source alone is drawn as it was.
    alone, listed = (draw_scenario(drawn(traces=one), "train", 0, 4) for one in (TRACES, (TRACES,)))
    assert alone.sha256 == listed.sha256
    with pytest.raises(InputError, match="unknown key 'jobs'"):  # There are no windows elsewhere.
        TraceFiles.from_given(larger)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"jobs": (97, 97)}, "windows of up to 96"),
        ({"traces": {**TRACES, "jobs": [5]}}, "traces.jobs: [5] is not valid"),
        ({"traces": None}, "origin=files"),
        ({"origin": "real"}, "origin=files"),
        ({"traces": {**TRACES, "files": ["none-*.csv"]}}, "traces.files: none-*.csv is not valid"),
        ({"traces": {**TRACES, "file": "x"}}, "unknown key"),
        ({"traces": {**TRACES, "overrides": "x=1"}}, "traces.overrides: 'x=1' is not a list"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(given: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        draw_scenario(drawn(**given), "train", 0, 0)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_training_on_a_file_says_which(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    output = f"{tmp_path}/own"
    small = ["agent.generations=1", "agent.population=4", "agent.episodes=1", "agent.validation=1"]
    files = f"agent.scenarios.traces={{scenario: ares, overrides: ['{FREE}'], files: ['{FILE}']}}"
    more = ["agent.scenarios.origin=files", files, "agent.scenarios.jobs=[20,30]", "processes=1"]
    assert train.main([*small, *more, f"output={output}"]) == 0
    capsys.readouterr()
    with open(f"{output}/own.yaml", encoding="utf-8") as file:
        traces = yaml.safe_load(file)["traces"]
    assert list(traces["sha256"]) == ["philly-like-160.csv"]
    assert traces["shares"]["test"] == [0.8, 1.0]


def test_windows_that_fail_have_failures_of_their_own() -> None:
    failing = {**TRACES, "overrides": [FREE, "failures=rsc-1", "trace.outcomes=philly"]}
    windows = [draw_scenario(drawn(traces=failing), "train", 0, index) for index in (0, 1, 0)]
    seeds = [disturbance.seed for one in windows for disturbance in one.disturbances]  # type: ignore[attr-defined]
    assert seeds[0] == seeds[2] != seeds[1]
    assert {"completed", "failed"} <= set(windows[0].trace.outcome or ())
    # Drawn last: all else is as without failures.
    alike = {**failing, "overrides": [FREE, "trace.outcomes=philly"]}
    plain = draw_scenario(drawn(traces=alike), "train", 0, 0)
    assert windows[0].trace.submit_s.tolist() == plain.trace.submit_s.tolist()


def test_arrivals_of_a_synthetic_window_begin_at_the_hour_drawn_last(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def note(source: object, jobs: int, span_s: float, seed: int, *hour: int) -> np.ndarray:
        given.append((jobs, seed, *hour))
        return np.zeros(jobs)

    monkeypatch.setattr("clustergym.trace.generators.arrivals.arrival_times", note)
    windows._synthetic(np.random.default_rng(3), "train", 5, windows.SOURCES)
    rng = np.random.default_rng(3)
    rng.integers(len(windows.SOURCES))
    seed, hour = windows.trace_seed("train", int(rng.integers(2**30))), int(rng.integers(168))
    assert given == [(5, seed, hour)]
