"""Readers of operators' logs on small inputs: what is kept, how jobs ended, and what a bad line ends in."""

from dataclasses import replace
from pathlib import Path

import pytest
from log_samples import ACME, ALIBABA_2025, ALIBABA_2026, KALOS, SUPERCLOUD, SWF
from published_data import find_published

from clustergym.common.errors import InputError
from clustergym.trace.formats import FORMATS, ReadOptions, find_format, load_trace
from clustergym.trace.readers import acme, alibaba_2025, alibaba_2026, supercloud, swf
from clustergym.trace.trace import Trace

OPTIONS = ReadOptions(reference_time_s=lambda *_: 1.0, gpu_types=(), power_of_two=False)
KEEP = replace(OPTIONS, outcomes="keep")


def load(folder: Path, text: str, options: ReadOptions = OPTIONS, name: str = "log.csv") -> Trace:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_trace(path, options=options)


def test_acme_seren(tmp_path: Path) -> None:
    trace = load(tmp_path, ACME, KEEP)
    assert trace.provenance["format"] == "acme"
    assert trace.provenance["left_out"] == {"CPU job": 1, "never ran": 1}
    assert trace.job_id == ("11", "12", "13", "16")
    # 00:00:02 in the zone +08:00 is 16:00:02 of the day before in UTC.
    assert trace.provenance["origin"] == "2023-03-01T16:00:02"
    assert trace.submit_s.tolist() == [0, 10, 20, 60]
    assert trace.gpus.tolist() == [8, 8, 1, 1024]
    assert trace.outcome == ("completed", "killed", "failed", "failed")
    assert trace.work_iterations.tolist() == [300, 120, 60, 5]


def test_acme_kalos_runs_from_start_to_end_whatever_its_duration_says(tmp_path: Path) -> None:
    trace = load(tmp_path, KALOS)
    # From 11:01:08 to 11:01:16; its column duration holds 18 s, ten of which it waited.
    assert trace.iterations.tolist() == [8]
    assert trace.outcome is None


def test_swf(tmp_path: Path) -> None:
    trace = load(tmp_path, SWF, KEEP, "log.swf")
    assert trace.provenance["format"] == "swf"
    assert trace.provenance["left_out"] == {
        "never ran": 1,
        "part of a checkpointed job": 2,
        "ran 0 s": 1,
        "without processors": 1,
    }
    assert trace.provenance["header"] == {"Version": "2.2", "MaxProcs": "64"}
    # Not sorted in the file; job 2 has no requested processors (-1): it counts with its 4 allocated ones.
    assert trace.job_id == ("2", "1", "3", "9")
    assert trace.submit_s.tolist() == [0, 5.5, 25, 95]
    assert trace.gpus.tolist() == [4, 16, 8, 2]
    assert trace.outcome == ("failed", "completed", "killed", "")
    assert trace.user == ("7", "", "7", "7")
    assert trace.virtual_cluster == ("1", "1", "", "1")


