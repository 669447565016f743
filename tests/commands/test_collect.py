"""Collecting results: grouping, seeds, repetitions, tables, files, and bad input."""

import csv
import itertools
import json
import os
import subprocess
import sys

import pytest
import yaml
from refusals import refused

from clustergym.commands.collect import main
from clustergym.common.errors import InputError
from clustergym.results.report.groups import group_results
from clustergym.results.result_files import find_results, read_result, read_results


def result(policy="fcfs", seed=0, **changes):
    """Return the content of a result.json; `jct` is its mean, the rest may be replaced."""
    jct = changes.pop("jct", 100.0)
    parameters = changes.pop("parameters", {})
    content = {
        "schema": "clustergym.result/1",
        "run_key": f"{policy}-{seed}-{jct}-{sorted(parameters.items())}-{sorted(map(str, changes.items()))}",
        "policy": {"name": policy, "parameters": parameters},
        "placer": {"name": "buddy", "parameters": {}},
        "information_class": "none",
        "scenario": {"name": "demo", "version": 1, "sha256": "a" * 64},
        "seed": seed,
        "horizon_s": 7200.0,
        "metrics": {"jct_mean": jct, "jobs_finished": 10, "gpu_utilization": 0.5, "makespan": None},
        "digest": f"digest of {policy} {seed} {jct}",
        "decisions": {"count": 3, "seconds_p50": 0.1, "seconds_p99": 0.2},
        "wall_s": 1.5,
        "versions": {"clustergym": "0.1.0"},
        "requests_changed": 0,
    }
    return content | changes


def scenario(name="demo", version=1, sha256="a" * 64):
    return {"name": name, "version": version, "sha256": sha256}


@pytest.fixture
def save(tmp_path):
    count = iter(range(1000))

    def write(*contents):
        for content in contents:
            folder = tmp_path / "runs" / f"{next(count):03}" / "deep"
            folder.mkdir(parents=True)
            (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
        return tmp_path / "runs"

    return write


def collected(folder, *options):
    path = folder.parent / "collected.json"
    assert main([str(folder), "--json", str(path), *options]) == 0
    return json.loads(path.read_text(encoding="utf-8"))["tables"]


def figures(table, metric="jct_mean"):
    return {column["label"]: column["metrics"][metric]["mean"] for column in table["columns"]}


def test_one_table_with_ratios_to_fcfs(save, capsys):
    folder = save(result("arena", jct=60.0), result("fcfs", jct=120.0), result("srtf", jct=90.0))
    [table] = collected(folder)
    assert figures(table) == {"fcfs": 120.0, "arena": 60.0, "srtf": 90.0}
    assert next(iter(figures(table))) == table["reference"] == "fcfs"
    assert [column["ratio"]["jct_mean"] for column in table["columns"]] == [1.0, 0.5, 0.75]
    assert table["columns"][0]["metrics"]["makespan"] is None
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if "jct_mean" in line)
    # The greatest is 120 s, so the line is in minutes.
    assert "2.000 min" in line
    assert "1.000 min  0.50x" in line
    assert "50.00 %" in shown
    assert "demo, version 1, up to hour 2; scenario hash aaaaaaaa" in shown


@pytest.mark.parametrize(
    "other",
    [
        {"scenario": scenario("other")},
        {"scenario": scenario(version=2)},
        {"scenario": scenario(sha256="b" * 64)},
        {"horizon_s": None},
        {"horizon_s": 3600.0},
    ],
)
def test_never_one_table_for_different_scenarios_or_horizons(save, other):
    tables = collected(save(result("fcfs", jct=120.0), result("arena", jct=60.0, **other)))
    assert [len(table["columns"]) for table in tables] == [1, 1]
    # Even fcfs is no reference to a policy on another job set.
    assert {table["reference"] for table in tables} == {"fcfs", None}


