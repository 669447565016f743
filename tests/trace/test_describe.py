"""`describe` and `generate` of `python -m clustergym.trace`."""

import json
import re
from pathlib import Path

import pytest

import clustergym
from clustergym.commands.trace import main
from clustergym.common.errors import InputError
from clustergym.common.paths import traces_dir
from clustergym.oracle.stacks.stack_oracle import StackOracle
from clustergym.oracle.table_cache import table_source
from clustergym.trace.describe import duration_text, warnings
from clustergym.trace.formats import load_trace
from clustergym.trace.native import read_trace, write_trace
from clustergym.trace.trace_statistics import build_tables, offer

HELIOS = str(traces_dir() / "helios-like-160.csv")


def generate(tmp_path, *more, source="philly", name="out.csv"):
    return main(["generate", source, "-o", str(tmp_path / name), "--jobs", "30", *more])


def test_describe_by_an_oracle_that_knows_the_models(tmp_path, capsys):
    scenario = clustergym.load_scenario("llm-2026", ["trace.jobs=60", "trace.load=null"])
    path, figures = tmp_path / "llm.csv", tmp_path / "figures.json"
    write_trace(scenario.trace, path)
    words = ["describe", str(path), "--cluster", "llm-2026"]
    assert main(words) == 2
    assert "choose oracle=stack" in capsys.readouterr().err
    assert main([*words, "--oracle", "stack", "--json", str(figures)]) == 0
    tables = build_tables(scenario.trace, scenario.cluster, table_source(StackOracle()))
    load = offer(scenario.trace, scenario.cluster, tables).overall
    assert json.loads(figures.read_text())["offered_load"]["overall"] == pytest.approx(load)


def test_describe_prints_and_writes_the_same_figures(tmp_path, capsys):
    figures_file = tmp_path / "figures.json"
    assert main(["describe", HELIOS, "--cluster", "ares-64", "--json", str(figures_file)]) == 0
    shown, figures = capsys.readouterr().out, json.loads(figures_file.read_text())
    assert figures["jobs"] == 160
    assert figures["offered_load"]["by_gpu_type"]["RTX2080Ti"] == pytest.approx(1.0, rel=0.01)
    assert figures["gpus"]["share"]["1"] == pytest.approx(0.4375)
    assert sum(figures["model_share"].values()) == pytest.approx(1.0)
    words = ("resnet18", "8.0 h", "Fano factor", "burstiness", "Offered load on ares-64")
    for expected in (*words, figures["sha256"][:16]):
        assert expected in shown


