"""Runs with pairs from the command line: what they write, that they replay, and what is refused."""

import gzip
import json
import re

import pytest
import yaml
from error_lines import error_line
from refusals import refused

from clustergym.commands import bound, replay, run
from clustergym.results.bounds.bounds import lower_bounds
from clustergym.scenario.by_name import compose
from clustergym.scenario.scenario_config import build_scenario

HEADER = "gpu_type,gpus,model_a,batch_a,model_b,batch_b,kept_a,kept_b"
ROWS = [
    f"{kind},1,{a},{x},{b},{y},{kept}"
    for kind in ("A40", "A10")
    for a, x, b, y, kept in (
        ("resnet18", 64, "resnet18", 64, "0.9,0.9"),
        ("resnet18", 64, "lm", 80, "0.8,0.7"),
    )
]


@pytest.fixture
def files(tmp_path):
    """Overrides of a scenario of twelve jobs on a cluster of two GPUs, and its table of pairs."""
    trace, cluster, pairs = (tmp_path / name for name in ("twelve.csv", "two.yaml", "pairs.csv"))
    header = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpu_type,gpus\n"
    models = (("resnet18", 64), ("lm", 80))
    rows = [
        f"j{at},{30 * at},{models[at % 3 == 0][0]},,{models[at % 3 == 0][1]},30000,,1" for at in range(12)
    ]
    trace.write_text(header + "\n".join(rows) + "\n")
    nodes = [{"gpu_type": kind, "count": 1, "gpus_per_node": 1} for kind in ("A40", "A10")]
    cluster.write_text(yaml.safe_dump({"name": "two", "nodes": nodes}))
    pairs.write_text("\n".join([HEADER, *ROWS]) + "\n")
    shared = ["trace=file", f"trace.path={trace}", "cluster=file", f"cluster.path={cluster}", "costs=free"]
    return [*shared, f"scenario.pairs={pairs}"], pairs


def ran(files, out, *more):
    quiet = ["progress=false", "compare=null", "report=true", f"hydra.run.dir={out}"]
    return run.main(["policy=gavel", "policy.packed=true", *files, *quiet, *more])


def lines(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.mark.slow
def test_a_run_with_pairs_is_written_and_replays(files, tmp_path, capsys):
    overrides, _ = files
    out = tmp_path / "out"
    assert ran(overrides, out, "scenario.interference=free") == 0
    result = json.loads((out / "result.json").read_text())
    # lm beside lm is the one pair that the table lacks on one GPU; of those on two there is none at all.
    assert result["pairs"]["interference"] == "free"
    assert result["pairs"]["missing"] == 1
    assert result["pairs"]["launches"]["table"] > 0
    assert result["pairs"]["launches"]["free"] > 0
    beside = [pair for line in lines(out / "decisions.jsonl.gz") for pair in line.get("beside", ())]
    launched = [line for line in lines(out / "events.jsonl.gz") if line.get("beside") and "nodes" in line]
    assert len(beside) == len(launched) == sum(result["pairs"]["launches"].values())
    assert replay.main([str(out)]) == 0
    page = (out / "report.html").read_text()
    found = re.search(r'"bars": ?(\{"rows":.*?\]\], ?"total": ?\d+\})', page)
    # A row of the page's chart: [node, start, end, GPUs, job, overhead, kind, partner, share, boxes].
    bars = json.loads(found[1])["rows"]
    assert all(share == (0.5 if partner else 1.0) for *_, partner, share, _ in bars)
    assert all(height == 1000 * share for *_, share, boxes in bars for _, _, height in boxes)
    for node in (0, 1):
        times = sorted({time for row in bars if row[0] == node for time in row[1:3]})
        for time_s in times:
            here = [row[-1] for row in bars if row[0] == node and row[1] <= time_s < row[2]]
            tops = [top for boxes in here for _, top, _ in boxes]
            assert sorted(tops) in ([], [0], [0, 500]), time_s
    assert result["metrics"]["gpu_utilization"] <= 1.0
    scenario = build_scenario(compose([*overrides, "scenario.interference=free"]))
    assert lower_bounds(scenario).jct_mean <= result["metrics"]["jct_mean"]
    capsys.readouterr()
    assert bound.main([*overrides, "trace.path=" + overrides[1].split("=")[1]]) == 2
    assert "scenario.pairs: two jobs may share GPUs" in error_line(capsys)


@pytest.mark.slow
def test_settings_of_a_missing_pair_make_three_scenarios(files):
    overrides, _ = files
    built = [build_scenario(compose([*overrides, f"scenario.interference={name}"])) for name in RULES]
    classes = [model.family for model in built[0].tables.classes]
    lm, resnet = classes.index("lm"), classes.index("resnet18")
    refused, free, estimate = (float(scenario.pairs.kept[lm, lm, 0, 0]) for scenario in built)
    # lm keeps 0.7 on average, so do jobs beside resnet18 ... beside lm 0.8; all keep 0.8 on average.
    assert (refused, free) == (0.0, 1.0)
    assert estimate == pytest.approx(0.7 * 0.8 / 0.8, abs=1e-12)
    assert all(float(scenario.pairs.kept[lm, resnet, 0, 0]) == 0.7 for scenario in built)
    assert len({scenario.sha256 for scenario in built}) == 3
    without = build_scenario(compose([*overrides, "scenario.pairs=null"]))
    assert without.pairs is None


RULES = ("refuse", "free", "estimate")


@refused("pairs", words=True)
def test_a_bad_setting_is_one_line(given, said, files, tmp_path, capsys):
    assert ran(files[0], tmp_path / "out", *given) == 2
    said.check(error_line(capsys), tmp_path)


def test_a_table_that_lacks_a_type_is_one_line(files, tmp_path, capsys):
    overrides, pairs = files
    pairs.write_text("\n".join([HEADER, *ROWS[:2]]) + "\n")
    assert ran(overrides, tmp_path / "out") == 2
    told = "gpu_type: has no pairs on A10 (it has A40; give a table of all types of cluster two)"
    assert told in error_line(capsys)
