"""Time limits of jobs: kept from a log, drawn from run times, or none; and what is wrong with them."""

from dataclasses import replace

import numpy as np
import pytest
from log_samples import SUPERCLOUD
from refusals import refused

import clustergym
from clustergym.commands.trace import main
from clustergym.common.errors import InputError
from clustergym.common.paths import traces_dir
from clustergym.oracle.stacks.stack_oracle import StackOracle
from clustergym.oracle.table_cache import table_source
from clustergym.trace.formats import ReadOptions, load_trace
from clustergym.trace.native import read_trace, write_trace
from clustergym.trace.trace_statistics import build_tables, offer

SWF = """; Version: 2.2
1 0 0 100 4 -1 -1 4 600 -1 1 7 -1 -1 1 -1 -1 -1
2 5 0 60 2 -1 -1 2 -1 -1 1 8 -1 -1 1 -1 -1 -1
"""


def test_limits_of_a_log_are_written_and_a_run_uses_them_if_asked_for(tmp_path, capsys):
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    options = ReadOptions(reference_time_s=lambda *_: 1.0, gpu_types=())
    kept = load_trace(path, options=options)
    path.write_text(SWF.replace(" 600 ", " -1 "))
    plain = load_trace(path, options=options)
    assert plain.time_limit_s is None
    assert kept.time_limit_s.tolist() == pytest.approx([600.0, np.nan], nan_ok=True)
    # What is written is read again; without limits the table is as before.
    write_trace(kept, tmp_path / "mine.csv")
    again = read_trace(tmp_path / "mine.csv")
    assert again.time_limit_s.tolist() == pytest.approx([600.0, np.nan], nan_ok=True)
    assert "time_limit_s" not in plain.csv_text()
    assert replace(again, time_limit_s=None).sha256 == plain.sha256 != again.sha256
    path.write_text(SWF)
    assert main(["import", str(path), "-o", str(tmp_path / "again.csv")]) == 0
    assert "limits   1 of 2 jobs have one" in capsys.readouterr().out
    words = ["trace=file", f"trace.path={tmp_path / 'again.csv'}", "scenario.other_types=any"]
    assert clustergym.load_scenario("testbed", words).trace.time_limit_s is None
    kept = clustergym.load_scenario("testbed", [*words, "trace.time_limits=keep"]).trace
    assert kept.time_limit_s.tolist() == pytest.approx([600.0, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        # Minutes; Slurm's numbers for a limit that is not set and for none, and 0.
        (
            "slurm-log.csv",
            SUPERCLOUD.replace("400,60", "400,4294967295").replace("350,60", "350,4294967294")
            + '7,u2,3,1609459250,1609459300,1609459310,0,gpu,,"1002=2"',
        ),
        ("log.csv", "submit_s,duration_s,gpus,time_limit_s\n0,9,1,\n1,9,1,\n2,9,1,3600\n3,9,1,\n"),
    ],
)
def test_logs_that_name_limits(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    trace = load_trace(path, options=ReadOptions(reference_time_s=lambda *_: 1.0, gpu_types=()))
    assert trace.time_limit_s.tolist() == pytest.approx([np.nan, np.nan, 3600.0, np.nan], nan_ok=True)


@pytest.mark.slow
def test_drawn_limits_are_between_the_factors_and_change_nothing_else():
    plain = clustergym.load_scenario("testbed")
    drawn = clustergym.load_scenario("testbed", ["trace.time_limits=[1,5]"])
    exact = clustergym.load_scenario("testbed", ["trace.time_limits=[1,1]"])
    run_s = plain.reference_iteration_time_s * plain.trace.iterations
    assert exact.trace.time_limit_s == pytest.approx(run_s)
    factor = drawn.trace.time_limit_s / run_s
    assert (factor >= 1 - 1e-9).all()
    assert (factor <= 5).all()
    assert 2.5 < factor.mean() < 3.5
    assert clustergym.load_scenario("testbed", ["trace.time_limits=[1,5]"]).sha256 == drawn.sha256
    other = clustergym.load_scenario("testbed", ["trace.time_limits=[1,5]"], seed=1)
    assert (other.trace.time_limit_s != drawn.trace.time_limit_s).any()
    # Without `kill` limits end no job, and only policies that look at them decide otherwise.
    assert clustergym.simulate(drawn, "fcfs").digest == clustergym.simulate(plain, "fcfs").digest


def test_limits_are_drawn_by_the_times_of_the_scenario_s_oracle():
    """The roofline knows none of the models of llm-2026."""
    exact = clustergym.load_scenario(
        "llm-2026", ["trace.time_limits=[1,1]", "trace.jobs=60", "trace.load=null"]
    )
    tables = build_tables(exact.trace, exact.cluster, table_source(StackOracle()))
    run_s = offer(exact.trace.as_asked(), exact.cluster, tables).duration_s
    assert exact.trace.time_limit_s == pytest.approx(run_s)


@refused("scenarios", words=True)
def test_what_is_wrong_is_one_line(given, said):
    with said.of_error(traces_dir()):
        clustergym.load_scenario(given[0], given[1:])


def test_a_limit_that_is_no_time_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "job_id,submit_s,model_family,global_batch,iterations,gpus,time_limit_s\na,0,bert,8,1,1,\nb,0,bert,8,1,1,0\n"
    )
    with pytest.raises(InputError, match=r"t.csv:3: time_limit_s: 0 s is no time to run in"):
        read_trace(path)