def test_describe_prints_the_bursts_under_their_titles(tmp_path, capsys):
    path = tmp_path / "[bold]helios.csv"
    path.write_bytes(Path(HELIOS).read_bytes())
    assert main(["describe", str(path), "--json", str(tmp_path / "figures.json")]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "[bold]helios"
    every = [], []
    for name, counts in json.loads((tmp_path / "figures.json").read_text())["counts"].items():
        row = re.search(rf"^ *jobs per {name} +(.*)$", shown, re.MULTILINE)[1].split()
        every[0].extend(row)
        every[1].extend(counts[key] for key in ("mean", "max", "fano", "lag1_autocorrelation"))
    assert ["-" if figure is None else round(figure, 2) for figure in every[1]] == [
        cell if cell == "-" else float(cell.replace(",", "")) for cell in every[0]
    ]
    assert len(every[0]) - every[0].count("-") >= 6


def test_describe_warns_above_one_only(tmp_path, capsys):
    generate(tmp_path, "--cluster", "ares-64", "--rule", "ares", "--load", "1.5")
    assert "offered load on RTX2080Ti of ares-64 is 1.50, above 1" in capsys.readouterr().out
    generate(tmp_path, "--cluster", "ares-64", "--rule", "ares", "--load", "0.5", "--force")
    assert "warning" not in capsys.readouterr().out


def test_warnings_name_what_does_not_fit():
    load = {"overall": 0.5, "by_gpu_type": {"X": 0.5}, "infeasible_requests": 3, "fits_nowhere": 1}
    lines = warnings({"offered_load": load, "cluster": "small"})
    assert [line.split(" jobs")[0] for line in lines] == ["3", "1"]
    none = {"overall": None, "by_gpu_type": {"X": None}}
    unbounded = {**load, **none, "infeasible_requests": 0, "fits_nowhere": 0}
    assert "unbounded" in warnings({"offered_load": unbounded, "cluster": "small"})[0]


def test_describe_a_single_job(tmp_path, capsys):
    assert main(["generate", "pai", "-o", str(tmp_path / "one.csv"), "--jobs", "1"]) == 0
    assert main(["describe", str(tmp_path / "one.csv")]) == 0
    assert "unbounded" in capsys.readouterr().out


def test_generate_writes_a_valid_trace(tmp_path, capsys):
    options = ("--cluster", "arena-a", "--load", "0.9", "--seed", "4", "--deadlines")
    assert generate(tmp_path, *options, "--json", str(tmp_path / "f.json")) == 0
    shown, trace = capsys.readouterr().out, read_trace(tmp_path / "out.csv")
    figures = json.loads((tmp_path / "f.json").read_text())
    assert len(trace) == 30
    assert trace.sha256 in shown
    assert figures["sha256"] == trace.sha256
    assert figures["offered_load"]["overall"] == pytest.approx(0.9, rel=0.01)
    assert figures["deadlines"] == 30
    assert set(trace.gpu_type) <= {"A40", "A10"}
    assert trace.provenance["generator"]["arguments"]["load"] == 0.9
    before = (tmp_path / "out.csv").read_bytes()
    assert generate(tmp_path, *options, "--force") == 0
    assert (tmp_path / "out.csv").read_bytes() == before


def test_generate_does_not_overwrite(tmp_path, capsys):
    (tmp_path / "out.csv").write_text("mine")
    assert generate(tmp_path) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_text() == "mine"


def test_generate_types(tmp_path):
    generate(tmp_path, "--cluster", "arena-a", "--any-type")
    assert set(read_trace(tmp_path / "out.csv").gpu_type) == {""}
    generate(tmp_path, "--cluster", "arena-a", "--gpu-type", "A10", "--force")
    assert set(read_trace(tmp_path / "out.csv").gpu_type) == {"A10"}


def test_describe_names_the_line_of_an_unknown_model(tmp_path, capsys):
    bad = tmp_path / "bad.csv"
    bad.write_text("job_id,submit_s,model_family,global_batch,iterations,gpus\nj,0,resnet19,64,10,1\n")
    assert main(["describe", str(bad)]) == 2
    error = capsys.readouterr().err
    assert "bad.csv:2" in error
    assert "resnet18" in error


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0 s"), (119.0, "119.0 s"), (120.0, "2.0 min"), (7200.0, "2.0 h"), (864000.0, "10.0 d")],
)
def test_duration_text(seconds, text):
    assert duration_text(seconds) == text


def test_a_log_of_durations(tmp_path):
    text = "submit_time,duration,gpus,user\n2020-01-01 00:01:00,100,2,b\n2020-01-01 00:00:00,100,1,a\n"
    (tmp_path / "log.csv").write_text(text + "2020-01-01 00:02:00,0,1,c\n")
    trace = load_trace(tmp_path / "log.csv")
    assert trace.provenance["format"] == "durations"
    assert trace.submit_s.tolist() == [0, 60]
    assert trace.user == ("a", "b")
    assert trace.provenance["left_out"] == {"ran 0 s": 1}


def test_a_log_without_a_column_names_all_that_are_accepted(tmp_path):
    (tmp_path / "log.csv").write_text("when,duration,gpus\n0,1,1\n")
    with pytest.raises(
        InputError, match="give columns submit_time or submit_s, duration or duration_s, gpus"
    ):
        load_trace(tmp_path / "log.csv")
    with pytest.raises(InputError, match="has no column submit_time or submit_s"):
        load_trace(tmp_path / "log.csv", format="durations")
