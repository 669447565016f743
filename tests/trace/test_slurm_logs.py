"""Slurm's and Kueue's own tables of jobs: what is read, left out and guessed, on cases worked by hand."""

import contextlib
import math
import time
from pathlib import Path

import numpy as np
import pytest
from error_lines import error_line
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.cluster.slurm_text import (
    host_names,
    is_array,
    key_values,
    known_type,
    parse_gres,
    span_s,
    waiting_tasks,
)
from clustergym.commands.trace import main
from clustergym.common.columns import iso, parse_seconds
from clustergym.common.errors import InputError
from clustergym.trace.formats import find_format, load_trace
from clustergym.trace.log_files import write_log
from clustergym.trace.options import ReadOptions
from clustergym.trace.readers import durations, kueue, sacct, slurmdbd
from clustergym.trace.records import build_recorded_trace
from clustergym.trace.slurm_fields import CellRules, find_zone

REGRESSIONS = Path(__file__).parents[1] / "regressions"
HEAD = "JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|State|Timelimit|AllocTRES|ReqTRES"


def write(folder, *rows, head=HEAD):
    path = folder / "sacct.txt"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def row(job="1", state="COMPLETED", tres="cpu=8,gres/gpu=2", start="2026-03-01T00:01:00", **more):
    cells = {"user": "al", "account": "vision", "partition": "gpu", "submit": "2026-03-01T00:00:00"}
    cells |= {"end": "2026-03-01T00:11:00", "seconds": "600", "limit": "1:00:00", "asked": ""} | more
    head = [job, cells["user"], cells["account"], cells["partition"], cells["submit"], start]
    return "|".join([*head, cells["end"], cells["seconds"], state, cells["limit"], tres, cells["asked"]])


@pytest.mark.parametrize(
    ("text", "gpus", "kind"),
    [
        ("billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G", 4, "A100"),
        ("gres/gpu:v100=2,gres/gpu:a100=6", 8, "A100"),
        ("gpu:(null):4(IDX:0-3)", 4, ""),
        ("gres:gpu:3090:4", 4, "3090"),
        ("gpu:a100:4(S:0-1),shard:a100:16(S:0-1)", 4, "A100"),
        ("gres/gpu:a100_1g.5gb=1,gres/gpu:a100=2,gres/gpu=3", 2, "A100"),
        ("gpu:nvidia_h200_nvl_4g.71gb:8(S:0-1),gpu:mig-1c.3g.20gb:2", 0, ""),
        ("gres/gpu=3", 3, ""),
        ("cpu=8,gres/gpumem=40G,gres/gpuutil=90", 0, ""),
        ("gpu:a100:4(S:0-1),nvme:1", 4, "A100"),
        ("gres/gpu:2080ti:2", 2, "2080ti"),
        ("gpu:2", 2, ""),
        ("gpu", 1, ""),
        ("(null)", 0, ""),
        ("", 0, ""),
    ],
)
def test_gpus_of_tres_and_gres(text, gpus, kind):
    found = parse_gres(text)
    assert (found.gpus, found.gpu_type) == (gpus, kind)


def test_what_is_no_whole_gpu_and_what_is_no_gres():
    found = parse_gres("gpu:v100:2(S:0),gpu:a40:2(S:1),shard:8,gpu:a100_1g.5gb:7,nvme:1,gres/mps=100,cpu=4")
    assert found.by_type == {"V100": 2, "A40": 2}
    assert found.parts == {"shard": 8, "a100_1g.5gb": 7, "mps": 100}
    assert found.others == ("nvme",)
    for text in ("gpu:a100:4(S:0-1", "gpu:a100:x:4", "gres/gpu=four", "gpu:²", "gpu:1234567890"):
        with pytest.raises(ValueError, match="no number of GPUs"):
            parse_gres(text)