def test_a_scenario_whose_jobs_depend_on_the_seed_is_one_table(save):
    folder = save(
        *(
            result(policy, seed, jct=jct + seed, scenario=scenario(sha256=f"{seed}" * 64))
            for policy, jct in (("fcfs", 20.0), ("arena", 10.0))
            for seed in (0, 1, 2)
        )
    )
    [table] = collected(folder)
    assert figures(table) == {"fcfs": 21.0, "arena": 11.0}
    assert table["seeds"] == [0, 1, 2]
    assert table["sha256"] == {"0": "0" * 64, "1": "1" * 64, "2": "2" * 64}
    interval = table["columns"][1]["metrics"]["jct_mean"]
    # s = 1: 4.302653 / sqrt(3) = 2.484138 of 11, on the logarithm: 11 e^0.225831, 11 e^-0.225831.
    assert interval["high"] == pytest.approx(13.786998, rel=1e-6)
    assert interval["low"] == pytest.approx(8.776385, rel=1e-6)
    # 20 / 10, 21 / 11, 22 / 12 of single seeds.
    assert table["columns"][1]["ratio"]["jct_mean"] == 11 / 21
    assert table["columns"][1]["ratio_interval"]["jct_mean"] == [10 / 20, 12 / 22]
    assert (interval["least"], interval["greatest"], interval["seeds"]) == (10, 12, 3)


def equal_runs(policy, *seeds, jct=100.0):
    return [result(policy, seed, jct=jct, digest=f"the same of {policy}") for seed in seeds]


def test_seeds_of_one_digest_count_once_and_are_named(save, capsys):
    # 10, 10 and 30 would be 16.7 on average; the two that are one run count once: 20.
    folder = save(*equal_runs("fcfs", 0, 1, jct=10.0), result("fcfs", 2, jct=30.0))
    [table] = collected(folder)
    assert table["columns"][0]["metrics"]["jct_mean"] == {
        "mean": 20.0, "low": 10.0, "high": 30.0, "least": 10.0, "greatest": 30.0, "seeds": 2
    }  # fmt: skip
    [note] = table["notes"]
    assert "these seeds gave one and the same run (equal digests), counted once (fcfs: 0, 1)" in note
    assert f"note: {note}" in capsys.readouterr().out


def test_seeds_that_change_nothing_give_no_interval(save, capsys):
    folder = save(*equal_runs("fcfs", 0, 1, 2, jct=120.0), *equal_runs("srtf", 0, 1, 2, jct=60.0))
    [table] = collected(folder)
    assert [column["metrics"]["jct_mean"]["seeds"] for column in table["columns"]] == [1, 1]
    out = capsys.readouterr().out
    assert "(fcfs: 0, 1, 2; srtf: 0, 1, 2)" in out
    line = next(line for line in out.splitlines() if "jct_mean" in line)
    assert "1.000 min  0.50x " in line
    # As its file has it: of one run a count stays whole.
    assert next(line for line in out.splitlines() if "jobs_finished" in line).split()[4] == "10"


def test_a_ratio_to_a_deterministic_policy_is_over_the_runs_that_differ(save):
    # fcfs takes 20 whatever the seed; the other 10, 30 and 50: 1.5 on average, 0.5 to 2.5.
    others = [result("random", seed, jct=jct) for seed, jct in enumerate((10.0, 30.0, 50.0))]
    [table] = collected(save(*equal_runs("fcfs", 0, 1, 2, jct=20.0), *others))
    assert [column["metrics"]["jct_mean"]["seeds"] for column in table["columns"]] == [1, 3]
    assert table["columns"][1]["ratio"]["jct_mean"] == 1.5
    assert table["columns"][1]["ratio_interval"]["jct_mean"] == [0.5, 2.5]


def test_no_interval_of_a_positive_quantity_goes_below_0_or_a_share_above_1(save):
    runs = [result("fcfs", seed, jct=jct) for seed, jct in enumerate((1.0, 1.0, 100.0))]
    for run, share in zip(runs, (0.9, 1.0, 1.0), strict=True):
        run["metrics"]["gpu_utilization"] = share
    [table] = collected(save(*runs))
    jct, share = (table["columns"][0]["metrics"][name] for name in ("jct_mean", "gpu_utilization"))
    assert 0 < jct["low"] < jct["mean"] < jct["high"]
    assert 0 < share["low"] < share["mean"] < share["high"] < 1


