"""Every reader on small inputs, with the numbers worked out by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clustergym.common.columns import parse_seconds
from clustergym.common.errors import InputError
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.formats import FORMATS, ReadOptions, find_format, load_trace
from clustergym.trace.options import types_to_draw
from clustergym.trace.readers import helios, pai, philly
from clustergym.trace.trace import Trace

OPTIONS = ReadOptions(reference_time_s=lambda *_: 1.0, gpu_types=())


def load(folder: Path, name: str, text: str, options: ReadOptions = OPTIONS) -> Trace:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_trace(path, options=options)


ARENA = """job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,gpu_type
b,200100,34,wide_resnet__6.8B,209184,256,8,a40
a,200000,14,MOE__690m,200900.5,256,4,A10
c,200100,4,bert__1.3B,,128,1,
"""


def test_arena_maps_names_sorts_and_counts_from_the_first_submission(tmp_path: Path) -> None:
    trace = load(tmp_path, "runtime.csv", ARENA)
    assert trace.provenance["format"] == "arena"
    assert trace.provenance["origin"] == 200000
    assert trace.job_id == ("a", "b", "c")
    assert trace.submit_s.tolist() == [0, 100, 100]
    assert trace.deadline_s.tolist()[:2] == [900.5, 9184]
    assert np.isnan(trace.deadline_s[2])
    assert trace.model_family == ("gshard_moe", "wide_resnet", "gpt3")
    assert trace.model_size == ("690M", "6.8B", "1.3B")
    assert trace.gpu_type == ("A10", "A40", "")
    assert trace.iterations.tolist() == [14, 34, 4]
    assert trace.global_batch.tolist() == [256, 256, 128]
    assert trace.gpus.tolist() == [4, 8, 1]
    assert trace.line.tolist() == [3, 2, 4]


def test_arena_simulate_trace_has_a_fifth_of_the_iterations_rounded_down(tmp_path: Path) -> None:
    trace = load(tmp_path, "simulate_trace_mine.csv", ARENA)
    assert trace.provenance["format"] == "arena-simulate"
    # 14 / 5 = 2.8, 34 / 5 = 6.8, 4 / 5 = 0.8: at least one iteration.
    assert trace.iterations.tolist() == [2, 6, 1]


PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 07:00:55,2951.0,3,8853.0,6214e9
2017-10-09 08:00:55,0,1,0,6214e9
"""


def test_philly_keeps_gpu_time_when_counts_are_rounded_up(tmp_path: Path) -> None:
    trace = load(tmp_path, "philly.csv", PHILLY)
    assert trace.provenance["format"] == "philly"
    assert trace.provenance["origin"] == "2017-10-09T07:00:55"
    assert trace.provenance["left_out"] == {"ran 0 s": 1}
    assert trace.job_id == ("philly-1", "philly-0")
    assert trace.submit_s.tolist() == [0, 60]
    assert trace.virtual_cluster == ("6214e9", "11cb48")
    assert trace.gpus.tolist() == [4, 1]
    # 2951 s on 3 GPUs are 2213.25 s on 4, at a second an iteration.
    assert trace.iterations.tolist() == [2213, 66]


def test_philly_keeps_counts_as_recorded_on_request(tmp_path: Path) -> None:
    trace = load(tmp_path, "philly.csv", PHILLY, replace(OPTIONS, power_of_two=False))
    assert trace.gpus.tolist() == [3, 1]
    assert trace.iterations.tolist() == [2951, 66]


def _attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, object]:
    detail = [
        {"ip": f"m{node}", "gpus": [f"gpu{k}" for k in range(count)]} for node, count in enumerate(gpus)
    ]
    return {"start_time": start, "end_time": end, "detail": detail}


def _philly_job(job_id: str, submitted: str, *attempts: dict[str, object]) -> dict[str, object]:
    return {
        "status": "Pass",
        "vc": "6c71a0",
        "jobid": job_id,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "u1",
    }