def test_names_of_types_are_the_catalogues_where_it_has_them():
    names = ("nvidia_a100-sxm4-80gb", "geforce_rtx_2080_ti", "NVIDIA-H100-80GB-HBM3", "nvidia-tesla-t4")
    eighty = ("A100-80", "a100_80gb", "NVIDIA-A100-SXM4-80GB", "NVIDIA A100 80GB PCIe")
    assert {known_type(name) for name in eighty} == {"A100-80"}
    assert known_type("nvidia_a100-pcie-40gb") == known_type("a100-sxm4") == "A100"
    assert known_type("AMD_Instinct_MI300X_OAM") == "MI300X"
    assert [known_type(name) for name in names] == ["A100-80", "RTX2080Ti", "H100", "T4"]
    # `rtx` alone is an alias of a published trace, and no part of a product's name.
    assert known_type("rtx_3090") == "rtx_3090"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-00:00:00", 86_400), ("2-12", 216_000), ("1:30:00", 5_400), ("10:05", 605), ("30", 1_800)],
)
def test_spans(text, seconds):
    assert span_s(text) == seconds
    assert np.isnan(span_s("UNLIMITED"))


@settings(deadline=None)
@given(st.integers(0, 10**7))
def test_a_span_is_what_it_was_printed_from(seconds):
    text = f"{seconds // 86_400}-{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    assert span_s(text) == seconds


def test_waiting_tasks_of_arrays():
    tasks = waiting_tasks("12_[5-7,9%2]")
    assert (tasks.job_ids(9), tasks.at_once) == (["12_5", "12_6", "12_7", "12_9"], 2)
    tasks = waiting_tasks("12_[0-8:4]")
    assert (tasks.job_ids(2), len(tasks), tasks.at_once) == (["12_0", "12_4"], 3, 0)
    assert (is_array("12_5"), is_array("12_[5]")) == (False, True)
    assert len(waiting_tasks("12_[1-999999999]")) == 999_999_999
    for job in ("12_[1,3,...]", "12_[1-3"):
        with pytest.raises(ValueError, match="cut short: print each task"):
            waiting_tasks(job)
    for job in ("12_[]", "12_[²]", "12_[1-3%x]", "x_[1]"):
        with pytest.raises(ValueError, match="no list of an array's tasks"):
            waiting_tasks(job)


PIECES = ("(", "[", ",", "gpu:a100:1,", "gpu(,", "g[1]", "g[1-2],", "1,", "a=b ", "a")


@pytest.mark.parametrize("piece", PIECES)
def test_time_is_in_proportion_to_the_text(piece):
    def seconds(text):
        best = math.inf
        for _ in range(3):
            begin = time.process_time()
            for parse in (parse_gres, host_names, span_s, waiting_tasks, key_values):
                with contextlib.suppress(ValueError):
                    parse(f"1_[{text}]" if parse is waiting_tasks else text)
            best = min(best, time.process_time() - begin)
        return best

    # Four times the text takes four times the time; in a quadratic parser, sixteen times.
    assert seconds(piece * 80_000) < 9 * seconds(piece * 20_000) + 0.01


def test_columns_in_any_order_steps_arrays_states_and_types(tmp_path):
    path = write(
        tmp_path,
        "10_4|CANCELLED by 1001|2026-03-01T00:00:00|2026-03-01T00:01:00|2026-03-01T00:03:00|gres/gpu:a100=4",
        "10_4.batch|CANCELLED|2026-03-01T00:00:00|2026-03-01T00:01:00|2026-03-01T00:03:00|",
        "10_[5-9]|PENDING|2026-03-01T00:00:00|Unknown|Unknown|gres/gpu:a100=4",
        "11|OUT_OF_MEMORY|2026-03-01T00:02:00|2026-03-01T00:02:00|2026-03-01T00:02:30|gres/gpu=1",
        head="JobID|State|Submit|Start|End|AllocTRES",
    )
    log = sacct.read_log(path)
    assert (log.job_id, log.outcome, log.gpu_type) == (["10_4", "11"], ["killed", "failed"], ["A100", ""])
    assert log.duration_s.tolist() == [120.0, 30.0]
    assert (log.start_s - log.submit_s).tolist() == [60.0, 0.0]
    assert log.left_out == {"job step": 1, "never ran": 1}
    assert log.facts["rows"] == 4
    assert find_format(path).name == "sacct"