def test_two_job_sets_for_one_seed_are_two_tables(save, capsys):
    folder = save(
        result("fcfs", 0), result("fcfs", 1), result("fcfs", 0, jct=50.0, scenario=scenario(sha256="b" * 64))
    )
    tables = collected(folder)
    assert [table["seeds"] for table in tables] == [[0, 1], [0]]
    assert "different job sets or settings for one seed" in capsys.readouterr().out


def test_seeds_that_differ_are_said_and_only_common_ones_used(save, capsys):
    folder = save(
        result("fcfs", 0, jct=10.0), result("fcfs", 1, jct=20.0), result("fcfs", 2, jct=90.0),
        result("arena", 0, jct=4.0), result("arena", 1, jct=6.0), result("arena", 7, jct=500.0),
    )  # fmt: skip
    [table] = collected(folder)
    assert figures(table) == {"fcfs": 15.0, "arena": 5.0}
    assert table["seeds"] == [0, 1]
    told = "seeds differ (fcfs: 0, 1, 2; arena: 0, 1, 7); the figures are over the common 0, 1"
    assert told in capsys.readouterr().out


def test_without_a_common_seed_there_are_no_ratios(save, capsys):
    [table] = collected(save(result("fcfs", 0, jct=10.0), result("arena", 1, jct=4.0)))
    assert table["seeds"] is None
    assert table["reference"] is None
    assert all(column["ratio"] == {} for column in table["columns"])
    out = capsys.readouterr().out
    assert "no ratios" in out
    assert "0.40x" not in out


def test_a_metric_that_a_seed_lacks_has_no_mean(save):
    lacking = result("fcfs", 1)
    lacking["metrics"]["jct_mean"] = None
    [table] = collected(save(result("fcfs", 0), lacking))
    assert table["columns"][0]["metrics"]["jct_mean"] is None
    assert table["columns"][0]["metrics"]["gpu_utilization"]["mean"] == 0.5


def test_a_run_collected_twice_counts_once(save):
    folder = save(result("fcfs", 0), result("fcfs", 0), result("fcfs", 1))
    assert len(read_results([folder, folder, folder / "000"])) == 2


def test_variants_of_a_policy_are_columns_of_their_own(save):
    folder = save(
        result("arena", parameters={"search_depth": 3, "scale_down": True}, jct=1.0),
        result("arena", parameters={"search_depth": 5, "scale_down": True}, jct=2.0),
        result("arena", parameters={"scale_down": True}, jct=3.0),
        result("fcfs", jct=4.0, placer={"name": "random", "parameters": {}}),
        result("fcfs", jct=5.0),
    )
    [table] = collected(folder)
    assert figures(table) == {
        "fcfs / buddy": 5.0,
        "arena(search_depth=3) / buddy": 1.0,
        "arena(search_depth=5) / buddy": 2.0,
        "arena(search_depth=unset) / buddy": 3.0,
        "fcfs / random": 4.0,
    }


def test_by_placer(save):
    random = {"placer": {"name": "random", "parameters": {"seed": 3}}}
    folder = save(
        result("fcfs", jct=10.0), result("fcfs", jct=20.0, **random),
        result("arena", jct=1.0), result("arena", jct=3.0, **random),
    )  # fmt: skip
    tables = collected(folder, "--by", "placer")
    assert [figures(table) for table in tables] == [
        {"buddy": 1.0, "random": 3.0},
        {"buddy": 10.0, "random": 20.0},
    ]


@pytest.fixture
def configured(tmp_path):
    """Write results with their configurations: cluster, load, policy, seed, mean JCT; and further changes."""
    count = iter(range(1000))

    def write(cluster, load, policy, seed, jct, **changes):
        folder = tmp_path / "runs" / f"{next(count):03}"
        folder.mkdir(parents=True)
        cluster_of = {"name": cluster, "path": None, "nodes": [{"gpu_type": "A40", "count": 4}]}
        given = {
            "cluster": changes.pop("group", cluster_of),
            "trace": {"source": "philly", "load": load, "path": None},
            "scenario": {"name": f"demo+cluster={cluster}", "version": 1},
            "policy": {"name": policy},
            "placer": {"name": "buddy"},
            **{"seed": seed, "horizon_s": 7200.0, "compare": None if policy == "fcfs" else "fcfs"},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(given))
        about = scenario(f"demo+cluster={cluster}", sha256=f"{seed}{load}{cluster}")
        content = result(policy, seed, jct=jct, scenario=about, run_key=str(folder), **changes)
        (folder / "result.json").write_text(json.dumps(content))
        return tmp_path / "runs"

    return write


