"""A cluster from now on: the queue as it is printed, starts by drawn run times, advice, and its score."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from clustergym.operators.commands.twin import main
from clustergym.operators.twin.advice import advise, quantiles, score_shadow
from clustergym.operators.twin.ahead import LEAST_LEFT_S, PRIOR_RUNS, Ahead, PastRuns
from clustergym.operators.twin.folder import TwinFolder
from drawn_logs import draw_jobs, run_log, sacct_text, write_cluster
from error_lines import error_line
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common.errors import InputError
from clustergym.sim.from_now import match_hosts
from clustergym.trace.log_files import write_log
from clustergym.trace.present import read_queue
from clustergym.trace.readers import sacct

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from start_intervals import snapshot

QUEUE = "JOBID|USER|ACCOUNT|PARTITION|STATE|SUBMIT_TIME|START_TIME|TIME_LIMIT|TRES_PER_NODE|NODES"
NOW = "2026-03-03T12:00:00"


@pytest.fixture
def folder(tmp_path):
    """A twin of 8 GPUs whose users all ran for half of their limits of two hours."""
    run_times_log(tmp_path, [("al", 3600, 7200)] * 8)
    (tmp_path / "policy.yaml").write_text("name: fcfs\n")
    return tmp_path


def queue(folder, *rows):
    path = folder / "squeue.txt"
    path.write_text("\n".join([QUEUE, *rows]) + "\n")
    return path


def row(job, state, gpus, start="N/A", submit="2026-03-03T11:00:00", limit="04:00:00"):
    return f"{job}|al|a|gpu|{state}|{submit}|{start}|{limit}|gres/gpu:a100:{gpus}|1"


ONE_RUNS = (
    row(1, "RUNNING", 4, start="2026-03-03T11:00:00"),
    row(2, "PENDING", 8),
    row(3, "PENDING", 4, submit="2026-03-03T11:10:00"),
)


def test_starts_by_hand(folder):
    # All run for half of their limits: the running job of four hours, an hour old, ends in an hour, and
    # then 2 runs for two hours; 3 fits beside the running job, but first come is first served.
    path = queue(folder, *ONE_RUNS)
    ahead = Ahead(TwinFolder(folder), read_queue(path, NOW))
    for draw in range(3):
        assert ahead.starts(draw) == {"2": 3600.0, "3": 3 * 3600.0}
    easy = Ahead(TwinFolder(folder), read_queue(path, NOW), "fcfs backfill=aggressive")
    # Job 3 begins at once and ends in two hours; 2 waits for it.
    assert easy.starts(0) == {"2": 2 * 3600.0, "3": 0.0}


def test_a_job_that_does_not_start_has_no_time(folder):
    path = queue(folder, row(1, "PENDING", 8), row(2, "PENDING", 8, submit="2026-03-03T11:30:00"))
    ahead = Ahead(TwinFolder(folder), read_queue(path, NOW), more=["horizon_s=7200"])
    assert ahead.starts(0)["1"] == 0.0
    assert np.isnan(ahead.starts(0)["2"])


def test_past_runs_are_those_that_were_longer(folder):
    log = TwinFolder(folder).log
    drawn = PastRuns(log).draw(np.random.default_rng(0))
    (job,) = read_queue(queue(folder, row(1, "RUNNING", 4, start="2026-03-03T11:00:00")), NOW).running
    assert drawn.run_s(job, 3600.0) == 7200.0
    # Nobody has used more than half of a limit.
    assert drawn.run_s(job, 7300.0) == 7300.0 + LEAST_LEFT_S


def run_times_log(folder, runs):
    """A twin's log of runs of (user, run time, limit) in seconds, one after another."""
    write_cluster(folder, A100=1)
    head = "job_id,submit_time,start_time,duration,gpus,gpu_type,user,outcome,time_limit_s,nodes"
    at = [f"2026-03-{1 + row // 24:02d}T{row % 24:02d}:00:00" for row in range(len(runs))]
    rows = [
        f"{row},{at[row]},{at[row]},{run_s},8,A100,{user},completed,{limit_s},1"
        for row, (user, run_s, limit_s) in enumerate(runs)
    ]
    (folder / "log.csv").write_text("\n".join([head, *rows]) + "\n")
    return TwinFolder(folder).log