def test_what_is_left_out_and_guessed(tmp_path):
    path = write(
        tmp_path,
        row("1", tres="cpu=8"),
        row("2", start="None", end="Unknown", seconds="0", state="CANCELLED by 7"),
        row("3", seconds="0"),
        row("4", state="REQUEUED"),
        row("4", state="RUNNING", end="Unknown", submit="2026-03-01T00:11:00", start="2026-03-01T00:12:00"),
        row("5", tres="", asked="gres/gpu=2", end="2026-03-01T02:12:00", seconds="7860"),
        row("6|with a bar in a cell"),
    )
    log = sacct.read_log(path, type_of_partition={"gpu": "V100"})
    assert log.job_id == ["4", "4-run2", "5"]
    # The second run of job 4 still runs: to the last event of the table, at 02:12.
    assert log.duration_s.tolist() == [600.0, 7200.0, 7860.0]
    assert log.gpu_type == ["V100"] * 3
    assert log.left_out == {"CPU job": 1, "never ran": 1, "ran 0 s": 1, "cells do not fit the header": 1}
    assert sorted(log.facts["guessed"].values()) == [1, 1, 1, 3]


def test_time_zones_and_hashed_users(tmp_path):
    # Zurich went from 02:00 to 03:00 on 2026-03-29: a job from 01:30 to 03:30 ran an hour.
    path = write(
        tmp_path,
        row(submit="2026-03-29T01:00:00", start="2026-03-29T01:30:00", end="2026-03-29T03:30:00", seconds=""),
    )
    assert sacct.read_log(path).duration_s.tolist() == [7200.0]
    log = sacct.read_log(path, CellRules(find_zone("Europe/Zurich"), "salt"))
    assert log.duration_s.tolist() == [3600.0]
    assert log.submit_s.tolist() == [parse_seconds("2026-03-29 00:00:00")]
    assert log.user != ["al"]
    assert log.user == sacct.read_log(path, CellRules(None, "salt")).user
    assert sacct.read_log(path, CellRules(None, "pepper")).user != log.user
    with pytest.raises(InputError, match="unknown time zone 'Nowhere'"):
        find_zone("Nowhere")


def test_a_job_has_no_more_gpus_than_a_cluster(tmp_path):
    with pytest.raises(InputError, match="1000001 GPUs are more than 1000000"):
        sacct.read_log(write(tmp_path, row(tres="gres/gpu=1000001")))


def test_a_log_without_a_column_of_gpus(tmp_path):
    with pytest.raises(InputError, match="has no column of GPUs"):
        sacct.read_log(write(tmp_path, "1|x|y", head="JobID|State|Submit"))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 9999), st.integers(1, 10**5), st.integers(1, 64)),
        min_size=1,
        max_size=8,
    )
)
def test_a_log_comes_back_as_it_was_written(tmp_path_factory, jobs):
    folder = tmp_path_factory.mktemp("log")
    base = parse_seconds("2026-01-01 00:00:00")
    rows = [
        row(
            str(at),
            submit=iso(base + submit),
            start=iso(base + submit + wait),
            end=iso(base + submit + wait + run),
            seconds=str(run),
            tres=f"gres/gpu:a100={gpus}",
        )
        for at, (submit, wait, run, gpus) in enumerate(jobs)
    ]
    write_log(sacct.read_log(write(folder, *rows)), folder / "log.csv")
    trace = load_trace(folder / "log.csv")
    order = sorted(range(len(jobs)), key=lambda at: jobs[at][0])
    assert trace.job_id == tuple(map(str, order))
    assert (trace.start_s - trace.submit_s).tolist() == [jobs[at][1] for at in order]
    assert trace.partition == ("gpu",) * len(jobs)


def test_the_command_says_what_it_read(tmp_path, capsys):
    source, out = REGRESSIONS / "trace-sacct/valid.txt", tmp_path / "log.csv"
    words = ["import", "--format", "sacct", str(source), "-o", str(out), "--json", str(tmp_path / "r.json")]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "6 rows, 4 jobs" in printed
    assert "left out 1 job step" in printed
    assert "guessed  3 GPU type: not named, any" in printed
    assert main(words) == 2
    assert "exists already" in error_line(capsys)