def test_keys_together_are_columns_of_every_combination(configured):
    for cluster, load, policy in itertools.product(("small", "large"), (1.0, 2), ("fcfs", "srtf")):
        runs = configured(cluster, load, policy, 0, 100.0 * load)
    [table] = collected(runs, "--by", "policy,cluster", "--by", "trace.load")
    assert len(table["columns"]) == 8
    assert figures(table)["srtf / cluster=large / trace.load=2"] == 200.0
    # No ratio of one cluster to another, unless it is asked for.
    assert table["reference"] is None


def test_what_is_not_asked_for_is_a_table_of_its_own(configured, capsys):
    for cluster, load, policy in itertools.product(("small", "large"), (1.0, 2.5), ("fcfs", "srtf")):
        runs = configured(cluster, load, policy, 0, 100.0 * load)
    tables = collected(runs, "--by", "cluster")
    assert [list(figures(table)) for table in tables] == [["cluster=large", "cluster=small"]] * 4
    assert [len({*figures(table).values()}) for table in tables] == [1] * 4
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("note: apart from other tables by trace.load=2.5; --by puts") == 2
    assert out.count("srtf on demo, version 1") == 2


def test_one_value_written_in_two_ways_is_one_column(configured):
    configured("small", 2, "fcfs", 0, 10.0)
    [table] = collected(configured("small", 2.0, "fcfs", 1, 20.0), "--by", "trace.load")
    assert figures(table) == {"trace.load=2": 15.0}


def test_clusters_of_one_name_are_told_apart_by_what_differs(configured):
    def nodes(count):
        return {"name": "small", "path": None, "nodes": [{"gpu_type": "A40", "count": count}]}

    configured("small", 1, "fcfs", 0, 10.0, group=nodes(4))
    configured("small", 1, "fcfs", 0, 5.0, group=nodes(8))
    mine = {"name": "small", "path": "/home/me/mine.yaml"}
    runs = configured("small", 1, "fcfs", 0, 7.0, group=mine)
    [table] = collected(runs, "--by", "cluster")
    assert figures(table) == {
        "cluster=mine": 7.0,
        "cluster=small(nodes.0.count=4)": 10.0,
        "cluster=small(nodes.0.count=8)": 5.0,
    }


def test_a_key_that_no_run_has_is_one_line(configured, capsys):
    runs = configured("small", 1.0, "fcfs", 0, 10.0)
    line = refusal(capsys, runs, "--by", "clutser")
    assert line.startswith("error: --by: no run has a key 'clutser' (did you mean cluster")
    assert "trace.load" in refusal(capsys, runs, "--by", "trace.laod")
    assert "did you mean small?" in refusal(capsys, runs, "--by", "cluster", "--reference", "smal")
    (runs / "000" / "config.yaml").write_text("a: [")
    assert "config.yaml" in refusal(capsys, runs, "--by", "cluster")


def test_a_placer_may_be_a_plain_name(save):
    folder = save(result(placer="buddy"))
    assert read_results([folder])[0].placer.name == "buddy"