def test_philly_json_sums_attempts_and_takes_the_last_gpus(tmp_path: Path) -> None:
    jobs = [
        _philly_job(
            "two-attempts",
            "2017-10-07 01:00:00",
            _attempt("2017-10-07 01:00:10", "2017-10-07 01:00:40", 8, 8),
            _attempt("2017-10-07 02:00:00", "2017-10-07 02:01:00", 2, 2),
            _attempt("2017-10-07 03:00:00", "2017-10-07 03:00:10"),
        ),
        _philly_job("never", "2017-10-07 00:00:00", _attempt(None, None)),
        _philly_job("none", "2017-10-07 00:00:00"),
        _philly_job("cpu", "2017-10-07 00:00:00", _attempt("2017-10-07 01:00:00", "2017-10-07 01:00:40")),
        _philly_job("still-running", "2017-10-07 00:00:00", _attempt("2017-10-07 01:00:00", "None", 1)),
        _philly_job(
            "summer", "2017-11-05 00:00:00", _attempt("2017-11-05 01:50:00", "2017-11-05 01:10:00", 1)
        ),
        _philly_job(
            "early", "2017-10-07 00:59:00", _attempt("2017-10-07 01:00:00", "2017-10-07 01:00:07", 1)
        ),
    ]
    trace = load(tmp_path, "cluster_job_log", json.dumps(jobs, indent=1))
    assert trace.provenance["format"] == "philly-json"
    assert trace.job_id == ("early", "two-attempts")
    assert trace.submit_s.tolist() == [0, 60]
    assert trace.gpus.tolist() == [1, 4]
    assert trace.iterations.tolist() == [7, 30 + 60 + 10]
    assert trace.user == ("u1", "u1")
    assert trace.virtual_cluster == ("6c71a0", "6c71a0")
    assert trace.provenance["left_out"] == {"CPU job": 1, "attempt ends before it starts": 1, "never ran": 3}


HELIOS = """job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,\
start_time,end_time,duration,queue
11,u1,vcA,train,8,64,1,COMPLETED,2020-04-02 00:00:30,2020-04-02 00:01:00,2020-04-02 00:03:00,120,30
12,u2,vcA,extract,0,4,1,COMPLETED,2020-04-02 00:00:00,2020-04-02 00:01:00,2020-04-02 00:03:00,120,60
13,u2,vcB,train,4,4,1,CANCELLED,2020-04-02 00:00:00,None,2020-04-02 00:03:00,0,180
14,u2,vcB,train,1,4,1,FAILED,2020-04-02 00:00:10,2020-04-02 00:00:10,2020-04-02 00:00:45,35,0
15,u2,vcB,train,1,4,1,FAILED,2020-04-02 00:00:10,2020-04-02 00:00:10,2020-04-02 00:00:10,0,0
"""


@pytest.mark.parametrize("with_name", [True, False])
def test_helios_leaves_out_cpu_jobs_and_those_that_never_ran(tmp_path: Path, with_name: bool) -> None:
    text = HELIOS
    if not with_name:
        rows = [line.split(",") for line in HELIOS.splitlines()]
        text = "\n".join(",".join(row[:3] + row[4:]) for row in rows)
    trace = load(tmp_path, "cluster_log.csv", text)
    assert trace.provenance["format"] == "helios"
    assert trace.job_id == ("14", "11")
    assert trace.submit_s.tolist() == [0, 20]
    assert trace.iterations.tolist() == [35, 120]
    assert trace.gpus.tolist() == [1, 8]
    assert trace.user == ("u2", "u1")
    assert trace.virtual_cluster == ("vcB", "vcA")
    assert trace.provenance["left_out"] == {"CPU job": 1, "never ran": 1, "ran 0 s": 1}


PAI_JOBS = """\
late,i1,u1,Terminated,1000500.5,1000900
cpu,i2,u1,Terminated,1000100,1000200
mixed,i3,u2,Failed,1000200,1000900
lost,i4,u2,Running,1000200,
tiny,i5,u3,Terminated,1000000,1000900
"""
PAI_TASKS = """\
late,worker,10,Terminated,1000510,1000710,600,29,50,V100M32
late,ps,2,Terminated,1000505,1000805,600,29,,
cpu,worker,4,Terminated,1000110,1000190,600,29,0,T4
mixed,ps,1,Failed,1000210,1000300,600,29,100,T4
mixed,worker,3,Failed,1000220,1000310,600,29,25,MISC
lost,worker,1,Running,1000220,,600,29,100,T4
tiny,tensorflow,1,Terminated,1000010,1000070,600,29,10,misc
ghost,tensorflow,1,Terminated,1000010,1000070,600,29,10,T4
"""


def _pai(folder: Path, header: bool = False) -> Path:
    jobs = ",".join(pai.JOB_COLUMNS) + "\n" if header else ""
    tasks = ",".join(pai.TASK_COLUMNS) + "\n" if header else ""
    (folder / "pai_job_table.csv").write_text(jobs + PAI_JOBS)
    (folder / "pai_task_table.csv").write_text(tasks + PAI_TASKS)
    return folder