def test_workloads_of_kueue():
    path = REGRESSIONS / "trace-kueue/valid.yaml"
    log = kueue.read_log(path)
    assert find_format(path).name == "kueue"
    # Two pods of four GPUs from 00:01 to 01:01; b still runs when the list ends, at 01:01.
    assert log.job_id == ["vision/a", "vision/b"]
    assert (log.gpus.tolist(), log.duration_s.tolist()) == ([8, 1], [3600.0, 3000.0])
    assert (log.gpu_type, log.virtual_cluster) == (["A100-80"] * 2, ["team-vision"] * 2)
    assert (log.priority.tolist(), log.outcome) == ([5, 0], ["completed", ""])
    assert log.left_out == {"never ran": 1}
    pending = [job for job in kueue.read_rows(path)[0] if job.state == "PENDING"]
    assert [(job.job_id, job.account) for job in pending] == [("vision/c", "team-vision")]


def test_a_limit_in_minutes_counts_before_one_in_words(tmp_path):
    # TimelimitRaw 90 is 90 x 60 = 5,400 s; where the cell is empty, Timelimit stands: an hour.
    path = write(tmp_path, row() + "|90", row(job="2") + "|", head=HEAD + "|TimelimitRaw")
    assert sacct.read_log(path).time_limit_s.tolist() == [5400.0, 3600.0]


def test_a_dump_of_the_database():
    path = REGRESSIONS / "trace-slurmdbd/valid.sql"
    log = slurmdbd.read_log(path, type_of_partition={"gpu": "V100"})
    assert find_format(path).name == "slurmdbd"
    # Job 15 still runs: from 1772358260 to the last event, the end of job 11 at 1772359260.
    assert (log.job_id, log.duration_s.tolist()) == (["11", "12_3", "15"], [3600.0, 100.0, 1000.0])
    assert (log.gpus.tolist(), log.gpu_type) == ([4, 2, 1], ["A100", "V100", "V100"])
    assert (log.user, log.virtual_cluster) == (["ann", "o'neil", "ann"], ["vision", "speech", "vision"])
    assert log.outcome == ["completed", "killed", ""]
    limits = log.time_limit_s.tolist()
    assert (limits[0], limits[1] != limits[1], log.left_out) == (3600.0, True, {"never ran": 1})


def test_parts_of_seconds_are_kept_in_a_log(tmp_path):
    head = "job_id,submit_time,duration,gpus,time_limit_s"
    (tmp_path / "own.csv").write_text(f"{head}\na,0,90.25,1,120.5\nb,5,60,2,\n")
    log = durations.read_log(tmp_path / "own.csv")
    write_log(log, tmp_path / "log.csv")
    again = durations.read_log(tmp_path / "log.csv")
    assert again.duration_s.tolist() == [90.25, 60.0]
    assert again.time_limit_s.tolist()[0] == 120.5
    assert ",60,2," in (tmp_path / "log.csv").read_text()