def test_mixed_versions_and_unequal_numbers_of_finished_jobs_are_said(save, capsys):
    newer = result("arena", versions={"clustergym": "0.2.0"})
    newer["metrics"]["jobs_finished"] = 7
    assert main([str(save(result("fcfs"), newer))]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "written by different versions of clustergym: 0.1.0, 0.2.0" in out
    assert "compare jct_mean_censored" in out


def test_chosen_metrics_only(save, capsys):
    folder = save(result())
    [table] = collected(folder, "--metric", "jobs_finished,jct_mean", "--metric", "gpu_utilization")
    assert list(table["columns"][0]["metrics"]) == ["jobs_finished", "jct_mean", "gpu_utilization"]
    assert "makespan" not in capsys.readouterr().out


def test_csv_has_a_line_per_result(save, tmp_path):
    folder = save(result("fcfs", 0, jct=0.1 + 0.2), result("arena", 1, parameters={"search_depth": 3}))
    path = tmp_path / "out" / "results.csv"
    assert main([str(folder), "--csv", str(path)]) == 0
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert [(row["policy"], row["seed"]) for row in rows] == [("fcfs", "0"), ("arena", "1")]
    assert float(rows[0]["jct_mean"]) == 0.1 + 0.2
    assert rows[0]["makespan"] == ""
    assert json.loads(rows[1]["policy_parameters"]) == {"search_depth": 3}


@pytest.mark.processes
def test_the_same_files_in_any_order_give_the_same_bytes(save, tmp_path, monkeypatch):
    folder = save(*(result(policy, seed) for policy in ("srtf", "arena", "fcfs") for seed in (2, 0, 1)))
    outputs = []
    for number, hash_seed in enumerate(("0", "1")):
        path = tmp_path / f"{number}.json"
        command = [sys.executable, "-m", "clustergym.collect", str(folder), "--json", str(path)]
        shown = subprocess.run(
            command, capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": hash_seed}
        )
        outputs.append((shown.stdout, path.read_bytes()))
    assert outputs[0] == outputs[1]


def test_markup_in_names_is_shown_as_it_is(save, capsys):
    assert main([str(save(result("fcfs"), result("[red]evil[/red]")))]) == 0
    assert "[red]evil[/red]" in capsys.readouterr().out


@refused("collected-results")
def test_a_broken_result_is_one_line_and_nothing_is_written(given, said, save, tmp_path, capsys):
    left_out = ("without", given.get("without"))
    content = {key: value for key, value in result(**given).items() if key not in left_out}
    folder, written = save(content), tmp_path / "out.json"
    assert main([str(folder), "--json", str(written), "--csv", str(tmp_path / "out.csv")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    said.check(captured.err, folder)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["runs"]


def refusal(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_bad_places_and_options(save, tmp_path, capsys):
    folder = save(result())
    (tmp_path / "empty").mkdir()
    assert "holds no result.json" in refusal(capsys, tmp_path / "empty")
    assert "no such file or folder" in refusal(capsys, tmp_path / "absent")
    assert "required" in refusal(capsys)
    assert "did you mean jct_mean" in refusal(capsys, folder, "--metric", "jct_maen")
    assert "config.yaml: no such file (--by a key" in refusal(capsys, folder, "--by", "plaser")
    assert "did you mean fcfs" in refusal(capsys, folder, "--reference", "fcsf")
    assert "is a folder" in refusal(capsys, folder, "--json", tmp_path)
    below = folder / "000" / "deep" / "result.json" / "x.csv"
    assert "cannot be written" in refusal(capsys, folder, "--csv", below)
    assert "unrecognized" in refusal(capsys, folder, "--jsno", "x")


def test_a_folder_called_result_json(tmp_path, capsys):
    (tmp_path / "run" / "result.json").mkdir(parents=True)
    assert "Is a directory" in refusal(capsys, tmp_path)


def test_two_results_of_one_run_key_that_disagree(save, capsys):
    folder = save(result("fcfs", jct=1.0, run_key="k"), result("fcfs", jct=2.0, run_key="k"))
    line = refusal(capsys, folder)
    assert "disagrees" in line
    assert "000" in line
    assert "001" in line


def test_two_results_of_one_policy_and_seed_that_disagree(save):
    folder = save(result("fcfs", jct=1.0), result("fcfs", jct=2.0))
    with pytest.raises(InputError) as error:
        group_results(read_results([folder]))
    first, second = (folder / run / "deep" / "result.json" for run in ("000", "001"))
    line = f"fcfs with seed 0 differs from {first} (collect the two folders apart)"
    assert str(error.value) == f"{second}: run_key: {line}"


def test_a_result_keeps_where_it_was_read(save):
    path = save(result()) / "000" / "deep" / "result.json"
    read = read_result(path)
    assert read.path == path
    assert (read.policy.name, read.seed, read.metrics["jobs_finished"]) == ("fcfs", 0, 10)
    assert type(read.metrics["jobs_finished"]) is int


def test_a_folder_that_cannot_be_searched_is_one_line(tmp_path, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError) as refused:
        find_results([tmp_path])
    assert str(refused.value) == f"{tmp_path}: Permission denied (check its rights)"