@pytest.mark.parametrize("given", ["", "pai_job_table.csv", "pai_task_table.csv"])
@pytest.mark.parametrize("header", [False, True])
def test_pai_joins_its_two_tables(tmp_path: Path, given: str, header: bool) -> None:
    trace = load_trace(_pai(tmp_path, header) / given, options=OPTIONS)
    assert trace.provenance["format"] == "pai"
    assert trace.provenance["origin"] == 1000000
    assert trace.job_id == ("tiny", "mixed", "late")
    assert trace.submit_s.tolist() == [0, 200, 500.5]
    # tiny: 10 % of a GPU -> 1. mixed: 100 % + 3 x 25 % = 1.75 -> 2.
    # late: 10 x 50 % = 5 -> 8 as a power of two.
    assert trace.gpus.tolist() == [1, 2, 8]
    # tiny: 60 s. mixed: from 210 to 310, 100 s. late: 200 s of its GPU task on 5 GPUs are 125 s on 8.
    assert trace.iterations.tolist() == [60, 100, 125]
    assert trace.gpu_type == ("", "", "V100")
    assert trace.user == ("u3", "u2", "u1")
    assert trace.provenance["left_out"] == {"CPU job": 1, "without start or end": 1}
    assert set(trace.provenance["sha256_of"]) == {"pai_job_table.csv", "pai_task_table.csv"}


def test_pai_without_the_other_table_names_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "pai_job_table.csv").write_text(PAI_JOBS)
    with pytest.raises(
        InputError, match=r"pai_task_table\.csv: no such file \(did you mean pai_job_table\.csv"
    ):
        load_trace(tmp_path / "pai_job_table.csv", options=OPTIONS)


def test_sia_trains_as_long_as_alone_at_the_reference(tmp_path: Path) -> None:
    text = (
        "name,time,application,num_replicas,batch_size\n"
        "y,20.5,yolov3,6,64\n"
        "c,10,cifar10,16,2048\n"
        "i,30,imagenet,16,3200\n"
    )

    def seconds(model: ModelClass, gpu_type: str, gpus: int) -> float:
        assert gpu_type == "A100"
        return float("inf") if model.family == "resnet50" and gpus < 8 else 8.0 / gpus

    trace = load(tmp_path, "workload-1.csv", text, ReadOptions(reference_time_s=seconds))
    assert trace.provenance["format"] == "sia"
    assert trace.provenance["origin"] == 0
    assert trace.submit_s.tolist() == [10, 20.5, 30]
    assert trace.model_family == ("resnet18", "yolov3", "resnet50")
    assert trace.gpus.tolist() == [16, 8, 16]
    # cifar10 399 s and yolov3 8800 s on 4 A100 at 2 s; imagenet fits on 8 first: 24838 s at 1 s.
    assert trace.iterations.tolist() == [200, 4400, 24838]
    assert trace.gpu_type == ("", "", "")


GAVEL_10 = (
    "ResNet-18 (batch size 128)\tpython3 main.py\tcifar10\t--num_steps\t1\t1001\t4\t5.0\t-1.000000\t100\n"
    "A3C\tpython3 main.py\trl\t--max\t1\t77\t1\t1\t2.0\t50.5\n"
    "LM (batch size 5)\tpython main.py\tlm\t--steps\t1\t90\t7\t1\t-1\t0\n"
)


def test_gavel_ten_fields(tmp_path: Path) -> None:
    trace = load(tmp_path, "small.trace", GAVEL_10)
    assert trace.provenance["format"] == "gavel"
    assert trace.job_id == ("gavel-2", "gavel-1", "gavel-0")
    assert trace.submit_s.tolist() == [0, 50.5, 100]
    assert trace.model_family == ("lm", "a3c", "resnet18")
    assert trace.gpus.tolist() == [8, 1, 4]
    assert trace.global_batch.tolist() == [5, 4, 128]
    assert trace.iterations.tolist() == [90, 77, 1001]
    assert trace.priority.tolist() == [1, 1, 5]
    # The SLO is twice the run time alone: 50.5 + 2 x 77 iterations of a second.
    assert trace.deadline_s[1] == 204.5
    assert np.isnan(trace.deadline_s[[0, 2]]).all()


def test_gavel_steps_of_workers(tmp_path: Path) -> None:
    trace = load(tmp_path, "small.trace", GAVEL_10, replace(OPTIONS, gavel_steps="worker"))
    # 5 x 8 samples, 90 / 8 steps rounded up; 4 x 1, 77; 128 x 4, 1001 / 4 rounded up.
    assert trace.global_batch.tolist() == [40, 4, 512]
    assert trace.iterations.tolist() == [12, 77, 251]
    assert trace.deadline_s[1] == 204.5
    with pytest.raises(InputError, match=r"gavel_steps: unknown value 'workers' \(did you mean worker\?\)"):
        load(tmp_path, "small.trace", GAVEL_10, ReadOptions(gavel_steps="workers"))