def test_an_archive_of_the_database(tmp_path):
    # Written by slurmdbd 22.05.8; sacct printed of the same jobs what stands here. Tasks of the array ran
    # 0 s, job 5 and one that was cancelled while it was held had no GPU, and job 6 was requeued.
    path = tmp_path / "mine_job_table_archive"
    path.write_bytes((REGRESSIONS / "trace-slurm-archive/valid").read_bytes())
    with pytest.raises(InputError, match=r"no tres\.txt beside it .*sacctmgr -P show tres"):
        slurmdbd.read_log(path)
    (tmp_path / "tres.txt").write_text("Type|Name|ID\ncpu||1\ngres|gpu|1001\ngres|gpu:a40|1002\n")
    log = slurmdbd.read_log(path)
    assert log.job_id == ["1", "2", "4", "6", "6-run2"]
    assert log.duration_s.tolist() == [4.0, 6.0, 1.0, 1.0, 8.0]
    assert (log.submit_s - log.submit_s[0]).tolist() == [0.0, 0.0, 0.0, 0.0, 10.0]
    assert (log.start_s - log.submit_s).tolist() == [1.0, 5.0, 5.0, 5.0, 6.0]
    assert (log.gpus.tolist(), set(log.gpu_type), set(log.user)) == ([4, 4, 1, 1, 1], {"A40"}, {"0"})
    assert log.virtual_cluster == ["vision", "speech", "vision", "vision", "vision"]
    assert log.outcome == ["completed", "completed", "killed", "killed", "completed"]
    assert log.time_limit_s.tolist() == [300.0, 420.0, 540.0, 540.0, 540.0]
    assert log.left_out == {"ran 0 s": 3, "CPU job": 2}
    content = path.read_bytes()
    for wrong, message in (
        (b"\x27" + content[1:], r"not of Slurm 22\.05 \(protocol 39, not 38\)"),
        (content[:-30], "ends within a record"),
        (content[:14], "ends within a record"),
        (content[:10] + b"\x05\x90" + content[12:], "records of number 1424"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match=message):
            slurmdbd.read_log(path)
    path.write_bytes(content)
    for table, message in (
        ("Type|Name|ID\ncpu||1\n", r"tres\.txt: names no gres/gpu \(set AccountingStorageTRES=gres/gpu"),
        ("Type|Name|ID\ncpu||1\ngres|gpu\n", r"tres\.txt:3: 'gres\|gpu' is not Type\|Name\|ID"),
        ("Type|Name|ID\ngres|gpu|x\n", r"tres\.txt:2: 'gres\|gpu\|x' is not Type\|Name\|ID"),
        ("Type|Name|ID\ngres|gpumem|1001\n", "names no gres/gpu"),
    ):
        (tmp_path / "tres.txt").write_text(table)
        with pytest.raises(InputError, match=message):
            slurmdbd.read_log(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("'1001=1');", "'1001=1',7);", r"dump\.sql:\d+: a row of the job_table has \d+ values"),
        ("'1001=1');", "1001=1", r"dump\.sql:\d+: is no row of mysqldump's"),
    ],
)
def test_a_dump_that_is_damaged(tmp_path, old, new, message):
    text = (REGRESSIONS / "trace-slurmdbd/valid.sql").read_text()
    assert old in text
    (tmp_path / "dump.sql").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message):
        slurmdbd.read_log(tmp_path / "dump.sql")


def test_jobs_ask_for_the_nodes_that_they_had_and_asked_for(tmp_path):
    # 4 on one node; 8 on two; 3 cannot be equally many on 2; two that were given though one was asked for.
    given = [(4, 1, ""), (8, 2, "cpu=8,node=2,gres/gpu=8"), (3, 2, ""), (8, 2, "cpu=8,node=1")]
    rows = [
        f"{row(str(at), tres=f'gres/gpu={gpus}', asked=asked)}|{nodes}"
        for at, (gpus, nodes, asked) in enumerate(given)
    ]
    log = sacct.read_log(write(tmp_path, *rows, head=f"{HEAD}|NNodes"))
    assert log.nodes.tolist() == [1, 2, 0, 0]
    assert log.facts["guessed"]["number of nodes: any, those it had are not those it asked for"] == 2
    write_log(log, tmp_path / "log.csv")
    again = durations.read_log(tmp_path / "log.csv")
    assert again.nodes.tolist() == [1, 2, 0, 0]
    read = {"reference_time_s": lambda model, gpu_type, gpus: 1.0, "reference_cluster": "", "gpu_types": ()}
    assert build_recorded_trace(again, ReadOptions(**read)).nodes is None
    # Nodes of two GPUs have not room for the four that job 0 had on one; jobs keep their order.
    small = ReadOptions(**read, node_gpus={"A100": 2}, power_of_two=False)
    assert build_recorded_trace(again, small).nodes is None
    large = ReadOptions(**read, node_gpus={"A100": 4}, power_of_two=False)
    assert build_recorded_trace(again, large).nodes.tolist() == [1, 2, 0, 0]