def test_swf_is_found_out_by_its_lines_too(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(SWF)
    assert find_format(path).name == "swf"


def test_supercloud(tmp_path: Path) -> None:
    trace = load(tmp_path, SUPERCLOUD, KEEP)
    assert trace.provenance["format"] == "supercloud"
    assert trace.provenance["left_out"] == {"CPU job": 1, "never ran": 1, "without a count of its GPUs": 1}
    assert trace.provenance["origin"] == "2021-01-01T00:00:00"
    assert trace.job_id == ("1", "2", "3")
    # tres_alloc counts Volta as 1002 and Tesla as 1001; its energy (3) is Slurm's "no value".
    assert trace.gpus.tolist() == [5, 1, 2]
    assert trace.work_iterations.tolist() == [100, 50, 10]
    # 3 completed, 4 cancelled, 6 timeout.
    assert trace.outcome == ("completed", "killed", "failed")


def test_alibaba_2025_counts_instances_inside_the_trace(tmp_path: Path) -> None:
    trace = load(tmp_path, ALIBABA_2025)
    assert trace.provenance["format"] == "alibaba-2025"
    assert trace.provenance["left_out"] == {"CPU instance": 2}
    assert (trace.provenance["began_before"], trace.provenance["ended_after"]) == (2, 2)
    # The trace lasts 31 days, 2,678,400 s.
    assert trace.job_id == ("i0", "i2", "i3", "i4")
    assert trace.submit_s.tolist() == [0, 0, 100, 200]
    assert trace.iterations.tolist() == [2_678_400, 400, 2_678_300, 200]
    assert trace.virtual_cluster == ("app_0", "app_1", "app_1", "app_1")


def test_alibaba_2026(tmp_path: Path) -> None:
    trace = load(tmp_path, ALIBABA_2026)
    assert trace.provenance["format"] == "alibaba-2026"
    assert trace.gpus.tolist() == [1, 16, 1]
    # GPU-series-1 is no type of the catalogue: the job may run on any.
    assert trace.gpu_type == ("A10", "A100", "")
    assert trace.priority.tolist() == [1, 0, 0]
    assert trace.virtual_cluster == ("13", "57", "57")


@pytest.mark.parametrize("text", [ALIBABA_2025, ALIBABA_2026])
def test_a_log_without_outcomes_does_not_keep_any(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="says of no job whether it completed"):
        load(tmp_path, text, KEEP)


PHILLY_JOB = (
    '[\n{"jobid": "1", "status": "Killed", "submitted_time": "2017-10-07 01:00:00", "attempts": '
    '[{"start_time": "2017-10-07 01:00:10", "end_time": "2017-10-07 01:00:40", '
    '"detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}]'
)


def test_statuses_of_philly_and_pai(tmp_path: Path) -> None:
    # Killed is of Philly alone; of PAI's statuses only Terminated is success.
    trace = load(tmp_path, PHILLY_JOB, KEEP, "philly.json")
    assert (trace.outcome, trace.work_iterations.tolist()) == (("killed",), [30])
    tasks = "j1,w,2,Terminated,110,400,600,29,50,T4\nj2,w,1,Failed,210,500,600,29,100,V100\n"
    (tmp_path / "pai_task_table.csv").write_text(tasks)
    trace = load(tmp_path, "j1,i,u,Terminated,100,400\nj2,i,u,Failed,200,500\n", KEEP, "pai_job_table.csv")
    assert trace.outcome == ("completed", "failed")


def test_a_file_of_no_format_names_the_nearest_and_why_it_is_none_of_them(tmp_path: Path) -> None:
    text = "job_id,user,gpu_num2,submit_time,start_time,duration,vc\n1,u,1,0,0,5,v\n"
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    # Six of the seven columns of Helios are there, two of the three of a log of one's own.
    assert "; not helios: no column gpu_num; not durations: no column gpus or num_gpus" in str(caught.value)


def test_a_format_that_the_file_is_not_names_the_one_it_looks_like(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(ACME)
    with pytest.raises(InputError, match=r"vc: column missing .* looks like format acme, not helios\)"):
        load_trace(path, "helios", OPTIONS)


def test_every_reader_of_logs_is_a_format() -> None:
    for module in (acme, swf, supercloud, alibaba_2025, alibaba_2026):
        assert FORMATS[module.NAME].name == module.NAME


def sample(name: str) -> Path:
    return find_published(f"traces/{name}")


def test_the_published_model_of_a_workload() -> None:
    trace = load_trace(sample("dirlab_lublin_256_head1000.swf"), options=KEEP)
    # 1,000 lines, 7 of them comments; all jobs are marked as completed.
    assert len(trace) == 993
    assert set(trace.outcome or ()) == {"completed"}
    assert trace.provenance["header"]["MaxNodes"] == "256"


def test_the_published_instances_of_2025() -> None:
    path = sample("cluster-trace-gpu-v2025_disaggregated_DLRM_trace_head2000.csv")
    log = alibaba_2025.read_log(path)
    assert set(log.gpus.tolist()) == {1}
    # The first 2,000 rows, all of instances that are there during all 31 days: 987 of role CN without GPUs.
    assert (len(log.row), log.left_out) == (1013, {"CPU instance": 987})
    assert set(log.duration_s.tolist()) == {31 * 86_400.0}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "cluster-trace-v2026-spot-gpu_node_info_df.csv",
            "not alibaba-2026: no column job_name, organization",
        ),
        ("helios_Earth_gpu_number.csv", "looks like none of the formats"),
        ("philly_vc.csv", "looks like none of the formats"),
    ],
)
def test_published_files_that_are_no_traces(name: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_trace(sample(name))
    assert words in str(caught.value)
