"""How the jobs of a trace end: as their log says, or drawn by published shares; and what they asked for."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from published_data import find_published

from clustergym.commands.trace import main
from clustergym.common.errors import InputError
from clustergym.common.paths import traces_dir
from clustergym.trace.drawn_outcomes import with_drawn_outcomes, with_outcomes
from clustergym.trace.formats import ReadOptions, load_trace
from clustergym.trace.native import read_trace, write_trace
from clustergym.trace.outcomes import CHOICES, SHARES, compute_shares, draw_asked
from clustergym.trace.trace import Trace

KEEP = ReadOptions(reference_time_s=lambda *_: 1.0, gpu_types=(), outcomes="keep")

LOG = """submit_time,duration,gpus,job_id,outcome
0,100,4,a,completed
1,500,4,b,completed
2,50,1,c,completed
3,200,4,d,killed
4,60,1,e,FAILED
5,900,1,f,killed
6,10,1,g,
"""


def loaded(folder: Path, text: str = LOG, options: ReadOptions = KEEP) -> Trace:
    path = folder / "log.csv"
    path.write_text(text)
    return load_trace(path, options=options)


def test_a_job_that_was_killed_asked_for_what_a_completed_job_of_like_size_ran(tmp_path: Path) -> None:
    # An iteration takes 1 s. d (4 GPUs, 200 s): of a (100 s) and b (500 s) only b ran as long. e (1 GPU,
    # 60 s): c (50 s) is shorter, so any size: a or b. f (900 s): none ran as long, so what it ran.
    trace = loaded(tmp_path)
    assert trace.outcome == ("completed", "completed", "completed", "killed", "failed", "killed", "")
    assert trace.end_iterations is not None
    assert trace.end_iterations.tolist() == [100, 500, 50, 200, 60, 900, 10]
    asked = trace.iterations.tolist()
    assert asked[:4] == [100, 500, 50, 500]
    assert asked[4] in (100, 500)
    assert asked[5:] == [900, 10]
    facts = trace.provenance["outcomes"]
    counted = {name: facts[name] for name in ("asked_as_same_gpus", "asked_as_any_gpus", "asked_as_ran")}
    assert counted == {"asked_as_same_gpus": 1, "asked_as_any_gpus": 1, "asked_as_ran": 1}
    # GPU time: 4 x 600 + 50 completed, 60 failed, 4 x 200 + 900 killed, 10 unknown: 4,220 GPU-seconds.
    shares = {name: found["share_of_gpu_time"] for name, found in facts["shares"].items()}
    expected = {"completed": 2450 / 4220, "failed": 60 / 4220, "killed": 1700 / 4220, "unknown": 10 / 4220}
    assert shares == pytest.approx(expected)


def test_what_a_job_asked_for_is_drawn_evenly_and_by_the_seed(tmp_path: Path) -> None:
    rows = "".join(f"{row},{row + 1},1,{row},completed\n" for row in range(10)) + "99,5,1,k,killed\n"
    text = "submit_time,duration,gpus,job_id,outcome\n" + rows
    asked = {}
    for seed in range(60):
        trace = loaded(tmp_path, text, replace(KEEP, seed=seed))
        asked[seed] = int(trace.iterations[-1])
        assert trace.iterations[:-1].tolist() == list(range(1, 11))
    # Of the completed jobs of 1 to 10 s those of 5 to 10 s ran as long.
    assert set(asked.values()) == {5, 6, 7, 8, 9, 10}
    assert asked[3] == int(loaded(tmp_path, text, replace(KEEP, seed=3)).iterations[-1])


def test_unless_they_are_kept_outcomes_change_nothing_of_a_trace(tmp_path: Path) -> None:
    ignored = loaded(tmp_path, options=replace(KEEP, outcomes="ignore"))
    text = "\n".join(line.rsplit(",", 1)[0] for line in LOG.splitlines()) + "\n"
    without = loaded(tmp_path, text, replace(KEEP, outcomes="ignore"))
    assert ignored.outcome is None
    assert ignored.sha256 == without.sha256
    kept = loaded(tmp_path)
    assert kept.as_ran().sha256 == ignored.sha256
    assert kept.sha256 != ignored.sha256
    assert not ignored.provenance["outcomes"]["kept"]


def test_outcomes_survive_the_native_format(tmp_path: Path) -> None:
    kept, path = loaded(tmp_path), tmp_path / "kept.csv"
    write_trace(kept, path)
    again = read_trace(path)
    assert (again.outcome, again.sha256) == (kept.outcome, kept.sha256)
    assert again.end_iterations is not None
    assert again.end_iterations.tolist() == kept.work_iterations.tolist()
    part = again.take([3, 5])
    assert (part.outcome, part.work_iterations.tolist()) == (("killed", "killed"), [200, 900])


def test_an_empty_end_is_all_that_a_job_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus,outcome,end_iterations\n"
        "a,0,gpt3,760M,128,20,1,failed,5\nb,0,gpt3,760M,128,30,1,completed,\n"
    )
    assert read_trace(path).work_iterations.tolist() == [5, 30]


@pytest.mark.parametrize("cluster", SHARES)
def test_drawn_outcomes_have_the_published_shares(cluster: str) -> None:
    rng = np.random.default_rng(1)
    n = 8_000
    duration_s = np.exp(rng.normal(6.0, 2.0, n))
    trace = Trace.from_columns(
        "many",
        np.arange(n, dtype=np.float64),
        np.maximum(1, np.rint(duration_s)).astype(np.int64),
        rng.choice([1, 2, 4, 8], n),
        model_family=("gpt3",) * n,
    )
    drawn = with_drawn_outcomes(trace, cluster, duration_s, seed=0)
    assert drawn.outcome is not None
    found = compute_shares(drawn.outcome, duration_s * trace.gpus)
    wanted = SHARES[cluster]
    for name, by_number, by_time in (
        ("failed", wanted.failed, wanted.failed_gpu_time),
        ("killed", wanted.killed, wanted.killed_gpu_time),
    ):
        # Sampling error: 0.55 % of 8,000 jobs; that of GPU time is larger, as few jobs hold most of it.
        assert found[name]["share_of_jobs"] == pytest.approx(by_number, abs=0.02)
        assert found[name]["share_of_gpu_time"] == pytest.approx(by_time, abs=0.1)
    assert (drawn.work_iterations == trace.iterations).all()
    assert (drawn.iterations >= trace.iterations).all()
    assert with_drawn_outcomes(trace, cluster, duration_s, seed=0).sha256 == drawn.sha256


def test_the_shares_are_those_of_the_published_summary() -> None:
    with find_published("traces/acme_cluster_summary.csv").open() as file:
        rows = {row["id"].lower(): row for row in csv.DictReader(file)}
    assert set(rows) >= set(SHARES)
    for name, published in SHARES.items():
        row = rows[name]
        times = {kind: float(row[f"{kind}_gpu_time"]) for kind in ("complete", "cancel", "fail")}
        total = sum(times.values())
        assert published.failed_gpu_time == pytest.approx(times["fail"] / total, abs=5e-4)
        assert published.killed_gpu_time == pytest.approx(times["cancel"] / total, abs=5e-4)
        assert published.failed == float(row["fail_rate_gpu"])
        assert published.killed == float(row["cancel_rate_gpu"])


def test_asked_work_is_never_less_than_what_ran() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        n = int(rng.integers(1, 40))
        outcome = rng.choice(["completed", "failed", "killed", ""], n).tolist()
        duration_s, gpus = rng.exponential(100, n), rng.choice([1, 2], n)
        asked_s, counts = draw_asked(outcome, duration_s, gpus, rng.random(n))
        early = np.isin(outcome, ["failed", "killed"])
        assert (asked_s[early] >= duration_s[early]).all()
        assert (asked_s[~early] == duration_s[~early]).all()
        assert sum(counts.values()) == early.sum()


def line_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_choices_that_cannot_be_met_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, out = str(traces_dir() / "philly-like-160.csv"), str(tmp_path / "out.csv")
    error = line_of(["import", plain, "-o", out, "--outcomes", "keep"], capsys)
    assert "philly-like-160.csv: trace.outcomes: says of no job whether it completed (choose" in error
    error = line_of(["import", plain, "-o", out, "--outcomes", "phily"], capsys)
    assert "--outcomes: unknown choice 'phily' (did you mean philly?" in error
    log = tmp_path / "log.csv"
    log.write_text(LOG)
    error = line_of(["import", str(log), "-o", out, "--outcomes", "helios"], capsys)
    assert f"{log}: --outcomes: says itself how its jobs ended (choose --outcomes=keep" in error
    assert not (tmp_path / "out.csv").exists()
    one = read_trace(plain).take([0])
    with pytest.raises(InputError, match="1 jobs cannot have the shares of philly"):
        with_drawn_outcomes(one, "philly", np.array([10.0]), 0)


def test_the_command_draws_keeps_and_removes_outcomes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, drawn, again = traces_dir() / "philly-like-160.csv", tmp_path / "drawn.csv", tmp_path / "again.csv"
    assert main(["import", str(plain), "-o", str(drawn), "--outcomes", "philly"]) == 0
    assert read_trace(drawn).outcome is not None
    assert main(["import", str(drawn), "-o", str(again), "--outcomes", "ignore"]) == 0
    assert again.read_text() == plain.read_text()
    assert main(["describe", str(drawn), "--json", str(tmp_path / "figures.json")]) == 0
    assert "only a clairvoyant policy knows when" in capsys.readouterr().out
    assert '"outcomes"' in (tmp_path / "figures.json").read_text()


def test_every_choice_is_offered() -> None:
    assert CHOICES == ("ignore", "keep", "seren", "kalos", "philly", "helios")
    trace = read_trace(traces_dir() / "philly-like-160.csv")
    from clustergym.cluster.cluster_files import load_cluster

    assert with_outcomes(trace, "ignore", load_cluster("arena-a"), 0).sha256 == trace.sha256