def asked(folder, user, limit="02:00:00"):
    line = row(1, "RUNNING", 4, start="2026-03-03T11:00:00", limit=limit).replace("|al|", f"|{user}|")
    return read_queue(queue(folder, line), NOW).running[0]


def test_few_runs_of_ones_own_count_beside_those_of_all(tmp_path):
    # al ran 10 times for a quarter of the limit; others 30 times for half of it. A run of al is a quarter
    # with chance (10 + 5 * share) / 15, where share is what the next pools say of a quarter: al's runs again,
    # then a quarter of all runs. (10 + 5 * (10 + 5 / 4) / 15) / 15 = 0.917.
    log = run_times_log(tmp_path, [("al", 1800, 7200)] * 10 + [("bo", 3600, 7200)] * 30)
    past, generator, al = PastRuns(log), np.random.default_rng(0), asked(tmp_path, "al")
    drawn = np.array([past.draw(generator).run_s(al, 0.0) for _ in range(4000)])
    own = 10 / (10 + PRIOR_RUNS)
    assert np.isclose((drawn == 1800).mean(), own + (1 - own) * (own + (1 - own) / 4), atol=0.02)
    # All of a job that has run for longer are others' runs, and a new user has those of all.
    assert {past.draw(generator).run_s(al, 2000.0) for _ in range(20)} == {3600.0}
    new = [past.draw(generator).run_s(asked(tmp_path, "new"), 0.0) for _ in range(2000)]
    assert np.isclose(np.mean(np.array(new) == 1800), 0.25, atol=0.03)


def test_what_is_not_known_of_a_user_is_common_to_his_jobs(tmp_path):
    # Two runs, one short, one long: the share of long ones in a draw is uniform between 0 and 1 (two
    # exponential weights), with deviation 0.289, where independent draws of 50 jobs have 0.07.
    log = run_times_log(tmp_path, [("al", 1000, 7200), ("al", 2000, 7200)])
    past, generator, al = PastRuns(log), np.random.default_rng(0), asked(tmp_path, "al")
    shares = []
    for _ in range(400):
        drawn = past.draw(generator)
        shares.append(np.mean([drawn.run_s(al, 0.0) == 2000 for _ in range(50)]))
    assert np.isclose(np.std(shares), 0.297, atol=0.03)


def test_runs_that_are_drawn_again_hold_four_of_five_further_ones(tmp_path):
    # Each log has 12 runs of a user and one more of the same distribution: of 19 draws, the second and the
    # eighteenth hold it in four of five logs.
    rng, held = np.random.default_rng(1), []
    for _ in range(300):
        *runs, one = np.maximum(rng.lognormal(7.0, 0.7, 13), 1.0)
        log = run_times_log(tmp_path, [("al", run_s, 86_400) for run_s in runs])
        past, al = PastRuns(log), asked(tmp_path, "al", "1-00:00:00")
        drawn = sorted(past.draw(rng).run_s(al, 0.0) for _ in range(19))
        held.append(drawn[1] <= one <= drawn[17])
    assert 0.73 <= np.mean(held) <= 0.87


def test_a_moment_of_a_log(folder):
    found = snapshot(TwinFolder(folder).log, 3 * 3600.0 + 60)
    assert ([job.job_id for job in found.running], found.waiting) == (["3"], ())


def test_quantiles_by_hand():
    # Of nine draws, a tenth lies below the first with chance 1/10, below the ninth with 9/10.
    assert quantiles(np.arange(9.0)[::-1]) == [0.0, 4.0, 8.0]
    assert quantiles(np.array([1.0, np.inf])) == [1.0, np.inf, np.inf]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_quantiles_are_in_order_and_among_the_draws(starts):
    found = quantiles(np.array(starts))
    assert found == sorted(found)
    assert set(found) <= set(starts)


