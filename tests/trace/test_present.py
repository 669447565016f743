"""The jobs of a cluster now, as squeue prints them."""

from clustergym.trace.present import read_queue

HEAD = "JOBID|USER|ACCOUNT|PARTITION|STATE|SUBMIT_TIME|START_TIME|TIME_LIMIT|TRES_PER_NODE|NODES"


def row(job, state, gpus, start="N/A", submit="2026-03-03T11:00:00"):
    return f"{job}|al|a|gpu|{state}|{submit}|{start}|04:00:00|gres/gpu:a100:{gpus}|1"


def test_the_queue_as_it_is_printed(tmp_path):
    rows = [
        row(1, "RUNNING", 4, start="2026-03-03T11:30:00"),
        # For a waiting job squeue prints when Slurm expects to start it.
        row("2_[3-4%1]", "PENDING", 2, start="2026-03-03T18:00:00"),
        row(5, "PD", 1, submit="2026-03-03T12:30:00"),
        row(6, "COMPLETED", 1, start="2026-03-03T11:30:00"),
    ]
    (tmp_path / "squeue.txt").write_text("\n".join([HEAD, *rows]) + "\n")
    found = read_queue(tmp_path / "squeue.txt", "2026-03-03T12:00:00")
    assert [job.job_id for job in found.running] == ["1"]
    assert [(job.job_id, job.gpus, job.limit_s) for job in found.waiting] == [
        ("2_3", 2, 14_400),
        ("2_4", 2, 14_400),
    ]