def test_gavel_seven_fields_have_arrival_before_scale_factor(tmp_path: Path) -> None:
    text = (
        "Transformer (batch size 128)\tcd x && python3 train.py\t-step\t1\t1000\t0.000000\t1\n"
        "CycleGAN\tcd y && python3 c.py\t-n\t1\t30\t364815.000000\t2\n"
    )
    trace = load(tmp_path, "11cb48.trace", text)
    assert trace.submit_s.tolist() == [0, 364815]
    assert trace.model_family == ("transformer", "cyclegan")
    assert trace.global_batch.tolist() == [128, 1]
    assert trace.iterations.tolist() == [1000, 30]
    assert trace.priority.tolist() == [0, 0]


ELASTICFLOW = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort
0,100000,2011,cifar10,104511,4096,1,5644,0
1,100005,1548,ncf,100033,32768,8,66,1
2,99999,77,resnet50_cifar10,100033,256,2,66,0
"""


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_elasticflow_in_any_order_of_columns(tmp_path: Path, order: slice) -> None:
    text = "\n".join(",".join(line.split(",")[order]) for line in ELASTICFLOW.splitlines())
    trace = load(tmp_path, "trace.csv", text)
    assert trace.provenance["format"] == "elasticflow"
    assert trace.provenance["origin"] == 99999
    assert trace.job_id == ("2", "0", "1")
    assert trace.submit_s.tolist() == [0, 1, 6]
    assert trace.deadline_s.tolist()[:2] == [34, 4512]
    assert np.isnan(trace.deadline_s[2])  # best effort
    assert trace.model_family == ("resnet50", "resnet18", "neumf")
    assert trace.iterations.tolist() == [77, 2011, 1548]


def test_relative_clock_that_starts_in_its_first_day_is_kept(tmp_path: Path) -> None:
    text = ELASTICFLOW.replace("100000", "80001").replace("100005", "80002").replace("99999", "80000")
    trace = load(tmp_path, "trace.csv", text)
    assert trace.provenance["origin"] == 0
    assert trace.submit_s.tolist() == [80000, 80001, 80002]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x.csv", "job_id,submit_s,model_family\n", "native"),
        ("x.csv", ARENA, "arena"),
        ("simulate_trace_x.csv", ARENA, "arena-simulate"),
        ("x.csv", PHILLY, "philly"),
        ("x", ' \n[\n{"status": "Pass"', "philly-json"),
        ("x.csv", HELIOS, "helios"),
        ("pai_task_table_2.csv", PAI_TASKS, "pai"),
        ("x.csv", "name,time,application,num_replicas,batch_size\n", "sia"),
        ("x.txt", GAVEL_10, "gavel"),
        ("x.csv", ELASTICFLOW, "elasticflow"),
    ],
)
def test_formats_are_found_out(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / name).write_text(text)
    assert find_format(tmp_path / name).name == expected


def test_format_of_a_large_file_is_found_from_its_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as stream:
        stream.write(ARENA.encode())
        stream.truncate(2**36)  # 64 GiB, sparse: it cannot be read whole
    assert find_format(path).name == "arena"


def test_unknown_formats_name_the_valid_ones(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(
        InputError, match=r"native, arena-simulate, .* say which format with trace\.format=NAME\)"
    ):
        load_trace(path)
    with pytest.raises(InputError, match=r"trace\.format: unknown format 'heliso' \(did you mean helios"):
        load_trace(path, "heliso")
    assert set(FORMATS) >= {"native", "philly", "philly-json", "helios", "pai", "sia", "gavel", "elasticflow"}


def test_a_given_format_wins_over_the_looks_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "simulate_trace_x.csv"
    path.write_text(ARENA)
    assert load_trace(path, "arena", OPTIONS).iterations.tolist() == [14, 34, 4]


def test_records_are_read_without_drawing(tmp_path: Path) -> None:
    (tmp_path / "philly.csv").write_text(PHILLY)
    (tmp_path / "helios.csv").write_text(HELIOS)
    log = philly.read_log(tmp_path / "philly.csv")
    assert log.duration_s.tolist() == [66, 2951]
    assert log.row.tolist() == [0, 1]
    assert helios.read_log(tmp_path / "helios.csv").row.tolist() == [0, 3]


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    plain = load(tmp_path, "a.csv", ARENA)
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbf" + ARENA.replace("\n", "\r\n").encode())
    assert load_trace(tmp_path / "b.csv", options=OPTIONS).sha256 == plain.sha256


def test_a_day_that_is_not_in_the_calendar_is_no_time():
    with pytest.raises(ValueError, match=r"'2026-02-30 01:00:00' is not a time: day"):
        parse_seconds("2026-02-30 01:00:00")


def test_types_are_drawn_where_the_rule_is_arenas_or_any_type_will_do():
    types = ("A100", "H100")
    assert types_to_draw("arena", any_type=False, gpu_types=types) == types
    assert types_to_draw("ares", any_type=False, gpu_types=types) is None
    assert types_to_draw("arena", any_type=True, gpu_types=types) == ()