def test_the_commands(folder, capsys):
    path = queue(folder, *ONE_RUNS)
    out, shadow = folder / "out.json", folder / "shadow.jsonl"
    words = [str(folder), str(path), "--now", NOW, "--json", str(out)]
    assert main(["eta", *words, "--draws", "9"]) == 0
    first, second = json.loads(out.read_text())["jobs"]
    assert (first["job_id"], first["p10_s"], first["p90_s"]) == ("2", 3600.0, 3600.0)
    assert second["p50_s"] == 3 * 3600.0
    assert "| 2 | al | a | 8 | A100 | 2026-03-03T13:00:00 |" in capsys.readouterr().out
    assert main(["advise", *words, "--policy", "fcfs backfill=aggressive", "--shadow", str(shadow)]) == 0
    told = json.loads(out.read_text())["jobs"]
    assert [(one["what"], one["job_id"]) for one in told] == [("start", "3"), ("wait", "2")]
    assert told[1]["why"] == "0 A100 stay free"
    printed = capsys.readouterr().out
    assert "nothing was sent to the scheduler" in printed
    # A policy that preempts and has the shortest first stops the running job for nobody, and starts nobody.
    assert main(["advise", *words]) == 0
    assert [one["what"] for one in json.loads(out.read_text())["jobs"]] == ["wait", "wait"]
    assert "4 A100 stay free, which the policy keeps for others" in capsys.readouterr().out


def test_resizes_and_stops_are_told(folder, capsys):
    path = queue(
        folder,
        row(1, "RUNNING", 8, start="2026-03-03T11:50:00", limit="20:00:00"),
        row(2, "PENDING", 8, limit="00:20:00"),
    )
    out = folder / "out.json"
    words = [str(folder), str(path), "--now", NOW, "--policy", "srtf", "--json", str(out)]
    assert main(["advise", *words]) == 0
    told = {one["job_id"]: one for one in json.loads(out.read_text())["jobs"]}
    assert (told["1"]["what"], told["2"]["what"]) == ("stop", "start")
    assert told["1"]["why"] == "its 8 A100 are for jobs that come first by the rules"


def test_a_shadow_is_scored_by_a_later_log(folder):
    shadow = folder / "shadow.jsonl"
    lines = [
        ("2026-03-01T02:00:30", ["2"]),
        ("2026-03-01T02:30:00", ["3", "2"]),
        ("2026-03-01T04:00:00", ["99"]),
    ]
    rows = (
        {
            "schema": "clustergym.shadow/1",
            "now": now,
            "advice": [{"job_id": job, "what": "start"} for job in jobs],
        }
        for now, jobs in lines
    )
    shadow.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # Job 2 began 30 s before its advice, job 3 half an hour after; the log has no job 99.
    found = score_shadow(shadow, TwinFolder(folder).log)
    assert found == {"polls": 3, "advised": 3, "found": 2, "within_a_minute": 1, "later_s": 1800.0}
    shadow.write_text('{"schema": "x"}\n')
    with pytest.raises(InputError, match=r"shadow\.jsonl:1: is no advice"):
        score_shadow(shadow, TwinFolder(folder).log)


def test_what_is_wrong_is_one_line(folder, capsys):
    path = queue(folder, row(1, "RUNNING", 4, start="2026-03-03T11:00:00"))
    assert main(["eta", str(folder), str(path), "--now", "noon"]) == 2
    assert "--now: 'noon' is not a time" in error_line(capsys)
    assert main(["eta", str(folder), str(Path("/nowhere/queue.txt"))]) == 2
    assert "no such file" in error_line(capsys)


def test_with_the_true_run_times_starts_are_those_of_the_log(tmp_path, monkeypatch):
    write_cluster(tmp_path, A100=1, V100=1)
    log = draw_jobs(tmp_path, 150, 2 * 86_400, 9, 8)
    (tmp_path / "queues.yaml").write_text("queues: {team0: {}, team1: {}, team2: {}}\n")
    policy = "slurm-multifactor backfill=easy weight_fair_share=0"
    words = TwinFolder(tmp_path).policy_words(policy)
    (tmp_path / "sacct.txt").write_text(
        sacct_text(run_log(tmp_path, log, words, str(tmp_path / "queues.yaml")))
    )
    write_log(sacct.read_log(tmp_path / "sacct.txt"), tmp_path / "log.csv")
    trace = TwinFolder(tmp_path).log
    run_s = dict(zip(trace.job_id, trace.work_iterations.tolist(), strict=True))
    wait_s = trace.start_s - trace.submit_s
    now_s = float(trace.submit_s[int(np.argmax(wait_s))]) + 60.5
    ahead = Ahead(TwinFolder(tmp_path), snapshot(trace, now_s), policy, until_s=now_s)
    known = SimpleNamespace(run_s=lambda job, elapsed_s: float(run_s[job.job_id]))
    monkeypatch.setattr(ahead.past, "draw", lambda generator: known)
    later = [(row, at - now_s) for row, at in enumerate(trace.submit_s.tolist()) if at > now_s]
    monkeypatch.setattr(ahead, "_arrivals", lambda generator: later)
    starts = ahead.starts(0)
    assert len(starts) > 3
    logged = dict(zip(trace.job_id, (trace.start_s - now_s).tolist(), strict=True))
    assert {name: round(start, 3) for name, start in starts.items()} == {
        name: round(logged[name], 3) for name in starts
    }


def test_running_jobs_are_on_the_hosts_that_are_named(folder):
    # Two nodes of 8 GPUs: jobs 1 and 2 hold 4 on each, so that 8 are free but no node is. Job 3, of one node,
    # starts when job 1 ends, after half of its four hours; packed on one node they would leave it the other.
    write_cluster(folder, A100=2)

    def starts(*hosts):
        return ahead(*hosts).starts(0)

    def ahead(*hosts):
        path = folder / "squeue.txt"
        jobs = [
            row(1, "RUNNING", 4, start="2026-03-03T11:00:00"),
            row(2, "RUNNING", 4, start="2026-03-03T11:30:00", limit="08:00:00"),
            row(3, "PENDING", 8),
        ]
        lines = [f"{job}|{on}" for job, on in zip(jobs, [*hosts, ""], strict=True)]
        path.write_text("\n".join([f"{QUEUE}|NODELIST", *lines]) + "\n")
        return Ahead(TwinFolder(folder), read_queue(path, NOW))

    assert starts("gpu1", "gpu2") == {"3": pytest.approx(3600, abs=1)}
    assert starts("gpu1", "gpu1") == starts("", "") == {"3": 0.0}
    apart = ahead("gpu1", "gpu2")
    (waits,) = advise(apart.now(), apart.present)
    assert (waits["what"], waits["why"]) == (
        "wait",
        "its GPUs are free, but not on nodes as it asks for them",
    )
    together = ahead("gpu1", "gpu1")
    (begins,) = advise(together.now(), together.present)
    assert begins["what"] == "start"


def test_hosts_are_matched_with_nodes(tmp_path):
    cluster = load_cluster(str(write_cluster(tmp_path, A100=3, V100=1)))
    starts = [(0, 0, 1), (1, 0, 4), (2, 0, 8), (3, 1, 4)]
    hosts = {0: ["a"], 1: ["c", "b"], 2: ["b", "c"], 3: ["v"]}
    assert match_hosts(starts, hosts, cluster) == {
        0: ((0, 1),),
        1: ((1, 2), (2, 2)),
        2: ((1, 4), (2, 4)),
        3: ((3, 4),),
    }
    # 12 GPUs on one host fit on no node: jobs of that type are left out, those of the other are not.
    assert match_hosts(starts, {**hosts, 1: ["b"], 2: ["b"]}, cluster) == {3: ((3, 4),)}
    # So are they where hosts are more than nodes: two of V100, or five of A100.
    assert match_hosts(starts, {**hosts, 3: ["v", "w"]}, cluster).keys() == {0, 1, 2}
    assert match_hosts(starts, {**hosts, 2: ["d", "e"]}, cluster).keys() == {3}
    # 5 GPUs on two hosts are not equally many on each.
    assert match_hosts([(0, 0, 5)], {0: ["a", "b"]}, cluster) == {}
